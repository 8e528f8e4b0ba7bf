"""Numbers: arithmetic, rounding, bins, bits, trigonometry."""

from __future__ import annotations

from dataclasses import replace

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import KqlBindError
from queries.kql.functions.arguments import arguments, expect_whole
from queries.kql.functions.declaration import LINEAR, Bind, Function, Template
from queries.kql.stages import Scope
from queries.kql.values import (
    NUMERIC,
    Value,
    cast_number,
    sql,
    unify,
    widest,
)


def _extreme(name: str) -> Bind:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        values = unify(arguments(c, node, scope, 2, 64), node.name + "()")
        if values[0].type == "dynamic":
            raise KqlBindError(f"{node.name}() does not compare dynamics; convert them first", node.span)
        return sql(f"{name}({{*}})", values[0].type, *values)

    return build


def _floored(value: str, size: str) -> str:
    """The multiple of `size` at or below `value`; SQL's own division truncates towards zero."""
    return f"({value} - (({value} % nullif({size}, 0)) + {size}) % {size})"


#: Kusto counts times from there: a week begins on a Monday. In microseconds before 1970.
YEAR_1 = 62_135_596_800_000_000
#: A size that is not above 0 makes bin() null.
_POSITIVE = "(CASE WHEN {0} > 0 THEN {0} END)"

_UNITS = {10_000_000: "second", 600_000_000: "minute", 36_000_000_000: "hour", 864_000_000_000: "day"}


