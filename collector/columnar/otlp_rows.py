"""Columns of log records from the tables of a walked request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from collector.columnar import otlp_tables as t
from collector.columnar.otlp_fields import MOST
from collector.columnar.otlp_tables import Array, Tables
from parsers.lines import LineBuffer, chosen, codes, column, numbered

#: The model's severity numbers, four per level, and its level names that differ from ours.
SEVERITIES = ("debug", "debug", "info", "warning", "error", "crit")
SEVERITY_WORDS = {"warn": "warning", "err": "error", "fatal": "crit", "critical": "crit"}
_LEVELS = (None, "debug", "info", "warning", "error", "crit")
_BY_NUMBER = np.array([0, *(_LEVELS.index(SEVERITIES[number // 4]) for number in range(24))], np.int64)


class Keys(NamedTuple):
    """Keys of attributes: attribute ``i`` has ``names[which[i]]``."""

    names: list[str]
    which: Array


@dataclass(frozen=True)
class Sorts:
    """Records grouped by the same origin: record ``rows[i]`` is in group ``which[i]``, whose first record is
    ``rows[firsts[which[i]]]``."""

    which: Array
    firsts: Array


def keys_of(tables: Tables) -> Keys:
    attributes = tables.attributes
    if not len(attributes):
        return Keys([], np.zeros(0, np.uint32))
    found = codes(_texts(tables, attributes[:, t.KEY], attributes[:, t.KEY_SIZE]))
    return Keys(found.names.to_list(), found.which)


def slots_of(tables: Tables, keys: Keys, wanted: Sequence[str]) -> Array:
    """By record and wanted key: the attribute that has it, the last one if several do; -1: none."""
    slots = np.full((len(tables.records), len(wanted)), -1, np.int64)
    place = {name: at for at, name in enumerate(wanted)}
    of_key = np.array([place.get(name, -1) for name in keys.names] or [-1], np.int64)[keys.which]
    record = np.repeat(np.arange(len(tables.records)), tables.records[:, t.COUNT])
    at = np.flatnonzero(of_key >= 0)
    slots[record[at], of_key[at]] = at
    return slots


def strange(tables: Tables, slots: Array, numbers: Array) -> Array:
    """Which records are left to the general reader: those that the walk marked, those with very many attributes, and
    those with anything but a string (or a number, where ``numbers``) in a slot."""
    marked = (tables.records[:, t.STRANGE] != 0) | (tables.records[:, t.COUNT] > MOST)
    if len(tables.attributes):
        kinds = np.where(slots >= 0, tables.attributes[slots, t.KIND], t.TEXT)
        marked |= ~((kinds == t.TEXT) | ((kinds == t.INTEGER) & numbers)).all(axis=1)
    found: Array = marked
    return found


def sorts(tables: Tables, rows: Array, slots: Array) -> Sorts:
    """Groups ``rows`` by what they have in common: the resource, and the values in their ``slots``."""
    together = tables.records[rows, t.RESOURCE]
    for slot in slots[rows].T:
        if (slot < 0).all():
            continue
        held = tables.attributes[np.maximum(slot, 0)]
        is_text = (slot >= 0) & (held[:, t.KIND] == t.TEXT)
        sizes = np.where(is_text, held[:, t.VALUE_SIZE], -1)
        which = codes(_texts(tables, np.where(is_text, held[:, t.VALUE], 0), sizes)).which.astype(np.int64)
        numbers, _ = numbered(np.where((slot >= 0) & ~is_text, held[:, t.VALUE], 0))
        kind = np.where(slot < 0, 0, np.where(is_text, 1, 2))
        for part in (which, numbers, kind):
            together = numbered(together)[0].astype(np.int64) * (int(part.max()) + 1) + part
    which, firsts = numbered(together)
    return Sorts(which, firsts)


def lines_of(tables: Tables, rows: Array) -> pl.Series:
    """The bodies as bytes."""
    records = tables.records[rows]
    return _texts(tables, records[:, t.BODY], records[:, t.BODY_SIZE]).cast(pl.Binary)


def times_of(tables: Tables, rows: Array) -> pl.Series:
    """Microseconds since 1970, the time of the event or else of its observation; null if neither is given."""
    time, observed = tables.records[rows, t.TIME], tables.records[rows, t.OBSERVED]
    stamps = np.where(time != 0, time, observed).view(np.uint64)
    return column((stamps // np.uint64(1000)).view(np.int64), stamps != 0, pa.int64())


def severities_of(tables: Tables, rows: Array) -> pl.Series:
    """From the number, else from the text."""
    records = tables.records[rows]
    numbers = records[:, t.NUMBER]
    known = (numbers >= 1) & (numbers <= 24)
    levels = _BY_NUMBER[np.where(known, numbers, 0)]
    worded = np.flatnonzero(~known & (records[:, t.WORD_SIZE] > 0))
    if len(worded):
        words = codes(_texts(tables, records[worded, t.WORD], records[worded, t.WORD_SIZE]))
        meant = [_LEVELS.index(SEVERITY_WORDS.get(word.lower())) for word in words.names.to_list()]
        levels[worded] = np.array(meant, np.int64)[words.which]
    return chosen(_LEVELS, levels)


def _texts(tables: Tables, at: Array, sizes: Array) -> pl.Series:
    return LineBuffer(tables.texts, at, at).texts(at, sizes)
