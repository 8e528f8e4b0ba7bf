"""Dynamic arrays and sets of their items."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import KqlBindError
from queries.kql.functions.arguments import arguments, expect_whole
from queries.kql.functions.calling import call
from queries.kql.functions.declaration import LINEAR, Bind, Body, Function, Template
from queries.kql.lexical import parse_datetime, timespan_ticks
from queries.kql.stages import Scope
from queries.kql.values import (
    NUMERIC,
    TICKS_TO_TEXT,
    Value,
    cast_number,
    constant,
    dynamic_of,
    sql,
    widest,
)

_ARRAY = "TRY_CAST({0} AS JSON[])"
_GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

_IS_ARRAY = "json_type({0}) = 'ARRAY'"
_NO_NUMBER = "lambda kx: json_type(kx) NOT IN ('BIGINT', 'UBIGINT', 'DOUBLE', 'NULL')"
_IS_NUMERIC = f"{_IS_ARRAY} AND len(list_filter({_ARRAY}, {_NO_NUMBER})) = 0"


def _pack_array(c: Binder, node: ast.Call, scope: Scope) -> Value:
    values = [dynamic_of(c.expr(a, scope)) for a in node.args]
    return sql("json_list([{*}]::JSON[])", "dynamic", *values, nullable=False)


def _array_slice(c: Binder, node: ast.Call, scope: Scope) -> Value:
    array, low, high = arguments(c, node, scope, 3)
    expect_whole(node, low, high)
    n = "CAST(json_array_length({0}) AS BIGINT)"
    place = f"(CASE WHEN {{N}} < 0 THEN greatest({n} + {{N}}, 0) ELSE {{N}} END + 1)"
    return sql(
        f"CASE WHEN json_type({{0}}) = 'ARRAY' THEN json_list(TRY_CAST({{0}} AS JSON[])[{place.replace('{N}', '{1}')}"
        f" : {place.replace('greatest(', '(').replace(', 0)', ')').replace('{N}', '{2}')}]) END",
        "dynamic", array, low, high, nullable=True,
    )  # fmt: skip


def _set_operation(template: str) -> Bind:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        values = arguments(c, node, scope, 2, 64)
        for value in values:
            if value.type != "dynamic":
                raise KqlBindError(f"{node.name}() needs dynamic arrays, not {value.type}", value.span)
        # First-seen order, as Kusto shows it.
        distinct = "list_unique(TRY_CAST({0} AS JSON[]))"
        made = sql(distinct, "dynamic", values[0])
        for value in values[1:]:
            made = sql(template.replace("{U}", distinct.replace("{0}", "{1}")), "dynamic", made, value)
        guard = "CASE WHEN json_type({1}) = 'ARRAY' THEN json_list({0}) END"
        return sql(guard, "dynamic", made, values[0], nullable=True)

    return build


def _shift(sign: int) -> Bind:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        args = arguments(c, node, scope, 2, 3)
        if args[0].type != "dynamic":
            raise KqlBindError(f"{node.name}() needs an array, not {args[0].type}", node.span)
        expect_whole(node, args[1])
        fill = dynamic_of(args[2]) if len(args) == 3 else constant(None, "dynamic")
        place = f"(ki + {sign} * {{1}})"
        picked = f"CASE WHEN {place} BETWEEN 1 AND len(TRY_CAST({{0}} AS JSON[])) THEN TRY_CAST({{0}} AS JSON[])[{place}] ELSE {{2}} END"
        template = f"json_list(list_transform(range(1, len(TRY_CAST({{0}} AS JSON[])) + 1), lambda ki: {picked}))"
        guarded = f"CASE WHEN json_type({{0}}) = 'ARRAY' THEN {template} END"
        return sql(guarded, "dynamic", args[0], args[1], fill, nullable=True)

    return build


MAX_RANGE = 1_048_576  # Kusto's own limit for range()


def _array_sort(direction: str) -> Bind:
    """The first array sorted, the others in the same order: as many values as arrays."""

    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        args = arguments(c, node, scope, 1, 65)
        last = True
        if args[-1].type == "bool":
            if not args[-1].is_constant:
                raise KqlBindError(f"{node.name}() needs a constant for nulls_last", node.args[-1].span)
            last = bool(args.pop().constant)
        if not args:
            raise KqlBindError(f"{node.name}() needs a dynamic array", node.span)
        for arg in args:
            if arg.type != "dynamic":
                raise KqlBindError(f"{node.name}() needs dynamic arrays, not {arg.type}", arg.span)
        made = call(SORTS[direction, last], args, node)
        parts = []
        for place, arg in enumerate(args):
            item = sql(f"nullif(json_extract({{0}}, '$[{place}]'), 'null'::JSON)", "dynamic", made, nullable=True)
            parts.append((f"{arg.name or f'array{place}'}_sorted", item))
        return replace(parts[0][1], name=parts[0][0], parts=tuple(parts))

    return build


def _range(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """An array from start to stop, both included."""
    args = arguments(c, node, scope, 2, 3)
    start, stop = args[:2]
    if len(args) == 2:
        by_hour = constant(3600 * 10**7, "timespan")
        args.append(by_hour if start.type in ("datetime", "timespan") else constant(1, "long"))
    step = args[2]
    if step.is_constant and not step.constant:
        raise KqlBindError("range() needs a step other than 0", node.span)
    kinds = (start.type, stop.type, step.type)
    if kinds == ("datetime", "datetime", "timespan"):
        places = "range(0, least((epoch_us({1}) - epoch_us({0})) // ({2} // 10) + 1, %d))"
        cell = "time_text(make_timestamp(epoch_us({0}) + kx * ({2} // 10)))"
    elif kinds == ("timespan",) * 3:
        places = "range(0, least(({1} - {0}) // {2} + 1, %d))"
        cell = TICKS_TO_TEXT.replace("{0}", "({0} + kx * {2})")
    elif all(k in NUMERIC for k in kinds):
        kind = widest([*kinds])
        kind = "real" if kind in ("real", "decimal") else "long"
        start, stop, step = (cast_number(v, kind) if v.type != "decimal" else v for v in (start, stop, step))
        places = "range(0, least(CAST(floor(({1} - {0}) / {2}) AS BIGINT) + 1, %d))"
        cell = "({0} + kx * {2})"
    else:
        raise KqlBindError(f"range() does not run from {kinds[0]} to {kinds[1]} by {kinds[2]}", node.span)
    made = f"to_json(list_transform({places % MAX_RANGE}, lambda kx: {cell}))"
    return sql(made, "dynamic", start, stop, step)


def _repeat(c: Binder, node: ast.Call, scope: Scope) -> Value:
    value, count = arguments(c, node, scope, 2)
    if count.type not in ("int", "long"):
        raise KqlBindError(f"repeat() needs a whole number, not {count.type}", node.args[1].span)
    return sql("CASE WHEN {1} >= 0 THEN json_list(list_transform(range({1}), lambda kx: {0})) END",
               "dynamic", dynamic_of(value), count, nullable=True)  # fmt: skip


Json = Any


def _list(value: Json) -> list[Json] | None:
    return value if isinstance(value, list) else None


def _truth(value: Json) -> bool | None:
    if isinstance(value, bool):
        return value
    return value != 0 if isinstance(value, (int, float)) else None


def array_iff(tests: Json, yes: Json, no: Json) -> list[Json] | None:
    """Item by item from one of two arrays; a scalar applies to every index, a short array ends in nulls."""
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
    """The index of the n-th item equal to a value, -1 if there is none, null if the arguments are invalid."""
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
    """The array split at one index or several; a negative index counts from the end."""
    if not isinstance(array, list):
        return None
    places = [cuts] if isinstance(cuts, int) else cuts
    if not isinstance(places, list) or not all(isinstance(p, int) for p in places):
        return None
    # An index that is not greater than the one before it gives an empty piece.
    out, last = [], 0
    for place in places:
        at = min(max(len(array) + place, 0) if place < 0 else place, len(array))
        out.append(array[last:at])
        last = max(at, last)
    return [*out, array[last:]]


def zip_(*arrays: Json) -> list[list[Json]]:
    """Tuples of the items at one index; short arrays continue with nulls."""
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
    """Do two arrays hold the same items?"""
    if not isinstance(first, list) or not isinstance(second, list):
        return None
    return {_key(v) for v in first} == {_key(v) for v in second}


def _rank(value: Json) -> int:
    """Numbers before texts before the rest: the order of Kusto's page on array_sort_asc()."""
    if isinstance(value, bool):
        return 2
    return 0 if isinstance(value, (int, float)) else (1 if isinstance(value, str) else 3)


