"""Patterns of values that many rows share: what basket, autocluster and diffpatterns search for.

A pattern gives values to some columns and leaves the others open (a wildcard). Only values that enough rows have can be
in one, so each column is first reduced to the numbers of its frequent values, in the order of their texts, and rows
that are then equal are one cell with a weight. All combinations of columns are tried on the cells: the answer is exact,
and depends neither on the order of rows nor on chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from sqlalchemy import select

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.dialect import Sql, bound, quoted
from queries.kql.errors import CannotExpress, KqlBindError
from queries.kql.stages import ORDER, Stage, StageColumn, fresh, relation
from queries.kql.values import Value, text_of

MAX_COMBINATIONS = 16_384  # of columns: 14 of them, or 18 of which at most five at once


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows to examine. ``weights`` are one number per row and side: one side, or A and B."""

    stage: Stage
    columns: tuple[StageColumn, ...]
    weights: tuple[Value, ...]
    call: ast.Call


@dataclass(frozen=True, slots=True)
class Patterns:
    """The result.

    It holds a relation with n0, n1 (weights), size (the number of values) and g0, g1, ... (the numbers of values, 0 for
    a wildcard), the relations of each column's values by number, and the whole weight of each side as SQL.
    """

    relation: str
    values: tuple[str, ...]
    totals: tuple[str, ...]
    columns: tuple[StageColumn, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A column of the answer that describes a pattern, which SQL calls f."""

    name: str
    type: str
    sql: str


def rows_of(stage: Stage, call: ast.Call, weights: Sequence[Value], without: Sequence[str] = ()) -> Rows:
    """The columns that can be in a pattern: all except the named ones."""
    columns = tuple(v for v in stage.visible if v.name not in without)
    dynamic = next((v.name for v in columns if v.type == "dynamic"), None)
    if dynamic:
        raise KqlBindError(f"{call.name} takes no dynamic columns; project '{dynamic}' away first", call.span)
    if not columns:
        raise KqlBindError(f"{call.name} needs a column to look at", call.span)
    return Rows(stage, columns, tuple(weights), call)


def find(c: TableBinder, rows: Rows, share: float, most: int | None = None, *, whole: bool = False) -> Patterns:
    """Every pattern of at most this many values that has at least this share of the weight on some side.

    ``whole``: a column in which all of a pattern's rows agree is given that value, too; it adds no information.
    """
    width = len(rows.columns)
    most = min(most or width, width)
    if sum(comb(width, size) for size in range(1, most + 1)) > MAX_COMBINATIONS:
        raise CannotExpress(
            f"{rows.call.name} over {width} columns has more than {MAX_COMBINATIONS} combinations; project fewer",
            rows.call.span,
        )
    flat = _flat(c, rows)
    sides = range(len(rows.weights))
    totals = tuple(f'(SELECT sum(w{s}) FROM "{flat}")' for s in sides)
    # Reals summed in another order differ in their last digits, which must not decide about a pattern just at the
    # limit.
    least = ", ".join(f"{{0}} * sum(w{s}) AS l{s}" for s in sides)
    limits = c.add(Sql(f'SELECT {least} FROM "{flat}"', bound(share - 1e-12, "real")), materialized=True)
    often = " OR ".join(f'(n{s} > 0 AND n{s} >= (SELECT l{s} FROM "{limits}"))' for s in sides)
    values = tuple(_frequent(c, flat, i, len(rows.weights), often) for i in range(width))
    cells = _cells(c, flat, values, len(rows.weights))
    return Patterns(_combined(c, cells, rows, most, often, whole), values, totals, rows.columns)


def _flat(c: TableBinder, rows: Rows) -> str:
    """Each column's text and value, and the weights; a row without weight is dropped."""
    items = [text_of(v.value()).sql.label(quoted(f"t{i}")) for i, v in enumerate(rows.columns)]
    items += [v.value().sql.label(quoted(f"v{i}")) for i, v in enumerate(rows.columns)]
    items += [w.sql.label(quoted(f"w{s}")) for s, w in enumerate(rows.weights)]
    every = c.add(select(*items).select_from(relation(rows.stage.relation)))
    counts = " OR ".join(f"w{s} > 0" for s in range(len(rows.weights)))
    return c.add(Sql(f'SELECT * FROM "{every}" WHERE {counts}'), materialized=True)


def _frequent(c: TableBinder, flat: str, i: int, sides: int, often: str) -> str:
    """The values of a column that can be in a pattern, numbered from 1 in the order of their texts."""
    sums = ", ".join(f"sum(w{s}) AS n{s}" for s in range(sides))
    grouped = c.add(Sql(f'SELECT t{i} AS k, any_value(v{i}) AS v, {sums} FROM "{flat}" GROUP BY t{i}'))
    numbered = f'SELECT row_number() OVER (ORDER BY k) AS code, k, v FROM "{grouped}" WHERE {often}'
    return c.add(Sql(numbered), materialized=True)


def _cells(c: TableBinder, flat: str, values: Sequence[str], sides: int) -> str:
    """Rows with the numbers of their values, -1 for a rare one; equal rows are merged, with their weight."""
    codes = ", ".join(f"coalesce(d{i}.code, -1) AS c{i}" for i in range(len(values)))
    joins = " ".join(f'LEFT JOIN "{v}" AS d{i} ON d{i}.k = f.t{i}' for i, v in enumerate(values))
    weights = ", ".join(f"f.w{s} AS w{s}" for s in range(sides))
    coded = c.add(Sql(f'SELECT {codes}, {weights} FROM "{flat}" AS f {joins}'))
    keys = ", ".join(f"c{i}" for i in range(len(values)))
    sums = ", ".join(f"sum(w{s}) AS w{s}" for s in range(sides))
    return c.add(Sql(f'SELECT {keys}, {sums} FROM "{coded}" GROUP BY {keys}'), materialized=True)


def _combined(c: TableBinder, cells: str, rows: Rows, most: int, often: str, whole: bool) -> str:
    """The weight of every combination of values that is frequent."""
    width, sides = range(len(rows.columns)), range(len(rows.weights))
    bits = [f"range // {2**i} % 2" for i in width]
    picks = ", ".join(f"{bit} = 1 AS b{i}" for i, bit in enumerate(bits))
    masks = f"SELECT {picks} FROM rows_of_range(1, {2 ** len(rows.columns)}) WHERE {' + '.join(bits)} <= {{0}}"
    mask = c.add(Sql(masks, bound(most, "long")), materialized=True)
    keys, counts = ", ".join(f"g{i}" for i in width), ", ".join(f"n{s}" for s in sides)
    picked = ", ".join(f"CASE WHEN b{i} THEN c{i} ELSE 0 END AS g{i}" for i in width)
    kept = ", ".join([*(f"c{i}" for i in width), *(f"w{s}" for s in sides)])
    rare = " OR ".join(f"(b{i} AND c{i} < 0)" for i in width)
    spread = c.add(Sql(f'SELECT {picked}, {kept} FROM "{cells}", "{mask}" WHERE NOT ({rare})'))
    sums = ", ".join(f"sum(w{s}) AS n{s}" for s in sides)
    ends = "".join(f", min(c{i}) AS l{i}, max(c{i}) AS h{i}" for i in width) if whole else ""
    found = c.add(Sql(f'SELECT {keys}, {sums}{ends} FROM "{spread}" GROUP BY {keys}'))
    if whole:
        agreed = ", ".join(f"CASE WHEN l{i} = h{i} AND l{i} > 0 THEN l{i} ELSE 0 END AS g{i}" for i in width)
        found = c.add(Sql(f'SELECT DISTINCT {agreed}, {counts} FROM "{found}" WHERE {often}'))
    size = " + ".join(f"CASE WHEN g{i} > 0 THEN 1 ELSE 0 END" for i in width)
    return c.add(Sql(f'SELECT {keys}, {counts}, {size} AS size FROM "{found}" WHERE {often}'), materialized=True)


def scored(c: TableBinder, found: Patterns, score: Sql, side: str = "0") -> Patterns:
    """The patterns with a column `score`, to nine decimals so that no engine's last digit decides, and `side`."""
    made = c.add(
        Sql(f'SELECT *, round({{0}}, 9) AS score, {side} AS side FROM "{found.relation}"', score), materialized=True
    )
    return Patterns(made, found.values, found.totals, found.columns)


def peaks(c: TableBinder, found: Patterns) -> Patterns:
    """The patterns with no better neighbour of the same side: one value more or one value fewer.

    Of two with the same score, the one with more values is kept.
    """
    width = range(len(found.columns))
    mine = ", ".join(f"g{i} AS k{i}" for i in width)
    opened = [", ".join(("0" if i == j else f"g{j}") + f" AS p{j}" for j in width) for i in width]
    fewer = " UNION ALL ".join(
        f'SELECT {keys}, {mine}, score AS child, side AS near FROM "{found.relation}" WHERE g{i} > 0'
        for i, keys in enumerate(opened)
    )
    steps = c.add(Sql(fewer))
    same = " AND ".join(f"p.g{i} = s.p{i}" for i in width)
    keys = ", ".join(f"s.{letter}{i} AS {letter}{i}" for letter in "pk" for i in width)
    pairs = f'SELECT {keys}, s.child AS child, p.score AS parent FROM "{steps}" AS s JOIN "{found.relation}" AS p'
    met = c.add(Sql(f"{pairs} ON {same} AND p.side = s.near"), materialized=True)
    parents, children = (", ".join(f"{letter}{i} AS g{i}" for i in width) for letter in "pk")
    outdone = c.add(
        Sql(
            f'SELECT {parents}, 1 AS gone FROM "{met}" WHERE child >= parent'
            f' UNION SELECT {children}, 1 AS gone FROM "{met}" WHERE parent > child'
        )
    )
    joined = " AND ".join(f"f.g{i} = o.g{i}" for i in width)
    kept = f'SELECT f.* FROM "{found.relation}" AS f LEFT JOIN "{outdone}" AS o ON {joined} WHERE o.gone IS NULL'
    return Patterns(c.add(Sql(kept), materialized=True), found.values, found.totals, found.columns)


def at_least(c: TableBinder, found: Patterns, score: float) -> Patterns:
    """The patterns with at least this score."""
    kept = c.add(Sql(f'SELECT * FROM "{found.relation}" WHERE score >= round({{0}}, 9)', bound(score, "real")))
    return Patterns(kept, found.values, found.totals, found.columns)


def answer(
    c: TableBinder,
    found: Patterns,
    figures: Sequence[Figure],
    by: str,
    wildcards: dict[str, Value],
    most: int | None = None,
) -> Stage:
    """The patterns as rows: SegmentId, the figures, then the columns with their values or wildcards."""
    width = range(len(found.columns))
    ranked = f"ORDER BY {by}, {', '.join(f'g{i}' for i in width)}"
    place = c.add(Sql(f'SELECT *, row_number() OVER ({ranked}) AS place FROM "{found.relation}"'))
    if most:
        place = c.add(Sql(f'SELECT * FROM "{place}" WHERE place <= {{0}}', bound(most, "long")))
    none = [wildcards.get(v.type) for v in found.columns]
    stands = [
        w.sql if w else Sql("''" if v.type == "string" else "NULL") for w, v in zip(none, found.columns, strict=True)
    ]
    cells = ", ".join(f"CASE WHEN f.g{i} = 0 THEN {{{i}}} ELSE d{i}.v END AS v{i}" for i in width)
    joins = " ".join(f'LEFT JOIN "{v}" AS d{i} ON d{i}.code = f.g{i}' for i, v in enumerate(found.values))
    head = ", ".join(f"{figure.sql} AS f{n}" for n, figure in enumerate(figures))
    made = c.add(
        Sql(f'SELECT f.place - 1 AS s, {head}, {cells}, f.place AS "{ORDER}" FROM "{place}" AS f {joins}', *stands)
    )
    columns = [StageColumn("SegmentId", "long", "s", False)]
    columns += [StageColumn(figure.name, figure.type, f"f{n}", False) for n, figure in enumerate(figures)]
    for i, column in enumerate(found.columns):
        name = fresh(column.name, [v.name for v in columns])
        columns.append(StageColumn(name, column.type, f"v{i}", column.type != "string"))
    return Stage(made, (*columns, StageColumn(ORDER, "long", ORDER, False, True)), sorted=True)
