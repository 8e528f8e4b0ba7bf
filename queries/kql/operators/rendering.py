"""render: the rows stay unchanged; the chart to draw of them goes with the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.chart import Chart
from queries.kql.errors import KqlBindError, Span, nearest
from queries.kql.stages import Env, Stage, StageColumn
from queries.kql.values import NUMERIC

#: Charts with time on the horizontal axis, if there is a column of times.
OVER_TIME = ("timechart", "anomalychart", "areachart", "linechart", "stackedareachart", "timepivot")
#: The language's kinds of charts; ``table`` is the rows themselves.
KINDS = (
    *OVER_TIME, "barchart", "card", "columnchart", "graph", "ladderchart", "piechart", "pivotchart", "plotly", "scatterchart",
    "table", "treemap",
)  # fmt: skip
#: Properties that name columns.
NAMING = ("xcolumn", "ycolumns", "series", "anomalycolumns")
PROPERTIES = (
    *NAMING, "accumulate", "kind", "legend", "title", "xaxis", "xtitle", "yaxis", "ymax", "ymin", "ysplit", "ytitle",
)  # fmt: skip


def render(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """The same rows with a chart."""
    kind = node.parts["kind"]
    if kind.name not in KINDS:
        raise KqlBindError(f"no chart is called '{kind.name}'", kind.span, suggestion=nearest(kind.name, KINDS))
    properties = dict(_properties(node.nodes("properties")))
    columns = {column.name: column for column in stage.visible}
    chosen = {name: _columns(properties.pop(name), columns) for name in NAMING if name in properties}
    values = {name: _value(name, nodes) for name, nodes in properties.items()}
    if kind.name == "table" or not columns:
        return stage
    x = chosen.get("xcolumn") or [_axis(kind.name, stage.visible)]
    y = chosen.get("ycolumns") or _measures(stage.visible, x[0], with_axis=kind.name == "card")
    series = chosen["series"] if "series" in chosen else _names(stage.visible, [*x, *y])
    names = [tuple(column.name for column in found) for found in (x, y, series)]
    if "anomalycolumns" in chosen:
        values["anomalycolumns"] = [column.name for column in chosen["anomalycolumns"]]
    return replace(stage, chart=Chart(kind.name, names[0][0], names[1], names[2], values))


def _properties(nodes: Sequence[ast.Node]) -> Iterator[tuple[str, list[ast.Node]]]:
    """Each property with its values: an unnamed value continues the list before it."""
    name, values = "", list[ast.Node]()
    for node in nodes:
        if not isinstance(node, ast.Named):
            if name not in ("ycolumns", "series", "anomalycolumns"):
                raise KqlBindError("a property is NAME = VALUE", node.span)
            values.append(node)
            continue
        if name:
            yield name, values
        (name,), values = node.names, [node.value]
        if name not in PROPERTIES:
            span = Span(node.span.start, node.span.start + len(name))
            raise KqlBindError(f"render has no property '{name}'", span, suggestion=nearest(name, PROPERTIES))
    if name:
        yield name, values


def _columns(nodes: Sequence[ast.Node], columns: dict[str, StageColumn]) -> list[StageColumn]:
    found = []
    for node in nodes:
        name = node.name if isinstance(node, ast.Name) else node.value if isinstance(node, ast.Literal) else None
        if name not in columns:
            message = f"no column '{name}' is left here" if name else "a column's name is needed here"
            raise KqlBindError(message, node.span, suggestion=nearest(str(name), list(columns)))
        found.append(columns[str(name)])
    return found


def _value(name: str, nodes: Sequence[ast.Node]) -> Any:
    (node,) = nodes
    if isinstance(node, ast.Name):  # a word: kind=stacked, legend=hidden
        return node.name
    if isinstance(node, ast.Literal):
        return node.value if isinstance(node.value, (str, int, float, bool)) else str(node.value)
    if isinstance(node, ast.Unary) and isinstance(node.operand, ast.Literal) and node.op == "-":
        return -node.operand.value
    raise KqlBindError(f"'{name}' is a word, a text or a number", node.span)


def _axis(kind: str, columns: Sequence[StageColumn]) -> StageColumn:
    """The first column, or the first of times for charts over time; the axis of ``make-series`` is its last column."""
    if kind not in OVER_TIME:
        return columns[0]
    times = [column for column in columns if column.type in ("datetime", "timespan")]
    if times:
        return times[0]
    arrays = [column for column in columns if column.type == "dynamic"]
    return arrays[-1] if len(arrays) > 1 else columns[0]


def _measures(columns: Sequence[StageColumn], x: StageColumn, *, with_axis: bool) -> list[StageColumn]:
    """The numbers, and the series of ``make-series`` over its axis."""
    wanted = ("dynamic",) if x.type == "dynamic" else (*NUMERIC, "timespan")
    return [column for column in columns if column.type in wanted and (with_axis or column is not x)]


def _names(columns: Sequence[StageColumn], drawn: Sequence[StageColumn]) -> list[StageColumn]:
    """What distinguishes the lines of one column."""
    return [column for column in columns if column.type in ("string", "bool", "guid") and column not in drawn]


BUILDERS = {"render": render}
