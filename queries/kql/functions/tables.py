"""The plain functions, by subject. See `signatures.py` for how a signature reads."""

from __future__ import annotations

Table = dict[str, tuple[tuple[str, str, str], ...]]
_ARRAY = "TRY_CAST({0} AS JSON[])"
_IS_ARRAY = "json_type({0}) = 'ARRAY'"
_WEEK = "CAST(date_trunc('day', {0}) AS TIMESTAMP) - to_days(CAST(dayofweek({0}) AS INTEGER))"

# An int is shown in its own 32 bits.
_HEX_OF_INT = "to_hex(bits_and(CAST({0} AS BIGINT), 4294967295))"
TEXT: Table = {
    "tolower": (("S", "string", "lower({0})"),),
    "toupper": (("S", "string", "upper({0})"),),
    "strlen": (("S", "long", "length({0})"),),
    "string_size": (("S", "long", "strlen({0})"),),
    "reverse": (("S", "string", "reverse({0})"),),
    "isempty": (("s", "bool", "({0} = '')"), ("a", "bool", "({0} IS NULL)")),
    "isnotempty": (("s", "bool", "({0} <> '')"), ("a", "bool", "({0} IS NOT NULL)")),
    "isnull": (("z", "bool", "({0} IS NULL)"), ("a", "bool", "({0} IS NULL)")),  # R1: never true for a string
    "isnotnull": (("z", "bool", "({0} IS NOT NULL)"), ("a", "bool", "({0} IS NOT NULL)")),
    # R10: zero-based; Kusto clamps a start before the text and a length past its end.
    "substring": (
        ("S l", "string", "substr({0}, greatest(CASE WHEN {1} < 0 THEN length({0}) + {1} ELSE {1} END, 0) + 1)"),
        ("S l l", "string", "CASE WHEN {2} <= 0 THEN '' ELSE substr({0}, "
         "greatest(CASE WHEN {1} < 0 THEN length({0}) + {1} ELSE {1} END, 0) + 1, {2}) END"),
    ),
    "replace_string": (("s s s", "string", "replace({0}, {1}, {2})"),),
    "replace_regex": (("s x s", "string", "regexp_replace({0}, {1}, {2}, 'g')"),),
    "replace": (("x s s", "string", "regexp_replace({2}, {0}, {1}, 'g')"),),  # deprecated: the text comes last
    "trim": (("x s", "string", "regexp_replace(regexp_replace({1}, '^(?:' || {0} || ')+', ''), '(?:' || {0} || ')+$', '')"),),
    "trim_start": (("x s", "string", "regexp_replace({1}, '^(?:' || {0} || ')', '')"),),
    "trim_end": (("x s", "string", "regexp_replace({1}, '(?:' || {0} || ')$', '')"),),
    "base64_encode_tostring": (("s", "string", "to_base64(encode({0}))"),),
    "url_encode_component": (("s", "string", "url_encode({0})"),),
    "hash_md5": (("S", "string", "md5({0})"),),
    "hash_sha256": (("S", "string", "sha256({0})"),),
    "hash_sha1": (("S", "string", "sha1({0})"),),
    "strcmp": (("S S", "long", "(CASE WHEN {0} < {1} THEN -1 WHEN {0} > {1} THEN 1 ELSE 0 END)"),),
    "strrep": (
        ("S l", "string", "repeat({0}, {1})"),
        ("S l S", "string", "left(repeat({0} || {2}, {1}), greatest(length({0} || {2}) * {1} - length({2}), 0))"),
    ),
    "isascii": (("S", "bool", "regexp_full_match({0}, '[\\x00-\\x7F]*')"),),
    "regex_quote": (("S", "string", "regexp_escape({0})"),),
    "tohex": (("i", "string", f"lower({_HEX_OF_INT})"),
              ("i l", "string", f"CASE WHEN length({_HEX_OF_INT}) >= {{1}} THEN lower({_HEX_OF_INT}) ELSE lpad(lower({_HEX_OF_INT}), CAST({{1}} AS INTEGER), '0') END"),
              ("l", "string", "lower(to_hex({0}))"), ("l l", "string", "CASE WHEN length(to_hex({0})) >= {1} THEN lower(to_hex({0})) ELSE lpad(lower(to_hex({0})), CAST({1} AS INTEGER), '0') END")),
}  # fmt: skip

