"""The words of templates in ClickHouse's spelling, by subject, tables first; a function where text is not enough."""

from __future__ import annotations

from collections.abc import Mapping

from queries.kql.engines.clickhouse_bodies import BODIES, once
from queries.kql.engines.spelling import Word, fill


def _json_extract(args: list[str], tail: str) -> str:
    """Only for array indices: members use `json_member`, whose key is a value."""
    path = args[1].strip("'")
    if path == "$":
        return f"JSONExtractRaw({_text(args[0])})"
    return fill(JSON_ITEM, [args[0], path.removeprefix("$[").removesuffix("]")], "")


def _json_extract_string(args: list[str], tail: str) -> str:
    return fill(JSON_TEXT, [args[0] if args[1] == "'$'" else _json_extract(args, "")], "")


def _text(arg: str) -> str:
    return f"coalesce({arg}, '')"


def _date_unit(args: list[str], tail: str) -> str:
    return f"dateTrunc({args[0]}, {args[1]}, 'UTC')"


def _count(args: list[str], tail: str) -> str:
    return f"toInt64(count({args[0]}){tail})"


def _bag(args: list[str], tail: str) -> str:
    """json_object(key, value, ...): members whose values are JSON already; a null value is JSON's null."""
    pairs = [f"toJSONString({k}), ':', coalesce({v}, 'null')" for k, v in zip(args[::2], args[1::2], strict=True)]
    return "concat('{', " + ", ',', ".join(pairs) + ", '}')" if pairs else "'{}'"


def _list(args: list[str], tail: str) -> str:
    """list(x) and list(x ORDER BY y), nulls kept: a tuple is never null."""
    value, _, order = args[0].partition(" ORDER BY ")
    if order:
        return f"arrayMap(kt -> kt.2, arraySort(kt -> kt.1, groupArray(({order}, {value})){tail}))"
    return f"arrayMap(kt -> kt.1, groupArray(tuple({value})){tail})"


def _best(function: str) -> Word:
    """The value beside the best key, even if it is null."""
    return lambda args, tail: f"({function}(tuple({args[0]}), {args[1]}){tail}).1"


def _items(args: list[str], tail: str) -> str:
    pair = "concat('{', toJSONString(kp.1), ':', kp.2, '}')"
    if args[1] == "json_array":
        pair = "concat('[', toJSONString(kp.1), ',', kp.2, ']')"
    body = (
        "multiIf(JSONType(kv) = 'Array', JSONExtractArrayRaw(kv), JSONType(kv) = 'Object', "
        f"arrayMap(kp -> {pair}, JSONExtractKeysAndValuesRaw(kv)), [kv])"
    )
    return once(f"coalesce({args[0]}, 'null')", body)


def _joined(args: list[str], tail: str) -> str:
    """Nulls are left out."""
    return f"arrayStringConcat(arrayFilter(kx -> isNotNull(kx), [{', '.join(args[1:])}]), {args[0]})"


def _every_match(args: list[str], tail: str) -> str:
    """regexp_extract_all(text, pattern, group): the whole match when no group is given."""
    pattern = f"concat('(?-s)(', {args[1]}, ')')"
    group = f"1 + {args[2]}" if len(args) > 2 else "1"
    return f"arrayMap(kg -> kg[{group}], extractAllGroupsVertical({args[0]}, {pattern}))"


def _round(args: list[str], tail: str) -> str:
    """Halves are rounded away from zero; ClickHouse's own function rounds reals to the even neighbour."""
    scale = f" * pow(10, {args[1]})" if len(args) > 1 else ""
    return f"(sign({args[0]}) * floor(abs({args[0]}){scale} + 0.5){scale.replace('*', '/')})"


def _read_time(args: list[str], tail: str) -> str:
    """Dates with slashes have the month first, as in Kusto; a text that does not begin as a date is none."""
    body = (
        "multiIf(match(kv, '^[0-9]{4,4}-[0-9]{1,2}-[0-9]{1,2}'), parseDateTime64BestEffortOrNull(kv, 6, 'UTC'), "
        "match(kv, '^[0-9]{1,2}/[0-9]{1,2}/[0-9]{4,4}'), parseDateTime64BestEffortUSOrNull(kv, 6, 'UTC'), NULL)"
    )
    return once(f"trim(BOTH ' \\n\\t\\r' FROM {args[0]})", body)


