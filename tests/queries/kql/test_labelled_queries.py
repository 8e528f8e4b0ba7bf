"""Queries with what Kusto answers, written from Microsoft's documentation by somebody who had not read the compiler (2026-11-30,
answers first): rows of small inputs, names of columns, and queries that its binder refuses.

``labelled.jsonl``: ``query`` with ``rows`` (and ``columns``, ``ordered``), with ``refused``, or alone: then it must be accepted. Of
733, 37 were answered otherwise; two of them were the compiler's mistakes, the others are left out: the answer was wrong or not sure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from queries.kql import KqlError, Query
from store import open_store
from store.door import Door

CASES = [json.loads(line) for line in Path(__file__).with_name("labelled.jsonl").read_text("utf-8").splitlines()]
FAMILIES = {
    name: list(found) for name, found in groupby(sorted(CASES, key=lambda c: c["family"]), lambda c: c["family"])
}
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:(\.\d*?)0*)?Z")
_SPAN = re.compile(r"(-?(?:\d+\.)?\d\d:\d\d:\d\d)(?:(\.\d*?)0*)?")


@pytest.fixture(scope="module")
def store() -> Iterator[Door]:
    with open_store(None) as made:
        yield made


def plain(value: Any) -> Any:
    """A cell without what two spellings of one value differ in: 1 and 1.0, zeros at the end of a fraction."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    found = _STAMP.fullmatch(value) or _SPAN.fullmatch(value)
    return found[1] + (found[2] or "").rstrip(".") if found else value


def problem(store: Door, case: dict[str, Any]) -> str | None:
    """What is wrong with the answer to ``case``."""
    try:
        answer = store.run_kql(Query(case["query"]))
    except KqlError as refusal:
        return None if case.get("refused") else f"refused: {refusal}"
    if case.get("refused"):
        return f"answered {answer.rows}"
    names = [name for name, _ in answer.columns]
    if "columns" in case and names != case["columns"]:
        return f"columns {names}"
    if "rows" not in case:
        return None
    got, wanted = plain(answer.rows), plain(case["rows"])
    if not case.get("ordered"):
        got, wanted = sorted(got, key=repr), sorted(wanted, key=repr)
    return None if got == wanted else f"rows {answer.rows}"


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=pytest.mark.long if n % 2 else ()) for n, f in enumerate(sorted(FAMILIES))]
)
def test_what_kusto_answers(store: Door, family: str) -> None:
    found = [(case["query"], problem(store, case)) for case in FAMILIES[family]]
    assert [(query, wrong) for query, wrong in found if wrong] == []