def _order(first: Json, second: Json) -> int:
    if _rank(first) != _rank(second):
        return -1 if _rank(first) < _rank(second) else 1
    one, two = (first, second) if _rank(first) < 3 else (_key(first), _key(second))
    return (one > two) - (one < two)


def _is_ordered(values: list[Json]) -> bool:
    """R17: is the ascending order of items of several types known? A text that spells a time or a guid is one in Kusto, and
    nothing says in which order two items stand that are neither numbers nor texts."""
    typed = (v for v in values if isinstance(v, str))
    return sum(_rank(v) > 1 for v in values) < 2 and not any(
        _GUID.fullmatch(v) or parse_datetime(v) is not None or timespan_ticks(v) is not None for v in typed
    )


_Sorted = functools.cmp_to_key(_order)


def array_sort(descending: bool, *arrays: Json, nulls_last: bool = True) -> list[Json] | None:
    """The first array sorted and the others in the same order; arrays of another length become null."""
    head = _list(arrays[0])
    if head is None:
        return [None] * len(arrays)
    items = [v for v in head if v is not None]
    if len({_rank(v) for v in items}) > 1 and (descending or not _is_ordered(items)):
        # R17: the page on array_sort_desc() has the list of the other page, word for word.
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


def _sorting(descending: bool, nulls_last: bool) -> Any:
    def run(*arrays: Json) -> list[Json] | None:
        return array_sort(descending, *arrays, nulls_last=nulls_last)

    return run


