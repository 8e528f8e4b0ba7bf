"""What a cluster is made of, as operators: extensions of Faultline, not part of Kusto's language.

- ``T | during_job(12345)`` or ``during_job(12345, 1)``: the rows of T on the job's nodes while it ran (its restart 1).
- ``T | within(5m, Events | where ...)``: the rows of T with a row of the other table on the same host, at most that much
  before or after.
- ``T | followed_by(60s, Events | where ...)``: the rows of T with a row of the other table on the same host at the same
  time or at most that much later; adds ``FollowedAt`` and ``Lag`` of the first one.

Each also works as a table function in Kusto's own grammar: ``T | invoke during_job(12345)``. T needs a time (``Time`` or
``TimeGenerated``) and a host (``Host`` or ``Computer``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import select

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.dialect import Sql, bound, quoted
from queries.kql.errors import KqlBindError
from queries.kql.stages import Env, Scope, Stage, StageColumn, everything, fresh, named_columns
from queries.kql.values import Value, sql

TIMES, HOSTS = ("Time", "TimeGenerated"), ("Host", "Computer")


def _column(stage: Stage, names: Sequence[str], kind: str, node: ast.Node) -> StageColumn:
    for name in names:
        for column in stage.visible:
            if column.name == name and column.type == kind:
                return column
    raise KqlBindError(f"a table with a {kind} column {' or '.join(names)} is needed here", node.span)


def _arguments(name: str, args: Sequence[ast.Node], low: int, high: int, node: ast.Node) -> None:
    if not low <= len(args) <= high:
        wanted = str(low) if low == high else f"{low} or {high}"
        raise KqlBindError(f"{name}() takes {wanted} arguments, not {len(args)}", node.span)


def during_job(c: TableBinder, stage: Stage, args: Sequence[ast.Node], node: ast.Node, env: Env) -> Stage:
    """Rows on the nodes of a job between its start and its end; for a running job, up to now."""
    _arguments("during_job", args, 1, 2, node)
    time, host = _column(stage, TIMES, "datetime", node), _column(stage, HOSTS, "string", node)
    wanted = [c.expr(arg, Scope(env)) for arg in args]
    for value, arg in zip(wanted, args, strict=True):
        if value.type not in ("int", "long"):
            raise KqlBindError(f"a job's number is a whole number, not {value.type}", arg.span)
    jobs = c.table(ast.Name("Jobs", span=node.span), Env({}))
    attempt = ' AND "t"."Attempt" = {2}' if len(wanted) > 1 else ""
    runs = c.add(
        Sql(
            'SELECT unnest(CAST("t"."Nodes" AS VARCHAR[])) AS "host", "t"."Start" AS "start", '
            f'coalesce("t"."End", {{1}}) AS "stop" FROM "{jobs.relation}" AS "t" WHERE "t"."JobId" = {{0}}{attempt}',
            wanted[0].sql, bound(c.now, "datetime"), *(v.sql for v in wanted[1:]),
        )
    )  # fmt: skip
    test = Sql(
        f'EXISTS (SELECT 1 FROM "{runs}" AS "r" WHERE "r"."host" = {{0}} AND {{1}} BETWEEN "r"."start" AND "r"."stop")',
        host.value().sql, time.value().sql,
    )  # fmt: skip
    return c.emit(stage, everything(stage), refine=lambda q: q.where(test), row_by_row=True)


def _span_and_table(
    c: TableBinder, name: str, args: Sequence[ast.Node], node: ast.Node, env: Env
) -> tuple[Value, Stage, StageColumn, StageColumn]:
    _arguments(name, args, 2, 2, node)
    span = c.expr(args[0], Scope(env))
    if span.type != "timespan":
        raise KqlBindError(f"{name}() needs a timespan such as 5m first, not {span.type}", args[0].span)
    other = c.table(args[1], env)
    return span, other, _column(other, TIMES, "datetime", args[1]), _column(other, HOSTS, "string", args[1])


def within(c: TableBinder, stage: Stage, args: Sequence[ast.Node], node: ast.Node, env: Env) -> Stage:
    """Rows with a row of the other table nearby in time on the same host."""
    time, host = _column(stage, TIMES, "datetime", node), _column(stage, HOSTS, "string", node)
    span, other, other_time, other_host = _span_and_table(c, "within", args, node, env)
    test = Sql(
        f'EXISTS (SELECT 1 FROM "{other.relation}" AS "o" WHERE {{2}} = {{0}} AND {{3}} BETWEEN '
        "{1} - to_microseconds({4} // 10) AND {1} + to_microseconds({4} // 10))",
        host.value().sql, time.value().sql, other_host.value("o").sql, other_time.value("o").sql, span.sql,
    )  # fmt: skip
    return c.emit(stage, everything(stage), refine=lambda q: q.where(test), row_by_row=True)


def followed_by(c: TableBinder, stage: Stage, args: Sequence[ast.Node], node: ast.Node, env: Env) -> Stage:
    """Rows with a later row in the other table, with when and how much later."""
    time, host = _column(stage, TIMES, "datetime", node), _column(stage, HOSTS, "string", node)
    span, other, other_time, other_host = _span_and_table(c, "followed_by", args, node, env)
    after = Value(Sql('"o"."at"'), "datetime", False)
    lag = sql("((epoch_us({0}) - epoch_us({1})) * 10)", "timespan", after, time.value())
    columns = list(everything(stage))
    for name, value in (("FollowedAt", after), ("Lag", lag)):
        columns.append((fresh(name, [n for n, _ in columns]), value))
    made = named_columns(columns)
    picked = select(*(v.sql.label(quoted(m.physical)) for m, (_, v) in zip(made, columns, strict=True)))
    body = Sql(
        f'{{0}} FROM "{stage.relation}" AS "t" ASOF JOIN '
        f'(SELECT {{1}} AS "host", {{2}} AS "at" FROM "{other.relation}" AS "f" WHERE {{2}} IS NOT NULL) AS "o" '
        f'ON {{3}} = "o"."host" AND {{4}} <= "o"."at" WHERE "o"."at" <= {{4}} + to_microseconds({{5}} // 10)',
        picked, other_host.value("f").sql, other_time.value("f").sql, host.value().sql,
        time.value().sql, span.sql,
    )  # fmt: skip
    return Stage(c.add(body), made)


Noun = Callable[[TableBinder, Stage, Sequence[ast.Node], ast.Node, Env], Stage]
NOUNS: dict[str, Noun] = {"during_job": during_job, "within": within, "followed_by": followed_by}


def table_function(c: TableBinder, node: ast.Call, scope: Scope) -> Stage:
    """A noun as a table function: its first argument is the table."""
    if not node.args:
        raise KqlBindError(f"{node.name}() needs a table first, or stands behind a pipe", node.span)
    return NOUNS[node.name](c, c.table(node.args[0], scope.env), node.args[1:], node, scope.env)


def _piped(noun: Noun) -> Any:
    def build(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
        return noun(c, stage, node.nodes("args"), node, env)

    return build


BUILDERS: dict[str, Any] = {name: _piped(noun) for name, noun in NOUNS.items()}
