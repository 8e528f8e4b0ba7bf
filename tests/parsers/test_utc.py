"""Times with a zone as naive UTC: at the edges of the calendar too, and converted in one place."""

from __future__ import annotations

import ast
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from parsers.documents.fields import local_time
from parsers.moments import EARLIEST, LATEST, utc
from tests.syntax_trees import nodes_of

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("parsers", "store", "collector", "correlator", "queries", "web", "faultline", "benchmarks", "tests", "docs")
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(("moment", "naive"), [
    (datetime(2026, 11, 21, 10), datetime(2026, 11, 21, 10)), (datetime(2026, 11, 21, 10, tzinfo=UTC), datetime(2026, 11, 21, 10)),
    (datetime(2026, 11, 21, 10, tzinfo=BERLIN), datetime(2026, 11, 21, 9)),
    (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), datetime(2026, 10, 25, 0, 30)),
    (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), datetime(2026, 10, 25, 1, 30)),
    (datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN), datetime(2026, 3, 29, 1, 30)),  # does not exist: an hour later
    (datetime(1, 1, 1, 5, tzinfo=EAST), EARLIEST), (datetime(9999, 12, 31, 20, tzinfo=WEST), LATEST),
])  # fmt: skip
def test_a_time_as_naive_utc(moment: datetime, naive: datetime) -> None:
    found = utc(moment)
    assert (found, found.tzinfo, found.fold) == (naive, None, 0)


def test_a_document_s_time_beyond_the_calendar_is_none() -> None:
    assert local_time("9999-12-31T20:00:00-12:00") is None
    assert local_time("9999-12-31T20:00:00", "America/New_York") is None
    assert local_time("9999-12-31T20:00:00") == datetime(9999, 12, 31, 20)


def converts(node: ast.AST) -> bool:
    """``x.astimezone(UTC).replace(tzinfo=None)``, which fails at the edges of the calendar."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace"
        and any(k.arg == "tzinfo" and isinstance(k.value, ast.Constant) and k.value.value is None for k in node.keywords)
        and isinstance(before := node.func.value, ast.Call) and isinstance(before.func, ast.Attribute)
        and before.func.attr == "astimezone"
        and ast.unparse(before).rpartition("(")[2].lower() in ("utc)", "timezone.utc)", "datetime.utc)", "")
    )  # fmt: skip


@pytest.mark.parametrize(("text", "is_one"), [
    ("t.astimezone(UTC).replace(tzinfo=None)", True), ("now().astimezone(timezone.utc).replace(tzinfo=None)", True),
    ("t.astimezone(zone).replace(tzinfo=None)", False), ("t.astimezone(UTC)", False), ("t.replace(tzinfo=None)", False),
])  # fmt: skip
def test_what_counts_as_a_conversion(text: str, is_one: bool) -> None:
    assert any(map(converts, ast.walk(ast.parse(text)))) is is_one


def test_nothing_else_converts_to_naive_utc() -> None:
    """The agent, which imports nothing of ours, has none of its own."""
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(sources) > 1000
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources
        if ".astimezone(" in path.read_text(encoding="utf-8")  # the other files need not be parsed
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and converts(node)
    ]
    assert not found, "use parsers.moments.utc"
