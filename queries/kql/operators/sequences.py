"""sequence_detect: events that follow each other within given times, for each combination of dimensions."""

from __future__ import annotations

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.dialect import Sql
from queries.kql.errors import KqlBindError
from queries.kql.operations import arithmetic
from queries.kql.stages import Env, Scope, Stage, relation, row_of, scope_of
from queries.kql.values import Value, sql


def sequence_detect(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """A row for each different sequence of moments, one for each condition in turn.

    Each moment is later than the one before, no step is longer than the first timespan, and the whole no longer than
    the second.
    """
    if len(call.args) < 4:
        raise KqlBindError(
            "sequence_detect takes a time, the longest step, the longest sequence, conditions and dimensions", call.span
        )
    row = scope_of(stage, env)
    when = c.expr(call.args[0], row)
    if when.type != "datetime":
        raise KqlBindError(f"sequence_detect needs a datetime first, not {when.type}", call.args[0].span)
    longest = [_timespan(c, a, env) for a in call.args[1:3]]
    tests, dimensions = _conditions(c, call, row)
    made: Stage | None = None
    for place, (_, test) in enumerate(tests):
        found = _moments(
            c, stage, test, [*((f"$d{n}", d) for n, (_, d) in enumerate(dimensions)), (f"$t{place}", when)]
        )
        made = found if made is None else _followed(c, made, found, place, len(dimensions), longest)
    assert made is not None
    got = row_of(made)
    names = [f"{name}_{when.name or ''}" for name, _ in tests]
    out = [(name, got[f"$d{n}"]) for n, (name, _) in enumerate(dimensions)]
    out += [(name, got[f"$t{n}"]) for n, name in enumerate(names)]
    return c.emit(made, [*out, ("Duration", arithmetic("-", got[f"$t{len(tests) - 1}"], got["$t0"], call.span))])


def _timespan(c: TableBinder, node: ast.Node, env: Env) -> Value:
    message = "sequence_detect takes two timespans before its conditions: the longest step and the longest sequence"
    try:
        value = c.expr(node, Scope(env))
    except KqlBindError:
        raise KqlBindError(message, node.span) from None
    if value.type != "timespan":
        raise KqlBindError(f"{message}; this is {value.type}", node.span)
    return value


def _conditions(
    c: TableBinder, call: ast.Call, row: Scope
) -> tuple[list[tuple[str, Value]], list[tuple[str, Value]]]:  # fmt: skip
    """Conditions by their names; other arguments are dimensions."""
    tests: list[tuple[str, Value]] = []
    dimensions: list[tuple[str, Value]] = []
    for arg in call.args[3:]:
        name, node = (arg.names[0], arg.value) if isinstance(arg, ast.Named) else ("", arg)
        if isinstance(node, ast.Name):
            value = c.expr(node, row)
            if value.type != "bool":
                dimensions.append((node.name, value))
                continue
        if dimensions:
            raise KqlBindError("sequence_detect takes its conditions before its dimensions", arg.span)
        tests.append((name, c.condition(node, row)))
    if not tests:
        raise KqlBindError("sequence_detect needs a condition, such as down=(Event == 'nic.link_down')", call.span)
    return tests, dimensions


def _moments(c: TableBinder, stage: Stage, test: Value, columns: list[tuple[str, Value]]) -> Stage:
    """The different moments, the last of the columns, at which a condition holds."""
    known = sql("({0} AND {1} IS NOT NULL)", "bool", test, columns[-1][1])
    return c.emit(stage, columns, keep_hidden=False, is_sorted=False,
                  refine=lambda q: q.where(known.sql).distinct())  # fmt: skip


def _followed(c: TableBinder, made: Stage, found: Stage, place: int, count: int, longest: list[Value]) -> Stage:
    """The sequences so far, each with every next moment that is near enough."""
    left, right = row_of(made, "l"), row_of(found, "r")
    before, first, then = left[f"$t{place - 1}"], left["$t0"], right[f"$t{place}"]
    tests = [sql("({0} IS NOT DISTINCT FROM {1})", "bool", left[f"$d{n}"], right[f"$d{n}"]) for n in range(count)]
    tests.append(sql("({1} > {0} AND epoch_us({1}) - epoch_us({0}) <= {2} // 10)", "bool", before, then, longest[0]))
    tests.append(sql("(epoch_us({1}) - epoch_us({0}) <= {2} // 10)", "bool", first, then, longest[1]))
    on = Sql(" AND ".join(f"{{{i}}}" for i in range(len(tests))), *(t.sql for t in tests))
    source = relation(made.relation, "l").join(relation(found.relation, "r"), on)
    columns = [*left.items(), (f"$t{place}", then)]
    return c.emit(made, columns, source=source, keep_hidden=False, is_sorted=False)


PLUGINS = {"sequence_detect": sequence_detect}
