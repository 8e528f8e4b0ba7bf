"""Lines in the kernel's name beside their copies: which facility another file kept, and what the host's own files hold."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, cast, func, not_, select

from store.functions import among, const, epoch, in_order, one_of, same
from store.questions.kernel_lines import OF_RING
from store.questions.source import CLUSTER
from store.tables import FLAG, LINES, NUMBER, TIME

#: Lines of a host are found by quarters of an hour.
QUARTER_S = 900
DAY_S = 86_400
_SINCE, _UNTIL = bindparam("copies_since", type_=TIME), bindparam("copies_until", type_=TIME)
#: Between a host and a number; occurs in neither.
_SEPARATOR = "\x1f"


def of_programs(
    cluster: str | None, hosts: Collection[str], messages: Collection[str], since: datetime, until: datetime
) -> Select[Any]:
    """Lines of the program ``kernel`` with another facility than the kernel's and with one of some ``messages``: ``host``,
    ``message``, ``file``, ``t`` and ``sent`` (epoch seconds; null unless the line has the sender's own time),
    ``resolution_us``."""
    return _of_programs().where(among(LINES.c.host, hosts), among(LINES.c.message, messages)).params(
        cluster=cluster, copies_since=since, copies_until=until
    )  # fmt: skip


def named(
    cluster: str | None, hosts: Collection[str], events: Collection[str], since: datetime, until: datetime
) -> Select[Any]:
    """The kernel's lines without a facility that are some ``events``: the same columns, and ``event``."""
    return _named().where(among(LINES.c.host, hosts), among(LINES.c.event, events)).params(
        cluster=cluster, copies_since=since, copies_until=until
    )  # fmt: skip


def files_of(cluster: str | None, hosts: Collection[str], since: datetime, until: datetime) -> Select[Any]:
    """``host`` and ``file`` of lines in files whose path contains the name of their host."""
    return _files_of().where(among(LINES.c.host, hosts)).params(
        cluster=cluster, copies_since=since, copies_until=until
    )  # fmt: skip


def spans(cluster: str | None, files: Collection[str], places: Collection[tuple[str, int]]) -> Select[Any]:
    """The lines of some files: ``host``, ``file``, and of each minute the ``first`` and ``last`` (epoch seconds).

    ``places``: the hosts and quarters of an hour since 1970 that are wanted.
    """
    return _spans().where(among(LINES.c.file, files), _in_places(places)).params(cluster=cluster)


def held(cluster: str | None, files: Collection[str], messages: Collection[str]) -> Select[Any]:
    """Lines of some files with some texts: ``host``, ``message``, ``t``."""
    lines = LINES.c
    return in_order(
        select(lines.host, lines.message, epoch(lines.time).label("t")).distinct().where(
            same(lines.cluster, CLUSTER), lines.time.is_not(None), among(lines.file, files),
            among(lines.message, messages),
        )
    ).params(cluster=cluster)  # fmt: skip


def passed(
    cluster: str | None, hosts: Collection[str], files: Collection[str], since: datetime, until: datetime
) -> Select[Any]:
    """Which of the kernel's lines in other files are also in ``files``: by ``host``, ``day`` since 1970 and ``severity``,
    when the first such text had been in both (``both``), and when the first had been elsewhere only (``lacking``)."""
    lines = LINES.c
    is_own, moment = among(lines.file, files), epoch(lines.time)
    texts = (
        select(
            lines.host, _day(moment).label("day"), lines.message, func.min(moment).filter(is_own).label("own"),
            func.min(moment).filter(not_(is_own)).label("other"), func.max(lines.severity).filter(not_(is_own)).label("severity"),
        )
        .where(
            same(lines.cluster, CLUSTER), lines.source == const("kernel"), lines.time >= _SINCE, lines.time <= _UNTIL,
            lines.file.is_not(None), among(lines.host, hosts),
        )
        .group_by(lines.host, _day(moment), lines.message)
        .subquery("texts")
    ).c  # fmt: skip
    in_both = and_(texts.own.is_not(None), texts.other.is_not(None))
    return (
        select(
            texts.host, texts.day, texts.severity, func.min(func.greatest(texts.own, texts.other)).filter(in_both).label("both"),
            func.min(texts.other).filter(texts.own.is_(None)).label("lacking"),
        )
        .where(texts.other.is_not(None))
        .group_by(texts.host, texts.day, texts.severity)
        .params(cluster=cluster, copies_since=since, copies_until=until)
    )  # fmt: skip


def _day(moment: ColumnElement[Any]) -> ColumnElement[Any]:
    return cast(func.floor(moment / const(DAY_S)), NUMBER)


def _not_of_ring() -> ColumnElement[bool]:
    return not_(one_of(func.coalesce(LINES.c.format, const("")), OF_RING))


def _in_places(places: Collection[tuple[str, int]]) -> ColumnElement[bool]:
    quarter = cast(func.floor(epoch(LINES.c.time) / const(QUARTER_S)), NUMBER)
    named = [f"{host}{_SEPARATOR}{number}" for host, number in places]
    return and_(
        among(LINES.c.host, sorted({host for host, _ in places})),
        among(func.concat(LINES.c.host, const(_SEPARATOR), quarter), named),
    )


@cache
def _of_programs() -> Select[Any]:
    lines = LINES.c
    return in_order(_columns()).where(
        lines.unit == const("kernel"), lines.source == const("syslog"), lines.facility.is_not(None),
        lines.facility != const("kern"), same(lines.cluster, CLUSTER), _in_time(),
    )  # fmt: skip


@cache
def _named() -> Select[Any]:
    lines = LINES.c
    return in_order(_columns().add_columns(lines.event)).where(
        lines.source == const("kernel"),
        lines.facility.is_(None),
        _not_of_ring(),
        same(lines.cluster, CLUSTER),
        _in_time(),
    )


def _columns() -> Select[Any]:
    lines = LINES.c
    return select(
        lines.host, lines.message, lines.file, lines.line, epoch(lines.time).label("t"), epoch(lines.sender_time).label("sent"),
        lines.resolution_us,
    )  # fmt: skip


def _in_time() -> ColumnElement[bool]:
    return and_(LINES.c.time >= _SINCE, LINES.c.time <= _UNTIL)


@cache
def _files_of() -> Select[Any]:
    lines = LINES.c
    is_about = func.contains(func.lower(lines.file), func.lower(lines.host), type_=FLAG)
    return (
        select(lines.host, lines.file)
        .distinct()
        .where(same(lines.cluster, CLUSTER), _in_time(), lines.file.is_not(None), is_about)
    )


@cache
def _spans() -> Select[Any]:
    lines = LINES.c
    moment = epoch(lines.time)
    minute = func.floor(moment / const(60))
    return (
        select(lines.host, lines.file, func.min(moment).label("first"), func.max(moment).label("last"))
        .where(same(lines.cluster, CLUSTER), lines.time.is_not(None))
        .group_by(lines.host, lines.file, minute)
        .order_by(lines.host, lines.file, minute)
    )
