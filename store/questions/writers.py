"""Who can have written a line, derived from the columns that every stored line has: the one declaration of the rule.

The rule is a list; the first entry whose conditions all hold gives the value. Each condition is spelled twice, for SQL
(the view ``kql.Logs``, questions about lines) and for Polars (lines on their way to the correlator). The value says who
can have written the line, not whether it is true: docs/security.md, "Trust in lines".

A value of ``parsers.writers.NO_USERS`` is given only where the correlator believes the line without reservations
(``correlator/gather/standing.py``, ``kernel_lines.py``); the reverse does not hold. In a syslog daemon's file, program
and facility are what the writer chose, and any user of the host is a possible writer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce
from operator import and_ as both
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import ColumnElement, FromClause, Select, and_, case, func, not_, select

from parsers.formats.base import JOB_SOURCES, SLURM
from parsers.speakers import CLAIMS
from parsers.writers import DAEMON, DEVICE, JOB, KERNEL, LOCAL, NETWORK, ROOT, UNVERIFIED
from store.functions import const, contains, group_of, matches, one_of
from store.questions.authority import RELAYED
from store.questions.kernel_lines import OF_RING
from store.tables import LINES


class Condition(NamedTuple):
    """A condition on a line, in both spellings. ``of_events``: it can hold for a line that means an event."""

    sql: Callable[[FromClause], ColumnElement[bool]]
    frame: pl.Expr
    of_events: bool = True


def _text(lines: FromClause, column: str) -> ColumnElement[Any]:
    return func.coalesce(lines.c[column], const(""))


def _texts(column: str) -> pl.Expr:
    return pl.col(column).fill_null("")


def _is(column: str, *values: str) -> Condition:
    return Condition(lambda lines: one_of(_text(lines, column), values), _texts(column).is_in(values))


def _like(column: str, pattern: str) -> Condition:
    """Whether a pattern of ours matches anywhere; it must mean the same in RE2 and in Rust."""
    return Condition(lambda lines: matches(_text(lines, column), pattern), _texts(column).str.contains(pattern))


def _begins(column: str, prefix: str) -> Condition:
    return Condition(
        lambda lines: func.starts_with(_text(lines, column), const(prefix)), _texts(column).str.starts_with(prefix)
    )


def _has(column: str, part: str) -> Condition:
    return Condition(
        lambda lines: contains(_text(lines, column), part), _texts(column).str.contains(part, literal=True)
    )


def _not(condition: Condition) -> Condition:
    return Condition(lambda lines: not_(condition.sql(lines)), ~condition.frame)


_MEANS_NOTHING = _is("event", "", "other")
_EVENT = _not(_MEANS_NOTHING)
#: The line claims an event that its writer may not report (parsers/claims.py), and means none itself.
_CLAIM = Condition(
    lambda lines: and_(
        _MEANS_NOTHING.sql(lines),
        contains(func.coalesce(func.array_to_string(lines.c.tags, const(",")), const("")), CLAIMS),
    ),
    pl.lit(False),
    of_events=False,
)
#: It came over the network as syslog. If it means an event and names a host that is not its sender, the sender's
#: address is noted (collector/decoding.py).
_SENT = _begins("file", RELAYED)
_BY_ITS_HOST = _not(_has("entities", '"sender"'))
#: A shipper sent it and named no file that it stands in: "loki:HOST", "http/HOST", "elasticsearch:INDEX/HOST".
_UPLOADED = _begins("file", "journal:")
_SHIPPED = _like("file", r"^(?:(?:loki|otlp|http|\?):[^/]|(?:loki|otlp|http)/[^/]*$|(?:elasticsearch|journal):)")
#: A file that a syslog daemon writes. A user's message may contain a line end, and what follows it has no header.
_SYSLOGS = _like("file", r"(?:^|[/:])(?:syslog|messages|kern|kernel|daemon|user|auth|secure)(?:[._-][^/]*)?$")
_SWITCHES = _like("file", r"(?:^|/)switches/")
_NODES = _like("file", r"(?:^|/)(?:hosts|nodes)/")
#: A source of the agent's that is no file: "gpu02:nvml".
_AGENTS = _like("file", r"^[^/:]+:[a-z_]+$")
#: The host in whose file a line stands ("loghost:/var/log/gpu02.log"), and the first label of a name.
_READER, _LABEL = r"^([^/:.]+)[^/:]*:/", r"^([^.]*)"
#: An agent or a shipper read it on one host, and it names another.
_OF_ANOTHER = Condition(
    lambda lines: and_(
        _text(lines, "host") != const(""),
        group_of(func.lower(_text(lines, "file")), _READER) != const(""),
        group_of(func.lower(_text(lines, "file")), _READER) != group_of(func.lower(_text(lines, "host")), _LABEL),
    ),
    _texts("host").ne("")
    & _texts("file").str.to_lowercase().str.extract(_READER).ne(
        _texts("host").str.to_lowercase().str.extract(_LABEL)
    ).fill_null(False),
)  # fmt: skip
#: Formats with the header of syslog.
_HEADED = _is("format", "rfc3164", "rfc5424", "journalctl", "relayed", "octets", "tai64n")
#: Formats of files that only their daemon writes.
_OWN = _is("format", "slurm", "opensm", "ufm", "ibdiagnet", "fabricmanager", "nhc", "storage", "stamped", "klog")
#: A line of a document (parsers/documents): the answer of a command that root ran.
_DOCUMENT = Condition(
    lambda lines: and_(_text(lines, "format") != const(""), _text(lines, "format") == _text(lines, "source")),
    _texts("format").ne("") & _texts("format").eq(_texts("source")),
)
_KERNELS, _SWITCH, _JOURNALD = _is("source", "kernel"), _is("source", "switch"), _is("format", "journald")
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
    (KERNEL, (_KERNELS, _is("format", *OF_RING))),
    (ROOT, (_is("format", "kmsg", "dmesg"),)),  # root may write to /dev/kmsg
    (DEVICE, (_is("source", "bmc"),)),
    (NETWORK, (_HEADED, _OF_ANOTHER)),
    (LOCAL, (_SWITCH, _NODES)),
    (NETWORK, (_SWITCH,)),
    (LOCAL, (_HEADED,)),
    (DAEMON, (_OWN,)),
    (DAEMON, (_is("source", *SLURM), _is("format", "continuation"))),
    (ROOT, (_is("format", "ip_link"),)),
    (ROOT, (_DOCUMENT,)),
    (ROOT, (_is("source", "prolog", "epilog", "healthagent", "jetpack", "jetpackd"), _not(_is("format", "json")))),
    (ROOT, (_AGENTS,)),
    (LOCAL, (_is("source", "kernel", "syslog"),)),
)


def authority(lines: FromClause) -> ColumnElement[Any]:
    """Who can have written a line, as SQL on the columns of ``raw.log_view``; never null."""
    rule = ((and_(*(one.sql(lines) for one in conditions)), const(value)) for value, conditions in _RULE)
    return case(*rule, else_=const(UNVERIFIED))


@cache
def authority_of_events() -> pl.Expr:
    """The same in Polars for lines that mean an event. Needs ``format``, ``source``, ``facility``, ``host``, ``file``,
    ``event`` and ``entities``."""
    found: Any = pl.lit(UNVERIFIED)
    for value, conditions in reversed(_RULE):
        if all(one.of_events for one in conditions):
            found = pl.when(reduce(both, (one.frame for one in conditions))).then(pl.lit(value)).otherwise(found)
    return found.alias("authority")  # type: ignore[no-any-return]


def counted() -> Select[Any]:
    """``authority``, ``source`` and the number of ``lines`` that mean an event."""
    lines = LINES.c
    found = (
        select(authority(LINES).label("authority"), func.coalesce(lines.source, const("plain")).label("source"))
        .where(lines.event.is_not(None), lines.event != const("other"))
        .subquery("found")
    )
    asked = select(found.c.authority, found.c.source, func.count().label("lines"))
    return asked.group_by(found.c.authority, found.c.source).order_by(found.c.authority, func.count().desc(), found.c.source)


def of_disowned(value: str) -> str:
    """The value of a line whose claim was disowned later (``store.disowned``): on a host that does not run a daemon, root
    wrote the file in its name."""
    return ROOT if value == DAEMON else value
