"""Dates and spans: components, borders, arithmetic, formats and time zones."""

from __future__ import annotations

import re
import zoneinfo
from datetime import datetime

from parsers.zones import find, utc_within, wall_of
from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.conversion import to_type
from queries.kql.errors import KqlBindError, nearest
from queries.kql.functions.arguments import arguments, expect_whole
from queries.kql.functions.declaration import LINEAR, Body, Function, Template
from queries.kql.operations import arithmetic, compare
from queries.kql.stages import Scope
from queries.kql.values import NUMERIC, Value, cast_number, constant, sql


def _now(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = arguments(c, node, scope, 0, 1)
    moment = constant(c.now, "datetime")
    return arithmetic("+", moment, args[0], node.span) if args else moment


def _ago(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (span,) = arguments(c, node, scope, 1)
    if span.type != "timespan":
        raise KqlBindError(f"ago() needs a timespan, not {span.type}", node.args[0].span)
    return arithmetic("-", constant(c.now, "datetime"), span, node.span)


# The size of one unit of datetime_diff, datetime_add and datetime_part; a week starts on Sunday (R7).
_PARTS = {
    "year": "year({0})", "quarter": "quarter({0})", "month": "month({0})", "weekofyear": "week({0})",
    "day": "day({0})", "dayofyear": "dayofyear({0})", "hour": "hour({0})", "minute": "minute({0})",
    "second": "second({0})", "millisecond": "millisecond({0}) % 1000", "microsecond": "microsecond({0}) % 1000000",
    "nanosecond": "(microsecond({0}) % 1000000) * 1000",
}  # fmt: skip

_UNITS = {"year", "quarter", "month", "day", "hour", "minute", "second", "millisecond", "microsecond"}


def _word(unit: Value, node: ast.Call, example: str) -> str:
    if not unit.is_constant or not isinstance(unit.constant, str):
        raise KqlBindError(f"{node.name}() needs a constant part such as '{example}'", node.args[0].span)
    return unit.constant.lower().replace("_", "")


def _moment(value: Value, node: ast.Call) -> Value:
    if value.type == "dynamic":
        return to_type(value, "datetime")
    if value.type != "datetime":
        raise KqlBindError(f"{node.name}() needs a datetime, not {value.type}", value.span)
    return value


def _datetime_part(c: Binder, node: ast.Call, scope: Scope) -> Value:
    unit, moment = arguments(c, node, scope, 2)
    word = _word(unit, node, "hour")
    if word not in _PARTS:
        raise KqlBindError(f"datetime_part() has no part '{unit.constant}'", node.args[0].span)
    return sql(f"CAST({_PARTS[word]} AS INTEGER)", "int", _moment(moment, node))


def _datetime_diff(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """The number of borders of a unit between two moments."""
    unit, later, earlier = arguments(c, node, scope, 3)
    later, earlier = _moment(later, node), _moment(earlier, node)
    word = _word(unit, node, "minute").rstrip("s")
    if word in _UNITS:
        return sql(f"date_diff('{word}', {{1}}, {{0}})", "long", later, earlier)
    if word == "nanosecond":
        return sql("((epoch_us({0}) - epoch_us({1})) * 1000)", "long", later, earlier)
    if word == "week":
        shifted = "epoch_us(date_trunc('day', {N})) // 86400000000 + 4"
        first, second = shifted.replace("{N}", "{0}"), shifted.replace("{N}", "{1}")
        return sql(f"(({first}) // 7 - ({second}) // 7)", "long", later, earlier)
    known = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
    close = nearest(str(unit.constant).lower(), known)
    raise KqlBindError(f"datetime_diff() has no unit '{unit.constant}'", node.args[0].span, suggestion=close)


def _datetime_add(c: Binder, node: ast.Call, scope: Scope) -> Value:
    unit, amount, moment = arguments(c, node, scope, 3)
    expect_whole(node, amount)
    moment = _moment(moment, node)
    word = _word(unit, node, "day").rstrip("s")
    if word == "quarter":
        return sql("({1} + to_months(CAST(3 * {0} AS INTEGER)))", "datetime", amount, moment)
    if word == "nanosecond":
        return sql("({1} + to_microseconds({0} // 1000))", "datetime", amount, moment)
    if word not in _UNITS | {"week"}:
        raise KqlBindError(f"datetime_add() has no unit '{unit.constant}'", node.args[0].span)
    cast = "INTEGER" if word in ("year", "month", "week", "day") else "BIGINT"
    return sql(f"({{1}} + to_{word}s(CAST({{0}} AS {cast})))", "datetime", amount, moment)


# .NET's custom letters that Kusto documents, as SQL over {0}.
_FRACTION = "printf('%06d', microsecond({0}) % 1000000)"

_LETTERS = {
    "yyyy": "printf('%04d', year({0}))", "yy": "printf('%02d', year({0}) % 100)", "y": "CAST(year({0}) % 100 AS VARCHAR)",
    "MM": "printf('%02d', month({0}))", "M": "CAST(month({0}) AS VARCHAR)", "dd": "printf('%02d', day({0}))",
    "d": "CAST(day({0}) AS VARCHAR)", "HH": "printf('%02d', hour({0}))", "H": "CAST(hour({0}) AS VARCHAR)",
    "hh": "printf('%02d', (hour({0}) + 11) % 12 + 1)", "h": "CAST((hour({0}) + 11) % 12 + 1 AS VARCHAR)",
    "mm": "printf('%02d', minute({0}))", "m": "CAST(minute({0}) AS VARCHAR)", "ss": "printf('%02d', second({0}))",
    "s": "CAST(second({0}) AS VARCHAR)", "tt": "CASE WHEN hour({0}) < 12 THEN 'AM' ELSE 'PM' END",
    "t": "CASE WHEN hour({0}) < 12 THEN 'A' ELSE 'P' END",
}  # fmt: skip


def _runs(text: str) -> list[str]:
    return [m[0] for m in re.finditer(r"([A-Za-z])\1*|[^A-Za-z]+", text)]


def _layout(value: Value, node: ast.Call) -> str:
    if not value.is_constant or not value.constant:
        raise KqlBindError(f"{node.name}() needs a constant format", node.args[1].span)
    return str(value.constant)


def _format_datetime(c: Binder, node: ast.Call, scope: Scope) -> Value:
    moment, layout = arguments(c, node, scope, 2)
    parts, values = [], [_moment(moment, node)]
    for run in _runs(_layout(layout, node)):
        if run in _LETTERS:
            parts.append(_LETTERS[run])
        elif run[0] in "fF" and len(run) <= 7:
            digits = f"left({_FRACTION} || '0', {len(run)})"
            parts.append(digits if run[0] == "f" else f"rtrim({digits}, '0')")
        elif run.isascii() and run.isalpha() and run not in ("T", "Z"):
            raise KqlBindError(f"a date format has no '{run}'", layout.span)
        else:
            parts.append(f"{{{len(values)}}}")
            values.append(constant(run, "string"))
    return sql("(" + " || ".join(parts) + ")", "string", *values)


def _format_timespan(c: Binder, node: ast.Call, scope: Scope) -> Value:
    span, layout = arguments(c, node, scope, 2)
    if span.type != "timespan":
        raise KqlBindError(f"format_timespan() needs a timespan, not {span.type}", node.args[0].span)
    sizes = {"d": "abs({0}) // 864000000000", "h": "abs({0}) // 36000000000 % 24", "H": "abs({0}) // 36000000000 % 24",
             "m": "abs({0}) // 600000000 % 60", "s": "abs({0}) // 10000000 % 60"}  # fmt: skip
    parts, values = [], [span]
    for run in _runs(_layout(layout, node)):
        if run[0] in sizes and (run[0] == "d" or len(run) <= 2):
            parts.append(f"printf('%0{len(run)}d', {sizes[run[0]]})")
        elif run[0] == "f" and len(run) <= 7:
            parts.append(f"left(printf('%07d', abs({{0}}) % 10000000), {len(run)})")
        elif run[0] == "F" and len(run) <= 7:
            parts.append(f"rtrim(left(printf('%07d', abs({{0}}) % 10000000), {len(run)}), '0')")
        elif run.isascii() and run.isalpha():
            raise KqlBindError(f"a timespan format has no '{run}'", layout.span)
        else:
            parts.append(f"{{{len(values)}}}")
            values.append(constant(run, "string"))
    return sql("(" + " || ".join(parts) + ")", "string", *values)


def _make_datetime(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = arguments(c, node, scope, 1, 6)
    if len(args) == 1:
        return to_type(args[0], "datetime")
    if len(args) < 3 or not all(a.type in NUMERIC for a in args):
        raise KqlBindError("make_datetime() takes year, month, day and perhaps hour, minute, second", node.span)
    expect_whole(node, *args[:5])
    filled = [cast_number(a, "long") if a.type == "int" else a for a in args]
    filled += [constant(0, "long")] * (6 - len(filled))
    made = "time_of_parts(CAST({0} AS BIGINT), CAST({1} AS BIGINT), CAST({2} AS BIGINT), CAST({3} AS BIGINT), " \
        "CAST({4} AS BIGINT), CAST({5} AS DOUBLE))"  # fmt: skip
    return sql(made, "datetime", *filled, nullable=True)


def _make_timespan(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = arguments(c, node, scope, 1, 4)
    if len(args) == 1:
        return to_type(args[0], "timespan")
    ticks = {2: (36000000000, 600000000), 3: (36000000000, 600000000, 10**7),
             4: (864000000000, 36000000000, 600000000, 10**7)}[len(args)]  # fmt: skip
    expect_whole(node, *args[: 2 if len(args) < 4 else 3])
    if args[-1].type not in NUMERIC:
        raise KqlBindError(f"make_timespan() needs a number, not {args[-1].type}", node.span)
    terms = " + ".join(f"CAST(round({{{i}}} * {t}) AS BIGINT)" for i, t in enumerate(ticks))
    first = len(args) == 4  # days have no limit
    limits = " AND ".join(
        f"{{{i + first}}} >= 0 AND {{{i + first}}} < {n}" for i, n in enumerate((24, 60, 60)[: len(args) - first])
    )
    return sql(f"CASE WHEN {limits} THEN {terms} END", "timespan", *args, nullable=True)


def _around(c: Binder, node: ast.Call, scope: Scope) -> Value:
    value, centre, delta = arguments(c, node, scope, 3)
    low, high = arithmetic("-", centre, delta, node.span), arithmetic("+", centre, delta, node.span)
    tests = compare(">=", value, low, node.span), compare("<=", value, high, node.span)
    return sql("({0} AND {1})", "bool", *tests)


def _zones(c: Binder, node: ast.Call, scope: Scope) -> Value:
    arguments(c, node, scope, 0)
    return constant(sorted(zoneinfo.available_timezones()), "dynamic")


def utc_to_local(moment: datetime, zone: str) -> datetime | None:
    """UTC as the wall clock of a zone; null for an unknown zone."""
    found = find(zone)
    return wall_of(moment, found) if found else None


def local_to_utc(moment: datetime, zone: str) -> datetime | None:
    """The wall clock of a zone as UTC."""
    found = find(zone)
    return utc_within(moment, found) if found else None


_WEEK = "CAST(date_trunc('day', {0}) AS TIMESTAMP) - to_days(CAST(dayofweek({0}) AS INTEGER))"


def _start(unit: str) -> str:
    """Start of a calendar unit, shifted by an offset. R7: weeks start on Sunday."""
    if unit == "week":
        return f"({_WEEK} + to_days(CAST(7 * {{1}} AS INTEGER)))"
    step = {"day": "to_days", "month": "to_months", "year": "to_years"}[unit]
    return f"(CAST(date_trunc('{unit}', {{0}}) AS TIMESTAMP) + {step}(CAST({{1}} AS INTEGER)))"


def _borders(unit: str, starts: str) -> tuple[Function, Function]:
    """startof... and endof... of a unit; ``starts`` gives the day.

    R7: endof... is the last tick inside, and the seventh digit is lost (R9).
    """
    start = _start(unit)
    zero, after, next_zero = start.replace("{1}", "0"), start.replace("{1}", "({1} + 1)"), start.replace("{1}", "1")
    return (
        Function(
            f"startof{unit}", f"The start of the {unit}{starts}, shifted by so many {unit}s.",
            Template("t", "datetime", zero), Template("t l", "datetime", start), cost=LINEAR,
        ),
        Function(
            f"endof{unit}", f"The last tick of the {unit}, shifted by so many {unit}s.",
            Template("t", "datetime", f"({next_zero} - to_microseconds(1))"),
            Template("t l", "datetime", f"({after} - to_microseconds(1))"), cost=LINEAR,
        ),
    )  # fmt: skip


FUNCTIONS = (
    *_borders("day", ""),
    *_borders("week", " (Sunday)"),
    *_borders("month", ""),
    *_borders("year", ""),
    Function(
        "dayofmonth", "The day of the month, from 1.", Template("t", "int", "CAST(day({0}) AS INTEGER)"), cost=LINEAR
    ),
    Function(
        "dayofyear",
        "The day of the year, from 1.",
        Template("t", "int", "CAST(dayofyear({0}) AS INTEGER)"),
        cost=LINEAR,
    ),
    Function(
        "dayofweek",
        "The days since Sunday as a timespan.",
        Template("t", "timespan", "(dayofweek({0}) * 864000000000)"),
        cost=LINEAR,
    ),
    Function(
        "hourofday", "The hour of the day, from 0.", Template("t", "int", "CAST(hour({0}) AS INTEGER)"), cost=LINEAR
    ),
    Function(
        "getmonth",
        "The month, from 1.",
        Template("t", "int", "CAST(month({0}) AS INTEGER)"),
        cost=LINEAR,
        aliases=("monthofyear",),
    ),
    Function("getyear", "The year.", Template("t", "int", "CAST(year({0}) AS INTEGER)"), cost=LINEAR),
    Function(
        "weekofyear", "The ISO 8601 week of the year.", Template("t", "int", "CAST(week({0}) AS INTEGER)"), cost=LINEAR
    ),
    Function(
        "week_of_year",
        "The ISO 8601 week of the year.",
        Template("t", "int", "CAST(week({0}) AS INTEGER)"),
        cost=LINEAR,
    ),
    Function(
        "unixtime_seconds_todatetime",
        "The moment so many seconds after 1970.",
        Template("n", "datetime", "make_timestamp(CAST({0} * 1000000 AS BIGINT))"),
        cost=LINEAR,
    ),
    Function(
        "unixtime_milliseconds_todatetime",
        "The moment so many milliseconds after 1970.",
        Template("n", "datetime", "make_timestamp(CAST({0} * 1000 AS BIGINT))"),
        cost=LINEAR,
    ),
    Function(
        "unixtime_microseconds_todatetime",
        "The moment so many microseconds after 1970.",
        Template("n", "datetime", "make_timestamp(CAST({0} AS BIGINT))"),
        cost=LINEAR,
    ),
    Function(
        "unixtime_nanoseconds_todatetime",
        "The moment so many nanoseconds after 1970.",
        Template("n", "datetime", "make_timestamp(CAST({0} // 1000 AS BIGINT))"),
        cost=LINEAR,
    ),
    Function("now", "The moment of the query, the same throughout, shifted by a timespan.", bind=_now, cost=LINEAR),
    Function("ago", "The moment so long before now().", bind=_ago, cost=LINEAR),
    Function(
        "datetime_part",
        "One part of a moment, such as its hour.",
        bind=_datetime_part,
        cost=LINEAR,
        aliases=("datepart",),
    ),
    Function("datetime_diff", "How many borders of a unit lie between two moments.", bind=_datetime_diff, cost=LINEAR),
    Function("datetime_add", "The moment so many units later.", bind=_datetime_add, cost=LINEAR),
    Function("format_datetime", "The moment in a layout of .NET's custom letters.", bind=_format_datetime, cost=LINEAR),
    Function("format_timespan", "The timespan in a layout of letters.", bind=_format_timespan),
    Function(
        "make_datetime",
        "The moment of a year, month, day and perhaps hour, minute and second.",
        bind=_make_datetime,
        cost=LINEAR,
    ),
    Function("make_timespan", "The timespan of days, hours, minutes and seconds.", bind=_make_timespan, cost=LINEAR),
    Function("around", "Whether a value is at most so far from another.", bind=_around, cost=LINEAR),
    Function("datetime_list_timezones", "The names of all time zones of the IANA database.", bind=_zones, cost=LINEAR),
    Function(
        "datetime_utc_to_local",
        "A moment in UTC as the wall clock of a time zone shows it.",
        Body("t s", "datetime", utc_to_local),
    ),
    Function(
        "datetime_local_to_utc",
        "A moment on the wall clock of a time zone, in UTC.",
        Body("t s", "datetime", local_to_utc),
    ),
)
