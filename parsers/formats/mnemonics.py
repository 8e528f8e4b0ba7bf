"""The grammar of switches' messages, ``%FACILITY-SUBFACILITY-SEVERITY-MNEMONIC: text`` (IOS, NX-OS, EOS): declared once, for the
formats and for the compiled readers of headers and levels.

At least three parts, the last but one a single digit: the message's priority.
"""

from __future__ import annotations

_PART = "[A-Z0-9_]+"
#: Up to the severity, which is a group: for messages that are known to be a switch's.
SEVERITY = rf"%[A-Z][A-Z0-9_]*(?:-{_PART})*-(?P<severity>[0-9])-"
#: Up to the mnemonic's end. The severity is the byte before the last dash.
TAG = SEVERITY.replace("?P<severity>", "?:") + _PART
#: With the colon that separates it from the text.
MNEMONIC = TAG + " ?:"
