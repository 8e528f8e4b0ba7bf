"""Strings of stored tables are never null (R1): views that make them empty do so once, in the way that suits the column."""

from __future__ import annotations

import pytest

from parsers.record import frame
from queries.kql import Query
from queries.kql.catalog import CATALOG
from queries.kql.compile import compile_script
from queries.kql.engines.clickhouse import CLICKHOUSE
from store import open_store

FILLED = [table.name for table in CATALOG if table.filled]
#: Columns of few values that many lines lack.
OF_FEW_VALUES = ("Cluster", "Source", "Unit", "Facility", "Severity")
WHOLE: dict[str, object] = {"cluster": "c1", "source": "syslog", "unit": "sshd", "facility": "kern", "severity": "err"}
LINES: list[dict[str, object]] = [{"raw": "a line"}, {"raw": "b", "message": "b", **WHOLE}]


@pytest.mark.parametrize("name", FILLED)
def test_every_string_of_a_filled_table_is_empty_where_it_is_missing(name: str) -> None:
    """The engine itself is asked, since an answer would show an empty string for a null, too."""
    table = CATALOG.tables[name]
    strings = [column.name for column in table.columns if column.kql_type == "string"]
    with open_store(None) as store:
        store.add({"logs": frame("logs", LINES)})
        for relation in {table.relation, table.narrower or table.relation}:
            kept = [
                text for text in strings if relation == table.relation or text.casefold() not in _lower(table.costly)
            ]
            counts = ", ".join(f'count("{text}")' for text in kept)
            ((*found,),) = store.cursor().execute(f"SELECT {counts} FROM {relation}").fetchall()
            assert dict(zip(kept, found, strict=True)) == dict.fromkeys(kept, len(LINES))


def _lower(names: frozenset[str]) -> set[str]:
    return {name.casefold() for name in names}


def test_nulls_are_made_empty_once_and_on_other_engines_in_the_statement() -> None:
    query = "Logs | summarize count() by Host, Unit"
    (ours,), (other,) = (compile_script(query, CATALOG), compile_script(query, CATALOG, engine=CLICKHOUSE))
    assert "coalesce" not in ours.sql.lower() and "coalesce" in other.sql.lower()


def test_columns_of_few_values_are_not_written_out_to_be_counted() -> None:
    """An operator of the engine, as ``coalesce`` and ``CASE`` are, writes out a column's dictionary; a function is called
    once for each of its entries."""
    with open_store(None) as store:
        store.add({"logs": frame("logs", LINES)})
        for column in OF_FEW_VALUES:
            asked = f"""EXPLAIN SELECT 1 FROM kql."LogLines" WHERE strlen("{column}") > 1"""
            plan = "".join(text for _, text in store.cursor().execute(asked).fetchall())
            assert "concat(" in plan and "COALESCE" not in plan and "CASE" not in plan, plan


def test_missing_and_empty_strings_are_one_group() -> None:
    lines = [*LINES, {"raw": "c", "unit": ""}, {"raw": "d", "unit": "sshd"}]
    with open_store(None) as store:
        store.add({"logs": frame("logs", lines)})
        assert store.run_kql(Query("Logs | summarize count() by Unit | sort by Unit asc")).rows == [
            ["", 2],
            ["sshd", 2],
        ]
        assert store.run_kql(Query('Logs | where isempty(Unit) and Severity == "" | count')).rows == [[2]]
        assert store.run_kql(Query('Logs | where Unit != "sshd" | count')).rows == [[2]]
