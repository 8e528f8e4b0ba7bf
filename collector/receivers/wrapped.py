"""Objects around lines, as shippers send them over any protocol: their text is the line, and well-known names fill what
it leaves out.

A batch has thousands of nearly identical objects: the role of each name is resolved once for objects with the same
names, and host, path and program are resolved once for those with the same values.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from collector.receivers.base import Decoded, Payload, Run, micros
from collector.receivers.refusals import Refused
from parsers import json_text
from parsers.formats.base import source_of_program
from parsers.host_names import short_name
from parsers.recognise import recognise
from parsers.recognition.result import Recognition

TEXT = ("message", "msg", "log", "MESSAGE", "body", "rawmsg")
TIME = ("@timestamp", "timestamp", "time", "ts", "timereported", "date")
HOST = ("host", "hostname", "host.name", "_HOSTNAME", "fromhost")
PATH = ("log.file.path", "path", "file", "filename")
UNIT = ("syslogtag", "programname", "app-name", "ident", "SYSLOG_IDENTIFIER", "program", "app", "service.name", "unit")
SEVERITY = ("syslogseverity-text", "severity", "level", "log.level", "PRIORITY")
FACILITY = ("syslogfacility-text", "facility")
#: The lines' source, and the job of an output: shippers use these names for much else, so they also stay among the
#: fields.
SOURCE, JOB = ("source",), ("job_id",)
_ABOUT = frozenset((*HOST, *PATH, *SEVERITY, *FACILITY))
USED = frozenset((*TEXT, *TIME, *UNIT, *_ABOUT))
_WORDS = {
    "err": "error", "warn": "warning", "panic": "emerg", "fatal": "crit", "critical": "crit", "information": "info",
    **{name: name for name in ("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug")},
    **dict(zip("01234567", ("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug"), strict=True)),
}  # fmt: skip
#: Lines of these sources belong to a job, whose ID is given beside them.
JOB_OUTPUT = ("job_stdout", "job_stderr")
#: The maximum number of values of one JSON body, by its commas. A line of OTLP has some 12.
MOST_VALUES = 4_000_000
#: A stream is recognised by this many of its lines.
HEAD_LINES = 20


def is_wrapped(found: dict[str, Any]) -> bool:
    """Whether an object is a shipper's wrapper around a line, over any protocol."""
    return any(isinstance(found.get(name), str) for name in TEXT)


def is_dated(found: dict[str, Any]) -> bool:
    """Whether an object has a timestamp: two equal objects with the same timestamp are one."""
    flat = _flat(found)
    return any(micros(flat.get(name)) is not None for name in TIME)


def source_named(unit: str) -> str | None:
    """The source that a syslog tag implies: "slurmd[3]:" -> slurmd."""
    return source_of_program(unit.partition("[")[0].rstrip(":"))


class Streams:
    """The recognised type of each stream of one payload, determined once: looking at a line costs as much as parsing
    twenty."""

    def __init__(self) -> None:
        self._known: dict[str, Recognition] = {}

    def of(self, path: str, lines: Sequence[bytes]) -> Recognition:
        """The type of ``path``, from its name and its first ``lines``."""
        known = self._known.get(path)
        if known is None:
            # For an empty line, the name alone decides.
            known = self._known[path] = recognise(path, b"\n".join(lines[:HEAD_LINES]).strip() or b"-")
        return known


class _Shape(NamedTuple):
    """The role of each of an object's names, in order of precedence."""

    texts: tuple[str, ...]
    times: tuple[str, ...]
    units: tuple[str, ...]
    about: tuple[str, ...]
    rest: tuple[str, ...]


class Named(NamedTuple):
    """An object's origin fields, verbatim."""

    host: str | None
    path: str | None
    severity: str | None
    facility: str | None
    program: str
    source: str | None = None
    job: str | None = None


class About(NamedTuple):
    """The resolved host, path, program and severity."""

    file: str
    path: str | None
    source: str | None
    host: str | None
    severity: str | None
    unit: str | None
    facility: str | None
    job: int | None = None