MATHS: Table = {
    "not": (("b", "bool", "(NOT {0})"), ("n", "bool", "({0} = 0)")),
    "abs": (("l", "long", "abs({0})"), ("n", "0", "abs({0})"), ("p", "timespan", "abs({0})")),
    "sign": (("n", "real", "CAST(sign({0}) AS DOUBLE)"),),
    "sqrt": (("r", "real", "CASE WHEN {0} < 0 THEN 'NaN'::DOUBLE ELSE sqrt({0}) END"),),
    "exp": (("r", "real", "exp({0})"),),
    "exp2": (("r", "real", "pow(2.0, {0})"),),
    "exp10": (("r", "real", "pow(10.0, {0})"),),
    "log": (("r", "real", "CASE WHEN {0} < 0 THEN 'NaN'::DOUBLE WHEN {0} = 0 THEN '-Infinity'::DOUBLE ELSE ln({0}) END"),),
    "log10": (("r", "real",
               "CASE WHEN {0} < 0 THEN 'NaN'::DOUBLE WHEN {0} = 0 THEN '-Infinity'::DOUBLE ELSE log10({0}) END"),),
    "log2": (("r", "real",
              "CASE WHEN {0} < 0 THEN 'NaN'::DOUBLE WHEN {0} = 0 THEN '-Infinity'::DOUBLE ELSE log2({0}) END"),),
    "pow": (("r r", "real", "pow({0}, {1})"),),
    "sin": (("r", "real", "sin({0})"),), "cos": (("r", "real", "cos({0})"),), "tan": (("r", "real", "tan({0})"),),
    "asin": (("r", "real", "CASE WHEN abs({0}) <= 1 THEN asin({0}) ELSE 'NaN'::DOUBLE END"),),
    "acos": (("r", "real", "CASE WHEN abs({0}) <= 1 THEN acos({0}) ELSE 'NaN'::DOUBLE END"),),
    "atan": (("r", "real", "atan({0})"),), "atan2": (("r r", "real", "atan2({0}, {1})"),),
    "cot": (("r", "real", "cot({0})"),), "pi": (("", "real", "pi()"),),
    "degrees": (("r", "real", "degrees({0})"),), "radians": (("r", "real", "radians({0})"),),
    "ceiling": (("i", "int", "{0}"), ("l", "long", "{0}"), ("m", "decimal", "CAST(ceil({0}) AS DECIMAL(38,12))"), ("r", "real", "ceil({0})")),
    "round": (
        ("i", "int", "{0}"), ("l", "long", "{0}"), ("m", "decimal", "CAST(round({0}) AS DECIMAL(38,12))"),
        ("r", "real", "round({0})"), ("i l", "int", "CAST(round({0}, CAST({1} AS INTEGER)) AS INTEGER)"),
        ("l l", "long", "round({0}, CAST({1} AS INTEGER))"),
        ("m l", "decimal", "CAST(round(CAST({0} AS DOUBLE), CAST({1} AS INTEGER)) AS DECIMAL(38,12))"),
        ("r l", "real", "round({0}, CAST({1} AS INTEGER))"),
    ),
    "isnan": (("r", "bool", "isnan({0})"),), "isinf": (("r", "bool", "isinf({0})"),),
    "isfinite": (("r", "bool", "isfinite({0})"),),
    "binary_and": (("l l", "long", "bits_and({0}, {1})"),), "binary_or": (("l l", "long", "bits_or({0}, {1})"),),
    "binary_xor": (("l l", "long", "xor({0}, {1})"),), "binary_not": (("l", "long", "bits_not({0})"),),
    "binary_shift_left": (("l l", "long", "shift_left({0}, {1})"),), "binary_shift_right": (("l l", "long", "shift_right({0}, {1})"),),
    "bitset_count_ones": (("l", "long", "bit_count({0})"),),
}  # fmt: skip


def _start(unit: str) -> str:
    """Start of a calendar unit, shifted by an offset. R7: weeks start on Sunday."""
    if unit == "week":
        return f"({_WEEK} + to_days(CAST(7 * {{1}} AS INTEGER)))"
    step = {"day": "to_days", "month": "to_months", "year": "to_years"}[unit]
    return f"(CAST(date_trunc('{unit}', {{0}}) AS TIMESTAMP) + {step}(CAST({{1}} AS INTEGER)))"


