"""The intake's state: positions in the spool, keys, sources, nodes, blind periods, batches set aside."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Delete, Select, Update, delete, func, select, update

from store.functions import among, json_text, last_by, listed, one_of, same
from store.tables import BLIND, CARRIED, KEYS, MODEL_NODE_STATES, NODES, QUARANTINE, SOURCES, STREAMS, WATERMARK


def watermark(spool: str) -> Select[Any]:
    """``segment`` and ``at``: the position up to which a spool is stored."""
    return select(WATERMARK.c.segment, WATERMARK.c.offset.label("at")).where(WATERMARK.c.spool == spool)


def last_step(spool: str) -> Select[Any]:
    """``step``, the last committed transaction of a spool, and ``file`` with the lines that it carried over."""
    return select(CARRIED.c.step, CARRIED.c.file).where(CARRIED.c.spool == spool)


def streams() -> Select[Any]:
    """The stored sequence numbers of each stream (``ranges``)."""
    return select(STREAMS.c.agent, STREAMS.c.stream, STREAMS.c.epoch, STREAMS.c.ranges)


def keys() -> Select[Any]:
    """Opaque keys of stored batches, and when they were ``received``."""
    return select(KEYS)


def forget_keys(before: datetime) -> Delete:
    """Deletes keys received before a time."""
    return delete(KEYS).where(KEYS.c.received < before)


def sources() -> Select[Any]:
    """Every source, all columns."""
    return select(SOURCES)


def forget_sources(names: Iterable[str], before: datetime) -> Delete:
    """Deletes sources of some kinds last seen before a time."""
    return delete(SOURCES).where(one_of(SOURCES.c.source, names), SOURCES.c.last_seen < before)


def nodes() -> Select[Any]:
    """Every node that sent something, all columns."""
    return select(NODES)


def agents(cluster: str | None, addresses: Collection[str] | None = None) -> Select[Any]:
    """``address`` and ``host``: from where each host's agent last reported; ``addresses``: only from these."""
    address = json_text(NODES.c.status, "$.address")
    of_cluster = select(address.label("address"), NODES.c.host).where(
        address.is_not(None), NODES.c.host.is_not(None), same(NODES.c.cluster, cluster)
    )
    return of_cluster if addresses is None else of_cluster.where(among(address, addresses))


def blind_count() -> Select[Any]:
    """``n``: the number of known blind periods."""
    return select(func.count().label("n")).select_from(BLIND)


def blind(limit: int) -> Select[Any]:
    """The newest blind periods."""
    return select(BLIND).order_by(BLIND.c.received.desc(), BLIND.c.start.desc()).limit(limit)


def set_aside() -> Select[Any]:
    """``id`` of each batch currently set aside."""
    return select(QUARANTINE.c.id).where(QUARANTINE.c.replayed_at.is_(None))


def quarantine(limit: int) -> Select[Any]:
    """Batches currently set aside, newest first."""
    waiting = select(QUARANTINE).where(QUARANTINE.c.replayed_at.is_(None))
    return waiting.order_by(QUARANTINE.c.set_aside_at.desc()).limit(limit)


def replayed(ids: Collection[str], at: datetime) -> Update:
    """Marks batches that were set aside as stored."""
    return update(QUARANTINE).where(listed(QUARANTINE.c.id, ids)).values(replayed_at=at)


def states_lately(since: datetime) -> Select[Any]:
    """``host`` and its last ``state``, of those reported after a time."""
    states = MODEL_NODE_STATES.c
    return (
        select(states.host, last_by(states.state, states.time).label("state"))
        .where(states.time > since, states.host.is_not(None))
        .group_by(states.host)
    )