def _rows(args: list[str], tail: str) -> str:
    """Parallel lists as a list of rows."""
    names = ", ".join(f"k{place}" for place in range(len(args)))
    return f"arrayMap(({names}) -> [{names}], {', '.join(args)})"


def _over_nullable(function: str) -> Word:
    """Outside its frame a window function gives the type's null, not its zero."""

    def spell(args: list[str], tail: str) -> str:
        offset = [f"assumeNotNull({a})" for a in args[1:2]]
        return f"{function}({', '.join([f'toNullable({args[0]})', *offset, *args[2:]])}){tail}"

    return spell


def _range(args: list[str], tail: str) -> str:
    return f"range({', '.join(f'assumeNotNull({a})' for a in args)})"


def _rows_of_range(args: list[str], tail: str) -> str:
    """As many numbers as requested: a list of all of them might not fit."""
    start, stop, step = args if len(args) == 3 else (*args, "1")
    return f"(SELECT {start} + number * {step} AS range FROM numbers(toUInt64(greatest(0, ceil(assumeNotNull(({stop} - ({start})) / {step}))))))"


_JSON = "coalesce(<0>, '')"
JSON_TEXT = once(_JSON, "multiIf(JSONType(kv) = 'String', JSONExtractString(kv), JSONType(kv) IN ('Array', 'Object'), "
                        "JSONExtractRaw(kv), kv IN ('', 'null'), NULL, kv)")  # fmt: skip
# A numeric key would find the members of a bag by their order.
_ARRAY = once(_JSON, "if(JSONType(kv) = 'Array', kv, '')")
JSON_ITEM = f"nullIf(JSONExtractRaw({_ARRAY}, <1> + toInt64(<1> >= 0)), '')"
_KINDS = "['Array', 'Object', 'String', 'Int64', 'UInt64', 'Double', 'Bool', 'Null']"
_NAMES = "['ARRAY', 'OBJECT', 'VARCHAR', 'BIGINT', 'UBIGINT', 'DOUBLE', 'BOOLEAN', 'NULL']"
_WHOLE = "replaceRegexpOne(replaceRegexpOne(toString(kv), '^(-?[0-9]+)$', '\\\\1.0'), 'e([0-9])', 'e+\\\\1')"
REAL_TEXT = once("<0>", f"multiIf(isNaN(kv), 'NaN', isInfinite(kv), if(kv > 0, 'Infinity', '-Infinity'), {_WHOLE})")
# RE2's dot matches newlines here unless a flag forbids it.
_REGEX = "concat('(?-s)', <1>)"

