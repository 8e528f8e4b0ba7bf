"""The fields of journald's entries that a line is made of, declared once for the general reader (``formats/jsonl.py``) and the
compiled one (``journal_scanner.py``): systemd.journal-fields(7).

Where several fields say one thing, the tuple names them in the order in which they count. Those with an underscore are journald's own
and cannot be written by the program that logs.
"""

from __future__ import annotations

MESSAGE = "MESSAGE"
PRIORITY = "PRIORITY"
FACILITY = "SYSLOG_FACILITY"
IDENTIFIER, COMMAND = PROGRAM = "SYSLOG_IDENTIFIER", "_COMM"
SYSTEM_UNIT, NAMED_UNIT = UNIT = "_SYSTEMD_UNIT", "UNIT"
USER_UNIT = "_SYSTEMD_USER_UNIT"
OWN_PID, SYSLOG_PID = PID = "_PID", "SYSLOG_PID"
SOURCE_TIME, RECEIVED_TIME = TIME = "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP"
HOST = "_HOSTNAME"
TRANSPORT = "_TRANSPORT"
BOOT = "_BOOT_ID"
ACCOUNT = "_UID"

#: Fields that shippers add to an entry for its time, and the one by which syslog-ng's own records are known.
SHIPPERS_TIMES = ("date", "timestamp", "@timestamp", "time")
SYSLOG_NG_PROGRAM = "PROGRAM"
