"""Switches and appliances with non-standard syslog: IOS, IOS XR, NX-OS, Huawei, FortiGate, Opengear; and anything else
that starts with a priority."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from parsers import clock
from parsers.formats.base import FACILITIES, SEVERITIES, Format, by_line, source_of_program
from parsers.formats.mnemonics import SEVERITY
from parsers.formats.syslog_tails import odd_tail
from parsers.header_grammar import Run, digits, either, header, named
from parsers.record import Origin

_BSD = (
    r"(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2})(?: (?P<year>\d{4}))? (?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d+))?"
)
_PRI = r"(?:<(?P<pri>\d{1,3})>)?"
_SEVERITY = re.compile(SEVERITY)
_ZONE = r"(?: (?P<zone>[A-Z]{2,5}))?"
#: A Cisco switch configured for RFC 5424 writes this after the priority.
NXOS_HEADER = header(
    either(r"(?:[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d(?:\.\d+)? )?(?:(?P<host>[\w.-]+)(?: ?:)? |: )?", ": "),
    named("year", digits(4)), " ", named("month", Run("capital", 1, 1), Run("small", 2, 2)),
    either(r" +(?P<day>\d{1,2}) ", " ", Run("day", 1, 1), digits(1), " "),
    named("clock", digits(2), ":", digits(2), ":", digits(2)),
    either(rf"(?:\.(?P<fraction>\d+))?{_ZONE}:? (?:(?P<host2>[\w.-]+) )?", " UTC: "),
)  # fmt: skip
_SHAPES = tuple(
    (system, re.compile(text, re.DOTALL))
    for system, text in (
        ("iosxr", rf"{_PRI}\d+: (?P<host>\S+) (?P<node>(?:RP|LC|SM|\w+)/\S+?):{_BSD}{_ZONE} ?: (?P<unit>[\w-]+)\[(?P<pid>\d+)\]: (?P<message>%.*)$"),
        ("iosxr", rf"{_PRI}(?:[A-Z][a-z]{{2}} +\d+ [\d:.]+ (?P<host>[\w.:-]+) )?(?P<node>(?:RP|LC|SM)/\S+?):(?:(?P<year_before>\d{{4}}) )?"
                  rf"{_BSD}{_ZONE} ?: (?P<unit>[\w-]+)\[(?P<pid>\d+)\]: (?P<message>%.*)$"),
        ("ios", rf"{_PRI}\d+: (?:(?P<host>(?!\d+: )[\w.-]+): )?[*.]?{_BSD}{_ZONE}: (?P<message>%.*)$"),
        ("ios", rf"{_PRI}(?:(?P<host>[\w.-]+): )?[*.]?{_BSD}{_ZONE}: (?P<message>%(?!(?:PIX|ASA|FWSM|FTD)-)[A-Z].*)$"),
        # As forwarded by a relay: its own timestamp, the sender, then the packet's number and the switch's text.
        ("ios", rf"{_PRI}{_BSD} (?P<host2>[\w.:-]+) \d+: (?:(?P<host>[\w.-]+): )?[*.]?[A-Z][a-z]{{2}} +\d+ (?:\d{{4}} )?[\d:.]+(?: [A-Z]{{2,5}})?: (?P<message>%[A-Z].*)$"),
        # Sequence numbers of a relay and of the switch itself, the sender, and the switch's uptime in place of a
        # timestamp.
        ("ios", rf"{_PRI}(?:\d+: |: )(?:[A-Z][a-z]{{2}} +\d+ (?:\d{{4}} )?[\d:.]+ )?(?:(?P<host2>(?=[\w.-]*[A-Za-z.])[\w.-]+) )?"
                rf"(?:(?P<host>(?:[A-Za-z][\w.-]*|[0-9a-f]*:[0-9a-f:]+|\d+\.[\d.]+)): )?(?:\d+: )?[*.]?"
                rf"(?:{_BSD}{_ZONE}|(?:\d+[ywdh])+|\d+:\d\d:\d\d): (?P<message>%(?!(?:PIX|ASA|FWSM|FTD)-)[A-Z].*)$"),
        ("nxos", rf"{_PRI}{NXOS_HEADER.regex}(?P<message>%.*|last message repeated .*)$"),
        ("nxos", rf"{_PRI}{_BSD} (?P<host>[\w.-]+) (?P<zone>[A-Z]{{2,5}}): (?P<message>%.*)$"),
        ("nxos", rf"{_PRI}{_BSD} (?P<host>[\w.-]+) (?P<message>%\$ .*%\$ %[A-Z].*)$"),
        ("", rf"{_PRI}{_BSD} (?P<host>[\w.-]+) : (?P<message>%[A-Z].*)$"),
        ("huawei", rf"{_PRI}{_BSD} (?P<host>\S+) (?P<message>%%01.*)$"),
        ("comware", rf"{_PRI}{_BSD} (?P<host>\S+) (?P<message>%%10.*)$"),
        ("huawei", rf"{_PRI}(?P<iso>\d{{4}}-\d{{1,2}}-\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d+)?)(?:\.\d+)? (?P<host>\S+) (?P<message>%%.*)$"),
        ("fortinet", rf"{_PRI}date=(?P<date>\d{{4}}-\d\d-\d\d) time=(?P<time>\d\d:\d\d:\d\d) devname=\"?(?P<host>[\w.-]+)\"? (?P<message>.*)$"),
        ("opengear", rf"{_PRI}(?P<host>\S+) (?P<unit>\S+) (?P<year>\d{{4}})-(?P<month>[A-Z][a-z]{{2}})- ?(?P<day>\d{{1,2}}) "
                     r"(?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d+))? (?P<message>.*)$"),
    )
)  # fmt: skip


def priority(text: str | None) -> dict[str, Any]:
    """``<189>`` -> severity, facility and the numbers; empty if there is none or it is out of range."""
    if text is None or int(text) > 191:
        return {}
    number = int(text)
    return {
        "severity": SEVERITIES[number % 8], "facility": FACILITIES[number // 8],
        "extra": {"pri": number, "facility_num": number // 8, "severity_num": number % 8},
    }  # fmt: skip


def _stamp_of(found: re.Match[str]) -> str | None:
    """The time as written, from its first field to its last; None for a switch that writes none."""
    names = ("iso", "year_before", "year", "month", "day", "clock", "fraction", "date", "time")
    spans = [found.span(name) for name in names if name in found.re.groupindex and found[name] is not None]
    return found.string[min(start for start, _ in spans) : max(end for _, end in spans)] if spans else None


def _device_row(text: str, origin: Origin) -> dict[str, Any] | None:
    for system, regex in _SHAPES:
        found = regex.match(text)
        if found is None:
            continue
        parts = found.groupdict()
        row = priority(parts["pri"])
        digit = _SEVERITY.match(parts["message"])
        row["extra"] = json.dumps({**row.get("extra", {}), **({"device_os": system} if system else {})})
        row["severity"] = row.get("severity") or (SEVERITIES[min(int(digit[1]), 7)] if digit else None)
        if parts.get("date"):
            parts["iso"] = f"{parts['date']}T{parts['time']}"
        parts["year"] = parts.get("year") or parts.get("year_before")
        written = _stamp_of(found)
        stamp = {name: parts.get(name) for name in ("iso", "month", "day", "clock", "fraction", "year")}
        zone = clock.ZONES.get(parts.get("zone") or "")
        if zone is not None and stamp["year"] and stamp["month"] and stamp["month"].lower() in clock.MONTHS:
            offset = f"{'-' if zone < 0 else '+'}{abs(int(zone)):02d}:00"
            day = f"{stamp['year']}-{clock.MONTHS[stamp['month'].lower()]:02d}-{int(stamp['day'] or 1):02d}"
            stamp = {"iso": f"{day}T{stamp['clock']}.{stamp['fraction'] or 0}{offset}"}
        return {
            **row, **stamp, "stamp": written, "host": parts.get("host") or parts.get("host2"), "message": parts["message"], "source": "switch",
            "format": "rfc3164", "unit": parts.get("unit"), "pid": int(parts["pid"]) if parts.get("pid") else None,
        }  # fmt: skip
    return None


_TAI = re.compile(r"@(?P<label>[0-9a-f]{24}) (?P<rest>.*)$", re.DOTALL)
_JUST_PRIORITY = re.compile(r"<(?P<pri>\d{1,3})>(?P<rest>.*)$", re.DOTALL)


def _odd_row(text: str, origin: Origin) -> dict[str, Any] | None:
    found = _TAI.match(text)
    if found:
        # TAI64N labels count TAI seconds from 1970; 10 s is what multilog's clock adds and what readers subtract.
        seconds = int(found["label"][1:16], 16) - 10
        nano = int(found["label"][16:], 16)
        try:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=nano // 1000)
        except OverflowError:
            return None
        unit, _, message = found["rest"].partition(": ")
        return {"format": "tai64n", "source": "syslog", "unit": unit, "message": message, "iso": moment.isoformat()}
    found = _JUST_PRIORITY.match(text)
    if found is None or not (row := priority(found["pri"])):
        return None
    extra = json.dumps(row.pop("extra"))
    rest = found["rest"]
    if re.match(r"\d{1,3} ", rest):  # was meant to be RFC 5424: keep it whole
        return {**row, "extra": extra, "format": "plain", "message": rest, "source": "syslog", "tag": "malformed"}
    tail = odd_tail(rest, False) if ":" in rest else {"message": rest}
    pid = tail.get("procid")
    return {
        **row, "extra": extra, "format": "rfc3164", "unit": tail.get("unit"), "message": tail["message"],
        "host": tail.get("host"), "pid": int(pid) if pid and pid.isdigit() else None,
        "source": source_of_program(tail.get("unit"), tail["message"]) or "syslog",
    }  # fmt: skip


DEVICE = Format(
    "rfc3164", "a switch's own header before %FACILITY-N-MNEMONIC",
    r"[ :]%[A-Z]|%%\d\d|date=\d{4}|\d{4}-[A-Z][a-z]{2}-|: last message repeated", by_line(_device_row),
)  # fmt: skip
ODD = Format(
    "rfc3164",
    "a priority and little else, or a TAI64N label",
    r"^(?:<\d{1,3}>|@4[0-9a-f]{23} )",
    by_line(_odd_row),
)
