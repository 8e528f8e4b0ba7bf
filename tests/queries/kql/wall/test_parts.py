"""What runs behind the wall is assembled from pieces of one compiled statement: each equals its own compilation."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest

from queries.kql import compile as compiler
from queries.kql.catalog import CATALOG
from queries.kql.dialect import Sql
from queries.kql.engines import DUCKDB
from queries.kql.wall import cutting, judging

QUERIES = {
    "steps that read each other": "let A = Logs | where Message has 'x' | extend l = split(Message, 'b');\n"
    "A | mv-expand l | join kind=inner (A | summarize n = count() by Host) on Host | where n > 3 and tostring(l) != 'c'",
    "a step that is read once": "let A = materialize(Logs | where Host == 'a'); union A, (A | where Line > 2 | mv-expand x = dynamic([1, 2]))",
    "a step that reads itself": "Logs | sort by Time asc | scan declare (n:long = 0) with (step s: true => n = s.n + 1;)",
    "a column named as a hole is": "Logs | extend ['{0}'] = 'w', ['{1}'] = 'z' | mv-expand a = dynamic([7, 8])",
    "no step at all": "print x = 1 | mv-expand y = range(1, 3)",
}


def with_values(sql: str, values: list[Any]) -> str:
    """A statement with each value in place of its number: the numbers themselves may differ."""
    return re.sub(r"\$(\d+)", lambda found: f"<{values[int(found[1]) - 1]!r}>" if int(found[1]) <= len(values) else found[0], sql)  # fmt: skip


def compiled_alone(body: Any) -> tuple[str, list[Any]]:
    made = Sql("{0}", body).compile(dialect=DUCKDB.dialect())
    return str(made), [made.params[name] for name in made.positiontup or ()]


@pytest.mark.parametrize("name", QUERIES)
def test_a_part_is_what_its_step_is_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def checked(steps: Any, stored: set[str], parts: Any, template: Any) -> cutting.Cut:
        for step, body, _ in steps:
            part = parts.alone(step)
            assert with_values(part.sql, part.parameters) == with_values(*compiled_alone(body))
            assert part.sql.count("%(") == compiled_alone(body)[0].count("%(")
        seen.append(len(steps))
        return cutting.cut(steps, stored, parts, template)

    monkeypatch.setattr(compiler, "cut", checked)
    (made,) = compiler.compile_script(QUERIES[name], CATALOG, now=datetime(2026, 3, 1))
    assert made.cut is not None and seen
    for stated in (made.cut.far, *(stream.statement for stream in made.cut.near)):
        numbers = [int(number) for number in re.findall(r'(?<!")\$(\d+)', stated.sql)]
        assert sorted(set(numbers)) == list(range(1, len(stated.parameters) + 1))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('SELECT 1 FROM "s1" AS t', ["s1"]),
        ('SELECT "t"."s1" FROM "s2"', ["t", "s2"]),
        ('SELECT 1 AS "s1" FROM "s3"', ["s3"]),
        ('"s1"', ["s1"]),
        ('SELECT a."s1", x"s2"', []),
    ],
)
def test_where_a_step_is_read(text: str, found: list[str]) -> None:
    assert cutting._STEP.findall(text) == found


@pytest.mark.parametrize(
    ("text", "without", "called"),
    [
        ("lower('a''b(') || \"x\"\"y(\"", "lower('') || ''", ["lower"]),
        ("f1 (1) + 2g(3) + éh(4)", "f1 (1) + 2g(3) + éh(4)", ["f1", "g", "h"]),
        ("'a'''", "''", []),
        ("'open", "'open", []),
        ("'a''", "'''", []),
    ],
)
def test_what_a_statement_calls(text: str, without: str, called: list[str]) -> None:
    bare = judging._QUOTED.sub("''", text)
    assert bare == without
    assert judging._CALLED.findall(bare) == called
