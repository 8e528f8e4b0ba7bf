"""Arrays and bags whose SQL would be longer than their meaning."""

from __future__ import annotations

import functools
import re
from typing import Any

from queries.kql.functions.body import Body

Json = Any


def _list(value: Json) -> list[Json] | None:
    return value if isinstance(value, list) else None


def _truth(value: Json) -> bool | None:
    if isinstance(value, bool):
        return value
    return value != 0 if isinstance(value, (int, float)) else None


def array_iff(tests: Json, yes: Json, no: Json) -> list[Json] | None:
    """Item by item from one of two arrays; a scalar serves every place, a short array ends in nulls."""
    if not isinstance(tests, list):
        return None
    out: list[Json] = []
    for place, test in enumerate(tests):
        truth = _truth(test)
        chosen = yes if truth else no
        if truth is None:
            out.append(None)
        elif isinstance(chosen, list):
            out.append(chosen[place] if place < len(chosen) else None)
        else:
            out.append(chosen)
    return out


def array_index_of(array: Json, value: Json, start: int = 0, length: int = -1, occurrence: int = 1) -> int | None:
    """The place of the n-th item equal to a value, -1 when there is none, null when the question makes no sense."""
    if not isinstance(array, list) or length < -1 or occurrence < 1:
        return None
    begin = max(len(array) + start, 0) if start < 0 else start
    end = len(array) if length == -1 else min(begin + length, len(array))
    for place in range(begin, end):
        if array[place] == value and isinstance(array[place], bool) == isinstance(value, bool):
            occurrence -= 1
            if not occurrence:
                return place
    return -1


def _rotate(sign: int) -> Any:
    def run(array: Json, count: int) -> list[Json] | None:
        if not isinstance(array, list):
            return None
        shift = (sign * count) % len(array) if array else 0
        return array[shift:] + array[:shift]

    return run


def array_split(array: Json, cuts: Json) -> list[list[Json]] | None:
    """The array cut at one place or several; a negative place counts from the end."""
    if not isinstance(array, list):
        return None
    places = [cuts] if isinstance(cuts, int) else cuts
    if not isinstance(places, list) or not all(isinstance(p, int) for p in places):
        return None
    # A place that is not after the one before it gives an empty piece.
    out, last = [], 0
    for place in places:
        at = min(max(len(array) + place, 0) if place < 0 else place, len(array))
        out.append(array[last:at])
        last = max(at, last)
    return [*out, array[last:]]


def zip_(*arrays: Json) -> list[list[Json]]:
    """Tuples of the items at one place; short arrays go on with nulls."""
    lists = [a if isinstance(a, list) else [] for a in arrays]
    width = max(map(len, lists))
    return [[a[i] if i < len(a) else None for a in lists] for i in range(width)]


def _key(value: Json) -> str:
    from json import dumps

    return dumps(value, sort_keys=True)


def jaccard_index(first: Json, second: Json) -> float | None:
    """Size of the intersection over size of the union."""
    if not isinstance(first, list) or not isinstance(second, list):
        return None
    one, two = {_key(v) for v in first}, {_key(v) for v in second}
    return len(one & two) / len(one | two) if one | two else float("nan")


def set_equals(first: Json, second: Json) -> bool | None:
    """Whether two arrays hold the same items."""
    if not isinstance(first, list) or not isinstance(second, list):
        return None
    return {_key(v) for v in first} == {_key(v) for v in second}


def bag_merge(*bags: Json) -> dict[str, Json] | None:
    """All properties; the leftmost bag that has a key decides."""
    out: dict[str, Json] = {}
    given = [b for b in bags if isinstance(b, dict)]
    for bag in given:
        for key, value in bag.items():
            out.setdefault(key, value)
    return out if given else None


_STEP = re.compile(r"\.([^.\[]+)|\[\s*(?:'([^']*)'|\"([^\"]*)\"|(\d+))\s*\]")


def path_of(text: str) -> list[str | int]:
    """The steps of `$.a['b'][0]`; a name alone is one step."""
    if not text.startswith("$"):
        return [text]
    return [int(m[4]) if m[4] else (m[1] or m[2] or m[3] or "") for m in _STEP.finditer(text)]


_ABSENT = object()