class Read(NamedTuple):
    """An object as it is stored."""

    line: bytes
    run: Run
    path: str | None
    source: str | None
    job: int | None = None


@dataclass
class _Lines:
    path: str | None
    source: str | None
    job: int | None
    lines: list[bytes] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


class Wrapped:
    """The objects of one payload: call ``add`` for each, and ``done`` after the last."""

    def __init__(
        self,
        payload: Payload,
        into: Decoded,
        transport: str,
        *,
        cluster: str | None = None,
        timezone: str | None = None,
        says_source: bool = False,
    ) -> None:
        """``says_source``: the writer of these objects uses our source names."""
        self._payload, self._into, self._transport = payload, into, transport
        self._says_source = says_source
        self._cluster, self._timezone = cluster, timezone
        self._shapes: dict[tuple[str, ...], _Shape] = {}
        self._abouts: dict[tuple[Any, ...], About] = {}
        self._fields: dict[tuple[Any, ...], str] = {}
        #: Lines by file, or by source if no file is named: the lines of each file in their order.
        self._lines: dict[tuple[str | None, str | None, int | None], _Lines] = {}

    def add(self, found: dict[str, Any], stream: str) -> None:
        """Adds one object; ``stream`` names the lines of objects that name no file."""
        flat = _flat(found)
        names = tuple(flat)
        shape = self._shapes.get(names)
        if shape is None:
            shape = self._shapes[names] = _shape(names, self._says_source)
        text = next((value for name in shape.texts if type(value := flat[name]) is str), None)
        program, number = program_of(_first(flat, shape.units) or "") if shape.units else ("", None)
        about = self._about(flat, shape, stream, program)
        time = next((at for name in shape.times if (at := micros(flat[name])) is not None), None)
        fields = self._fields_of(flat, shape.rest) if shape.rest and text is not None else None
        if text is None:
            text = json.dumps(found, ensure_ascii=False)
        run = Run(
            1, self._payload.received, about.host, about.file, time, None, about.severity, about.unit, number, about.facility,
            fields, None, self._transport,
        )  # fmt: skip
        self.take(Read(text.encode("utf-8", "surrogatepass"), run, about.path, about.source, about.job))

    def take(self, read: Read) -> None:
        key = (read.path and read.run.file, read.source, read.job)
        own = self._lines.get(key)
        if own is None:
            own = self._lines[key] = _Lines(read.path, read.source, read.job)
        own.lines.append(read.line)
        own.runs.append(read.run)

    def done(self) -> None:
        """Passes on what was added."""
        streams = Streams()
        for own in self._lines.values():
            source, job = own.source, own.job
            if own.path:
                known = streams.of(own.path, own.lines)
                source, job = source or known.source, known.job_id if job is None else job
            self._into.add(own.lines, *own.runs, source=source, cluster=self._cluster, timezone=self._timezone,
                           job_id=job if source in JOB_OUTPUT else None)  # fmt: skip
        self._lines.clear()

    def _about(self, flat: dict[str, Any], shape: _Shape, stream: str, program: str) -> About:
        values = [flat[name] for name in shape.about]
        # 1, 1.0 and true are equal but do not mean the same.
        key = (stream, program, shape.about, *values, *map(type, values))
        try:
            about = self._abouts.get(key)
        except TypeError:  # a list in place of a name
            return self.worked_out(_named(flat, program), stream)
        if about is None:
            about = self._abouts[key] = self.worked_out(_named(flat, program), stream)
        return about

    def worked_out(self, named: Named, stream: str) -> About:
        host, path, program = named.host, named.path, named.program.rstrip(":")
        host = (host and short_name(host)) or self._payload.peer
        return About(
            f"{host or '?'}:{path}" if path else f"{stream}/{host or '?'}", path,
            self._source_of(named, program), host, _WORDS.get((named.severity or "").lower()), program or None, named.facility,
            _job(named.job) if self._says_source else None,
        )  # fmt: skip

    def _source_of(self, named: Named, program: str) -> str | None:
        if self._says_source and named.source:
            return named.source
        return source_of_program(program) if program and not named.path else None

    def _fields_of(self, flat: dict[str, Any], rest: tuple[str, ...]) -> str:
        """Everything without a column of its own, as JSON."""
        values = [flat[name] for name in rest]
        # 1, 1.0 and true are equal but are written differently.
        key = (rest, *values, *map(type, values))
        try:
            fields = self._fields.get(key)
        except TypeError:
            return _json(dict(zip(rest, values, strict=True)))
        if fields is None:
            fields = self._fields[key] = _json(dict(zip(rest, values, strict=True)))
        return fields