def _dates() -> Table:
    made: Table = {}
    for unit in ("day", "week", "month", "year"):
        start = _start(unit)
        zero, after = start.replace("{1}", "0"), start.replace("{1}", "({1} + 1)")
        next_zero = start.replace("{1}", "1")
        made[f"startof{unit}"] = (("t", "datetime", zero), ("t l", "datetime", start))
        # R7: endof* is the last tick inside; the seventh digit is lost (R9).
        made[f"endof{unit}"] = (
            ("t", "datetime", f"({next_zero} - to_microseconds(1))"),
            ("t l", "datetime", f"({after} - to_microseconds(1))"),
        )
    return made


DATES: Table = _dates() | {
    "dayofmonth": (("t", "int", "CAST(day({0}) AS INTEGER)"),),
    "dayofyear": (("t", "int", "CAST(dayofyear({0}) AS INTEGER)"),),
    "dayofweek": (("t", "timespan", "(dayofweek({0}) * 864000000000)"),),
    "hourofday": (("t", "int", "CAST(hour({0}) AS INTEGER)"),),
    "getmonth": (("t", "int", "CAST(month({0}) AS INTEGER)"),),
    "getyear": (("t", "int", "CAST(year({0}) AS INTEGER)"),),
    "weekofyear": (("t", "int", "CAST(week({0}) AS INTEGER)"),),
    "week_of_year": (("t", "int", "CAST(week({0}) AS INTEGER)"),),
    "unixtime_seconds_todatetime": (("n", "datetime", "make_timestamp(CAST({0} * 1000000 AS BIGINT))"),),
    "unixtime_milliseconds_todatetime": (("n", "datetime", "make_timestamp(CAST({0} * 1000 AS BIGINT))"),),
    "unixtime_microseconds_todatetime": (("n", "datetime", "make_timestamp(CAST({0} AS BIGINT))"),),
    "unixtime_nanoseconds_todatetime": (("n", "datetime", "make_timestamp(CAST({0} // 1000 AS BIGINT))"),),
}

BAGS: Table = {
    "array_length": (("d", "long!", f"CASE WHEN {_IS_ARRAY} THEN CAST(json_array_length({{0}}) AS BIGINT) END"),),
    "array_reverse": (("d", "dynamic!", f"CASE WHEN {_IS_ARRAY} THEN json_list(list_reverse({_ARRAY})) END"),),
    "array_sum": (("d", "real!", f"CASE WHEN {_IS_ARRAY} THEN list_sum(TRY_CAST({{0}} AS DOUBLE[])) END"),),
    "array_concat": (("d*", "dynamic!", "json_list(lists_joined({*}))"),),
    "dcount_hll": (("d", "long!", f"CASE WHEN {_IS_ARRAY} THEN CAST(json_array_length({{0}}) AS BIGINT) END"),),
    "hll_merge": (("d d*", "dynamic!", "to_json(list_sort(list_distinct(flatten([{*}]::VARCHAR[][]))))"),),
    "bag_keys": (("d", "dynamic!", "CASE WHEN json_type({0}) = 'OBJECT' THEN to_json(json_keys({0})) END"),),
    "strcat_array": (("d S", "string!",
                      f"array_to_string(list_transform({_ARRAY}, lambda kx: json_text(kx)), {{1}})"),),
    "set_has_element": (("d s", "bool!",
                         f"list_contains(list_transform({_ARRAY}, lambda kx: json_text(kx)), {{1}})"),
                        ("d n", "bool!", f"list_contains(list_transform({_ARRAY}, lambda kx: TRY_CAST(kx AS DOUBLE)), "
                         "CAST({1} AS DOUBLE))")),
    "gettype": (("s", "string", "'string'"),),
}  # fmt: skip

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = f"^{_OCTET}(?:\\.{_OCTET}){{3,3}}(?:/(?:3[0-2]|[12]?[0-9]))?$"
_PREFIX = "(32 - coalesce(TRY_CAST(split_part({0}, '/', 2) AS INTEGER), 32))"
PARSE_IPV4 = (
    f"CASE WHEN regexp_matches({{0}}, '{_IPV4}') THEN "
    f"shift_left(shift_right(ipv4_number(split_part({{0}}, '/', 1)), {_PREFIX}), {_PREFIX}) END"
)
NETWORK: Table = {
    "parse_ipv4": (("s", "long!", PARSE_IPV4),),
    "ipv4_is_private": (("s", "bool!", f"CASE WHEN regexp_matches({{0}}, '{_IPV4}') THEN regexp_matches({{0}}, "
                         "'^(10\\.|192\\.168\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.)') END"),),
}  # fmt: skip
