"""Terms told by ASCII first: the same answers as with the letters of all scripts, and no error that anybody sees."""

from __future__ import annotations

import itertools

import duckdb
import pytest

from queries.kql import run
from queries.kql.edges import AsciiFirst, Form, form_of_terms

BESIDE = ("", " ", "_", "-", "x", "7", "\n", "é", "ก", "²", "—", "\u212a", "\U0001f600", "\x7f", "\x80")
CONDITIONS = [
    *(f's {word} "{term}"' for word in ("has", "has_cs", "hasprefix", "hassuffix_cs", "!has", "!hasprefix")
      for term in ("kilo", "-kilo", "kilo-")),
    's has_any ("kilo", "xkilo")', 's has_all ("kilo", "7")', 's has "K\u0130LO" or s has "ก"', 'iff(s has "kilo", false, s == "")',
]  # fmt: skip


def over(texts: list[str], condition: str) -> str:
    rows = ", ".join('"' + text.replace("\n", "\\n") + '"' for text in texts)
    return f"datatable(s:string)[{rows}] | extend found = {condition} | project s, found"


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    """An engine without tables; to start one takes as long as to run a query."""
    return duckdb.connect()


def in_full(con: duckdb.DuckDBPyConnection, query: str) -> list[list[object]]:
    """In a caller's transaction nothing is told by ASCII first: its error would end that."""
    con.execute("BEGIN")
    rows = run(con, f"{query}\n// in full").rows
    con.execute("ROLLBACK")
    return rows


@pytest.mark.parametrize("condition", CONDITIONS)
def test_terms_end_where_they_end_with_all_letters(con: duckdb.DuckDBPyConnection, condition: str) -> None:
    texts = [f"{a}kilo{b}" for a, b in itertools.product(BESIDE, BESIDE)] + ["éKilo, kilo", "kilokilo", "no"]
    query = over(texts, condition)
    assert run(con, query).rows == in_full(con, query)
    plain = over([text for text in texts if text.isascii()], condition)
    assert run(con, plain).rows == in_full(con, plain)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Form]:
    """The forms in which terms were compiled, in order."""
    found: list[Form] = []
    use = AsciiFirst.use

    def noted(edges: AsciiFirst) -> bool:
        found.append(edges.form if use(edges) else Form.LETTERS)
        return use(edges)

    monkeypatch.setattr(AsciiFirst, "use", noted)
    return found


@pytest.mark.parametrize(
    ("text", "found", "forms"),
    [
        ("a kilo", True, [Form.ASCII_ROWS]),
        ("a kilogram", False, [Form.ASCII_ROWS]),
        ("é a kilo", True, [Form.ASCII_ROWS]),
        ("é a kilogram", False, [Form.ASCII_ROWS, Form.ASCII_SIDES]),
        ("ékilo", False, [Form.ASCII_ROWS, Form.ASCII_SIDES, Form.LETTERS]),
        ("—kilo", True, [Form.ASCII_ROWS, Form.ASCII_SIDES, Form.LETTERS]),
    ],
)
def test_the_shortest_form_that_decides_is_used_and_remembered(
    con: duckdb.DuckDBPyConnection, used: list[Form], text: str, found: bool, forms: list[Form]
) -> None:
    query = over([text], f's has "kilo" // {text}')
    assert run(con, query).rows == [[text, found]]
    assert used == forms
    used.clear()
    assert run(con, query).rows == [[text, found]]
    assert used in ([], forms[-1:])  # compiled before, in the last form
    assert form_of_terms() is Form.LETTERS


def test_a_missing_text_has_no_term(con: duckdb.DuckDBPyConnection) -> None:
    query = 'datatable(d:dynamic)[dynamic({"s": "a kilo"}), dynamic({})] | project found = d.s has "kilo", none = d.s !has "kilo"'
    assert run(con, query).rows == in_full(con, query)


def test_a_callers_transaction_goes_on() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE mine (n INTEGER)")
    con.execute("BEGIN")
    con.execute("INSERT INTO mine VALUES (1)")
    assert run(con, over(["ékilo mine"], 's has "kilo"')).rows == [["ékilo mine", False]]
    con.execute("COMMIT")
    assert con.execute("SELECT n FROM mine").fetchall() == [(1,)]


def test_an_error_is_not_taken_for_null() -> None:
    """The parts of a date that is none make null, and so would the error of a row that needs all letters."""
    found = over(["ékilo", "kilo"], 'make_datetime(2026, iff(s has "kilo", 2, 1), 1)')
    assert [row[1] for row in run(duckdb.connect(), found).rows] == [
        "2026-01-01T00:00:00.000000Z", "2026-02-01T00:00:00.000000Z"
    ]  # fmt: skip
