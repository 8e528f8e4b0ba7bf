"""Two columns of JSON objects merged into one, as the library would merge each pair."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.decoding import _with_fields
from collector.json_objects import _FEW as _MANY
from collector.json_objects import merged

_NAMES = st.sampled_from(["a", "b", "ab", "a.b", "B", "ü", "漢", "", 'q"', "z\n", "😀"]) | st.text(max_size=3)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["e", "E", "{,}", "a: b", "1e5"])
)
_VALUES = st.recursive(
    _LEAVES, lambda values: st.lists(values, max_size=2) | st.dictionaries(_NAMES, values, max_size=2), max_leaves=4
)
_STYLES = st.sampled_from(
    [{}, {}, {"ensure_ascii": True}, {"separators": (",", ":")}, {"sort_keys": False}, {"indent": 0}]
)


def written(found: dict[str, Any] | None, style: dict[str, Any]) -> str | None:
    return None if found is None else json.dumps(found, **{"sort_keys": True, "ensure_ascii": False, **style})


_OBJECTS = st.builds(written, st.none() | st.dictionaries(_NAMES, _VALUES, max_size=4), _STYLES) | st.sampled_from(
    ["", None, '{"uptime_s": 12.5}', '{"x": 1e5}']
)


@settings(deadline=None)
@given(st.lists(st.tuples(_OBJECTS, _OBJECTS), max_size=5))
def test_any_two_columns(pairs: list[tuple[str | None, str | None]]) -> None:
    first, second = (
        pl.Series("entities", list(column), dtype=pl.String)
        for column in (zip(*pairs, strict=True) if pairs else ([], []))
    )
    expected = [
        json.dumps({**json.loads(other), **json.loads(one)}, sort_keys=True, ensure_ascii=False) if one and other else one or other
        for one, other in pairs
    ]  # fmt: skip
    assert merged(first, second).to_list() == expected
    # Many are merged as texts.
    many = merged(pl.concat([first] * _MANY), pl.concat([second] * _MANY))
    assert many.to_list() == expected * _MANY


def test_numbers_are_written_as_the_library_writes_them() -> None:
    numbers = ["0", "-0", "-0.0", "0.0001", "0.00001", "0.123456", "0.1234567", "1.50", "12.000001", "123456789.123456", "1234567890.123456",
               "123456789012345", "12345678901234567890", "1e3", "1E-7", "1.0", "10", "-7.25", "0.0", "0.10"]  # fmt: skip
    one = pl.Series([f'{{"b": {number}}}' for number in numbers] * _MANY)
    other = pl.Series(['{"a": "x", "c": 5}', '{"b.c": "x", "B": null}'] * (_MANY * len(numbers) // 2))
    expected = [
        json.dumps({**json.loads(text), **json.loads(own)}, sort_keys=True, ensure_ascii=False)
        for own, text in zip(one, other, strict=True)
    ]
    assert merged(one, other).to_list() == expected


def test_objects_as_they_are_written_here() -> None:
    one = pl.Series(['{"b": "x, y: {", "c": true}', '{"a": [1, {"n": null}]}', '{"uptime_s": 12.5}'] * 3)
    other = pl.Series(['{"a": false, "b": 1, "d": 0.5}', '{"b": {}}', '{"uptime_s": 3}'] * 3)
    expected = [
        '{"a": false, "b": "x, y: {", "c": true, "d": 0.5}',
        '{"a": [1, {"n": null}], "b": {}}',
        '{"uptime_s": 12.5}',
    ]
    assert merged(one, other).to_list() == expected * 3


def test_tags_are_added() -> None:
    rows = pl.DataFrame(
        {"entities": [None] * 4, "_fields": [None] * 4, "tags": [["a"], None, ["a"], None], "_tags": ['["cut", "x\\n"]', '["cut"]', None, None]},
        schema_overrides={"entities": pl.String, "_fields": pl.String, "tags": pl.List(pl.String)},
    )  # fmt: skip
    assert _with_fields(rows)["tags"].to_list() == [["a", "cut", "x\n"], ["cut"], ["a"], None]
