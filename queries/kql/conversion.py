"""Conversions. R8: they never fail, they give null."""

from __future__ import annotations

from queries.kql.errors import KqlBindError
from queries.kql.lexical import parse_datetime, timespan_ticks
from queries.kql.values import NUMERIC, Value, constant, dynamic_of, sql, text_of

_LIMITS = {
    "int": "BETWEEN -2147483648 AND 2147483647",
    "long": "BETWEEN -9.2233720368547758e18 AND 9.22337203685477e18",
}
_SQL = {"int": "INTEGER", "long": "BIGINT", "real": "DOUBLE", "decimal": "DECIMAL(38,12)"}
_CLOCK = r"^\s*(-?)(?:(\d+)\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,7}))?)?\s*$"
TEXT_TO_TICKS = (
    f"CASE WHEN regexp_matches({{0}}, '{_CLOCK}') THEN "
    f"(CASE WHEN starts_with(trim({{0}}), '-') THEN -1 ELSE 1 END) * ("
    f"coalesce(TRY_CAST(regexp_extract({{0}}, '{_CLOCK}', 2) AS BIGINT), 0) * 864000000000 + "
    f"TRY_CAST(regexp_extract({{0}}, '{_CLOCK}', 3) AS BIGINT) * 36000000000 + "
    f"TRY_CAST(regexp_extract({{0}}, '{_CLOCK}', 4) AS BIGINT) * 600000000 + "
    f"coalesce(TRY_CAST(regexp_extract({{0}}, '{_CLOCK}', 5) AS BIGINT), 0) * 10000000 + "
    f"coalesce(TRY_CAST(rpad(regexp_extract({{0}}, '{_CLOCK}', 6), 7, '0') AS BIGINT), 0)) END"
)
TEXT_TO_TIME = "text_time({0})"


def to_type(value: Value, kind: str) -> Value:
    """Any value as a KQL type, null if it does not fit."""
    if value.type == kind:
        return value
    if kind == "string":
        return text_of(value)
    if kind == "dynamic":
        return parse_json(value) if value.type == "string" else dynamic_of(value)
    if kind in NUMERIC:
        return _number(value, kind)
    if value.type == "dynamic" and kind != "bool":
        return to_type(text_of(value), kind)
    handler = {"bool": _bool, "datetime": _datetime, "timespan": _timespan, "guid": _guid}.get(kind)
    if handler is None:
        raise KqlBindError(f"no conversion to {kind}", value.span)
    return handler(value)


def parse_json(value: Value) -> Value:
    """parse_json(): text that is not JSON becomes a JSON string."""
    return sql(
        "CASE WHEN {0} = '' THEN NULL WHEN json_valid({0}) THEN nullif(TRY_CAST({0} AS JSON), 'null'::JSON) ELSE to_json({0}) END",
        "dynamic", value, nullable=True,
    )  # fmt: skip


def _number(value: Value, kind: str) -> Value:
    if value.is_constant and value.constant is None:
        return constant(None, kind)
    target = _SQL[kind]
    if value.type in ("string", "dynamic"):
        text = text_of(value)
        if kind in ("real", "decimal"):
            return sql(f"TRY_CAST(nullif(trim({{0}}), '') AS {target})", kind, text, nullable=True)
        # Kusto accepts whole numbers and hex; a decimal point in the text gives null for strings.
        whole = f"CASE WHEN regexp_matches({{0}}, '^\\s*[-+]?[0-9]+\\s*$') THEN TRY_CAST(trim({{0}}) AS {target}) " \
            f"WHEN regexp_matches({{0}}, '^0[xX][0-9a-fA-F]+$') THEN TRY_CAST(hex_number({{0}}) AS {target})"  # fmt: skip
        if value.type == "dynamic":
            limit = _LIMITS[kind]
            whole += (
                " WHEN lower({0}) IN ('true', 'false') THEN CAST(lower({0}) = 'true' AS INTEGER)"
                f" WHEN TRY_CAST({{0}} AS DOUBLE) {limit} THEN TRY_CAST(trunc(TRY_CAST({{0}} AS DOUBLE)) AS {target})"
            )
        return sql(whole + " END", kind, text, nullable=True)
    if value.type in ("real", "decimal") and kind in ("int", "long"):
        return sql(f"TRY_CAST(trunc({{0}}) AS {target})", kind, value, nullable=True)
    if value.type in (*NUMERIC, "bool"):
        return sql(f"TRY_CAST({{0}} AS {target})", kind, value, nullable=value.nullable or kind == "int")
    if value.type == "timespan" and kind in ("long", "real", "decimal"):
        return sql(f"CAST({{0}} AS {target})", kind, value)
    if value.type == "datetime" and kind == "long":
        return sql("(epoch_us({0}) * 10 + 621355968000000000)", kind, value)
    raise KqlBindError(f"cannot convert {value.type} to {kind}", value.span)


def _bool(value: Value) -> Value:
    if value.type in NUMERIC:
        return sql("({0} <> 0)", "bool", value)
    text = text_of(value)
    return sql(
        "CASE lower(trim({0})) WHEN 'true' THEN true WHEN '1' THEN true WHEN 'false' THEN false WHEN '0' THEN false "
        "ELSE TRY_CAST({0} AS DOUBLE) <> 0 END",
        "bool", text, nullable=True,
    )  # fmt: skip


def _datetime(value: Value) -> Value:
    if value.type == "long":
        return sql("make_timestamp(({0} - 621355968000000000) // 10)", "datetime", value)
    if value.type != "string":
        raise KqlBindError(f"cannot convert {value.type} to datetime", value.span)
    if value.is_constant:
        return constant(parse_datetime(value.constant), "datetime")
    return sql(TEXT_TO_TIME, "datetime", value, nullable=True)


def _timespan(value: Value) -> Value:
    if value.type == "long":
        return Value(value.sql, "timespan", value.nullable)
    if value.type != "string":
        raise KqlBindError(f"cannot convert {value.type} to timespan", value.span)
    if value.is_constant:
        return constant(timespan_ticks(value.constant), "timespan")
    return sql(TEXT_TO_TICKS, "timespan", value, nullable=True)


def _guid(value: Value) -> Value:
    if value.type != "string":
        raise KqlBindError(f"cannot convert {value.type} to guid", value.span)
    return sql("CAST(TRY_CAST({0} AS UUID) AS VARCHAR)", "guid", value, nullable=True)
