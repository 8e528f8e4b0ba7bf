"""Objects that shippers, collectors and clouds put around a line: finds its text, time, host, program and level.

Each uses other names and another nesting (``Body``, ``jsonPayload.message``, ``short_message``; ``Computer``,
``resource.host.name``, an OpenTelemetry attribute). So an object is flattened, and its members are identified by the
end of their path, case-insensitively.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from parsers.formats.base import SEVERITIES, SEVERITY_WORDS

#: Where the text may be, beside the names that jsonl.py tries first. Most reliable first.
_TEXTS = (
    "body.stringvalue", "body", "short_message", "syslogmessage", "rawdata", "jsonpayload.message", "jsonpayload.msg", "textpayload",
    "message.text", "event", "event.original", "log.original", "record.message", "fields.message", "data.message", "payload", "raw",
)  # fmt: skip
_TIMES = (
    "timeunixnano", "observedtimeunixnano", "timegenerated", "timestamp", "time", "ts", "date", "eventtime", "asctime", "datetime",
    "receivetimestamp", "timereported", "created",
)  # fmt: skip
_HOSTS = (
    "computer", "host.name", "hostname", "host.hostname", "host", "node_name", "nodename", "k8s.node.name", "node", "_hostname",
    "logstreamname", "source_host",
)  # fmt: skip
#: Path suffixes that always denote a host, whatever encloses them: OpenTelemetry's attributes, Google's labels.
_HOST_ENDS = (".host.name", ".k8s.node.name", ".node_name", ".nodename", ".hostname", "/resource_name")
_PROGRAM_ENDS = (".process.name", ".appname", ".programname", ".syslog_identifier", ".service.name")
_PROGRAMS = (
    "process.name", "processname", "programname", "program", "appname", "app_name", "app-name", "syslog_identifier", "ident", "_app",
    "syslogtag", "tag", "component", "service.name",
)  # fmt: skip
_LEVELS = (
    "severitytext", "severity_text", "severitylevel", "severity", "log.level", "loglevel", "log_level", "level", "levelname", "level_name",
    "lvl", "severitynumber", "severity_number", "priority", "log.syslog.severity.code", "pri",
)  # fmt: skip
#: Deeper members, and more than this many, are data and not a header.
_DEEPEST, _MOST = 5, 200
#: Levels of Pino and Bunyan.
_TENS = {10: "debug", 20: "debug", 30: "info", 40: "warning", 50: "error", 60: "crit"}
#: OpenTelemetry's severity numbers in groups of four: trace, debug, info, warn, error, fatal.
_BY_FOUR = ("debug", "debug", "info", "warning", "error", "crit")
_BSD = re.compile(r"(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?:(?P<year>\d{4}) )?(?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d+))?$")  # fmt: skip


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """Strings and numbers by their lower-case path: ``{"host": {"name": "a"}}`` as ``host.name``."""
    found: dict[str, Any] = {}
    for path, value in _members(record, "", 0):
        found.setdefault(path, value)
        if len(found) >= _MOST:
            break
    return found


def _members(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and depth < _DEEPEST:
        only = next(iter(value)) if len(value) == 1 else ""
        if only.endswith("Value"):  # OpenTelemetry names a value's type
            yield path, next(iter(value.values()))
        for name, inner in value.items():
            own = name.lower().lstrip("@")
            yield from _members(inner, f"{path}.{own}" if path else own, depth + 1)
    elif isinstance(value, list) and depth < _DEEPEST:
        for item in value:
            if isinstance(item, dict) and isinstance(item.get("key"), str):
                yield from _members(item.get("value"), f"{path}.{item['key'].lower()}", depth + 1)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != "":
        yield path, value


def _first(fields: dict[str, Any], names: tuple[str, ...], ends: tuple[str, ...] = ()) -> Any:
    """The value under the first of these names, or under a path with one of these suffixes."""
    found = next((fields[name] for name in names if name in fields), None)
    if found is None and ends:
        found = next((value for path, value in fields.items() if path.endswith(ends)), None)
    return found


def text(fields: dict[str, Any]) -> str | None:
    """The line inside the object: only if the object also has a time or a level, as log records do."""
    message = next((fields[name] for name in _TEXTS if isinstance(fields.get(name), str)), None)
    if message is None or (_first(fields, _TIMES) is None and _first(fields, _LEVELS) is None):
        return None
    return str(message)


def time(fields: dict[str, Any]) -> Any:
    """The time as written."""
    return _first(fields, _TIMES)


def host(fields: dict[str, Any]) -> str | None:
    found = _first(fields, _HOSTS, _HOST_ENDS)
    return found if isinstance(found, str) else None


def program(fields: dict[str, Any]) -> str | None:
    found = _first(fields, _PROGRAMS, _PROGRAM_ENDS)
    return found.split("[")[0].rstrip(": ") or None if isinstance(found, str) else None


def severity(fields: dict[str, Any]) -> str | None:
    """The severity from a level word, or from a number of syslog, Pino or OpenTelemetry."""
    for name in _LEVELS:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, str) and value.lower() in SEVERITY_WORDS:
            return SEVERITY_WORDS[value.lower()]
        if not str(value).isdigit():
            continue
        number = int(value)
        if name.startswith("severity") and name.endswith("number"):
            return _BY_FOUR[(number - 1) // 4] if 1 <= number <= 24 else None
        return SEVERITIES[number] if number < len(SEVERITIES) else _TENS.get(number)
    return None


def bsd_parts(stamp: str | None) -> dict[str, str | None]:
    """``Mar  4 05:06:07`` as the fields of a timestamp; empty if it is not one."""
    found = _BSD.match(stamp) if stamp else None
    return found.groupdict() if found else {}