def _bin(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """R7: floor from 0, for datetimes from 0001-01-01, UTC."""
    if node.name == "floor" and len(node.args) == 1:
        (value,) = arguments(c, node, scope, 1)
        if value.type not in NUMERIC:
            raise KqlBindError(f"floor() needs a number, not {value.type}", node.span)
        return sql("floor({0})", "real", cast_number(value, "real"))
    value, size = arguments(c, node, scope, 2)
    return replace(bin_of(value, size, node), name=value.name)


def bin_of(value: Value, size: Value, node: ast.Node) -> Value:
    """bin() of bound values; null for a size that is not above 0."""
    if value.type == "dynamic":
        raise KqlBindError("bin() needs a typed value; convert the dynamic first", node.span)
    if value.type == "datetime" and size.type == "timespan":
        unit = _UNITS.get(size.constant) if size.is_constant else None
        if unit:  # the same moment, and half the work
            return sql(f"CAST(date_trunc('{unit}', {{0}}) AS TIMESTAMP)", "datetime", value, nullable=True)
        since = f"(epoch_us({{0}}) + {YEAR_1})"  # never below 0, so that division need not consider a sign
        if size.is_constant and (step := (size.constant or 0) // 10) > 0:
            return sql(f"make_timestamp({since} // {step} * {step} - {YEAR_1})", "datetime", value, nullable=True)
        template = f"make_timestamp({since} // {_POSITIVE.format('({1} // 10)')} * ({{1}} // 10) - {YEAR_1})"
        return sql(template, "datetime", value, size, nullable=True)
    if value.type == "timespan" and size.type == "timespan":
        return sql(_bin_template(size), "timespan", value, size, nullable=True)
    if value.type in NUMERIC and size.type in NUMERIC:
        kind = widest([value.type, size.type, "long"])
        value, size = cast_number(value, kind), cast_number(size, kind)
        if kind == "long":
            return sql(_bin_template(size), kind, value, size, nullable=True)
        return sql(f"(floor({{0}} / {_POSITIVE.format('{1}')}) * {{1}})", kind, value, size, nullable=True)
    raise KqlBindError(f"bin() does not take {value.type} in steps of {size.type}", node.span)


def _bin_template(size: Value) -> str:
    above = "{1}" if size.is_constant and (size.constant or 0) > 0 else _POSITIVE.format("{1}")
    return f"({{0}} - (({{0}} % {above}) + {{1}}) % {{1}})"


def _bin_at(c: Binder, node: ast.Call, scope: Scope) -> Value:
    value, size, origin = arguments(c, node, scope, 3)
    kinds = (value.type, size.type, origin.type)
    if kinds == ("datetime", "timespan", "datetime"):
        template = "make_timestamp(epoch_us({2}) + " + _floored("(epoch_us({0}) - epoch_us({2}))", "({1} // 10)") + ")"
        made = sql(template, "datetime", value, size, origin, nullable=True)
    elif kinds == ("timespan",) * 3:
        made = sql("({2} + " + _floored("({0} - {2})", "{1}") + ")", "timespan", value, size, origin, nullable=True)
    elif not {value.type, size.type, origin.type} <= set(NUMERIC):
        raise KqlBindError(f"bin_at() does not take {value.type} in steps of {size.type} from {origin.type}", node.span)
    else:
        kind = widest([value.type, size.type, origin.type])
        value, size, origin = (cast_number(v, kind) for v in (value, size, origin))
        made = sql("({2} + floor(({0} - {2}) / nullif({1}, 0)) * {1})", kind, value, size, origin, nullable=True)
    return replace(made, name=value.name)


def _rand(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = arguments(c, node, scope, 0, 1)
    if not args:
        return sql("random()", "real", nullable=False)
    expect_whole(node, args[0])
    return sql("floor(random() * {0})", "real", cast_number(args[0], "real"))


def _bin_auto(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """bin_at() with the size and origin from `set query_bin_auto_size` and `..._at`."""
    size = c.settings.get("query_bin_auto_size")
    if size is None:
        raise KqlBindError("bin_auto() needs 'set query_bin_auto_size=...' before the query", node.span)
    origin = c.settings.get("query_bin_auto_at")
    args = (*node.args, size, origin) if origin else (*node.args, size)
    return c.call(ast.Call("bin_at" if origin else "bin", args, span=node.span), scope)


FUNCTIONS = (
    Function(
        "abs",
        "The absolute value.",
        Template("l", "long", "abs({0})"),
        Template("n", "0", "abs({0})"),
        Template("p", "timespan", "abs({0})"),
        cost=LINEAR,
    ),
    Function(
        "sign", "-1, 0 or 1 by the sign of the number.", Template("n", "real", "CAST(sign({0}) AS DOUBLE)"), cost=LINEAR
    ),
    Function(
        "sqrt",
        "The square root.",
        Template("r", "real", "CASE WHEN {0} < 0 THEN 'NaN'::DOUBLE ELSE sqrt({0}) END"),
        cost=LINEAR,
    ),
    Function("exp", "e to the power of the number.", Template("r", "real", "exp({0})"), cost=LINEAR),
    Function("exp2", "2 to the power of the number.", Template("r", "real", "pow(2.0, {0})"), cost=LINEAR),
    Function("exp10", "10 to the power of the number.", Template("r", "real", "pow(10.0, {0})"), cost=LINEAR),
    Function(
        "log",
        "The natural logarithm.",
        Template(
            "r", "real", "CASE WHEN {0} < 0 THEN 'NaN'::DOUBLE WHEN {0} = 0 THEN '-Infinity'::DOUBLE ELSE ln({0}) END"
        ),
        cost=LINEAR,
    ),
    Function(
        "log10",
        "The logarithm to base 10.",
        Template(
            "r",
            "real",
            "CASE WHEN {0} < 0 THEN 'NaN'::DOUBLE WHEN {0} = 0 THEN '-Infinity'::DOUBLE ELSE log10({0}) END",
        ),
        cost=LINEAR,
    ),
    Function(
        "log2",
        "The logarithm to base 2.",
        Template(
            "r", "real", "CASE WHEN {0} < 0 THEN 'NaN'::DOUBLE WHEN {0} = 0 THEN '-Infinity'::DOUBLE ELSE log2({0}) END"
        ),
        cost=LINEAR,
    ),
    Function(
        "pow", "The first number to the power of the second.", Template("r r", "real", "pow({0}, {1})"), cost=LINEAR
    ),
    Function("sin", "The sine of an angle in radians.", Template("r", "real", "sin({0})"), cost=LINEAR),
    Function("cos", "The cosine of an angle in radians.", Template("r", "real", "cos({0})"), cost=LINEAR),
    Function("tan", "The tangent of an angle in radians.", Template("r", "real", "tan({0})"), cost=LINEAR),
    Function(
        "asin",
        "The angle in radians whose sine this is.",
        Template("r", "real", "CASE WHEN abs({0}) <= 1 THEN asin({0}) ELSE 'NaN'::DOUBLE END"),
        cost=LINEAR,
    ),
    Function(
        "acos",
        "The angle in radians whose cosine this is.",
        Template("r", "real", "CASE WHEN abs({0}) <= 1 THEN acos({0}) ELSE 'NaN'::DOUBLE END"),
        cost=LINEAR,
    ),
    Function("atan", "The angle in radians whose tangent this is.", Template("r", "real", "atan({0})"), cost=LINEAR),
    Function(
        "atan2",
        "The angle in radians of the point (x, y), given y first.",
        Template("r r", "real", "atan2({0}, {1})"),
        cost=LINEAR,
    ),
    Function("cot", "The cotangent of an angle in radians.", Template("r", "real", "cot({0})")),
    Function("pi", "The number pi.", Template("", "real", "pi()"), cost=LINEAR),
    Function("degrees", "An angle in radians as degrees.", Template("r", "real", "degrees({0})"), cost=LINEAR),
    Function("radians", "An angle in degrees as radians.", Template("r", "real", "radians({0})"), cost=LINEAR),
    Function(
        "ceiling",
        "The least whole number that is not less.",
        Template("i", "int", "{0}"),
        Template("l", "long", "{0}"),
        Template("m", "decimal", "CAST(ceil({0}) AS DECIMAL(38,12))"),
        Template("r", "real", "ceil({0})"),
        cost=LINEAR,
        aliases=("ceil",),
    ),
    Function(
        "round",
        "The nearest number with so many digits.",
        Template("i", "int", "{0}"),
        Template("l", "long", "{0}"),
        Template("m", "decimal", "CAST(round({0}) AS DECIMAL(38,12))"),
        Template("r", "real", "round({0})"),
        Template("i l", "int", "CAST(round({0}, CAST({1} AS INTEGER)) AS INTEGER)"),
        Template("l l", "long", "round({0}, CAST({1} AS INTEGER))"),
        Template("m l", "decimal", "CAST(round(CAST({0} AS DOUBLE), CAST({1} AS INTEGER)) AS DECIMAL(38,12))"),
        Template("r l", "real", "round({0}, CAST({1} AS INTEGER))"),
        cost=LINEAR,
    ),
    Function("isnan", "Whether the number is NaN.", Template("r", "bool", "isnan({0})"), cost=LINEAR),
    Function("isinf", "Whether the number is infinite.", Template("r", "bool", "isinf({0})"), cost=LINEAR),
    Function(
        "isfinite",
        "Whether the number is neither infinite nor NaN.",
        Template("r", "bool", "isfinite({0})"),
        cost=LINEAR,
    ),
    Function(
        "binary_and", "The bits that both numbers have.", Template("l l", "long", "bits_and({0}, {1})"), cost=LINEAR
    ),
    Function(
        "binary_or", "The bits that one of the numbers has.", Template("l l", "long", "bits_or({0}, {1})"), cost=LINEAR
    ),
    Function(
        "binary_xor",
        "The bits that only one of the numbers has.",
        Template("l l", "long", "xor({0}, {1})"),
        cost=LINEAR,
    ),
    Function(
        "binary_not", "The bits that the number does not have.", Template("l", "long", "bits_not({0})"), cost=LINEAR
    ),
    Function(
        "binary_shift_left",
        "The bits moved to higher places.",
        Template("l l", "long", "shift_left({0}, {1})"),
        cost=LINEAR,
    ),
    Function(
        "binary_shift_right",
        "The bits moved to lower places.",
        Template("l l", "long", "shift_right({0}, {1})"),
        cost=LINEAR,
    ),
    Function(
        "bitset_count_ones",
        "How many bits of the number are set.",
        Template("l", "long", "bit_count({0})"),
        cost=LINEAR,
    ),
    Function(
        "bin",
        "The multiple of a size at or below the value, counted from 0 or 1970.",
        bind=_bin,
        cost=LINEAR,
        aliases=("floor",),
    ),
    Function(
        "bin_at", "The multiple of a size at or below the value, counted from an origin.", bind=_bin_at, cost=LINEAR
    ),
    Function(
        "bin_auto",
        "bin() with the size and origin that `set query_bin_auto_size` and `query_bin_auto_at` give.",
        bind=_bin_auto,
        cost=LINEAR,
    ),
    Function("max_of", "The greatest of the arguments.", bind=_extreme("greatest"), cost=LINEAR),
    Function("min_of", "The least of the arguments.", bind=_extreme("least"), cost=LINEAR),
    Function("rand", "A random number from 0 to 1, or a whole one below a limit.", bind=_rand),
)
