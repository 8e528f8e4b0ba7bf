"""The support matrix, generated from the tables of the code: `python -m queries.kql.support > docs/kql.md`."""

from __future__ import annotations

from queries.kql import official, statements
from queries.kql.engines import engines
from queries.kql.functions import hostlists
from queries.kql.functions.declaration import Function, Kind
from queries.kql.functions.registry import SUBJECTS, registry
from queries.kql.grammar import LIST_WORDS, MATCH_WORDS
from queries.kql.operators import OPERATORS, SOURCES
from queries.kql.operators.combining import KINDS
from queries.kql.operators.nouns import NOUNS
from queries.kql.operators.plugins import PLUGIN_BUILDERS
from queries.kql.probes import answered, examples

TRAPS = (
    "A missing string is the empty string; isnull() of a string is never true.",
    "== and != and the match operators are total: one null side is not equal; two nulls give null.",
    "has matches whole terms of letters and digits; contains matches anywhere; both ignore case.",
    "join without a kind is innerunique; right keys come again as Key1; lookup does not repeat them.",
    "sort and top are descending by default; nulls are smallest.",
    "Output names are Kusto's: count_, sum_X, list_X, percentile_X_95, print_0, Column1.",
    "bin floors from 1970-01-01 in UTC; weeks start on Sunday; endof* is the last tick inside.",
    "Conversions give null instead of failing; a missing property or index is null.",
    "Times are UTC at microseconds (the seventh digit is lost); now() is one moment per query.",
    "substring and indexof count from 0; extract takes regex, group, text.",
    "dcount, hll, top-hitters and percentiles are exact; a percentile is an existing value.",
    "union makes the superset of columns; one name with two types becomes name_type.",
    "mv-expand of several columns walks them in step; null gives one row, [] none.",
    "make-series ends before its end (`in range` includes it); keys, series, axis; default fills gaps only.",
    "extend replaces an existing name in place; names are case-sensitive.",
    "stdev of one row is 0; over no rows sum is 0, avg NaN, min null.",
    "The remainder of % is never negative; arrays of mixed types are not sorted but refused.",
    "prev, next, row_number, row_cumsum and the like need rows in a settled order: behind sort, top, serialize, range and the like.",
)
# Words that parse as a function but belong to the grammar: sources, graph matching, the query's own components.
GRAMMAR_WORDS = frozenset(["table", "view", "materialize", "toscalar"])


def scalar_functions() -> set[str]:
    """Official scalar functions that can be answered, other spellings included."""
    return {*registry().callable(), *registry().aliases, *GRAMMAR_WORDS} & official.FUNCTIONS


def aggregates() -> set[str]:
    """Official aggregates that can be answered."""
    found = registry()
    return {*found.aggregates, *(a for a, b in found.aliases.items() if b in found.aggregates)} & official.AGGREGATES


def plugins() -> set[str]:
    """Official plugins that can be answered."""
    return set(PLUGIN_BUILDERS) & official.PLUGINS


def _names(found: object) -> str:
    return " ".join(f"`{n}`" for n in sorted(set(found)))  # type: ignore[call-overload]


def _row(what: str, there_are: int, done: set[str], known: frozenset[str]) -> str:
    cannot = {n for n in known - done if n in official.CANNOT}
    return f"| {what} | {there_are} | {len(done)} | {len(cannot)} | {there_are - len(done) - len(cannot)} |"


def _refused(known: frozenset[str], done: set[str]) -> tuple[str, str]:
    cannot = {n for n in known - done if n in official.CANNOT}
    return _names(cannot), _names(known - done - cannot)


def _cannot() -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in official.CANNOT.items():
        by_reason.setdefault(reason, []).append(name)
    return "\n".join(f"| {_names(found)} | {reason} |" for reason, found in by_reason.items())


