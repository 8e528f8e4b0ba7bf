"""Facts as rows of ``model.concluded_facts``.

A row is named after its content, so that a tick knows which rows differ without reading the stored ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import orjson
import polars as pl

from correlator.model.attrs import by_name
from correlator.model.json_text import sorted_json
from correlator.model.nouns import Event, Fact

_ORDER = attrgetter("time", "id")
#: The most events that are listed as evidence of one fact.
MOST_EVIDENCE = 100

_TEXTS = ("fact_id", "cluster", "kind", "subject", "host", "device", "run_key")
_SCHEMA = {
    **dict.fromkeys(_TEXTS, pl.String), "start": pl.Int64, "end": pl.Int64, "sigma": pl.Float64, "attributes": pl.String,
    "evidence": pl.String,
}  # fmt: skip

Row = tuple[Any, ...]


def rows(facts: Iterable[Fact], cluster: str | None) -> dict[str, Row]:
    """The facts by ``fact_id``; two that say the same are one."""
    found = {}
    for fact in facts:
        end, attrs = fact.end, by_name(fact.attrs)
        row = (
            cluster, fact.kind, subject(fact), fact.host, fact.device, fact.run, round(fact.start * 1e6),
            None if end is None else round(end * 1e6), fact.sigma, _attributes(attrs) if attrs else "{}", _evidence(fact.events),
        )  # fmt: skip
        found["f" + blake2b(repr(row).encode(), digest_size=8).hexdigest()] = row
    return found


def _evidence(events: tuple[Event, ...]) -> str:
    if len(events) == 1:
        return sorted_json([events[0].id])
    ids = [e.id for e in sorted(events, key=_ORDER)[:MOST_EVIDENCE]]
    return sorted_json(list(dict.fromkeys(ids)))


def _attributes(attrs: Mapping[str, Any]) -> str:
    """Those that are not empty. A tick has thousands, so JSON's encoder goes into them as far as it can."""
    kept = {}
    for name, value in attrs.items():
        if value or value == 0:
            kind = type(value)
            if kind is dict and not any(value.values()) and 0 not in value.values():
                continue
            if kind not in _ENCODED and not (
                _ENCODED.issuperset(map(type, value)) if kind is list else kind is dict and _are_texts(value)
            ):
                value = _filled(value) if kind is dict and _is_of_lists(value) else _plain(value)
                if not value and value != 0:
                    continue
            kept[name] = value
    try:
        return orjson.dumps(
            kept, default=_noun, option=orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS
        ).decode()
    except TypeError:
        return sorted_json(_plain(kept))


#: What is written as it is; and what the encoder writes by itself or asks ``_noun`` about.
_SIMPLE = frozenset({str, int, float, bool, type(None)})
_ENCODED = frozenset({str, int, float, bool, Event, Fact})


def _are_texts(value: dict[Any, Any]) -> bool:
    """Is nothing empty to be left out of it?"""
    return all(type(name) is str and type(one) is str and one for name, one in value.items())


def _is_of_lists(value: dict[Any, Any]) -> bool:
    """Is it lists by name, which the encoder writes by itself?"""
    return all(
        type(name) is str and type(one) is list and _ENCODED.issuperset(map(type, one)) for name, one in value.items()
    )


def _filled(value: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: one for name, one in value.items() if one}


def _noun(value: Any) -> Any:
    if isinstance(value, (Event, Fact)):
        return _plain(value)
    raise TypeError(type(value).__name__)


def table(found: Mapping[str, Row]) -> pl.DataFrame:
    """``rows`` as a table."""
    if not found:
        return pl.DataFrame(schema=_SCHEMA).with_columns(pl.col("start", "end").cast(pl.Datetime("us")))
    columns = [list(found), *zip(*found.values(), strict=True)]  # half as long as row by row
    made = pl.DataFrame(
        [pl.Series(name, some, kind) for (name, kind), some in zip(_SCHEMA.items(), columns, strict=True)]
    )
    return made.with_columns(pl.col("start", "end").cast(pl.Datetime("us")))


def subject(fact: Fact) -> str:
    """What the fact is about: a host and its device, else a run."""
    host, device = fact.host, fact.device
    return f"{host} {device}" if host and device else host or device or fact.run or ""


def _plain(value: Any) -> Any:
    """An attribute as JSON has it, without what is empty: an event by its id, another fact by its kind, time and subject."""
    kind = type(value)
    if kind in _SIMPLE:  # nearly all are that or a list, and to ask whether one is a mapping takes long
        return value
    if kind is list:
        return [_plain(v) for v in value]
    if isinstance(value, Event):
        return value.id
    if isinstance(value, Fact):
        return [value.kind, value.start, subject(value)]
    if isinstance(value, Mapping):
        return {str(k): plain for k, v in value.items() if (plain := _plain(v)) or plain == 0}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(v) for v in value), key=repr)
    return value.isoformat() if isinstance(value, date) else value