TEXT: dict[str, Word] = {
    "lower": "lowerUTF8(<0>)",
    "upper": "upperUTF8(<0>)",
    "length": "toInt64(lengthUTF8(<0>))",
    "strlen": "toInt64(length(<0>))",
    "reverse": "reverseUTF8(<0>)",
    "substr": "substringUTF8(<*>)",
    "replace": "replaceAll(<*>)",
    "left": "leftUTF8(<*>)",
    "repeat": "repeat(<*>)",
    "trim": "trimBoth(<0>)",
    "rtrim": "trim(TRAILING <1> FROM <0>)",
    "concat_ws": _joined,
    "lpad": "leftPadUTF8(<*>)",
    "rpad": "rightPadUTF8(<*>)",
    "instr": "toInt64(positionUTF8(<*>))",
    "translate": "translateUTF8(<*>)",
    "contains": "(position(<*>) > 0)",
    "starts_with": "startsWith(<*>)",
    "ends_with": "endsWith(<*>)",
    "printf": "printf(<*>)",
    "md5": "lower(hex(MD5(<0>)))",
    "sha1": "lower(hex(SHA1(<0>)))",
    "sha256": "lower(hex(SHA256(<0>)))",
    "encode": "<0>",
    "to_base64": "base64Encode(<0>)",
    "url_encode": "encodeURLComponent(<0>)",
    "to_hex": "hex(<0>)",
    "string_split": "splitByString(<1>, <0>)",
    "split_part": "splitByString(<1>, <0>)[<2>]",
    "regexp_matches": f"match(<0>, {_REGEX})",
    "regexp_full_match": "match(<0>, concat('^(?:', <1>, ')$'))",
    "regexp_extract": f"regexpExtract(<0>, {_REGEX}, <2>)",
    "regexp_escape": "regexpQuoteMeta(<0>)",
    "regexp_extract_all": _every_match,
    "regexp_replace": lambda args, tail: (
        f"replaceRegexp{'All' if len(args) == 4 else 'One'}({args[0]}, concat('(?-s)', {args[1]}), {args[2]})"
    ),
    "array_to_string": "arrayStringConcat(<*>)",
}
MATHS: dict[str, Word] = {
    **{
        name: f"{name}(<*>)"
        for name in (
            "abs",
            "acos",
            "asin",
            "atan",
            "atan2",
            "ceil",
            "cos",
            "degrees",
            "exp",
            "floor",
            "log10",
            "log2",
            "pi",
            "pow",
            "radians",
            "sin",
            "sqrt",
            "tan",
            "trunc",
            "coalesce",
            "nullif",
            "greatest",
            "least",
        )
    },
    "ln": "log(<0>)",
    "cot": "(1 / tan(<0>))",
    "sign": "sign(<0>)",
    "isnan": "isNaN(<0>)",
    "isinf": "isInfinite(<0>)",
    "isfinite": "isFinite(<0>)",
    "xor": "bitXor(<*>)",
    "bit_count": "toInt64(bitCount(<0>))",
    "random": "randCanonical()",
    "divide": "intDivOrNull(<0>, <1>)",
    "remainder": "moduloOrNull(<0>, <1>)",
    "shift_left": "bitShiftLeft(toInt64(<0>), <1>)",
    "shift_right": "bitShiftRight(toInt64(<0>), <1>)",
    "bits_and": "bitAnd(<*>)",
    "bits_or": "bitOr(<*>)",
    "bits_not": "bitNot(<0>)",
    "round": _round,
    "hex_number": "reinterpretAsInt64(reverse(unhex(leftPad(substring(<0>, 3), 16, '0'))))",
    "ipv4_number": "toInt64(IPv4StringToNumOrDefault(<0>))",
    "cast": "CAST(<0> AS <1>)",
    "try_cast": "accurateCastOrNull(<0>, '<1>')",
    "uuid": "generateUUIDv4()",
}
TIMES: dict[str, Word] = {
    "epoch_us": "toUnixTimestamp64Micro(<0>)",
    "make_timestamp": "fromUnixTimestamp64Micro(<0>, 'UTC')",
    "date_trunc": _date_unit,
    "date_diff": "dateDiff(<*>)",
    "day": "toDayOfMonth(<0>)",
    "month": "toMonth(<0>)",
    "year": "toYear(<0>)",
    "quarter": "toQuarter(<0>)",
    "hour": "toHour(<0>)",
    "minute": "toMinute(<0>)",
    "second": "toSecond(<0>)",
    "dayofyear": "toDayOfYear(<0>)",
    "dayofweek": "toInt64(toDayOfWeek(<0>, 3) - 1)",
    "week": "toISOWeek(<0>)",
    "microsecond": "moduloOrNull(toUnixTimestamp64Micro(<0>), 60000000)",
    "millisecond": "intDivOrNull(moduloOrNull(toUnixTimestamp64Micro(<0>), 60000000), 1000)",
    **{
        f"to_{unit}s": f"toInterval{unit.title()}(<0>)"
        for unit in ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "year")
    },
    "time_of_parts": "parseDateTime64BestEffortOrNull(printf('%04d-%02d-%02d %02d:%02d:%09.6f', <*>), 6, 'UTC')",
    "time_text": "concat(formatDateTime(<0>, '%Y-%m-%dT%H:%i:%S.%f'), '0Z')",
    "text_time": _read_time,
    "real_text": REAL_TEXT,
}
DYNAMIC: dict[str, Word] = {
    "json_member": "nullIf(JSONExtractRaw(coalesce(<0>, ''), <1>), '')",
    "json_item": JSON_ITEM,
    "json_text": JSON_TEXT,
    "json_extract": _json_extract,
    "json_extract_string": _json_extract_string,
    "json_type": once(
        "<0>", f"if(isNull(kv), NULL, transform(toString(JSONType(coalesce(kv, ''))), {_KINDS}, {_NAMES}, 'NULL'))"
    ),
    "json_valid": "isValidJSON(<0>)",
    "json_array_length": "toInt64(JSONLength(coalesce(<0>, '')))",
    "json_keys": "JSONExtractKeys(coalesce(<0>, ''))",
    "json_object": _bag,
    "json_array": "concat('[', <0>, ',', <1>, ']')",
    "to_json": "toJSONString(<0>)",
    "json_real": REAL_TEXT,  # used only for finite ones
    "json_list": "concat('[', arrayStringConcat(arrayMap(kj -> coalesce(kj, 'null'), <0>), ','), ']')",
    "list_value": "[<*>]",
    "len": "toInt64(length(<0>))",
    "list_reverse": "arrayReverse(<0>)",
    "list_sum": "arrayReduce('sumOrNull', <0>)",
    "list_rows": _rows,
    "list_transform": "arrayMap(<1>, <0>)",
    "list_filter": "arrayFilter(<1>, <0>)",
    "list_contains": "has(<0>, <1>)",
    "list_distinct": "arrayDistinct(<0>)",
    "list_sort": "arraySort(<0>)",
    "list_concat": "arrayConcat(<*>)",
    "flatten": "arrayFlatten(<0>)",
    "lists_joined": "arrayFlatten(arrayMap(kx -> JSONExtractArrayRaw(coalesce(kx, '')), [<*>]))",
    "list_unique": "arrayDistinct(<0>)",
    "list_lookup": "arrayElementOrNull(<1>, indexOf(<0>, <2>))",
    "list_slice": "arraySlice(<0>, <1>, greatest(<2> - (<1>) + 1, 0))",
    "json_items": _items,
    "rows_of_range": _rows_of_range,
    "list_intersect": "arrayIntersect(<*>)",
    "range": _range,
    "unnest": "arrayJoin(<0>)",
    "list_extract": "arrayElementOrNull(<0>, <1>)",
    "try_cast JSON[]": "JSONExtractArrayRaw(coalesce(<0>, ''))",
    "cast JSON[]": "<0>",
    "cast VARCHAR[]": "JSONExtract(coalesce(<0>, ''), 'Array(String)')",
    "try_cast DOUBLE[]": "JSONExtract(coalesce(<0>, ''), 'Array(Nullable(Float64))')",
}
AGGREGATES: dict[str, Word] = {
    **{name: f"{name}(<*>)" for name in ("min", "max", "sum", "avg")},
    "count": _count,
    "row_number": "toInt64(row_number()<tail>)",
    "any_value": "any(<0>)",
    "stddev_samp": "ifNotFinite(stddevSamp(<0>)<tail>, NULL)",
    "var_samp": "ifNotFinite(varSamp(<0>)<tail>, NULL)",
    "stddev_pop": "stddevPop(<0>)",
    "var_pop": "varPop(<0>)",
    "bit_and": "groupBitAnd(<0>)",
    "bit_or": "groupBitOr(<0>)",
    "bit_xor": "groupBitXor(<0>)",
    "list": _list,
    "arg_max_null": _best("argMax"),
    "arg_min_null": _best("argMin"),
    "first": "any_respect_nulls(<0>)",
    "bool_or": "max(<0>)",
    "lag": _over_nullable("lag"),
    "lead": _over_nullable("lead"),
    "covar_pop": "covarPop(<*>)",
    "covar_samp": "ifNotFinite(covarSamp(<*>)<tail>, NULL)",
    "quantile_disc": "arrayElementOrNull(arraySort(groupArray(<0>)), greatest(1, toInt64(ceil(<1> * count(<0>)))))",
}
WORDS: Mapping[str, Word] = TEXT | MATHS | TIMES | DYNAMIC | AGGREGATES | BODIES
