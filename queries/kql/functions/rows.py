"""Functions of serialized rows, of the row's neighbours and of all rows so far."""

from __future__ import annotations

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.conversion import to_type
from queries.kql.errors import KqlBindError
from queries.kql.functions.arguments import expect_whole
from queries.kql.functions.calling import order_of_rows
from queries.kql.functions.declaration import LINEAR, Bind, Function, Kind
from queries.kql.stages import Scope
from queries.kql.values import NUMERIC, Value, cast_number, sql


def _expect(node: ast.Call, low: int, high: int) -> None:
    if not low <= len(node.args) <= high:
        wanted = str(low) if low == high else f"{low} to {high}"
        raise KqlBindError(f"{node.name}() takes {wanted} arguments, not {len(node.args)}", node.span)


def _shift(function: str) -> Bind:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        order = order_of_rows(c, node, scope)
        _expect(node, 1, 3)
        value = c.expr(node.args[0], scope)
        if scope.columns.get(value.name or "") is not value:
            value = c.hoist(scope, value)
        args = [value]
        if len(node.args) > 1:
            args.append(c.expr(node.args[1], scope))
            expect_whole(node, args[1])
        if len(node.args) > 2:
            fallback = c.expr(node.args[2], scope)
            args.append(cast_number(fallback, value.type) if {fallback.type, value.type} <= set(NUMERIC)
                        else to_type(fallback, value.type))  # fmt: skip
        holes = ", ".join(f"{{{i}}}" for i in range(len(args)))
        return sql(f"{function}({holes}) OVER (ORDER BY {{{len(args)}}})", value.type, *args, order, nullable=True)

    return build


def _restart(c: Binder, node: ast.Node, scope: Scope) -> Value:
    """The number of restarts so far, as a column one stage down."""
    flag = c.hoist(scope, c.condition(node, scope))
    assert scope.stage is not None and scope.stage.order is not None
    order = scope.stage.order.value()
    return c.hoist(scope, sql("count(*) FILTER (WHERE {0}) OVER (ORDER BY {1})", "long", flag, order))


def _row_number(c: Binder, node: ast.Call, scope: Scope) -> Value:
    order = order_of_rows(c, node, scope)
    _expect(node, 0, 2)
    start = c.expr(node.args[0], scope) if node.args else None
    if start is not None:
        expect_whole(node, start)
    group = _restart(c, node.args[1], scope) if len(node.args) > 1 else None
    over = "PARTITION BY {1} ORDER BY {0}" if group else "ORDER BY {0}"
    number = sql(f"row_number() OVER ({over})", "long", *([order, group] if group else [order]), nullable=False)
    return sql("({0} + {1} - 1)", "long", number, start) if start else number


def _row_cumsum(c: Binder, node: ast.Call, scope: Scope) -> Value:
    order = order_of_rows(c, node, scope)
    _expect(node, 1, 2)
    term = c.hoist(scope, c.expr(node.args[0], scope))
    if term.type not in (*NUMERIC, "timespan"):
        raise KqlBindError(f"row_cumsum() needs a number, not {term.type}", node.args[0].span)
    group = _restart(c, node.args[1], scope) if len(node.args) > 1 else None
    over = "PARTITION BY {2} ORDER BY {1}" if group else "ORDER BY {1}"
    physical = {"real": "DOUBLE", "decimal": "DECIMAL(38,12)", "int": "INTEGER"}.get(term.type, "BIGINT")
    args = [term, order, group] if group else [term, order]
    return sql(f"CAST(coalesce(sum({{0}}) OVER ({over}), 0) AS {physical})", term.type, *args)


def _rank(dense: bool) -> Bind:
    """A rank that rises when the value changes: by one if dense, else to the number of the row."""

    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        order = order_of_rows(c, node, scope)
        _expect(node, 1, 2)
        term = c.hoist(scope, c.expr(node.args[0], scope))
        if term.type == "dynamic":
            raise KqlBindError(f"{node.name}() does not compare dynamics; convert it first", node.args[0].span)
        group = _restart(c, node.args[1], scope) if len(node.args) > 1 else None
        over = "PARTITION BY {2} ORDER BY {1}" if group else "ORDER BY {1}"
        args = [term, order, group] if group else [term, order]
        first = f"row_number() OVER ({over}) = 1"
        changed = c.hoist(scope, sql(f"({first} OR {{0}} IS DISTINCT FROM lag({{0}}) OVER ({over}))", "bool", *args))
        args[0] = changed
        if dense:
            return sql(f"count(*) FILTER (WHERE {{0}}) OVER ({over})", "long", *args, nullable=False)
        number = c.hoist(scope, sql(f"row_number() OVER ({over})", "long", *args, nullable=False))
        args.append(number)
        return sql(f"max(CASE WHEN {{0}} THEN {{{len(args) - 1}}} END) OVER ({over})", "long", *args, nullable=False)

    return build


