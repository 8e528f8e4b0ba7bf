"""Functions of installed packages: the example of docs/extending.md, and the handling of invalid packages.

Packages are real: a module and its metadata in a folder of the path.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from parsers import extensions
from queries.kql import Catalog, KqlBindError, KqlError, official, run, validate
from queries.kql.compile import compile_script
from queries.kql.failures import engine_error
from queries.kql.functions import aggregates, python
from queries.kql.functions.calling import BODY_PREFIX
from queries.kql.functions.declaration import LINEAR, Body, Cost, Function, Kind, Template, conditional
from queries.kql.functions.registry import GROUP, SUBJECTS, registry

ROOT = Path(__file__).parents[4]


def install(folder: Path, name: str, modules: dict[str, str], points: dict[str, str]) -> None:
    """A package as pip leaves it: its modules, and metadata with its entry points."""
    for module, code in modules.items():
        target = folder / module
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(code)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"[{GROUP}]", *(f"{point} = {target}" for point, target in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


def of_the_docs() -> tuple[str, dict[str, str]]:
    """The module and the entry points that docs/extending.md shows."""
    page = (ROOT / "docs" / "extending.md").read_text()
    section = page.split("## A KQL function\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^    \[project\.entry-points.*?(?=\n\n)", section, re.MULTILINE | re.DOTALL)
    points: dict[str, str] = tomllib.loads(textwrap.dedent(shown))["project"]["entry-points"][GROUP]
    return code, points


ASK = """
import json, sys
import duckdb
from queries.kql import run, validate
from queries.kql.support import of_this_site
con = duckdb.connect()
print(json.dumps([run(con, text).rows for text in json.loads(sys.argv[1])]))
print(of_this_site())
"""


def asked_beside(folder: Path, queries: Iterable[str]) -> tuple[Any, str]:
    """The rows of each query and the page of this site's functions, in a process that finds the packages in a folder."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps([*queries])], env={**os.environ, "PYTHONPATH": path}, cwd=folder,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers, _, listed = done.stdout.partition("\n")
    return json.loads(answers), listed


@pytest.mark.parametrize("name", ["celsius", "rack_of"])
def test_no_function_of_the_example_is_there_without_the_package(name: str) -> None:
    with pytest.raises(KqlBindError, match=f"unknown function '{name}'"):
        run(duckdb.connect(), f"print {name}('212')")


def test_the_functions_of_the_docs_are_called_and_listed_once_their_package_is_installed(tmp_path: Path) -> None:
    code, points = of_the_docs()
    install(tmp_path, "our_package", {"our_package/__init__.py": "", "our_package/kql.py": code}, points)
    data = "datatable(Host:string, Value:real)['gx0731', 212.0, 'gx0702', 32.0, 'login', 50.0]"
    questions = [
        f"{data} | project celsius(Value)",
        f"{data} | where celsius(Value) >= 10 | summarize count() by Rack = rack_of(Host) | sort by Rack asc",
        f"{data} | extend R = rack_of(Host) | where R startswith 'gx' | project R, C = celsius(Value) | sort by C asc",
        f"{data} | summarize median_of(Value), span_of(Value)",
        "datatable(Value:real)[3.0, real(nan), real(null), 1.0] | summarize median_of(Value)",
        f"{data} | sort by Value asc | project mean_of_five(Value), middle_so_far(Value)",
    ]
    answers, listed = asked_beside(tmp_path, questions)
    celsius, racks, both, together, with_nan, of_rows = answers
    assert celsius == [[100.0], [0.0], [10.0]]
    assert racks == [["", 1], ["gx07", 1]]
    assert together == [[50.0, 180.0]]
    assert of_rows == [[32.0, 32.0], [41.0, 50.0], [98.0, 50.0]]
    assert with_nan in ([[1.0]], [[3.0]], [[None]])  # NaN is a number that has no place in an order
    assert both == [["gx07", 0.0], ["gx07", 100.0]]
    assert "| `celsius` | Degrees Fahrenheit as degrees Celsius. |" in listed
    assert "| `rack_of` | The rack that a node stands in, from its name. |" in listed