def _inside(value: Any, way: list[str | int]) -> Any:
    """What lies at the end of a path, or _ABSENT."""
    for step in way:
        if isinstance(value, dict) and step in value:
            value = value[step]
            continue
        if not (isinstance(value, list) and isinstance(step, int) and step < len(value)):
            return _ABSENT
        value = value[step]
    return value


def bag_remove_keys(bag: Json, keys: Json) -> Json:
    """Without these properties; `$.a.b` reaches inside."""
    if not isinstance(bag, dict) or not isinstance(keys, list):
        return None
    for key in keys:
        *way, last = path_of(str(key))
        node = _inside(bag, way)
        if isinstance(node, dict):
            node.pop(last, None)
    return bag


def bag_set_key(bag: Json, key: str, value: Json) -> Json:
    """With one property set; `$.a.b` reaches inside and makes what is missing."""
    if not isinstance(bag, dict):
        return None
    *way, last = path_of(key)
    node: Any = bag
    for step in way:
        inner = node.get(str(step))
        if not isinstance(inner, dict):
            inner = node[str(step)] = {}
        node = inner
    node[str(last)] = value
    return bag


def bag_zip(keys: Json, values: Json) -> dict[str, Json] | None:
    """A bag of keys and values by place; keys that are no text are left out, missing values are null: all of them where
    the values are no array."""
    if not isinstance(keys, list):
        return None
    values = values if isinstance(values, list) else []
    return {k: values[i] if i < len(values) else None for i, k in enumerate(keys) if isinstance(k, str)}


def bag_has_key(bag: Json, key: str) -> bool | None:
    """Whether a property exists; `$.a.b` reaches inside."""
    return _inside(bag, path_of(key)) is not _ABSENT


def treepath(value: Json) -> list[str]:
    """Paths of all properties and places below a dynamic value."""
    out: list[str] = []

    def walk(node: Json, path: str) -> None:
        if isinstance(node, dict):
            for key, item in node.items():
                below = f"{path}['{key}']" if path else f"['{key}']"
                out.append(below)
                walk(item, below)
        elif isinstance(node, list) and node:
            below = f"{path}[0]"
            out.append(below)
            for item in node:
                walk(item, below)

    walk(value, "")
    return list(dict.fromkeys(out))


def _rank(value: Json) -> int:
    """Numbers before texts before the rest, as Kusto shows mixed arrays."""
    if isinstance(value, bool):
        return 0
    return 0 if isinstance(value, (int, float)) else (1 if isinstance(value, str) else 2)


def _order(first: Json, second: Json) -> int:
    if _rank(first) != _rank(second):
        return -1 if _rank(first) < _rank(second) else 1
    one, two = (first, second) if _rank(first) < 2 else (_key(first), _key(second))
    return (one > two) - (one < two)


_Sorted = functools.cmp_to_key(_order)


def array_sort(descending: bool, *arrays: Json, nulls_last: bool = True) -> list[Json] | None:
    """The first array sorted and the others taken along; arrays of another length become null."""
    head = _list(arrays[0])
    if head is None:
        return [None] * len(arrays)
    kinds = {_rank(v) for v in head if v is not None}
    if len(kinds) > 1:
        # R17: the order of mixed types is not documented.
        raise ValueError("kql: arrays of mixed types cannot be sorted")
    full: list[int] = [i for i, v in enumerate(head) if v is not None]
    full.sort(key=lambda i: _Sorted(head[i]), reverse=descending)
    holes = [i for i, v in enumerate(head) if v is None]
    places = full + holes if nulls_last else holes + full
    out: list[Json] = []
    for array in arrays:
        same = isinstance(array, list) and len(array) == len(head)
        out.append([array[i] for i in places] if same else None)
    return out


def has_any_index(text: str, values: Json) -> int:
    """The place of the first value that the text holds as a whole term, or -1."""
    for place, value in enumerate(values if isinstance(values, list) else []):
        needle = str(value)
        before = r"(?<![^\W_])" if needle[:1].isalnum() else ""
        after = r"(?![^\W_])" if needle[-1:].isalnum() else ""
        if needle and re.search(before + re.escape(needle) + after, text, re.I):
            return place
    return -1


def unicode_codepoints_from_string(text: str) -> list[int]:
    """The code points of a text."""
    return [ord(c) for c in text]


