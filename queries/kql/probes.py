"""What each engine can answer, determined by compiling an example of every function, aggregate and operator.

A function's example is the first of some argument lists that binds; an operator's is in a table below.
"""

from __future__ import annotations

from functools import cache

from queries.kql.catalog import Catalog, Column, Table
from queries.kql.compile import compile_script
from queries.kql.engines import DUCKDB, Engine
from queries.kql.errors import KqlError
from queries.kql.functions.declaration import Kind
from queries.kql.functions.registry import registry
from queries.kql.operators import OPERATORS, SOURCES
from queries.kql.operators.plugins import PLUGIN_BUILDERS

_COLUMNS = {
    "S": "string", "L": "long", "R": "real", "D": "dynamic", "T": "datetime", "P": "timespan", "B": "bool", "G": "guid",
    "Time": "datetime", "Host": "string", "ReceivedTime": "datetime",
}  # fmt: skip
_JOBS = {"JobId": "long", "Attempt": "long", "Nodes": "dynamic", "Start": "datetime", "End": "datetime"}
CATALOG = Catalog({name: Table(name, tuple(Column(n, k) for n, k in columns.items()), name)
                    for name, columns in (("X", _COLUMNS), ("Jobs", _JOBS))})  # fmt: skip
_ARGUMENTS = (
    "", "S", "L", "R", "D", "T", "P", "B", "G", "S, S", "L, L", "R, R", "S, B", "D, D", "D, S", "S, D", "D, L", "S, L", "T, L", "T, P",
    "T, T", "P, 'd'", "T, 'yyyy'", "T, 1d", "D, R", "L, B", "R, B", "D, B", "L, 50", "S, 'x'", "'x', S", "'(x)', S", "'L', 0", "'day', T",
    "B, 'x'", "B, L, L", "S, S, S", "S, D, D", "S, S, D", "'x', 'y', S", "'(x)', 1, S", "'day', T, T", "'day', 1, T", "D, 1, 2", "D, D, D",
    "L, 1, 0", "T, 1d, T", "T, P, P", "T, T, 1d", "T, 1d, Host", "R, R, R", "R, R, B", "L, L, B", "L, L, 50", "2026, 1, 1", "D, D, B", "D, S, D",
    "R, R, R, R", "R, R, R, R, R", "R, R, R, S", "S, S, S, S", "R, 'Meter', 'Foot'", "R, 'Degree', 'Radian'", "R, 'Joule', 'Calorie'",
    "R, 'Newton', 'Dyne'", "R, 'Gram', 'Kilogram'", "R, 'MeterPerSecond', 'Knot'", "R, 'Kelvin', 'DegreeCelsius'",
    "R, 'CubicMeter', 'Liter'", "D, R, R, R, R", "D, D, D, D, D, D", "X", "R, R, L, R, R, L",
)  # fmt: skip
_OPERATORS = {
    "as": "as y", "assert-schema": "assert-schema (S:string, *)", "count": "count", "distinct": "distinct S",
    "consume": "consume", "during_job": "during_job(1)", "evaluate": "evaluate identity()", "extend": "extend y = 1", "facet": "facet by S", "find": "find where S == 'x'",
    "fork": "fork (count) (take 1)",
    "followed_by": "followed_by(1m, X)", "getschema": "getschema", "invoke": "invoke f()", "join": "join X on S",
    "lookup": "lookup X on S", "make-series": "make-series count() on T from ago(1d) to now() step 1h by S",
    "mv-apply": "mv-apply D on (take 1)", "mv-expand": "mv-expand D", "parse": "parse S with 'x' y:long",
    "parse-kv": "parse-kv S as (a:long)", "parse-where": "parse-where S with 'x' y:long", "partition": "partition by S (take 1)",
    "project": "project S", "project-away": "project-away S", "project-by-names": "project-by-names 'S'",
    "project-keep": "project-keep S", "project-rename": "project-rename y = S", "project-reorder": "project-reorder L",
    "render": "render table", "sample": "sample 1", "sample-distinct": "sample-distinct 1 of S",
    "scan": "scan declare (y:long = 0) with (step a: true => y = 1;)", "search": "search 'x'", "serialize": "serialize", "sort": "sort by L",
    "summarize": "summarize count() by S", "take": "take 1", "top": "top 1 by L", "top-hitters": "top-hitters 1 of S",
    "top-nested": "top-nested 1 of S by count()", "union": "union X", "where": "where L > 1", "within": "within(1m, X)",
}  # fmt: skip
_SOURCES = {
    "print": "print 1", "range": "range y from 1 to 2 step 1", "datatable": "datatable(y:long)[1]", "union": "union X, X",
    "search": "search in (X) 'x'", "find": "find in (X) where S == 'x'",
}  # fmt: skip
_PLUGINS = {
    "bag_unpack": "bag_unpack(D) : (a:long)", "pivot": "pivot(S)", "narrow": "narrow()", "identity": "identity()",
    "identity_v3": "identity_v3()", "estimate_rows_count": "estimate_rows_count()", "ipv4_lookup": "ipv4_lookup(X, S, S)",
    "ipv6_lookup": "ipv6_lookup(X, S, S)", "basket": "basket()", "rows_near": "rows_near(L > 1, 1)",
    "activity_counts_metrics": "activity_counts_metrics(S, T, ago(1d), now(), 1h)", "dcount_intersect": "dcount_intersect(D, D)",
    "sliding_window_counts": "sliding_window_counts(S, T, ago(1d), now(), 2h, 1h)",
    "rolling_percentile": "rolling_percentile(L, 50, T, 1h, 2)", "autocluster": "autocluster()",
    "diffpatterns": "diffpatterns(S, 'a', 'b')", "activity_metrics": "activity_metrics(S, T, ago(1d), now(), 1h)",
    "new_activity_metrics": "new_activity_metrics(S, T, ago(1d), now(), 1h)",
    "active_users_count": "active_users_count(S, T, ago(1d), now(), 8h, 1h, 3, 4h)",
    "sequence_detect": "sequence_detect(T, 1h, 1d, a=(L == 1), b=(L == 2), S)",
}  # fmt: skip
_NOT_DYNAMIC = "X | project-away D | "  # the input of plugins that search for patterns, and of pivot