def _engines() -> str:
    """How much of each group every engine can answer, and by name what DuckDB can and another cannot."""
    official = {"functions": scalar_functions(), "aggregates": aggregates(), "operators": set(OPERATORS),
                "sources": set(SOURCES), "plugins": plugins()}  # fmt: skip
    known = {group: {n for n in names_ if n in examples()[group]} for group, names_ in official.items()}
    every = engines().values()
    rows = [f"| {g} | " + " | ".join(f"{len(known[g] & answered(e, g))}" for e in every) + " |" for g in known]
    lacks = []
    for engine in every:
        for group, all_ in known.items():
            missing = {n for n in all_ if examples()[group][n]} - answered(engine, group)
            if missing:
                lacks.append(f"- {engine.name}, {group}: {_names(missing)}")
    head = f"| answered | {' | '.join(e.name for e in every)} |\n|---|{'--:|' * len(every)}"
    return "\n".join([head, *rows, "", "Not answered, by engine:", "", *lacks])


def matrix() -> str:
    """The page as Markdown."""
    return "\n".join([_head(), _by_kind(), _by_engine(), _how_it_grows()])


def _head() -> str:
    functions, known_aggregates, known_plugins = scalar_functions(), aggregates(), plugins()
    return f"""# KQL in Faultline

Generated by `python -m queries.kql.support`. Whatever is not listed is refused by name and position; nothing is
approximated. Two kinds of no: *not implemented yet*, and *this engine cannot answer it as Kusto would*.

| official names | there are | answered | cannot be | not yet |
|---|--:|--:|--:|--:|
{_row("scalar functions", official.FUNCTION_COUNT, functions, official.FUNCTIONS)}
{_row("aggregates", official.AGGREGATE_COUNT, known_aggregates, official.AGGREGATES)}
{_row("plugins of evaluate", official.PLUGIN_COUNT, known_plugins, official.PLUGINS)}

The lists of names are those of Microsoft's language service; twelve of the scalar functions are internal (`__...`).
"""


def _by_kind() -> str:
    """Operators, functions and aggregates by name; extensions are marked as such."""
    functions, known_aggregates, known_plugins = scalar_functions(), aggregates(), plugins()
    waiting = [n for n in {*statements.OPERATORS, *statements.KNOWN_NOT_YET} if n not in OPERATORS and n not in SOURCES]
    return f"""## Operators ({len(OPERATORS)}, and {len(SOURCES)} sources)

{_names(OPERATORS)}

Sources: {_names(SOURCES)} and stored tables. Join kinds: {_names(KINDS)}. Statements: `let` (scalar, table, function,
view), `declare query_parameters`, `set query_bin_auto_size` and `query_bin_auto_at`; any other `set` is read and
ignored.

`fork` and `facet` end a query and give several tables: the last is the answer, those before it come along (`others` in the
API, one under the other on a terminal), with the name that `fork` or `as` gives them or the column that `facet` counts. Each
branch reads the rows anew, so what is random differs between them. `consume` computes all rows and gives none.

Refused: {_names([*waiting, "reduce"])}; `externaldata` and `external_table`, since they fetch from outside.

`evaluate` knows {_names(known_plugins)}. `bag_unpack` and `pivot` read the data once to learn their columns; with
declared columns, `evaluate bag_unpack(d) : (*, Name:type)`, they need not. Asking a service only for the columns of a
query (`validate_only`) reads what they need, and no more.

## Extensions

Nouns of a cluster, which Kusto does not have: the operators {_names(NOUNS)}, the functions {_names(f.name for f in hostlists.FUNCTIONS)} over
Slurm's host lists, and the row function `session_gap`. `docs/queries.md` shows each.

## String operators

{_names([*MATCH_WORDS, *LIST_WORDS, "matches regex", "==", "!=", "=~", "!~", "between"])}, each with its negation.

## Functions

{_by_subject()}

Not yet: {_refused(official.FUNCTIONS, functions)[1]}; aggregates: {_refused(official.AGGREGATES, known_aggregates)[1]}
{of_this_site()}
`basket` gives what Kusto's documentation shows, in its order: patterns whose rows agree in more columns have those values,
too. `autocluster` and `diffpatterns` follow a **documented rule, and may choose other segments than Kusto**, which starts
its search at random rows. A segment is a pattern of values that no pattern with one value more or one value fewer outdoes
(of equals the one with more values stays). What is compared: for `autocluster`,
coverage<sup>SizeWeight</sup> x (values / columns)<sup>1 - SizeWeight</sup>, where a pattern has at least one in NumSeeds of
the rows and at most NumSeeds are shown; for `diffpatterns`, the difference of the two percentages among patterns that
differ in the same direction, from Threshold on. All patterns are looked at, so the answer depends on neither chance nor
the order of rows. The column that splits and the one of weights are no dimensions; rows of weight 0 or less do not count;
with MaxDimensions a pattern is found by so many values and shown with all that its rows agree in.

`sequence_detect` gives every different run of moments that fits, each later than the one before. The plugins that cut time into
windows do not count the end; of an id, a window and a dimension they count one row. `new_activity_metrics` gives the cohorts
that have new ids.

`trim` removes all matches at either end, `trim_start` and `trim_end` one, as their pages say.

`series_outliers`, `series_decompose`, `series_decompose_anomalies` and `series_decompose_forecast` follow the
documentation; what it leaves open (how a period is found, how percentiles are interpolated) is stated in
`queries/kql/functions/series_decompose.py`.
"""


