"""Templates in an engine's spelling, word by word."""

from __future__ import annotations

import pytest

from queries.kql.engines.clickhouse import CLICKHOUSE
from queries.kql.engines.duckdb import DUCKDB
from queries.kql.engines.spelling import Speller, Unspelled

WORDS = {
    "lower": "lowerUTF8(<0>)", "divide": "intDiv(<0>, <1>)", "remainder": "mod(<0>, <1>)", "count": "toInt64(count(<0>)<tail>)",
    "sum": "sum(<0>)", "cast": "CAST(<0> AS <1>)", "list_extract": "at(<0>, <1>)", "list_slice": "cut(<*>)",
    "list_value": "[<*>]", "list_transform": "arrayMap(<1>, <0>)", "left": "leftUTF8(<*>)",
}  # fmt: skip
ENGINE = Speller(WORDS, {"BIGINT": "Int64", "VARCHAR": "String", "DECIMAL(38,12)": "Decimal"})


@pytest.mark.parametrize(
    ("template", "spelled"),
    [
        ("lower({0})", "lowerUTF8({0})"),
        ("{0} * 3 // lower({1}) - 5", "intDiv({0} * 3, lowerUTF8({1})) - 5"),
        ("{0} // 10 % 60", "mod(intDiv({0}, 10), 60)"),
        ("-{0} // 2 + {1} % 3", "-intDiv({0}, 2) + mod({1}, 3)"),
        ("({0} + 1)::BIGINT % 2", "mod(CAST(({0} + 1) AS Int64), 2)"),
        ("CAST(lower({0}) AS DECIMAL(38,12))", "CAST(lowerUTF8({0}) AS Decimal)"),
        ("{0}[{1} + 1]", "at({0}, {1} + 1)"),
        ("{0}[1 : {1}]", "cut({0}, 1, {1})"),
        ("[{*}]", "[{*}]"),
        ("list_transform({0}, lambda kx: lower(kx))", "arrayMap((kx) -> lowerUTF8(kx), {0})"),
        ("count(*) FILTER (WHERE {0}) OVER (ORDER BY {1})", "toInt64(count(*) FILTER (WHERE {0}) OVER (ORDER BY {1}))"),
        ("sum({0}) FILTER (WHERE lower({1}) = '')", "sum({0}) FILTER (WHERE lowerUTF8({1}) = '')"),
        ("CASE WHEN {0} THEN 1 ELSE 2 END % 2", "mod(CASE WHEN {0} THEN 1 ELSE 2 END, 2)"),
        ("SELECT * FROM (VALUES ({0})) AS v(c0)", "SELECT * FROM (VALUES ({0})) AS v(c0)"),
        ("EXISTS (SELECT 1 FROM \"s1\" WHERE \"r\".\"x\" % 2 = {0})", "EXISTS (SELECT 1 FROM \"s1\" WHERE mod(\"r\".\"x\", 2) = {0})"),
        ("{0} IN (1, 2) AND ({1})", "{0} IN (1, 2) AND ({1})"),
        ("left({0}, 2) LEFT JOIN (x)", "leftUTF8({0}, 2) LEFT JOIN (x)"),
        ("'lower(a) % 2' || \"left(x)\"", "'lower(a) % 2' || \"left(x)\""),
        (r"'\d'", r"'\\d'"),
    ],
)  # fmt: skip
def test_a_template_is_spelled(template: str, spelled: str) -> None:
    assert ENGINE.spell(template) == spelled


@pytest.mark.parametrize(
    ("template", "word"),
    [("upper({0})", "upper"), ("CAST({0} AS UHUGEINT)", "the type UHUGEINT"), ("list_transform({0}, lambda k: {'s': k})", "a struct"),
     ("lower(nullif({0}, 1))", "nullif")],
)  # fmt: skip
def test_a_word_that_is_not_in_the_table_is_refused(template: str, word: str) -> None:
    with pytest.raises(Unspelled) as gap:
        ENGINE.spell(template)
    assert gap.value.word == word


def test_duckdb_reads_templates_as_they_stand() -> None:
    assert DUCKDB.pieces("list_slice({0}, 1, 2)[1]::VARCHAR // 2") == ("list_slice(", "0", ", 1, 2)[1]::VARCHAR // 2")
    assert "strftime" in "".join(DUCKDB.pieces("time_text({0})"))
    assert "formatDateTime" in "".join(CLICKHOUSE.pieces("time_text({0})"))


def test_every_word_of_duckdb_s_own_has_a_spelling_on_clickhouse_or_is_known_to_lack_one() -> None:
    assert set(DUCKDB.words) - set(CLICKHOUSE.words) == {"decimal_remainder"}