Install = Callable[[str], None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package whose one module has this code, for one test."""

    def add(code: str) -> None:
        module = f"site_{abs(hash(code))}"
        install(tmp_path, module, {f"{module}.py": code}, {"point": f"{module}:FUNCTIONS"})
        registry.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    for kept in ("_known", "_warned", "_brought"):  # no other test of this process sees what is wrong here
        monkeypatch.setattr(extensions, kept, {})
    yield add
    monkeypatch.undo()
    registry.cache_clear()


DECLARE = "from queries.kql.functions.declaration import Body, Function, Template\nFUNCTIONS = "


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise RuntimeError('no licence')\n", "no licence"),
        ("FUNCTIONS = 'celsius'\n", "'celsius' is no"),
        (f"{DECLARE}(Function('fine', 'Fine.', Template('', 'long', '1')), 7)\n", "7 is no"),
        (f"{DECLARE}Function('toupper', 'Ours.', Template('s', 'string', '{{0}}'))\n", "'toupper' is taken"),
        (f"{DECLARE}Function('ToUpper', 'Ours.', Body('s', 'string', str.upper))\n", "'ToUpper' is taken"),
        (f"{DECLARE}Function('ours', 'Ours.', Template('', 'long', '1'), aliases=('iif',))\n", "'iif' is taken"),
        (f"{DECLARE}Function('b; DROP TABLE x', 'Ours.', Body('s', 'string', str.upper))\n", "no name of a function"),
    ],
    ids=["raises", "no function", "one of two is none", "taken", "taken in other case", "alias taken", "no name"],
)
def test_a_package_that_is_wrong_is_named_and_left_out(
    code: str, reason: str, installed: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(code)
    capsys.readouterr()
    found = registry()
    logged = capsys.readouterr().err
    assert reason in logged and "site_" in logged
    assert not found.site and "fine" not in found.functions and "ours" not in found.functions
    assert run(duckdb.connect(), "print toupper('xid')").rows == [["XID"]]


AGGREGATES = """
from statistics import median
from queries.kql.functions.declaration import LINEAR, Body, Function, Kind, Template
FUNCTIONS = (
    Function("median_of", "The median.", Body("r", "real", lambda values: median(v for v in values if v is not None)), kind=Kind.AGGREGATE),
    Function("listed", "How many values came, nulls too, and those of another argument.", Body("a s?", "string", lambda a, b=(): f"{a} {b}"),
             kind=Kind.AGGREGATE),
    Function("range_of", "Greatest minus least.", Template("n", "0", "max({0}) - min({0})"), Template("t", "timespan",
             "CAST((epoch_us(max({0})) - epoch_us(min({0}))) * 10 AS BIGINT)"), cost=LINEAR, kind=Kind.AGGREGATE),
)
"""


DATA = (
    "datatable(Host:string, V:real, T:datetime)['a', 1.0, datetime(2026-01-01), 'a', 9.0, datetime(2026-01-02),"
    "'a', 2.0, datetime(null), 'b', real(null), datetime(2026-01-01)]"
)


def test_aggregates_of_a_package_have_any_body(tmp_path: Path) -> None:
    install(tmp_path, "our_package", {"our_package.py": AGGREGATES}, {"site_kql": "our_package:FUNCTIONS"})
    asked = {
        f"{DATA} | where Host == 'a' | summarize median_of(V), range_of(V), range_of(T), N = count() by Host": [["a", 2.0, 8.0, "1.00:00:00", 3]],
        f"{DATA} | summarize X = median_of(V * 2) + 1": [[5.0]],
        f"{DATA} | where Host == 'b' | summarize listed(V), Two = listed(V, Host)": [["[None] ()", "[None] ['b']"]],
        f"{DATA} | where Host == 'c' | summarize listed(V)": [["[] ()"]],
        f"{DATA} | where Host == 'b' | summarize R = range_of(V)": [[None]],
    }  # fmt: skip
    answers, listed = asked_beside(tmp_path, asked)
    assert answers == list(asked.values())
    assert "| `median_of` (aggregate) | The median. |" in listed


GATHERED = """
from queries.kql.functions.declaration import Body, Function, Kind
FUNCTIONS = tuple(Function(f"gathered_{kind if kind.islower() else 2 * kind}", "What a body gets.", Body(kind, "string", repr), kind=Kind.AGGREGATE)
                  for kind in "alnrimbtpgsdD")
"""
VALUES = (
    "datatable(l:long, i:int, r:real, m:decimal, b:bool, t:datetime, p:timespan, g:guid, s:string, d:dynamic)"
    "[1, 2, real(nan), decimal(1.5), true, datetime(2026-01-01), 1s, guid(74be27de-1e4e-49d9-b579-fe0b331d3642), 'NaN', dynamic([1]),"
    " long(null), int(null), real(null), decimal(null), bool(null), datetime(null), timespan(null), guid(null), '', dynamic(null)]"
)


@pytest.mark.long
def test_a_body_of_a_group_gets_values_as_a_body_of_a_row_does(tmp_path: Path) -> None:
    install(tmp_path, "our_package", {"our_package.py": GATHERED}, {"site_kql": "our_package:FUNCTIONS"})
    wanted = {
        "r(r)": "[nan, None]", "a(r)": "[nan, None]", "r(real(-inf))": "[-inf, -inf]", "r(i)": "[2.0, None]", "r(m)": "[1.5, None]",
        "t(t)": "[datetime.datetime(2026, 1, 1, 0, 0), None]", "a(t)": "[datetime.datetime(2026, 1, 1, 0, 0), None]",
        "p(p)": "[10000000, None]", "p(5s)": "[50000000, 50000000]", "a(p)": "[10000000, None]", "l(l)": "[1, None]", "i(i)": "[2, None]",
        "n(l)": "[1, None]", "b(b)": "[True, None]", "s(s)": "['NaN', '']", "g(g)": "['74be27de-1e4e-49d9-b579-fe0b331d3642', None]",
        "d(d)": "[[1], None]", "a(d)": "[[1], None]", "DD(r)": "['NaN', None]", "DD(p)": "['00:00:01', None]",
    }  # fmt: skip
    asked = [f"{VALUES} | summarize X = gathered_{call}" for call in wanted]
    asked.append(f"{VALUES} | where l > 1 | summarize T = gathered_t(t), R = gathered_r(r), D = gathered_d(d)")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(asked)], env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *answers, empty = json.loads(done.stdout.partition("\n")[0])
    assert dict(zip(wanted, (rows[0][0] for rows in answers), strict=True)) == wanted
    assert empty == [["[]", "[]", "[]"]]


def test_pivot_says_which_aggregate_of_a_package_it_cannot_use(installed: Install) -> None:
    installed(AGGREGATES)
    for call in ("median_of(V)", "range_of(T)", "listed(V, Host)"):
        name = call.partition("(")[0]
        with pytest.raises(KqlBindError, match=re.escape(f"pivot cannot use {name}()")):
            run(duckdb.connect(), f"{DATA} | evaluate pivot(Host, {call})")
    instead = f"{DATA} | summarize M = range_of(V) by Host | evaluate pivot(Host, take_any(M))"
    assert run(duckdb.connect(), instead).rows == [[8.0, None]]


CONDITIONAL = """
from queries.kql.functions.declaration import LINEAR, Function, Kind, Template, conditional
SPAN = Function("span_of", "Greatest minus least.", Template("n s?", "0", "max({0}){if} - min({0}){if}"), Template("t", "timespan",
                "CAST((epoch_us(max({0}){if}) - epoch_us(min({0}){if})) * 10 AS BIGINT)"), cost=LINEAR, kind=Kind.AGGREGATE,
                wrong_type="needs a number or a time, not {0}")
KEPT = Function("kept", "How many there are.", Template("o _*", "long", "count({0}){if}", never_null=True), cost=LINEAR,
                kind=Kind.AGGREGATE, keeps_name=True, aliases=("kept_too",), wrong_number="needs a value")
SHARE = Function("share", "The share of the rows.", Template("c", "real", "count(*) FILTER (WHERE {0}) / count(*)"), kind=Kind.AGGREGATE)
FUNCTIONS = (SPAN, conditional(SPAN, "span_ofif"), KEPT, conditional(KEPT, "keptif", wrong_number="needs both"), SHARE)
"""


def test_an_aggregate_of_a_package_has_a_form_with_a_condition(installed: Install) -> None:
    installed(CONDITIONAL)
    asked = {
        f"{DATA} | summarize span_of(V), span_ofif(V, V > 1), span_ofif(T, V > 1)": [[8.0, 7.0, "00:00:00"]],
        f"{DATA} | summarize span_ofif(V, V > 1, 'x'), share(V > 1)": [[7.0, 0.5]],
        f"{DATA} | project Host, V | evaluate pivot(Host, span_of(V))": [[8.0, None]],
        f"{DATA} | summarize kept(V, V, V), X = keptif(V, V > 1)": [[3, 2]],
    }  # fmt: skip
    for query, rows in asked.items():
        assert run(duckdb.connect(), query).rows == rows


def test_an_aggregate_of_a_package_says_its_column_and_what_it_refuses(installed: Install) -> None:
    installed(CONDITIONAL)
    (compiled,) = compile_script(f"{DATA} | summarize kept(V), kept_too(V), keptif(T, V > 1), span_of(V)", Catalog({}))
    assert [(c.name, c.nullable) for c in compiled.columns] == [
        ("V", False), ("kept_too_V", False), ("T", False), ("span_of_V", True)
    ]  # fmt: skip
    for call, refusal in {
        "span_of(Host)": "span_of() needs a number or a time, not string",
        "span_ofif(Host, V > 1)": "span_ofif() needs a number or a time, not string",
        "span_ofif(V, V)": "a condition is needed here, not real",
        "kept_too()": "kept_too() needs a value",
        "span_ofif(V)": "span_ofif() takes a value and a condition",
        "keptif(nosuch)": "keptif() needs both",
        "kept(dynamic([1]))": "kept() does not take dynamic for argument 1",
    }.items():
        with pytest.raises(KqlBindError, match=re.escape(refusal)):
            validate(f"{DATA} | summarize {call}")


def test_the_aggregates_of_one_value_are_declared_as_those_of_a_package() -> None:
    named = official.LEND_THEIR_NAME | {f"{n}if" for n in official.LEND_THEIR_NAME if f"{n}if" in official.AGGREGATES}
    bound = {n for n in named if n in registry().aggregates and registry().aggregates[n].bind is not None}
    assert len(named) >= 24 and not bound
    assert not [v for v in vars(aggregates).values() if isinstance(v, type) and v.__module__ == aggregates.__name__]


def test_a_form_with_a_condition_needs_its_place() -> None:
    body = Function("ours", "Ours.", Body("r", "real", len), kind=Kind.AGGREGATE)
    unmarked = Function(
        "ours", "Ours.", Template("r", "real", "max({0}){if}"), Template("t", "real", "max({0})"), kind=Kind.AGGREGATE
    )
    everything = Function("ours", "Ours.", Template("r*", "real", "max([{*}]){if}"), kind=Kind.AGGREGATE)
    for one in (body, unmarked, everything):
        with pytest.raises(ValueError, match="oursif: ours has no form with a condition"):
            conditional(one, "oursif")


def test_a_body_of_a_group_is_called_with_an_argument(installed: Install) -> None:
    installed(
        "from queries.kql.functions.declaration import Body, Function, Kind\n"
        "FUNCTIONS = Function('ours', 'Ours.', Body('a?', 'long', len), kind=Kind.AGGREGATE)\n"
    )
    assert validate(f"{DATA} | summarize ours(V)") == [("ours_V", "long")]
    with pytest.raises(KqlBindError, match=re.escape("ours() needs an argument")):
        validate(f"{DATA} | summarize ours()")


def test_aggregates_of_a_package_are_bound_as_ours_are(installed: Install) -> None:
    installed(AGGREGATES)
    named = validate(f"{DATA} | summarize median_of(V), range_of(T), listed(V, Host) by Host")
    assert named == [("Host", "string"), ("median_of_V", "real"), ("range_of_T", "timespan"), ("listed_V", "string")]
    for query, refusal in {
        f"{DATA} | extend x = median_of(V)": "is an aggregate; it belongs in summarize",
        f"{DATA} | summarize range_of(Host)": "does not take string",
        f"{DATA} | summarize median_of(max(V))": "aggregate",
    }.items():
        with pytest.raises(KqlBindError, match=refusal):
            validate(query)


def test_a_scalar_and_an_aggregate_of_one_name_have_not_both_a_body(installed: Install, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """SQL calls both by that name."""
    installed(f"{DECLARE}(Function('ours', 'Ours.', Body('s', 'long', len)),)\nfrom queries.kql.functions.declaration import Kind\n"
              "FUNCTIONS += (Function('ours', 'Ours.', Body('s', 'long', len), kind=Kind.AGGREGATE),)\n")  # fmt: skip
    registry()
    assert "SQL calls the bodies of both by one name" in capsys.readouterr().err


def test_one_function_is_offered_as_well_as_a_tuple(installed: Install) -> None:
    installed(f"{DECLARE}Function('answer', 'The answer.', Template('', 'long', '42'), aliases=('the_answer',))\n")
    assert run(duckdb.connect(), "print answer(), the_answer()").rows == [[42, 42]]


OF_ROWS = """
from queries.kql.functions.declaration import Body, Function, Kind, Template


def longest_rise(values):
    best = now = 0
    for before, after in zip(values, values[1:]):
        now = now + 1 if before is not None and after is not None and after > before else 0
        best = max(best, now)
    return best


FUNCTIONS = (
    Function(
        "mean_of_last", "The mean of the last rows.",
        Template("r", "real", "avg({0}) OVER (ORDER BY {order} ROWS 1 PRECEDING)"),
        Template("r s", "string", "concat({1}, avg({0}) OVER (ORDER BY {order} ROWS 1 PRECEDING))"),
        aliases=("moving_mean",), kind=Kind.ROW,
    ),
    Function("longest_rise", "The most rises in sequence so far.", Body("r", "long", longest_rise), kind=Kind.ROW),
    Function("kinds_so_far", "The values so far.", Body("d", "dynamic", lambda values: values), kind=Kind.ROW),
)
"""
ROWS = "datatable(N:long, X:real, D:dynamic)[3, 30.0, dynamic(null), 1, 10.0, dynamic({'a': 1}), 2, 20.0, dynamic([2])] | sort by N asc"


@pytest.mark.long
def test_a_function_of_rows_needs_no_bind(tmp_path: Path) -> None:
    install(tmp_path, "our_package", {"our_package.py": OF_ROWS}, {"site_kql": "our_package:FUNCTIONS"})
    asked: dict[str, list[list[Any]]] = {
        f"{ROWS} | project mean_of_last(X)": [[10.0], [15.0], [25.0]],
        f"{ROWS} | project moving_mean(N, 'm')": [["m1.0"], ["m1.5"], ["m2.5"]],
        f"{ROWS} | project longest_rise(X)": [[0], [1], [2]],
        f"{ROWS} | project longest_rise(-mean_of_last(X) * row_number())": [[0], [0], [0]],
        f"{ROWS} | project y = mean_of_last(prev(X, 1, 50.0)) | where y > 20": [[50.0], [30.0]],
        f"{ROWS} | extend y = kinds_so_far(D) | project tostring(y)": [
            ['[{"a":1}]'], ['[{"a":1},[2]]'], ['[{"a":1},[2],null]'],
        ],
        f"{ROWS} | where N > 5 | project longest_rise(X), mean_of_last(X)": [],
    }  # fmt: skip
    answers, listed = asked_beside(tmp_path, asked)
    assert answers == list(asked.values())
    assert "| `mean_of_last` (of rows), also `moving_mean` | The mean of the last rows. |" in listed


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("print mean_of_last(1.0)", "works in extend, project and where"),
        ("datatable(X:real)[1.0] | summarize X = max(X) | extend y = longest_rise(X)", "needs serialized rows"),
        (f"{ROWS} | extend y = longest_rise(D)", "longest_rise() does not take dynamic for argument 1"),
    ],
)
def test_a_function_of_rows_works_where_rows_have_an_order(query: str, reason: str, installed: Install) -> None:
    installed(OF_ROWS)
    with pytest.raises(KqlBindError, match=re.escape(reason)):
        validate(query)


def test_a_function_of_sql_that_does_not_exist_is_named(installed: Install) -> None:
    installed(f"{DECLARE}Function('ours', 'Ours.', Template('s', 'string', 'nulif({{0}}, {{0}})'))\n")
    with pytest.raises(KqlError, match=re.escape("the engine has no function nulif()")):
        run(duckdb.connect(), "print ours('one')")


def test_a_body_that_raises_is_named_with_its_exception(installed: Install) -> None:
    installed(f"{DECLARE}Function('second', 'Ours.', Body('s', 'string', lambda text: text.split(',')[1]))\n")
    con = duckdb.connect()
    python.give(con, f"SELECT {BODY_PREFIX}second_0('x')")
    with pytest.raises(duckdb.Error) as caught:
        con.execute(f"SELECT {BODY_PREFIX}second_0('one')")
    assert str(engine_error(caught.value, False, None)) == "second() raised IndexError: list index out of range"


@pytest.mark.parametrize(
    ("name", "refusal"), [("geo_line_length", "not implemented yet"), ("estimate_data_size", "cannot be answered here")]
)
def test_a_name_of_kusto_that_is_not_answered_here_may_be_taken(name: str, refusal: str, installed: Install) -> None:
    with pytest.raises(KqlError, match=refusal):
        run(duckdb.connect(), f"print {name}('x')")
    installed(f"{DECLARE}Function('{name}', 'Ours.', Body('s', 'long', len))\n")
    assert validate(f"print {name}('x')") == [("print_0", "long")]


def test_every_function_is_declared_in_one_subject_with_a_sentence() -> None:
    names = [(f.kind is Kind.AGGREGATE, f.name) for module in SUBJECTS for f in module.FUNCTIONS]
    assert len(names) == len(set(names))
    docs = {f.name: f.doc for module in SUBJECTS for f in module.FUNCTIONS}
    assert not [name for name, doc in docs.items() if not re.fullmatch(r"\S.*\.", doc) or len(doc) > 110]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"bind": None}, "not both"),
        ({"overloads": (Template("s", "string", "{0}"),), "bind": lambda c, node, scope: None}, "not both"),
        ({"overloads": (Body("s", "string", str.upper),), "cost": LINEAR}, "its cost is WALL"),
        (
            {"overloads": (Template("s", "string", "{0}"),), "kind": Kind.ROW},
            "over the rows in their order: OVER (ORDER BY {order})",
        ),
        (
            {"overloads": (Template("n*", "0", "max({*}) OVER (ORDER BY {order})"),), "kind": Kind.ROW},
            "{0}, {1}, not {*}",
        ),
        (
            {"overloads": (Template("r r?", "real", "sum({0}) OVER (ORDER BY {order}) + {1}"),), "kind": Kind.ROW},
            "none may be missing or repeated",
        ),
        (
            {"overloads": (Template("", "0", "row_number() OVER (ORDER BY {order})"),), "kind": Kind.ROW},
            "of the type of the first argument, and it has none",
        ),
        (
            {"overloads": (Template("n", "0", "max({0}) OVER (ORDER BY {order})"),)},
            "only a function of rows has {order}",
        ),
        ({"overloads": (Body("", "long", len),), "kind": Kind.ROW}, "the body of a function of rows needs an argument"),
        ({"overloads": (Body(" ", "long", len),), "kind": Kind.AGGREGATE}, "an aggregate's body needs an argument"),
        ({"overloads": (Template("s", "string", "max({0}){if}"),)}, "only an aggregate has a condition"),
        ({"overloads": (Template("c", "bool", "{0}"),)}, "only an aggregate has a condition"),
        ({"overloads": (Template("c?", "bool", "{0}"),), "kind": Kind.AGGREGATE}, "'c?' is no kind of argument"),
        (
            {"overloads": (Template("r c", "real", "max({0})"), Template("c", "real", "1")), "kind": Kind.AGGREGATE},
            "not in one place",
        ),
        ({"overloads": (Template("r q", "real", "{0} / {1}"),)}, "'q' is no kind of argument"),
        ({"overloads": (Template("sl?", "string", "{0}"),)}, "and c; separate arguments by blanks"),
        ({"overloads": (Template("r", "float", "{0}"),)}, "'float' is no type of a result"),
        ({"overloads": (Template("r r", "real", "{0} / {2}"),)}, "the hole {2} is for argument 3, but there are 2"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        Function("ours", "Ours.", *arguments.pop("overloads", ()), **{"cost": Cost.WALL, **arguments})