def _row_window_session(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """The first moment of the session that a row belongs to: a fold over the rows of each restart group."""
    order = order_of_rows(c, node, scope)
    _expect(node, 3, 4)
    moment = c.hoist(scope, c.expr(node.args[0], scope))
    if moment.type != "datetime":
        raise KqlBindError(f"row_window_session() needs a datetime, not {moment.type}", node.args[0].span)
    longest, gap = (c.expr(a, scope) for a in node.args[1:3])
    if (longest.type, gap.type) != ("timespan", "timespan"):
        raise KqlBindError("row_window_session() takes two timespans after the expression", node.span)
    group = _restart(c, node.args[3], scope) if len(node.args) > 3 else None
    ticks = c.hoist(scope, sql("epoch_us({0})", "long", moment))
    over = "PARTITION BY {2} ORDER BY {1}" if group else "ORDER BY {1}"
    args = [ticks, order, group or order, longest, gap]
    # {s}: start of the session, {l}: the row before. A null belongs to none, and the next row begins one.
    fold = (
        f"list_reduce(list_transform(list({{0}}) OVER ({over}), lambda kx: {{'s': kx, 'l': kx}}), lambda ka, kx: "
        "CASE WHEN kx.l IS NULL OR ka.l IS NULL OR kx.l - ka.s >= {3} // 10 OR kx.l - ka.l >= {4} // 10 OR kx.l < ka.l THEN kx "
        "ELSE {'s': ka.s, 'l': kx.l} END).s"
    )
    return sql(f"make_timestamp({fold})", "datetime", *args, nullable=True)


def _session_gap(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """session_gap(Time, 5m, Host, ...), an extension of ours: the number of a row's session, from 1, for each key.

    A new session begins if the row before is longer ago than the gap. The order of the rows does not matter.
    """
    if scope.stage is None or not scope.windowed or len(node.args) < 2:
        raise KqlBindError("session_gap(Time, gap, key, ...) works in extend and project", node.span)
    moment, gap, *keys = (c.expr(arg, scope) for arg in node.args)
    if (moment.type, gap.type) != ("datetime", "timespan"):
        raise KqlBindError("session_gap() needs a datetime and then a timespan", node.span)
    moment, *keys = (c.hoist(scope, value) for value in (moment, *keys))
    holes = ", ".join(f"{{{n + 2}}}" for n in range(len(keys)))
    over = f"OVER ({f'PARTITION BY {holes} ' if keys else ''}ORDER BY {{0}})"
    begins = sql(
        f"CASE WHEN epoch_us({{0}}) - epoch_us(lag({{0}}) {over}) > {{1}} // 10 THEN 1 ELSE 0 END",
        "long",
        moment,
        gap,
        *keys,
    )
    flag = c.hoist(scope, begins)
    place = len(keys) + 2
    return sql(f"CAST(sum({{{place}}}) {over} + 1 AS BIGINT)", "long", moment, gap, *keys, flag, nullable=False)


FUNCTIONS = (
    Function("prev", "The value in the row so many rows before.", bind=_shift("lag"), cost=LINEAR, kind=Kind.ROW),
    Function("next", "The value in the row so many rows behind.", bind=_shift("lead"), cost=LINEAR, kind=Kind.ROW),
    Function(
        "row_number",
        "The number of the row, from 1 or a start, restarted where a condition holds.",
        bind=_row_number,
        cost=LINEAR,
        kind=Kind.ROW,
    ),
    Function(
        "row_cumsum",
        "The sum of all rows so far, restarted where a condition holds.",
        bind=_row_cumsum,
        cost=LINEAR,
        kind=Kind.ROW,
    ),
    Function(
        "row_rank_dense", "The rank of the row's value, without gaps.", bind=_rank(True), cost=LINEAR, kind=Kind.ROW
    ),
    Function(
        "row_rank_min",
        "The rank of the row's value, with gaps behind equal values.",
        bind=_rank(False),
        cost=LINEAR,
        kind=Kind.ROW,
    ),
    Function("row_rank", "The rank of the row's value, without gaps.", bind=_rank(True), cost=LINEAR, kind=Kind.ROW),
    Function(
        "row_window_session",
        "The start of the session that the row belongs to.",
        bind=_row_window_session,
        kind=Kind.ROW,
    ),
    Function(
        "session_gap",
        "The number of the row's session of its key, where a gap begins a new one; an extension of Faultline.",
        bind=_session_gap,
        cost=LINEAR,
        kind=Kind.ROW,
    ),
)