def _sorting(descending: bool, nulls_last: bool) -> Any:
    def run(*arrays: Json) -> list[Json] | None:
        return array_sort(descending, *arrays, nulls_last=nulls_last)

    return run


def bag_of_bags(bags: Json, most: int) -> dict[str, Json]:
    """make_bag(): one bag of all; the first row that has a key decides."""
    out: dict[str, Json] = {}
    for bag in bags:
        for key, value in bag.items() if isinstance(bag, dict) else ():
            if key not in out and (most < 0 or len(out) < most):
                out[key] = value
    return out


def weighted_rank(values: Json, weights: Json, share: float) -> float | None:
    """The least value at which the weights so far reach a share, in percent."""
    pairs = sorted((v, w) for v, w in zip(values, weights, strict=True) if v is not None and w and w > 0)
    reached, total = 0, sum(w for _, w in pairs)
    for value, weight in pairs:
        reached += weight
        if reached >= total * share / 100:
            return float(value)
    return None


def schema_of(values: Json) -> Json:
    """buildschema(): the types below each property of all values."""
    kinds: dict[str, Json] = {}
    for value in values:
        kind = _schema(value)
        kinds.setdefault(_key(kind), kind)
    return _merged(list(kinds.values()))


def _schema(value: Json) -> Json:
    if isinstance(value, dict):
        return {k: _schema(v) for k, v in value.items()}
    if isinstance(value, list):
        return {"`indexer`": _merged([_schema(v) for v in value])}
    if isinstance(value, bool):
        return "bool"
    return {int: "long", float: "double", str: "string"}.get(type(value), "null")


def _merged(kinds: list[Json]) -> Json:
    """Several schemas as one: bags merge by property, different plain types become an array."""
    bags = [k for k in kinds if isinstance(k, dict)]
    flat: list[Json] = list(dict.fromkeys(k for kind in kinds if not isinstance(kind, dict)
                              for k in (kind if isinstance(kind, list) else [kind]) if isinstance(k, str)))  # fmt: skip
    if bags:
        keys = dict.fromkeys(k for b in bags for k in b)
        flat.append({k: _merged([b[k] for b in bags if k in b]) for k in keys})
    flat = [k for k in flat if k != "null"] or flat
    return flat[0] if len(flat) == 1 else flat


BODIES = {
    "bag_of_bags": (Body("d l", "dynamic", bag_of_bags),),
    "weighted_rank": (Body("d d r", "real", weighted_rank),),
    "schema_of": (Body("d", "dynamic", schema_of),),
    "array_iff": (Body("d D D", "dynamic", array_iff, nulls=True),),
    "array_index_of": tuple(Body("d D" + " l" * n, "long", array_index_of) for n in range(4)),
    "array_rotate_left": (Body("d l", "dynamic", _rotate(1)),),
    "array_rotate_right": (Body("d l", "dynamic", _rotate(-1)),),
    "array_split": (Body("d D", "dynamic", array_split),),
    "zip": (Body("d d*", "dynamic", zip_, nulls=True),),
    "jaccard_index": (Body("d d", "dynamic", jaccard_index),),
    "set_equals": (Body("d d", "bool", set_equals),),
    "bag_merge": (Body("d d*", "dynamic", bag_merge, nulls=True),),
    "bag_remove_keys": (Body("d d", "dynamic", bag_remove_keys),),
    "bag_set_key": (Body("d s D", "dynamic", bag_set_key, nulls=True),),
    "bag_zip": (Body("d d", "dynamic", bag_zip),),
    "bag_has_key": (Body("d s", "bool", bag_has_key),),
    "treepath": (Body("d", "dynamic", treepath),),
    "has_any_index": (Body("s d", "long", has_any_index),),
    "unicode_codepoints_from_string": (Body("S", "dynamic", unicode_codepoints_from_string),),
    "to_utf8": (Body("S", "dynamic", unicode_codepoints_from_string),),
    "array_sort_asc_first": (Body("d*", "dynamic", _sorting(False, False), nulls=True),),
    "array_sort_asc_last": (Body("d*", "dynamic", _sorting(False, True), nulls=True),),
    "array_sort_desc_first": (Body("d*", "dynamic", _sorting(True, False), nulls=True),),
    "array_sort_desc_last": (Body("d*", "dynamic", _sorting(True, True), nulls=True),),
}
