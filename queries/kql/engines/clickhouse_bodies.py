"""Functions whose body is Python on DuckDB, and which ClickHouse can express itself. Others are refused."""

from __future__ import annotations

from queries.kql.engines.spelling import Word, fill

# Duplicate keys: the first entry wins.
_FIRST_OF_EACH = "arrayFilter((kp, ki) -> indexOf(arrayMap(kq -> kq.1, km), kp.1) = ki, km, arrayEnumerate(km))"
_WRITTEN = "concat('{', arrayStringConcat(arrayMap(kp -> concat(toJSONString(kp.1), ':', kp.2), <0>), ','), '}')"
# The sort key of numbers, texts and the rest; the index breaks ties.
_KEY = (
    "(multiIf(kv[ki] = 'true', 1., kv[ki] = 'false', 0., toFloat64OrZero(kv[ki])), "
    "if(JSONType(kv[ki]) = 'String', JSONExtractString(kv[ki]), if(isNull(toFloat64OrNull(kv[ki])), kv[ki], '')), <0>)"
)
_RANK = "multiIf(JSONType(kv[ki]) IN ('Int64', 'UInt64', 'Double'), 0, JSONType(kv[ki]) = 'String', 1, JSONType(kv[ki]) = 'Bool', 2, 3)"


def once(value: str, body: str, name: str = "kv") -> str:
    """`body` with the value under a name, so that it is written and computed once."""
    return f"arrayMap({name} -> {body}, [{value}])[1]"


def _items(array: str) -> str:
    return f"JSONExtractArrayRaw(coalesce({array}, ''))"


def _bags(lists: str, most: str | None = None) -> str:
    """The members of several bags as one bag."""
    kept = (
        _FIRST_OF_EACH
        if most is None
        else f"arraySlice({_FIRST_OF_EACH}, 1, if({most} < 0, toInt64(length(km)), {most}))"
    )
    return once(
        f"arrayFlatten(arrayMap(kb -> JSONExtractKeysAndValuesRaw(kb), {lists}))", fill(_WRITTEN, [kept], ""), "km"
    )


def _bag_merge(args: list[str], tail: str) -> str:
    given = "[" + ", ".join(f"coalesce({a}, '')" for a in args) + "]"
    return f"if(arrayExists(kb -> JSONType(kb) = 'Object', {given}), {_bags(given)}, NULL)"


def _rotated(function: str) -> Word:
    def spell(args: list[str], tail: str) -> str:
        made = f"concat('[', arrayStringConcat({function}({_items(args[0])}, {args[1]}), ','), ']')"
        return f"if(JSONType(coalesce({args[0]}, '')) = 'Array', {made}, NULL)"

    return spell


def _sorted(descending: bool, nulls_last: bool) -> Word:
    """The first array sorted, others of equal length in the same order; R17: mixed types are refused."""

    def spell(args: list[str], tail: str) -> str:
        full = "arrayFilter(ki -> kv[ki] != 'null', arrayEnumerate(kv))"
        holes = "arrayFilter(ki -> kv[ki] = 'null', arrayEnumerate(kv))"
        order = f"arraySort(ki -> {fill(_KEY, ['-toInt64(ki)' if descending else 'toInt64(ki)'], '')}, {full})"
        order = f"arrayReverse({order})" if descending else order
        places = f"arrayConcat({order}, {holes})" if nulls_last else f"arrayConcat({holes}, {order})"
        parts = [
            f"if(length({_items(a)}) = length(kv) AND JSONType(coalesce({a}, '')) = 'Array', "
            f"concat('[', arrayStringConcat(arrayMap(ki -> {_items(a)}[ki], kn), ','), ']'), 'null')"
            for a in args
        ]
        body = once(places, "concat('[', " + ", ',', ".join(parts) + ", ']')", "kn")
        mixed = f"length(arrayDistinct(arrayMap(ki -> {_RANK}, {full}))) > 1"
        return once(
            _items(args[0]), f"if(throwIf({mixed}, 'kql: arrays of mixed types cannot be sorted') = 0, {body}, '')"
        )

    return spell


_BY_NAME: dict[str, Word] = {
    "erf": "erf(<0>)",
    "erfc": "erfc(<0>)",
    "gamma": "tgamma(<0>)",
    "loggamma": "lgamma(<0>)",
    "base64_decode_tostring": once("tryBase64Decode(<0>)", "if(isValidUTF8(kv), kv, '')"),
    "url_decode": "decodeURLComponent(replaceAll(<0>, '+', ' '))",
    "array_rotate_left": _rotated("arrayRotateLeft"),
    "array_rotate_right": _rotated("arrayRotateRight"),
    "bag_merge": _bag_merge,
    "bag_of_bags": lambda args, tail: _bags(_items(args[0]), args[1]),
    "array_sort_asc_first": _sorted(False, False),
    "array_sort_asc_last": _sorted(False, True),
    "array_sort_desc_first": _sorted(True, False),
    "array_sort_desc_last": _sorted(True, True),
}
BODIES: dict[str, Word] = {f"kqlpy_{name}_0": word for name, word in _BY_NAME.items()}
