"""Who can have written a line, derived from the columns that every stored line has: the one declaration of the rule.

The rule is a list; the first entry whose conditions all hold gives the value. Each condition is spelled twice, for SQL
(the view ``kql.Logs``, questions about lines) and for Polars (lines on their way to the correlator). The value says who
can have written the line, not whether it is true: docs/security.md, "Trust in lines".

A value of ``parsers.writers.NO_USERS`` is given only where the correlator believes the line without reservations
(``correlator/gather/standing.py``, ``kernel_lines.py``); the reverse does not hold. In a syslog daemon's file, program
and facility are what the writer chose, and any user of the host is a possible writer.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from functools import cache, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from sqlalchemy import ColumnElement, FromClause, Select, and_, case, func, not_, or_, select

from parsers.authority import OF_DAEMONS, OF_PERSON, OF_ROOT
from parsers.formats.base import JOB_SOURCES, SLURM
from parsers.host_names import short_name_of
from parsers.speakers import CLAIMS
from parsers.writers import DAEMON, DEVICE, JOB, KERNEL, LOCAL, NETWORK, NO_USERS, ROOT, UNVERIFIED
from store.functions import const, contains, matches, one_of, short_name
from store.line_frames import different
from store.questions.authority import RELAYED
from store.questions.kernel_lines import OF_RING
from store.tables import EVENTS, LINES


class Condition(NamedTuple):
    """A condition on a line, in both spellings. ``of_events``: it can hold for a line that means an event."""

    sql: Callable[[FromClause], ColumnElement[bool]]
    frame: pl.Expr
    of_events: bool = True


# A condition on a null column is null in both, and so is its negation: neither holds.


def _is(column: str, *values: str) -> Condition:
    return Condition(lambda lines: one_of(lines.c[column], values), pl.col(column).is_in(values))


def _like(column: str, pattern: str) -> Condition:
    """Whether a pattern of ours matches anywhere; it must mean the same in RE2 and in Rust."""
    return Condition(lambda lines: matches(lines.c[column], pattern), pl.col(column).str.contains(pattern))


def _begins(column: str, prefix: str) -> Condition:
    """Whether a text begins with a prefix, which must be ASCII. As a range of texts, the engine needs an eighth of the
    time that it takes for ``starts_with``, and skips blocks of lines by it."""
    after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return Condition(
        lambda lines: and_(lines.c[column] >= const(prefix), lines.c[column] < const(after)),
        pl.col(column).str.starts_with(prefix),
    )


#: The facilities that the rule asks about.
_FACILITIES = ("user", "kern")


def _of_facility(name: str) -> Condition:
    return _is("facility", _FACILITIES[_FACILITIES.index(name)])


def _not(condition: Condition) -> Condition:
    return Condition(lambda lines: not_(condition.sql(lines)), ~condition.frame)


_EVENT = Condition(lambda lines: lines.c.event != const("other"), pl.col("event").ne("other"))
#: The line claims an event that its writer may not report (parsers/claims.py), and means none itself.
_CLAIM = Condition(
    lambda lines: and_(
        # Nearly no line has tags, and joining none of half a million lines takes 5 ms.
        lines.c.event.is_not_distinct_from(const("other")), lines.c.tags.is_not(None),
        contains(func.array_to_string(lines.c.tags, const(",")), CLAIMS),
    ),
    pl.col("event").eq("other") & pl.col("tags").list.join(",").str.contains(CLAIMS, literal=True),
    of_events=False,
)  # fmt: skip
#: It came over the network as syslog. If it means an event and names a host that is not its sender, the sender's
#: address is noted (collector/decoding.py).
_SENT = _begins("file", RELAYED)
_BY_ITS_HOST = Condition(
    lambda lines: not_(contains(func.coalesce(lines.c.entities, const("")), '"sender"')),
    ~pl.col("entities").fill_null("").str.contains('"sender"', literal=True),
)
#: A shipper sent it and named no file that it stands in: "loki:HOST", "http/HOST", "elasticsearch:INDEX/HOST".
_UPLOADED = _begins("file", "journal:")
_NO_FILE = r"^(?:(?:loki|otlp|http|\?):[^/]|(?:loki|otlp|http)/[^/]*$|(?:elasticsearch|journal):)"
_SHIPPED = _like("file", _NO_FILE)
#: A file that a syslog daemon writes. A user's message may contain a line end, and what follows it has no header.
_SYSLOGS = _like("file", r"(?:^|[/:])(?:syslog|messages|kern|kernel|daemon|user|auth|secure)(?:[._-][^/]*)?$")
_SWITCHES = _like("file", r"(?:^|/)switches/")
_NODES = _like("file", r"(?:^|/)(?:hosts|nodes)/")
#: What the agent itself found, in no file (collector/agent/sources).
_AGENTS = _like("file", r"^[^/:]+:(?:nvml|infiniband|links|units)$")
_ON_A_HOST = pl.col("file").str.contains(":/", literal=True)
#: An agent or a shipper read the file on one host ("loghost:/var/log/gpu02.log"), and the line names another.
_OF_ANOTHER = Condition(
    lambda lines: and_(
        contains(lines.c.file, ":/"),
        func.lower(short_name(func.split_part(lines.c.file, const(":/"), const(1))))
        != func.lower(short_name(lines.c.host)),
    ),
    _ON_A_HOST
    & short_name_of(pl.col("file").str.extract(r"^(.*?):/")).str.to_lowercase().ne(
        short_name_of(pl.col("host")).str.to_lowercase()
    ),
)  # fmt: skip
#: Formats with the header of syslog.
_HEADED = _is("format", "rfc3164", "rfc5424", "journalctl", "relayed", "octets", "tai64n")
#: Formats of files that only their daemon writes.
_OWN = _is("format", *OF_DAEMONS)
#: A line of a document (parsers/documents): the answer of a command that root ran.
_DOCUMENT = Condition(lambda lines: lines.c.format == lines.c.source, pl.col("format").eq(pl.col("source")))
_KERNELS, _SWITCH, _JOURNALD = _is("source", "kernel"), _is("source", "switch"), _is("format", "journald")
_RING = _is("format", "kmsg", "dmesg")
#: How parsers/authority.py and parsers/formats/jsonl.py leave what journald attributes to a person's process.
_PERSONS = (_JOURNALD, _of_facility("user"), _is("source", "syslog"))

_RULE: tuple[tuple[str, tuple[Condition, ...]], ...] = (
    (JOB, (_is("source", *JOB_SOURCES),)),
    (NETWORK, (_CLAIM, _SENT)),
    (LOCAL, (_CLAIM,)),
    (DEVICE, (_SENT, _EVENT, _BY_ITS_HOST, _SWITCH)),
    (LOCAL, (_SENT, _EVENT, _BY_ITS_HOST)),
    (NETWORK, (_SENT,)),
    (LOCAL, _PERSONS),
    (LOCAL, (_is("format", OF_PERSON),)),
    (KERNEL, (_JOURNALD, _UPLOADED, _KERNELS)),
    (DAEMON, (_JOURNALD, _UPLOADED)),
    (UNVERIFIED, (_SHIPPED,)),
    (KERNEL, (_JOURNALD, _KERNELS)),
    (DAEMON, (_JOURNALD,)),
    (DEVICE, (_SWITCHES,)),
    (NETWORK, (_SYSLOGS, _OF_ANOTHER)),
    (LOCAL, (_SYSLOGS,)),
    (ROOT, (_RING, _not(_of_facility("kern")))),  # root may write to /dev/kmsg, with any facility but the kernel's
    (KERNEL, (_KERNELS, _is("format", *OF_RING))),
    (ROOT, (_RING,)),
    (ROOT, (_AGENTS,)),
    (DEVICE, (_is("source", "bmc"),)),
    (NETWORK, (_HEADED, _OF_ANOTHER)),
    (LOCAL, (_SWITCH, _NODES)),
    (NETWORK, (_SWITCH,)),
    (LOCAL, (_HEADED,)),
    (DAEMON, (_OWN,)),
    (DAEMON, (_is("source", *SLURM), _is("format", "continuation"))),
    (ROOT, (_is("format", "ip_link"),)),
    (ROOT, (_DOCUMENT,)),
    (
        ROOT,
        (
            _is("source", *OF_ROOT),
            _is("format", "plain", "continuation"),
        ),
    ),
    (LOCAL, (_is("source", "kernel", "syslog"),)),
)


def authority(lines: FromClause) -> ColumnElement[Any]:
    """Who can have written a line, as SQL on the columns of ``raw.log_view``; never null."""
    rule = ((and_(*(one.sql(lines) for one in conditions)), const(value)) for value, conditions in _RULE)
    return case(*rule, else_=const(UNVERIFIED))


#: The columns of a line that decide.
_WRITERS = ("format", "source", "facility", "host", "file")
#: What else decides, as one number: whether the line is a claim, and of one that was sent, whether it means an event and
#: whether another host sent it. A condition on null does not hold.
_MARKS = "marks"
_CLAIMS, _MEANS, _BY_ANOTHER = 1, 2, 4
_OF_SENT = ((_EVENT, _MEANS), (_not(_BY_ITS_HOST), _BY_ANOTHER))
#: The number of the facility among those that the rule asks about, times this, is part of it: a syslog daemon's file has
#: lines of ten others. 0 for a line without one, and the number after the last for any other.
_FACILITY = 8
_OTHER_FACILITY = len(_FACILITIES) + 1
#: The names of ``writer_columns``.
_COLUMNS = tuple(name for name in _WRITERS if name != "facility")
WRITER_COLUMNS = (*_COLUMNS, _MARKS)

#: A number in place of these columns. Whoever sends a packet chooses its host's name, and does not know this one.
_SEED = secrets.randbits(63)
#: Most writers to remember: some kilobytes for each node.
_MOST = 100_000
_decided: dict[int, str] = {}


def writer_number(columns: Iterable[pl.Expr]) -> pl.Expr:
    """A number, ``writer``, that only lines with equal ``WRITER_COLUMNS`` share."""
    return pl.struct(columns).hash(seed=_SEED).alias("writer")


def authority_of_events(lines: pl.DataFrame) -> pl.Series:
    """The same for lines that mean an event. Needs ``format``, ``source``, ``facility``, ``host``, ``file``, ``event`` and
    ``entities``.

    The rule takes 5 microseconds a line. So it decides once for all lines of one writer.
    """
    if not lines.height:
        return pl.Series("authority", [], pl.String)
    numbers, place = different(lines.select(_event_writer_number(lines)).to_series())
    values = list(map(_decided.get, numbers))
    new = [number for number, value in enumerate(values) if value is None]
    if new:
        held = lines[place.arg_unique()[new]].select(_rule_of_events()[0]).to_series()
        found = list(map(_decide, held.to_list()))
        _make_room(len(found))
        for number, value in zip(new, found, strict=True):
            values[number] = _decided[numbers[number]] = value
    return pl.Series("authority", values, pl.String)[place]


def _event_writer_number(lines: pl.DataFrame) -> pl.Expr:
    """``writer_number`` of lines that mean an event."""
    # Each job has files of its own, and nobody else writes to them.
    others = ~pl.col("source").is_in(JOB_SOURCES).fill_null(False)
    columns = [
        pl.when(others).then(name).alias(name) if name in ("host", "file") else pl.col(name) for name in _WRITERS
    ]
    return writer_number([*columns, _marks_of(lines, tagged=False)])


def _make_room(more: int) -> None:
    if len(_decided) + more > _MOST:
        _decided.clear()


@cache
def _rule_of_events() -> tuple[pl.Expr, list[tuple[int, str]]]:
    """Which conditions hold for a line that means an event, as bits of a number, and the rule by these bits."""
    rule = [(value, some) for value, some in _RULE if all(one.of_events for one in some)]
    frames = {id(one): one.frame for _, some in rule for one in some}
    bits = {name: 1 << place for place, name in enumerate(frames)}
    held = pl.sum_horizontal(pl.when(frame).then(pl.lit(bits[name], pl.Int64)) for name, frame in frames.items())
    return held, [(sum({bits[id(one)] for one in some}), value) for value, some in rule]


@cache
def _decide(held: int) -> str:
    """The first value of the rule all of whose conditions are among these bits."""
    return next((value for needed, value in _rule_of_events()[1] if held & needed == needed), UNVERIFIED)


def writer_columns(lines: FromClause) -> list[ColumnElement[Any]]:
    """Columns such that lines with equal values have equal writers, for ``authority_of_writers``."""
    none = const(0)
    of_sent = reduce(add, (case((one.sql(lines), const(mark)), else_=none) for one, mark in _OF_SENT))
    marks = case((_CLAIM.sql(lines), const(_CLAIMS)), else_=none) + case((_SENT.sql(lines), of_sent), else_=none)
    numbers = {const(name): const(_FACILITY * number) for number, name in enumerate(_FACILITIES, 1)}
    facility = case(
        (lines.c.facility.is_(None), none), *((lines.c.facility == name, number) for name, number in numbers.items()),
        else_=const(_FACILITY * _OTHER_FACILITY),
    )  # fmt: skip
    return [*(lines.c[name] for name in _COLUMNS), (marks + facility).label(_MARKS)]


def writer_expressions(lines: pl.DataFrame) -> list[pl.Expr]:
    """The same for a frame of stored lines, in plain texts."""
    marks = _marks_of(lines, tagged=bool(lines["tags"].list.len().max()))
    known = dict(zip([None, *_FACILITIES], range(_OTHER_FACILITY), strict=True))
    facility = pl.col("facility").replace_strict(known, default=_OTHER_FACILITY, return_dtype=pl.Int32)
    return [*map(pl.col, _COLUMNS), marks + _FACILITY * facility]


def _marks_of(lines: pl.DataFrame, *, tagged: bool) -> pl.Expr:
    """``_MARKS`` of these lines, without what none of them can have. ``tagged``: some have tags."""
    marks = pl.lit(0, pl.Int32)
    if tagged:
        marks += pl.when(_CLAIM.frame).then(_CLAIMS).otherwise(0)
    if lines.select(_SENT.frame.any()).item():
        of_sent = reduce(add, (pl.when(one.frame).then(mark).otherwise(0) for one, mark in _OF_SENT))
        marks += pl.when(_SENT.frame).then(of_sent).otherwise(0)
    return marks.cast(pl.Int32).alias(_MARKS)


def claims_among(lines: pl.DataFrame) -> pl.Series:
    """Which lines have the tag of a claim. A few of very many lines have tags at all."""
    tagged = lines.select((pl.col("tags").list.len() > 0).arg_true()).to_series()
    found = np.zeros(lines.height, np.bool_)
    found[tagged] = lines["tags"].gather(tagged).list.join(",").str.contains(CLAIMS, literal=True)
    return pl.Series("claims", found)


def authority_of_writers(writers: pl.DataFrame) -> pl.Series:
    """Who can have written lines with these ``writer_columns``; null for lines that are in no log of their host: claims,
    packets without an event, and what the agent itself found."""
    has = {mark: (pl.col(_MARKS) & mark) != 0 for mark in (_CLAIMS, _MEANS, _BY_ANOTHER)}
    sender = pl.when(has[_BY_ANOTHER]).then(pl.lit('"sender"')).otherwise(pl.lit(""))
    facility = (pl.col(_MARKS) // _FACILITY).replace_strict(
        range(_OTHER_FACILITY + 1), [None, *_FACILITIES, "other"], return_dtype=pl.String
    )
    # Only what means an event has its sender noted.
    of_none = has[_CLAIMS] | _AGENTS.frame | (_SENT.frame & ~has[_MEANS])
    # ``authority_of_events`` in one query: mostly these are few, new ones among thousands of lines.
    lines = writers.with_columns(pl.lit("some").alias("event"), sender.alias("entities"), facility.alias("facility"))
    found = lines.select(
        _event_writer_number(lines), of_none.fill_null(False).alias("none"), _rule_of_events()[0].alias("held")
    )
    _make_room(found.height)
    values = [None if none else _decided.setdefault(number, _decide(held)) for number, none, held in found.iter_rows()]
    return pl.Series("authority", values, pl.String)


def is_claim(lines: FromClause) -> ColumnElement[bool]:
    """Whether a line claims an event that its writer may not report; never null."""
    return case((_CLAIM.sql(lines), const(1)), else_=const(0)) == const(1)


#: Is the time of an event one that no user can have chosen? Users cannot write its line; or it is slurmctld's, and other
#: hosts' in its name are no events; or an incident rests on it, and so others than its writer show it. What no line shows (an
#: agent's own word) has no authority; that of a finding about false lines, which has their time and source, is empty.
DATED = or_(
    EVENTS.c.authority.is_(None), one_of(EVENTS.c.authority, sorted(NO_USERS)),
    and_(EVENTS.c.source == const("slurmctld"), EVENTS.c.authority != const("")), EVENTS.c.incident_id.is_not(None),
)  # fmt: skip


def counted() -> Select[Any]:
    """``authority``, ``source`` and the number of ``lines`` that mean an event."""
    lines = LINES.c
    found = (
        select(authority(LINES).label("authority"), func.coalesce(lines.source, const("plain")).label("source"))
        .where(lines.event.is_not(None), lines.event != const("other"))
        .subquery("found")
    )
    asked = select(found.c.authority, found.c.source, func.count().label("lines"))
    return asked.group_by(found.c.authority, found.c.source).order_by(
        found.c.authority, func.count().desc(), found.c.source
    )


def names_no_file(file: str | None) -> bool:
    """Did a shipper send a line without naming the file that it stands in? ``file`` is the line's own column."""
    return file is not None and re.search(_NO_FILE, file) is not None


def of_disowned(value: str) -> str:
    """The value of a line whose claim was disowned later (``store.disowned``): on a host that does not run a daemon, root
    wrote the file in its name."""
    return ROOT if value == DAEMON else value
