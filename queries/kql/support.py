"""The support matrix, generated from the tables of the code: `python -m queries.kql.support > docs/kql.md`."""

from __future__ import annotations

from queries.kql import official, statements
from queries.kql.engines import engines
from queries.kql.functions import hostlists, slurm_states
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
    "==, != and the match operators are total: one null side is not equal; two nulls give null. Two dynamics are not compared.",
    "has matches whole terms of letters and digits; contains matches anywhere; both ignore case.",
    "join without a kind is innerunique; right keys are repeated as Key1; lookup does not repeat them.",
    "sort and top are descending by default; nulls are smallest, and NaN is beside them.",
    "Output names are Kusto's: count_, sum_X, list_X, percentile_X_95, print_0, Column1.",
    "bin counts times from 0001-01-01 in UTC, so 7d bins start on Mondays; startofweek() is a Sunday; endof* is the last tick inside.",
    "Conversions give null instead of failing; a missing property or index is null.",
    "Times are UTC at microseconds (the seventh digit is lost); now() is one moment per query.",
    "substring and indexof count from 0; extract takes regex, group, text.",
    "dcount, hll, top-hitters and percentiles are exact; a percentile is an existing value.",
    "union returns the superset of columns; one name with two types becomes name_type.",
    "mv-expand of several columns expands them in parallel; null gives one row, [] none.",
    "make-series excludes its end (`in range` includes it); keys, series, axis; default fills gaps only.",
    "extend replaces an existing name in place; names are case-sensitive.",
    "stdev of one row is 0; over no rows sum is 0, avg NaN, min null.",
    "The remainder of % is never negative; array_sort_asc() puts numbers before texts, other mixed arrays are not sorted.",
    "prev, next, row_number, row_cumsum and similar functions need serialized rows: after sort, top, serialize, range or similar.",
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

Generated by `python -m queries.kql.support`. Anything that is not listed is refused, with its name and position; nothing is
approximated. There are two kinds of refusal: *not implemented yet*, and *this engine cannot answer it as Kusto would*.

| official names | total | supported | not possible | not yet |
|---|--:|--:|--:|--:|
{_row("scalar functions", official.FUNCTION_COUNT, functions, official.FUNCTIONS)}
{_row("aggregates", official.AGGREGATE_COUNT, known_aggregates, official.AGGREGATES)}
{_row("plugins of evaluate", official.PLUGIN_COUNT, known_plugins, official.PLUGINS)}

The names come from Microsoft's language service; twelve of the scalar functions are internal (`__...`).
"""


def _by_kind() -> str:
    """Operators, functions and aggregates by name; extensions are marked as such."""
    functions, known_aggregates, known_plugins = scalar_functions(), aggregates(), plugins()
    waiting = [n for n in {*statements.OPERATORS, *statements.KNOWN_NOT_YET} if n not in OPERATORS and n not in SOURCES]
    return f"""## Operators ({len(OPERATORS)}, and {len(SOURCES)} sources)

{_names(OPERATORS)}

Sources: {_names(SOURCES)} and stored tables. Join kinds: {_names(KINDS)}. Statements: `let` (scalar, table, function,
view), `declare query_parameters`, `set query_bin_auto_size` and `query_bin_auto_at`; any other `set` is parsed and
ignored.

`fork` and `facet` end a query and return several tables. The last table is the result. The others are returned as `others` in
the API and printed in order on a terminal, with the name from `fork` or `as`, or the column that `facet` counts. Each branch reads
the rows again, so random values differ between branches. `consume` computes all rows and returns none.

Refused: {_names([*waiting, "reduce"])}; `externaldata` and `external_table`, because they fetch external data.

`evaluate` supports {_names(known_plugins)}. `bag_unpack` and `pivot` read the data once to find their columns, unless the columns are
declared: `evaluate bag_unpack(d) : (*, Name:type)`. If a client requests only the columns of a query (`validate_only`), only this
data is read.

## Extensions

Kusto does not have these: the operators {_names(NOUNS)}, the functions {_names(f.name for f in hostlists.FUNCTIONS)} for Slurm's
hostlists and {_names(f.name for f in slurm_states.FUNCTIONS)} for its states, and the row function `session_gap`. `docs/queries.md` explains each.