def _named(flat: dict[str, Any], program: str) -> Named:
    host, path, severity, facility = (_first(flat, names) for names in (HOST, PATH, SEVERITY, FACILITY))
    return Named(host, path, severity, facility, program, _first(flat, SOURCE), _first(flat, JOB))


def _job(number: str | None) -> int | None:
    return int(number) if number and number.isdecimal() and number.isascii() and len(number) < 19 else None


def program_of(unit: str) -> tuple[str, int | None]:
    """A syslog tag's program and process ID: "slurmd[3]:" -> slurmd, 3."""
    program, _, rest = unit.partition("[")
    number = rest.partition("]")[0]
    return program, int(number) if number.isdecimal() and len(number) < 19 else None


def _json(fields: dict[str, Any]) -> str:
    return whole(json.dumps(fields, ensure_ascii=False, sort_keys=True, default=str))


def _shape(names: tuple[str, ...], says_source: bool) -> _Shape:
    about = _ABOUT | {*SOURCE, *JOB} if says_source else _ABOUT
    return _Shape(
        tuple(name for name in TEXT if name in names), tuple(name for name in TIME if name in names),
        tuple(name for name in UNIT if name in names),
        tuple(name for name in names if name in about),
        tuple(name for name in names if name not in USED),
    )  # fmt: skip


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    """Nested objects as dotted names, two levels deep, as shippers use them; deeper ones stay objects."""
    if dict not in map(type, found.values()):
        return found
    flat: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            for inner, held in value.items():
                if isinstance(held, dict):
                    flat.update({f"{name}.{inner}.{last}": item for last, item in held.items()})
                else:
                    flat[f"{name}.{inner}"] = held
        else:
            flat[name] = value
    return flat


def _first(flat: dict[str, Any], names: tuple[str, ...]) -> str | None:
    texts = (str(flat[name]) for name in names if isinstance(flat.get(name), str | int))
    return next((whole(text) for text in texts if text), None)


def whole(text: str) -> str:
    """A text that a column can hold: without lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def nanoseconds(value: Any) -> int:
    """A timestamp in nanoseconds since 1970, a number or digits; 0 for none. Raises ``ValueError``."""
    try:
        found = 0 if value is None or value == "" else int(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"no time stamp: {value!r}") from error
    if not 0 <= found < 1 << 63:
        raise ValueError(f"a time stamp beyond 63 bits: {found}")
    return found


def document(body: bytes) -> Any:
    """A body that is one JSON document. Raises ``ValueError``, and ``Refused`` if it has more values than any batch of log
    lines: 64 MiB of the smallest ones take two gigabytes as objects."""
    few_values(body)
    # Nothing of it is garbage, and looking for that takes four times as long as parsing.
    collects = gc.isenabled()
    gc.disable()
    try:
        return loads(body)
    finally:
        if collects:
            gc.enable()


def few_values(body: bytes) -> int:
    """A bound for the items of the lists in a JSON body. Raises ``Refused`` for more values than any batch of log lines
    has."""
    count = body.count(b",") + 1
    if count > MOST_VALUES + 1:
        raise Refused(413, f"more than {MOST_VALUES:,} values", "Send smaller batches.")
    return count


def loads(line: bytes) -> Any:
    """Parses JSON with the fast library; the general one takes what that refuses: lone surrogates (they become U+FFFD),
    NaN, numbers beyond 64 bits. Raises ``ValueError``."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            return json_text.loads(line)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
