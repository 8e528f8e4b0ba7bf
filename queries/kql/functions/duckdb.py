"""Scalar functions as DuckDB says them: name -> signatures.

A signature is `("argument kinds", "result", "template")`. Kinds: s string, l long, n number, r real,
d dynamic, t datetime, p timespan, b bool, a any; `x?` may be missing, `x*` repeats. Result: a KQL type,
or `0` for the type of the first argument. `!` after the result: may be null though no argument is.
"""

from __future__ import annotations

from queries.kql import syntax as ast
from queries.kql.errors import KqlBindError, Span
from queries.kql.functions.tables import BAGS, DATES, MATHS, NETWORK, TEXT
from queries.kql.values import NUMERIC, Value, cast_number, dynamic_of, sql, text_of

Signature = tuple[str, str, str]
SIMPLE: dict[str, tuple[Signature, ...]] = TEXT | MATHS | DATES | BAGS | NETWORK
ALIASES = {
    "iif": "iff", "toreal": "todouble", "parsejson": "parse_json", "todynamic": "parse_json", "any": "take_any",
    "makelist": "make_list", "makeset": "make_set", "pack": "bag_pack", "pack_dictionary": "bag_pack",
    "notempty": "isnotempty", "notnull": "isnotnull", "columnifexists": "column_ifexists",
    "replace": "replace_regex", "monthofyear": "getmonth", "argmax": "arg_max",
    "argmin": "arg_min", "anyif": "take_anyif", "make_dictionary": "make_bag", "ceil": "ceiling", "base64_decodestring":
    "base64_decode_tostring", "base64_encodestring": "base64_encode_tostring", "toboolean": "tobool", "floor": "bin",
    "datepart": "datetime_part", "toobject": "parse_json",
    "extractjson": "extract_json", "percentile_array": "percentiles_array",
}  # fmt: skip
_NAMED = """
    series_decompose_anomalies series_fit_line series_outliers series_stats series_fill_linear
    series_fill_const series_fill_forward series_fill_backward series_decompose parse_url parse_urlquery
    parse_user_agent parse_xml parse_version parse_csv parse_path parse_command_line parse_ipv6
    parse_ipv6_mask ipv6_compare ipv6_is_match ipv6_is_in_range hash hash_xxhash64 hash_combine hash_many
    format_ipv4 format_ipv4_mask geo_distance_2points array_rotate_left array_rotate_right array_split zip
    jaccard_index gamma loggamma erf erfc row_rank_min row_rank_dense row_window_session punycode_from_string
    make_timespan rand new_guid treepath ipv4_lookup url_encode url_encode_component has_ipv4 has_ipv4_prefix
    has_any_ipv4 has_any_index set_equals bag_set_key bag_zip series_add series_subtract series_multiply
    series_divide welch_test beta_cdf dcount_hll hll hll_merge hll_if tdigest tdigest_merge buildschema
    percentilew percentilesw percentilesw_array percentiles_array translate indexof_regex
    unixtime_nanoseconds_todatetime column_names_of assert extent_id ingestion_time current_principal
    cursor_after
    """
NOT_YET = frozenset(_NAMED.split())


def call(name: str, args: list[Value], node: ast.Call) -> Value:
    """Find the signature that fits and fill its template."""
    signatures = SIMPLE[name]
    problem = ""
    for kinds, result, template in signatures:
        fitted, why = _fit(kinds.split(), args)
        if fitted is None:
            problem = problem or why
            continue
        may_be_null = result.endswith("!")
        kind = result.rstrip("!")
        if kind == "0":
            kind = fitted[0].type
        made = sql(template, kind, *fitted, nullable=True if may_be_null else None)
        return made
    span = node.span if args else Span(node.span.start, node.span.end)
    raise KqlBindError(f"{name}() {problem}", span)


def _fit(kinds: list[str], args: list[Value]) -> tuple[list[Value] | None, str]:
    wanted: list[str] = []
    for kind in kinds:
        if kind.endswith("*"):
            wanted += [kind[0]] * (len(args) - len(wanted))
        elif kind.endswith("?"):
            if len(wanted) < len(args):
                wanted.append(kind[0])
        else:
            wanted.append(kind)
    if len(wanted) != len(args):
        return None, f"does not take {len(args)} arguments"
    out: list[Value] = []
    for kind, arg in zip(wanted, args, strict=True):
        fitted = coerce(arg, kind)
        if fitted is None:
            return None, f"does not take {arg.type} for argument {len(out) + 1}"
        out.append(fitted)
    return out, ""


_KINDS = {"t": "datetime", "p": "timespan", "b": "bool", "g": "guid"}


def coerce(arg: Value, kind: str) -> Value | None:
    """The argument as a kind, or None when it does not fit."""
    if kind == "a":
        return arg
    if kind == "s":
        return text_of(arg) if arg.type in ("string", "dynamic", "guid") else None
    if kind == "n":
        return arg if arg.type in NUMERIC else None
    if kind == "l":
        return cast_number(arg, "long") if arg.type in ("int", "long") else None
    if kind == "r":
        return cast_number(arg, "real") if arg.type in NUMERIC and arg.type != "decimal" else (
            sql("CAST({0} AS DOUBLE)", "real", arg) if arg.type == "decimal" else None)  # fmt: skip
    if kind == "d":
        return arg if arg.type == "dynamic" else None
    if kind == "D":
        return dynamic_of(arg)
    return arg if arg.type == _KINDS[kind] else None