#: Descending or not, nulls last or not.
SORTS = {
    (direction, last): Function(
        f"array_sort_{direction}_{'last' if last else 'first'}",
        f"array_sort_{direction}() with nulls {'last' if last else 'first'}.",
        Body("d*", "dynamic", _sorting(direction == "desc", last), nulls=True),
        internal=True,
    )
    for direction in ("asc", "desc")
    for last in (False, True)
}
FUNCTIONS = (
    Function(
        "array_length",
        "How many items the array has.",
        Template("d", "long!", f"CASE WHEN {_IS_ARRAY} THEN CAST(json_array_length({{0}}) AS BIGINT) END"),
        cost=LINEAR,
        aliases=("arraylength",),
    ),
    Function(
        "array_reverse",
        "The items in reverse order.",
        Template("d", "dynamic!", f"CASE WHEN {_IS_ARRAY} THEN json_list(list_reverse({_ARRAY})) END"),
    ),
    Function(
        "array_sum",
        "The sum of the items; null if one is no number.",
        Template("d", "real!", f"CASE WHEN {_IS_NUMERIC} THEN list_sum(TRY_CAST({{0}} AS DOUBLE[])) END"),
    ),
    Function(
        "array_concat",
        "The items of several arrays as one array.",
        Template("d*", "dynamic!", "json_list(lists_joined({*}))"),
    ),
    Function(
        "strcat_array",
        "The items put together as one text, with a delimiter between them.",
        Template("d S", "string!", f"array_to_string(list_transform({_ARRAY}, lambda kx: json_text(kx)), {{1}})"),
        aliases=("array_strcat",),
    ),
    Function(
        "set_has_element",
        "Whether the array has the item.",
        Template("d s", "bool!", f"list_contains(list_transform({_ARRAY}, lambda kx: json_text(kx)), {{1}})"),
        Template(
            "d n",
            "bool!",
            f"list_contains(list_transform({_ARRAY}, lambda kx: TRY_CAST(kx AS DOUBLE)), CAST({{1}} AS DOUBLE))",
        ),
    ),
    Function(
        "set_union",
        "Every different item of several arrays, in the order first seen.",
        bind=_set_operation("list_concat({0}, list_filter({U}, lambda kx: NOT list_contains({0}, kx)))"),
    ),
    Function(
        "set_difference",
        "Every different item of the first array that is in none of the others.",
        bind=_set_operation("list_filter({0}, lambda kx: NOT list_contains(TRY_CAST({1} AS JSON[]), kx))"),
    ),
    Function(
        "set_intersect",
        "Every different item that is in all of the arrays.",
        bind=_set_operation("list_filter({0}, lambda kx: list_contains(TRY_CAST({1} AS JSON[]), kx))"),
    ),
    Function("set_equals", "Whether two arrays have the same items.", Body("d d", "bool", set_equals)),
    Function(
        "jaccard_index",
        "The size of the intersection of two arrays over the size of their union.",
        Body("d d", "dynamic", jaccard_index),
    ),
    Function(
        "array_slice",
        "The items from one place to another, both included; negative places count from the end.",
        bind=_array_slice,
    ),
    Function("array_shift_left", "The items moved towards the start; the gap is filled.", bind=_shift(1)),
    Function("array_shift_right", "The items moved towards the end; the gap is filled.", bind=_shift(-1)),
    Function(
        "array_rotate_left",
        "The items moved towards the start; those that leave come back at the end.",
        Body("d l", "dynamic", _rotate(1)),
    ),
    Function(
        "array_rotate_right",
        "The items moved towards the end; those that leave come back at the start.",
        Body("d l", "dynamic", _rotate(-1)),
    ),
    Function(
        "array_split",
        "The array cut at one place or several.",
        *(Body(kinds, "dynamic", array_split) for kinds in ("d l", "d d")),
    ),
    Function(
        "array_iff",
        "Item by item, the one of two arrays that a third of conditions chooses.",
        Body("d D D", "dynamic", array_iff, nulls=True),
        aliases=("array_iif",),
    ),
    Function(
        "array_index_of",
        "The place of the n-th item equal to a value, or -1.",
        *(Body("d D" + " l" * n, "long", array_index_of) for n in range(4)),
    ),
    Function(
        "array_sort_asc",
        "The first array in ascending order, the others in the same order of places.",
        bind=_array_sort("asc"),
    ),
    Function(
        "array_sort_desc",
        "The first array in descending order, the others in the same order of places.",
        bind=_array_sort("desc"),
    ),
    Function("pack_array", "An array of the arguments.", bind=_pack_array),
    Function("range", "The numbers or moments from one to another by a step, as an array.", bind=_range),
    Function("repeat", "An array of so many times the same value.", bind=_repeat),
    Function("zip", "Arrays of the items at the same place.", Body("d d*", "dynamic", zip_, nulls=True)),
    *SORTS.values(),
)