def _by_subject() -> str:
    """Every function with its result type, under the subject of its module."""
    out = []
    for module in SUBJECTS:
        shown = [f for f in module.FUNCTIONS if not f.internal]
        if shown:
            out += [f"### {(module.__doc__ or '').splitlines()[0].rstrip('.')}", "", *_table(shown), ""]
    return "\n".join(out).rstrip()


def of_this_site() -> str:
    """The functions of installed packages, if there are any."""
    found = [f for f in registry().site.values() if not f.internal]
    return "\n".join(["", "### Functions of this site", "", *_table(found), ""]) if found else ""


def _table(functions: list[Function]) -> list[str]:
    return ["| function | what it gives |", "|---|---|", *(f"| {_label(f)} | {f.doc} |" for f in functions)]


def _label(function: Function) -> str:
    also = f", also {', '.join(f'`{a}`' for a in sorted(function.aliases))}" if function.aliases else ""
    where = {Kind.SCALAR: "", Kind.AGGREGATE: " (aggregate)", Kind.ROW: " (of rows)"}[function.kind]
    return f"`{function.name}`{where}{also}"


def _by_engine() -> str:
    return f"""## Engines

The store is DuckDB. A query is compiled once, from templates that each engine spells by its own table of words
(`queries/kql/engines/`); what a table lacks is refused by the name of the function or operator. The tests run the golden
cases on ClickHouse as well, in the same process, and compare with DuckDB's answers; `tests/queries/clickhouse_gaps.toml`
lists the cases it does not answer. The numbers count names of this page's tables without other spellings.

{_engines()}

On ClickHouse, datetimes reach from 1900 to 2299 (a constant outside is refused), a long that overflows wraps, and NaN is
not equal to itself.
"""


def _how_it_grows() -> str:
    traps = "\n".join(f"| R{i} | {t} |" for i, t in enumerate(TRAPS, 1))
    return f"""## What cannot be answered as Kusto would

| names | why |
|---|---|
{_cannot()}

## Adding a function

A function is one `Function` in the module of its subject, `queries/kql/functions/`: its name, what it gives in a sentence, the
ways to call it, and what it costs. A way to call it is a `Template` of SQL or a `Body` in Python, each with the kinds of its
arguments and its result (`queries/kql/functions/declaration.py`); `bind` builds the SQL where that depends on the arguments. A
word of a template that an engine spells differently is one entry in its table, `queries/kql/engines/`; ClickHouse refuses the
function until its table has all of the words, and cannot call Python. A package adds its own by the entry point group
`faultline.kql_functions` ([extending](extending.md#a-kql-function)); this page, generated where it is installed, lists them.
Run `make conformance` and `python -m queries.kql.support > docs/kql.md` afterwards.

An engine is an `Engine`: a SQLAlchemy dialect, the table of words, names of types. A package registers its own by the
entry point group `faultline.kql_engines`.

## Semantics, numbered

| number | what holds |
|---|---|
{traps}
"""


if __name__ == "__main__":
    print(matrix(), end="")
