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
from collections.abc import Callable, Iterable, Mapping
from functools import cache, reduce
from operator import and_ as both
from typing import Any, NamedTuple, cast

import polars as pl
from sqlalchemy import ColumnElement, FromClause, Select, and_, case, func, not_, select

from parsers.formats.base import JOB_SOURCES, SLURM
from parsers.speakers import CLAIMS
from parsers.writers import DAEMON, DEVICE, JOB, KERNEL, LOCAL, NETWORK, ROOT, UNVERIFIED
from store.functions import const, contains, matches, one_of
from store.line_frames import different
from store.questions.authority import RELAYED
from store.questions.kernel_lines import OF_RING
from store.tables import LINES


class Condition(NamedTuple):
    """A condition on a line, in both spellings. ``of_events``: it can hold for a line that means an event. ``of_file``: it
    depends on the file's name alone."""

    sql: Callable[[FromClause], ColumnElement[bool]]
    frame: pl.Expr
    of_events: bool = True
    of_file: bool = False


# A condition on a null column is null in both, and so is its negation: neither holds.


def _is(column: str, *values: str) -> Condition:
    return Condition(lambda lines: one_of(lines.c[column], values), pl.col(column).is_in(values))


def _like(column: str, pattern: str) -> Condition:
    """Whether a pattern of ours matches anywhere; it must mean the same in RE2 and in Rust."""
    return Condition(
        lambda lines: matches(lines.c[column], pattern), pl.col(column).str.contains(pattern), of_file=column == "file"
    )


def _begins(column: str, prefix: str) -> Condition:
    return Condition(
        lambda lines: func.starts_with(lines.c[column], const(prefix)), pl.col(column).str.starts_with(prefix),
        of_file=column == "file",
    )  # fmt: skip


def _not(condition: Condition) -> Condition:
    return Condition(lambda lines: not_(condition.sql(lines)), ~condition.frame)


_EVENT = Condition(lambda lines: lines.c.event != const("other"), pl.col("event").ne("other"))
#: The line claims an event that its writer may not report (parsers/claims.py), and means none itself.
_CLAIM = Condition(
    lambda lines: and_(
        lines.c.event.is_not_distinct_from(const("other")), contains(func.array_to_string(lines.c.tags, const(",")), CLAIMS)
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
        func.lower(func.split_part(func.split_part(lines.c.file, const(":/"), const(1)), const("."), const(1)))
        != func.lower(func.split_part(lines.c.host, const("."), const(1))),
    ),
    _ON_A_HOST
    & pl.col("file").str.extract(r"^(.*?):/").str.extract(r"^([^.]*)").str.to_lowercase().ne(
        pl.col("host").str.extract(r"^([^.]*)").str.to_lowercase()
    ),
)  # fmt: skip
#: Formats with the header of syslog.
_HEADED = _is("format", "rfc3164", "rfc5424", "journalctl", "relayed", "octets", "tai64n")
#: Formats of files that only their daemon writes.
_OWN = _is("format", "slurm", "opensm", "ufm", "ibdiagnet", "fabricmanager", "nhc", "storage", "stamped", "klog")
#: A line of a document (parsers/documents): the answer of a command that root ran.
_DOCUMENT = Condition(lambda lines: lines.c.format == lines.c.source, pl.col("format").eq(pl.col("source")))
_KERNELS, _SWITCH, _JOURNALD = _is("source", "kernel"), _is("source", "switch"), _is("format", "journald")
_RING = _is("format", "kmsg", "dmesg")
#: How parsers/authority.py and parsers/formats/jsonl.py leave what journald attributes to a person's process.
_PERSONS = (_JOURNALD, _is("facility", "user"), _is("source", "syslog"))

_RULE: tuple[tuple[str, tuple[Condition, ...]], ...] = (
    (JOB, (_is("source", *JOB_SOURCES),)),
    (NETWORK, (_CLAIM, _SENT)),
    (LOCAL, (_CLAIM,)),
    (DEVICE, (_SENT, _EVENT, _BY_ITS_HOST, _SWITCH)),
    (LOCAL, (_SENT, _EVENT, _BY_ITS_HOST)),
    (NETWORK, (_SENT,)),
    (LOCAL, _PERSONS),
    (KERNEL, (_JOURNALD, _UPLOADED, _KERNELS)),
    (DAEMON, (_JOURNALD, _UPLOADED)),
    (UNVERIFIED, (_SHIPPED,)),
    (KERNEL, (_JOURNALD, _KERNELS)),
    (DAEMON, (_JOURNALD,)),
    (DEVICE, (_SWITCHES,)),
    (NETWORK, (_SYSLOGS, _OF_ANOTHER)),
    (LOCAL, (_SYSLOGS,)),
    (ROOT, (_RING, _not(_is("facility", "kern")))),  # root may write to /dev/kmsg, with any facility but the kernel's
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
            _is("source", "prolog", "epilog", "healthagent", "jetpack", "jetpackd"),
            _is("format", "plain", "continuation"),
        ),
    ),
    (LOCAL, (_is("source", "kernel", "syslog"),)),
)


def authority(lines: FromClause) -> ColumnElement[Any]:
    """Who can have written a line, as SQL on the columns of ``raw.log_view``; never null."""
    rule = ((and_(*(one.sql(lines) for one in conditions)), const(value)) for value, conditions in _RULE)
    return case(*rule, else_=const(UNVERIFIED))


#: The columns that decide for a line that means an event, beside what the file's name shows, whether the file is on
#: another host, and whether ``entities`` notes a sender.
_DECIDING = ("format", "source", "facility")
#: Most names of files, and most lines that differ in what decides, to remember: some kilobytes for each node.
_MOST = 100_000
_shown: dict[str | None, str] = {}
_decided: dict[tuple[Any, ...], str] = {}


