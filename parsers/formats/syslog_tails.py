"""The rest of a syslog line after its time when it is not ``host program[pid]: message``: no tag, no host, a level in
the middle, a relay's words. Parsed line by line, since few lines are like that.
"""

from __future__ import annotations

import re
from typing import Any

from parsers.formats.structured_data import STRUCTURED_DATA
from parsers.header_grammar import Run, either, header, maybe, named

LEVEL_NAMES = (
    "EMERG",
    "EMERGENCY",
    "ALERT",
    "CRIT",
    "CRITICAL",
    "ERR",
    "ERROR",
    "WARN",
    "WARNING",
    "NOTICE",
    "INFO",
    "DEBUG",
)
_LEVEL_NAME = "|".join(LEVEL_NAMES)
LEVELLED_TAIL = header(
    named("host", either(r"\S+", Run("name"))), " ", named("level", either(_LEVEL_NAME, Run("capital"))), " ",
    named("unit", either(r"[^\s:\[]+", Run("name"))), maybe("[", named("procid", either(r"\d+", Run("digit", 1, 10))), "]"),
    either(r": ?", ": "),
)  # fmt: skip
_ODD = (
    # AIX relays.
    re.compile(r"(?:\S+ )?Message forwarded from (?P<host>\S+): (?P<unit>[^\s:\[]+)(?:\[(?P<procid>[^\]]*)\])?: ?(?P<message>.*)$", re.DOTALL),
    # SONiC: host, level, container#program.
    re.compile(rf"{LEVELLED_TAIL.regex}(?P<message>.*)$", re.DOTALL),
    # busybox and appliances: host, facility.level, program.
    re.compile(r"(?P<host>\S+) (?:kern|user|daemon|auth|authpriv|syslog|cron|local[0-7])\.(?P<level>emerg|alert|crit|err|warn|warning|notice|info|debug) "
               r"(?P<unit>[^\s:\[]+)(?:\[(?P<procid>\d+)\])?: ?(?P<message>.*)$", re.DOTALL),
    # RFC 5424 without priority and version.
    re.compile(rf"(?P<host>[\w.-]+) (?P<unit>\S+) (?P<procid>\d+|-) (?P<msgid>\S+) (?=\[\S+@\d)(?P<sd>{STRUCTURED_DATA}) ?(?P<message>.*)$", re.DOTALL),
    # An IPv6 address as host.
    re.compile(r"(?P<host>[0-9a-fA-F]*:[0-9a-fA-F:]*:[0-9a-fA-F.]*) (?P<unit>[^\s:\[]+)(?:\[(?P<procid>\d+)\])?: ?(?P<message>.*)$", re.DOTALL),
    # A blank before the process ID, or in the program's name.
    re.compile(r"(?P<host>[^\s:\[]+) +(?P<unit>[A-Za-z][\w./-]*(?: [A-Za-z][\w./-]*)?) ?\[(?P<procid>\d+)\]: (?P<message>.*)$", re.DOTALL),
    # No colon after the process ID.
    re.compile(r"(?P<host>[^\s:\[]+) (?P<unit>[A-Za-z][\w./-]*)\[(?P<procid>\d+)\] ?(?P<message>.*)$", re.DOTALL),
    # No host: the first word is the program.
    re.compile(r" *(?P<unit>[^\s:\[]+)(?:\[(?P<procid>[^\]]*)\])?: (?P<message>.*)$", re.DOTALL),
    # Programs of two words: "syslogd 1.4.1: restart.", "-- root[2421]: ROOT LOGIN", "- User ID: x".
    re.compile(r"(?P<host>[^\s:]+) +(?P<unit>-{1,2} [\w ]{1,20}|[a-z]+ [\d.]+)(?:\[(?P<procid>\d+)\])?: (?P<message>.*)$", re.DOTALL),
)  # fmt: skip


def odd_tail(rest: str, has_priority: bool) -> dict[str, Any]:
    """Host, program, pid and message of a rest without the form ``host program[pid]: message``."""
    for regex in _ODD:
        found = regex.match(rest)
        if found:
            return found.groupdict()
    host, _, message = rest.strip().partition(" ")
    message = message.strip()
    if message.startswith(("last message repeated", "message repeated")):  # syslogd's own message, without its name
        return {"host": host, "message": message}
    if has_priority and message:
        # With a priority it is a real syslog packet: its first word is the tag even without a colon.
        unit, _, text = message.partition(" ")
        if re.fullmatch(r"[\w./%-]{1,48}", unit):
            return {"host": host, "unit": unit, "message": text}
    return {"host": host or None, "message": message}
