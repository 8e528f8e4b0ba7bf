"""What switches logged about their ports."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, func, or_, select

from store.functions import const, epoch, in_order, json_text, same
from store.questions.source import CLUSTER
from store.questions.writers import authority, is_claim
from store.tables import LINES, TEXT, TIME

_SWITCH = bindparam("switch", type_=TEXT)
_SINCE, _UNTIL = bindparam("ports_since", type_=TIME), bindparam("ports_until", type_=TIME)


def around(cluster: str | None, switch: str, since: datetime, until: datetime) -> Select[Any]:
    """The lines of a switch in a range of time, each second's once: ``t`` (epoch seconds), ``event``, ``port`` and
    ``message`` (null for lines without an event), ``authority``, ``file``, and whether it is a ``claim``."""
    return _around().params(cluster=cluster, switch=switch, ports_since=since, ports_until=until)


def logs_ports(cluster: str | None, switch: str, since: datetime, until: datetime) -> Select[Any]:
    """``authority`` and ``file`` of the lines in a range of time by which the switch lost a port, or one came back."""
    return _logs_ports().params(cluster=cluster, switch=switch, ports_since=since, ports_until=until)


def _of_switch() -> ColumnElement[bool]:
    lines = LINES.c
    return and_(lines.host == _SWITCH, same(lines.cluster, CLUSTER), lines.time >= _SINCE, lines.time <= _UNTIL)


@cache
def _around() -> Select[Any]:
    lines = LINES.c
    is_event = lines.event != const("other")
    port = func.coalesce(json_text(lines.entities, "$.port"), json_text(lines.entities, "$.device"))
    reported = {"event": lines.event, "port": port, "message": lines.message}
    second = func.floor(epoch(lines.time))
    return in_order(
        select(
            second.label("t"), *(case((is_event, column)).label(name) for name, column in reported.items()),
            authority(LINES).label("authority"), lines.file, is_claim(LINES).label("claim"),
        )
        .distinct()
        .where(_of_switch())
    )  # fmt: skip


@cache
def _logs_ports() -> Select[Any]:
    of_ports = or_(LINES.c.event == const("switch.port_down"), LINES.c.event == const("switch.port_up"))
    return select(authority(LINES).label("authority"), LINES.c.file).distinct().where(_of_switch(), of_ports)