def authority_of_events(lines: pl.DataFrame) -> pl.Series:
    """The same for lines that mean an event. Needs ``format``, ``source``, ``facility``, ``host``, ``file``, ``event`` and
    ``entities``.

    The rule takes 5 microseconds a line. So each file's name is looked at once, and the rule decides once for all lines
    that are alike.
    """
    if not lines.height:
        return pl.Series("authority", [], pl.String)
    files, place = different(lines["file"])
    shown = _values(files, _shown, _by_name)
    signs = list(dict.fromkeys(shown))
    numbers = {sign: number for number, sign in enumerate(signs)}
    of_file = pl.Series([numbers[sign] for sign in shown], dtype=pl.UInt32).gather(place)
    on_a_host = any(sign.startswith("1") for sign in signs)
    apart = _OF_ANOTHER.frame.fill_null(False) if on_a_host else pl.lit(False)
    marks = lines.select((_BY_ITS_HOST.frame.cast(pl.UInt32) * 2 + apart.cast(pl.UInt32)).alias("marks")).to_series()
    keys: list[tuple[Any, ...]] = [(mark, sign) for sign in signs for mark in range(4)]
    codes = of_file * 4 + marks
    for name in _DECIDING:
        values, place = different(lines[name])
        # Numbers are told apart in a fraction of the time of texts.
        pairs, codes = different(codes.cast(pl.Int64) * len(values) + place)
        keys = [(*keys[pair // len(values)], values[pair % len(values)]) for pair in pairs]

    def by_rule(new: list[tuple[Any, ...]]) -> Iterable[tuple[tuple[Any, ...], str]]:
        wanted = set(new)
        places = [number for number, key in enumerate(keys) if key in wanted]
        alike = lines.gather([codes.index_of(number) for number in places])
        return zip((keys[number] for number in places), alike.select(_rule_of_events()).to_series(), strict=True)

    found = pl.Series("authority", _values(keys, _decided, by_rule), pl.String)
    return found.gather(codes)


def _values(
    keys: list[Any], remembered: dict[Any, str], decide: Callable[[list[Any]], Iterable[tuple[Any, str]]]
) -> list[str]:
    """The value of each key: a remembered one, or what ``decide`` finds for those that are new. No key occurs twice."""
    values = list(map(remembered.get, keys))
    if None in values:
        found = dict(decide([key for key, value in zip(keys, values, strict=True) if value is None]))
        if len(remembered) + len(found) > _MOST:  # other threads have their own ``values``
            remembered.clear()
        remembered |= found
        return [found[key] if value is None else value for key, value in zip(keys, values, strict=True)]
    return cast(list[str], values)


def _by_name(files: list[str | None]) -> Iterable[tuple[str | None, str]]:
    """Which of the conditions on a file's name hold, as a text; its first character says ``_ON_A_HOST``."""
    return pl.DataFrame({"file": files}, schema={"file": pl.String}).select("file", _shown_by_name()).iter_rows()


@cache
def _shown_by_name() -> pl.Expr:
    conditions = {id(one): one.frame for _, conditions in _RULE for one in conditions if one.of_file}
    results = [_ON_A_HOST, *conditions.values()]
    return pl.concat_str(pl.coalesce(one.cast(pl.Int8).cast(pl.String), pl.lit("-")) for one in results).alias("shown")


@cache
def _rule_of_events() -> pl.Expr:
    found: Any = pl.lit(UNVERIFIED)
    for value, conditions in reversed(_RULE):
        if all(one.of_events for one in conditions):
            found = pl.when(reduce(both, (one.frame for one in conditions))).then(pl.lit(value)).otherwise(found)
    return found.alias("authority")  # type: ignore[no-any-return]


#: The columns of a line that decide.
_WRITERS = (*_DECIDING, "host", "file")
#: What else decides, in two values each (0 or 1); a condition on null does not hold.
_MARKS: Mapping[str, Condition] = {"claims": _CLAIM, "means": _EVENT, "by_another": _not(_BY_ITS_HOST)}


#: The names of ``writer_columns``.
WRITER_COLUMNS = (*_WRITERS, *_MARKS)


def writer_columns(lines: FromClause) -> list[ColumnElement[Any]]:
    """Columns such that lines with equal values have equal writers, for ``authority_of_writers``."""
    marks = (case((one.sql(lines), const(1)), else_=const(0)).label(name) for name, one in _MARKS.items())
    return [*(lines.c[name] for name in _WRITERS), *marks]


def writer_expressions() -> list[pl.Expr]:
    """The same for frames of stored lines."""
    columns = (pl.col(name).cast(pl.String) for name in _WRITERS)
    return [*columns, *(pl.when(one.frame).then(1).otherwise(0).alias(name) for name, one in _MARKS.items())]


def authority_of_writers(writers: pl.DataFrame) -> pl.Series:
    """Who can have written lines with these ``writer_columns``; null for lines that are in no log of their host: claims,
    packets without an event, and what the agent itself found."""
    sender = pl.when(pl.col("by_another") == 1).then(pl.lit('"sender"')).otherwise(pl.lit(""))
    found = authority_of_events(writers.with_columns(pl.lit("some").alias("event"), sender.alias("entities")))
    # Only what means an event has its sender noted.
    of_none = (pl.col("claims") == 1) | _AGENTS.frame | (_SENT.frame & (pl.col("means") == 0))
    return writers.select(pl.when(of_none).then(None).otherwise(found).alias("authority")).to_series()


def is_claim(lines: FromClause) -> ColumnElement[bool]:
    """Whether a line claims an event that its writer may not report; never null."""
    return case((_CLAIM.sql(lines), const(1)), else_=const(0)) == const(1)


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
