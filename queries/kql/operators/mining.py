"""basket, autocluster and diffpatterns: the patterns of values that describe a table, or distinguish two halves of it.

This follows what Kusto publishes: parameters, columns, which patterns are frequent, the score of autocluster. Which of
the good patterns autocluster and diffpatterns show is not published in full (Kusto starts its search at random rows).
Here it is a rule: those without a better pattern of one value more or one value fewer. That is where a search from
neighbour to neighbour ends, applied from every start instead of some.
"""

from __future__ import annotations

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.dialect import Sql
from queries.kql.errors import KqlBindError
from queries.kql.operators import patterns
from queries.kql.operators.patterns import Figure
from queries.kql.stages import Env, Scope, Stage, scope_of
from queries.kql.values import NUMERIC, Value, constant, sql, text_of

# Kusto's documented defaults.
THRESHOLD, MAX_DIMENSIONS = 0.05, 5
SIZE_WEIGHT, NUM_SEEDS = 0.5, 25
LEAST_THRESHOLD = 0.015  # and its documented limit
MAX_SEEDS = 200
DEFAULT = "~"  # an argument left at its default


class _Arguments:
    """Arguments by position; `'~'` is the default."""

    def __init__(self, c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> None:
        self.c, self.stage, self.call, self.env = c, stage, call, env

    def given(self, place: int) -> ast.Node | None:
        """The argument at a position, unless it is left out."""
        node = self.call.args[place] if place < len(self.call.args) else None
        return None if isinstance(node, ast.Literal) and node.value == DEFAULT else node

    def number(self, place: int, name: str, fallback: float, least: float, most: float) -> float:
        """A constant between two limits."""
        node = self.given(place)
        if node is None:
            return fallback
        value = self.c.expr(node, Scope(self.env))
        if value.type not in NUMERIC or not value.is_constant or value.constant is None:
            raise KqlBindError(f"{self.call.name} needs a constant number as {name}, or '~'", node.span)
        if not least <= float(value.constant) <= most:
            raise KqlBindError(
                f"{name} of {self.call.name} lies between {least:g} and {most:g}, not {value.constant}", node.span
            )
        return float(value.constant)

    def whole(self, place: int, name: str, fallback: int | None, most: int) -> int | None:
        """A constant whole number from 1 on."""
        node = self.given(place)
        found = self.number(place, name, fallback or 1, 1, most)
        if node is not None and found != int(found):
            raise KqlBindError(f"{name} of {self.call.name} is a whole number", node.span)
        return int(found) if node is not None or fallback else None

    def weight(self, place: int) -> tuple[Value, tuple[str, ...]]:
        """The weight of a row, and the column that gives it."""
        node = self.given(place)
        if node is None:
            return constant(1, "long"), ()
        column = self.column(place, "WeightColumn")
        if column.type not in NUMERIC:
            raise KqlBindError(f"the weight column of {self.call.name} holds numbers, not {column.type}", node.span)
        return sql("coalesce({0}, 0)", column.type, column, nullable=False), (column.name or "",)

    def column(self, place: int, name: str) -> Value:
        """A column by its name."""
        node = self.given(place)
        if not isinstance(node, ast.Name):
            raise KqlBindError(f"{self.call.name} needs the name of a column as {name}", (node or self.call).span)
        return self.c.expr(node, scope_of(self.stage, self.env))

    def wildcards(self, place: int) -> dict[str, Value]:
        """Type -> the value that represents any value, from this position on."""
        out: dict[str, Value] = {}
        for at in range(place, len(self.call.args)):
            node = self.given(at)
            if node is None:
                continue
            value = self.c.expr(node, Scope(self.env))
            if value.type == "dynamic":
                raise KqlBindError(
                    f"a wildcard of {self.call.name} is a value of a column's type, not dynamic", node.span
                )
            out[value.type] = value
        return out


def _count(name: str, weight: str) -> Figure:
    return Figure(name, "long", f"CAST(round({weight}) AS BIGINT)")


def _percent(name: str, weight: str, total: str) -> Figure:
    return Figure(name, "real", f"coalesce({weight} * 100.0 / nullif({total}, 0), 0)")


def basket(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """All frequent patterns, ordered by rows times values.

    A pattern whose rows agree in more columns has their values as well, and is listed once.
    """
    given = _Arguments(c, stage, call, env)
    share = given.number(0, "Threshold", THRESHOLD, LEAST_THRESHOLD, 1)
    weight, column = given.weight(1)
    most = given.whole(2, "MaxDimensions", MAX_DIMENSIONS, 100)
    rows = patterns.rows_of(stage, call, [weight], column)
    found = patterns.find(c, rows, share, most, whole=True)
    figures = [_count("Count", "f.n0"), _percent("Percent", "f.n0", found.totals[0])]
    return patterns.answer(c, found, figures, "n0 * size DESC, n0 DESC", given.wildcards(3))


def autocluster(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """The patterns whose score no neighbour's exceeds: coverage^SizeWeight x (values / columns)^(1 - SizeWeight).

    One in NumSeeds of the rows is the least that a pattern has, and at most NumSeeds are shown.
    """
    given = _Arguments(c, stage, call, env)
    balance = given.number(0, "SizeWeight", SIZE_WEIGHT, 0, 1)
    weight, column = given.weight(1)
    seeds = given.whole(2, "NumSeeds", NUM_SEEDS, MAX_SEEDS)
    assert seeds is not None
    rows = patterns.rows_of(stage, call, [weight], column)
    found = patterns.find(c, rows, 1 / seeds)
    score = Sql(
        f"pow(CAST(n0 AS DOUBLE) / {found.totals[0]}, {{0}}) * pow(CAST(size AS DOUBLE) / {len(rows.columns)}, 1 - {{0}})",
        constant(balance, "real").sql,
    )
    best = patterns.peaks(c, patterns.scored(c, found, score))
    figures = [_count("Count", "f.n0"), _percent("Percent", "f.n0", found.totals[0])]
    return patterns.answer(c, best, figures, "score DESC, n0 DESC", given.wildcards(3), seeds)


def diffpatterns(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """The patterns whose shares of the two halves differ by at least Threshold.

    They must also differ by more than any neighbour that differs in the same direction.
    """
    if len(call.args) < 3:
        raise KqlBindError("diffpatterns takes a column and the two values that split the rows", call.span)
    given = _Arguments(c, stage, call, env)
    split = given.column(0, "SplitColumn")
    halves = [c.expr(a, Scope(env)) for a in call.args[1:3]]
    for half, node in zip(halves, call.args[1:3], strict=True):
        if half.type != "string":
            raise KqlBindError(f"diffpatterns needs the values of '{split.name}' as texts, not {half.type}", node.span)
    weight, column = given.weight(3)
    threshold = given.number(4, "Threshold", THRESHOLD, LEAST_THRESHOLD, 1)
    most = given.whole(5, "MaxDimensions", None, 100)
    weights = [
        sql("CASE WHEN {0} = {1} THEN {2} ELSE 0 END", weight.type, text_of(split), half, weight, nullable=False)
        for half in halves
    ]
    rows = patterns.rows_of(stage, call, weights, (split.name or "", *column))
    found = patterns.find(c, rows, threshold, most, whole=most is not None)
    a, b = (_percent("", f"n{s}", total).sql for s, total in enumerate(found.totals))
    ranked = patterns.scored(c, found, Sql(f"abs({a} - {b})"), f"CASE WHEN {a} > {b} THEN 1 ELSE 0 END")
    best = patterns.at_least(c, patterns.peaks(c, ranked), threshold * 100)
    percents = [_percent(f"Percent{half}", f"f.n{s}", found.totals[s]) for s, half in enumerate("AB")]
    difference = Figure("PercentDiffAB", "real", f"abs({percents[0].sql} - {percents[1].sql})")
    figures = [_count("CountA", "f.n0"), _count("CountB", "f.n1"), *percents, difference]
    return patterns.answer(c, best, figures, "score DESC, n0 + n1 DESC", given.wildcards(6))


PLUGINS = {"basket": basket, "autocluster": autocluster, "diffpatterns": diffpatterns}