## String operators

{_names([*MATCH_WORDS, *LIST_WORDS, "matches regex", "==", "!=", "=~", "!~", "between"])}, each with its negation.

## Functions

{_by_subject()}

Not yet: {_refused(official.FUNCTIONS, functions)[1]}; aggregates: {_refused(official.AGGREGATES, known_aggregates)[1]}
{of_this_site()}
`basket` returns what Kusto's documentation shows, in the same order. If the rows of a pattern agree in more columns, the pattern
contains those values too. `autocluster` and `diffpatterns` follow a **documented rule, and may choose other segments than Kusto**,
which starts its search at random rows. A segment is a pattern of values that scores higher than every pattern with one value more
or one value fewer (among equals the one with more values stays). The score of `autocluster` is
coverage<sup>SizeWeight</sup> x (values / columns)<sup>1 - SizeWeight</sup>; a pattern has at least one in NumSeeds of the rows, and
at most NumSeeds are shown. The score of `diffpatterns` is the difference of the two percentages, among patterns that differ in the
same direction by at least Threshold. All patterns are examined, so the result depends neither on chance nor on the order of rows.
The split column and the weight column are not dimensions, and rows with weight 0 or less do not count. MaxDimensions limits the
number of values by which a pattern is found; it is shown with all values that its rows have in common.

`sequence_detect` returns every different matching sequence of times, each later than the one before. Plugins that divide time into
windows exclude the end; for an id, a window and a dimension they count one row. `new_activity_metrics` returns the cohorts that have
new ids.

`trim` removes all matches at either end; `trim_start` and `trim_end` remove one, as documented.

`series_outliers`, `series_decompose`, `series_decompose_anomalies` and `series_decompose_forecast` follow the documentation.
`queries/kql/functions/series_decompose.py` states what the documentation leaves open (how a period is found, how percentiles are
interpolated).
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
    return ["| function | result |", "|---|---|", *(f"| {_label(f)} | {f.doc} |" for f in functions)]


def _label(function: Function) -> str:
    also = f", also {', '.join(f'`{a}`' for a in sorted(function.aliases))}" if function.aliases else ""
    where = {Kind.SCALAR: "", Kind.AGGREGATE: " (aggregate)", Kind.ROW: " (of rows)"}[function.kind]
    return f"`{function.name}`{where}{also}"


def _by_engine() -> str:
    return f"""## Engines

The store is DuckDB. A query is compiled from templates, and each engine has its own table of words for them
(`queries/kql/engines/`). If a table lacks a word, the function or operator is refused by name. The tests also run the golden cases
on ClickHouse, in the same process, and compare the results with DuckDB's. `tests/queries/clickhouse_gaps.toml` lists the cases that
ClickHouse does not support. The numbers count the names in this page's tables, without aliases.

{_engines()}

On ClickHouse, datetimes range from 1900 to 2299 (a constant outside is refused), a long that overflows wraps, and NaN is not equal
to itself.
"""


def _how_it_grows() -> str:
    traps = "\n".join(f"| R{i} | {t} |" for i, t in enumerate(TRAPS, 1))
    return f"""## What Faultline cannot answer as Kusto would

| names | why |
|---|---|
{_cannot()}

## Adding a function

A function is one `Function` in the module of its subject, `queries/kql/functions/`: its name, one sentence about its result, its
signatures and its cost. A signature is a `Template` of SQL or a `Body` in Python, with the types of its arguments and its result
(`queries/kql/functions/declaration.py`). `bind` builds SQL that depends on the arguments. If an engine uses another word for a part
of a template, its table in `queries/kql/engines/` has an entry. ClickHouse refuses a function until its table has all the words, and
it cannot call Python. A package adds functions through the entry point group `faultline.kql_functions`
([extending](extending.md#a-kql-function)); if this page is generated with the package installed, it lists them.
Run `make conformance` and `python -m queries.kql.support > docs/kql.md` afterwards.

An engine is an `Engine`: a SQLAlchemy dialect, the table of words, and the names of types. A package registers an engine through
the entry point group `faultline.kql_engines`.

## Semantics, numbered

| number | rule |
|---|---|
{traps}
"""


if __name__ == "__main__":
    print(matrix(), end="")