def compiles(query: str, engine: Engine) -> bool:
    """Can a query be spelled for the engine? One that takes its columns from the data finds none."""
    try:
        compile_script(query, CATALOG, engine=engine, probe=lambda _: [])
    except KqlError:
        return False
    return True


def _call(name: str, shape: str) -> str | None:
    """A query that calls a function, if one of the argument lists fits it."""
    settings = "set query_bin_auto_size=1d;\n" if name == "bin_auto" else ""
    for arguments in _ARGUMENTS:
        query = settings + shape.format(f"{name}({arguments})")
        if compiles(query, DUCKDB):
            return query
    return None


@cache
def examples() -> dict[str, dict[str, str | None]]:
    """Group -> name -> a query; None where no list of arguments fits."""
    scalars = {*registry().names(Kind.SCALAR)} - {"toscalar"}
    over = dict.fromkeys(("basket", "autocluster", "diffpatterns", "pivot"), _NOT_DYNAMIC)
    return {
        "functions": {n: _call(n, "X | extend y = {}") for n in sorted(scalars)}
        | {"toscalar": "print toscalar(X | count)"}
        | {n: _call(n, "X | serialize | extend y = {}") for n in sorted(registry().names(Kind.ROW))},
        "aggregates": {
            n: _call(n, "X | summarize y = {}") or _call(n, "X | summarize {}")
            for n in sorted(registry().names(Kind.AGGREGATE))
        },
        "operators": {n: f"let f = (t:(*)) {{ t }};\nX | {_OPERATORS[n]}" for n in OPERATORS if n in _OPERATORS},
        "sources": {n: _SOURCES[n] for n in SOURCES if n in _SOURCES},
        "plugins": {n: over.get(n, "X | ") + f"evaluate {_PLUGINS[n]}" for n in PLUGIN_BUILDERS if n in _PLUGINS},
    }


@cache
def answered(engine: Engine, group: str) -> frozenset[str]:
    """The names of a group that an engine can answer."""
    return frozenset(n for n, query in examples()[group].items() if query and compiles(query, engine))
