"""The newest lines: their range of time is found before who can have written them is asked (queries/kql/newest.py)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from parsers.record import frame
from queries import kql
from queries.kql.catalog import CATALOG
from queries.kql.compile import Compiler, compile_script
from queries.kql.dialect import Sql
from queries.kql.within import Within
from store import open_store
from store.door import Door

NOON = datetime(2026, 3, 1, 12)
#: More lines than are asked for, of which several share a moment, and some have none.
MOMENTS = [NOON + timedelta(seconds=n // 3) if n % 7 else None for n in range(60)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Door:
    made = open_store(tmp_path_factory.mktemp("newest"))
    rows = [
        {"time": at, "received_time": NOON - timedelta(seconds=n), "host": f"n{n % 4}", "line": n, "raw": f"line {n}",
         "message": f"line {n}", "source": "syslog", "format": "rfc3164", "file": "syslog"}
        for n, at in enumerate(MOMENTS)
    ]  # fmt: skip
    made.append({"logs": frame("logs", rows)})
    return made


#: A pipeline up to the order, and whether it finds the range of time first.
BEFORE = {
    "": True,
    "| where Time > datetime(2026-03-01 12:00:05) ": True,
    "| where Time between (datetime(2026-03-01 12:00:03) .. 9s) | where ReceivedTime < now() ": True,
    "| where Time > ago(10000d) and (Time < now() or ReceivedTime < now()) ": True,
    "| where isnull(Time) ": False,
    "| where Time > dynamic('2026-03-01') ": False,  # dear to compute
    f"| where Time in ({', '.join(f'datetime(2026-03-01 12:00:{n % 60:02})' for n in range(700))}) ": False,
    "| where Host == 'n1' and Line > 3 | where Source != 'kernel' ": True,
    "| where Message == 'line 5' ": False,
    "| where Host startswith 'n' ": False,
    "| where Authority == 'local' ": False,
    "| where rand() < 2 ": False,
    "| take 30 ": False,
    "| extend Later = Time + 1s ": False,
}
TOPS = {
    "top 5 by Time": True,
    "top 5 by Time asc": True,
    "top 5 by ReceivedTime": True,
    "top 500 by Time": True,  # more than there are, those without a time too
    "top 5 by Time desc nulls first": False,
    "top 5 by Time asc nulls last": False,
    "top 5 by Line": False,
    "top 0 by Time": False,
    "top 20000 by Time": False,
    "sort by Time | take 5": True,
    "order by Time asc | limit 5": True,
    "sort by Time | serialize | take 5": False,
    "top 2 + 3 by Time": False,  # no plain number
    "top toscalar(Logs | summarize 3) by Time": False,
}


def shown_by(before: str, top: str) -> tuple[object, ...]:
    """What a case shows: every order without a condition, and every condition with an order that finds the range first
    and one that does not."""
    return ("", top) if not before else (before, TOPS[top])


@pytest.mark.one_of_each(kind=shown_by)
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("top", TOPS)
def test_the_answer_is_the_same(store: Door, before: str, top: str) -> None:
    before = before.replace("| take 30 ", "| take 100 ")  # any thirty would be others each time
    key = "ReceivedTime" if "ReceivedTime" in top else "Line" if "Line" in top else "Time"
    found = store.run_kql(kql.Query(f"Logs {before}| {top} | project {key}, Authority")).rows
    # An expression in place of the column is not looked at beforehand.
    plain = store.run_kql(kql.Query(f"Logs {before}| extend Key = {key} | {top.replace(key, 'Key')} | project {key}, Authority")).rows  # fmt: skip
    assert found == plain
    assert found or before == "| where isnull(Time) " or top.startswith("top 0")


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("top", TOPS)
def test_what_finds_the_range_first(before: str, top: str) -> None:
    text = compile_script(f"Logs {before}| {top}", CATALOG)[0].sql
    assert ("-infinity" in text) is (BEFORE[before] and TOPS[top]), text


@pytest.mark.parametrize(
    "text",
    ["Logs | top 5 by Time | project Time, Host", "Logs | project Time, Host | top 5 by Time", "Events | top 5 by Time", "Logs | top 5 by Time | count"],
)  # fmt: skip
def test_where_who_wrote_them_is_not_read_nothing_is_asked_twice(text: str) -> None:
    assert "-infinity" not in compile_script(text, CATALOG)[0].sql


@pytest.mark.parametrize(
    "text",
    [
        "let n = 5; Logs | top n by Time | project Time, Authority",
        "let Few = Logs | top 5 by Time; Few | join kind=inner (Few) on Line | project Time, Authority1",
        "Logs | where Time > ago(10000d) | as Mine | top 5 by Time | project Time, Authority",
        "union (Logs | top 5 by Time), (Logs | top 5 by Time asc) | summarize count() by Authority",
        "Logs | top 5 by Time | where Host != '' | top 2 by Time asc | project Time, Authority",
        "Logs | sort by Time | take 5 | take 3 | extend Next = next(Time) | project Time, Next, Authority",
        "Logs | sort by Host, Line | take 5 | sort by Time | take 2 | project Time, Authority, Line",
        "Logs | top 5 by Time | extend Next = next(Time) | project Time, Next, Authority",
        "Logs | partition by Host (top 2 by Time | project Time, Authority)",
        "Logs | partition by Host { Logs | top 2 by Time | project Time, Authority }",
        "let ago = (d:timespan) { datetime(2026-03-01) + 0s * rand() }; Logs | where Time > ago(1h) | top 5 by Time | project Time, Authority",
        # Behind the wall, where the store's tables are not.
        "Logs | top 5 by Time | where replace_regex(Message, '(l|i)+', strrep('x', 9)) matches regex '(x{9}){1,9}' | project Time, Authority",
        "Logs | where Time > datetime(2026-03-01) | top 9 by Time | extend Words = split(Message, ' ') | mv-expand Words | summarize count() by Authority",
        "Logs | top 5 by Time | extend Long = toscalar(Logs | top 1 by Time | project strlen(Message)) | project Time, Long, Authority",
    ],
)  # fmt: skip
def test_it_fits_into_any_query(store: Door, text: str) -> None:
    plain = text.replace("Logs |", "Logs | extend Key = Time |").replace(" by Time", " by Key")
    found = store.run_kql(kql.Query(text)).rows
    assert found and sorted(found, key=repr) == sorted(store.run_kql(kql.Query(plain)).rows, key=repr)


def test_a_limit_may_be_a_parameter_and_differ_from_call_to_call(store: Door) -> None:
    text = "declare query_parameters(n:long = 2); Logs | top n by Time | project Time, Authority"
    for n in (3, 7, 1):
        assert len(store.run_kql(kql.Query(text, parameters={"n": n})).rows) == n


def test_a_step_with_the_name_of_one_that_was_given_up_is_another() -> None:
    compiler = Compiler(CATALOG)
    compiler.stored("Logs")
    compiler.made, compiler.ctes = 0, []
    assert compiler.add(Sql("SELECT 1")) == "s1"
    assert not compiler.narrowable and not compiler.stored_steps


def test_what_cannot_be_a_count_is_refused_as_before(store: Door) -> None:
    for text in ("Logs | top -1 by Time", "Logs | top 'a' by Time", "Logs | top nothing by Time"):
        with pytest.raises(kql.KqlError):
            store.run_kql(kql.Query(text))


def test_a_range_given_with_the_query_is_one_of_time(store: Door) -> None:
    within = Within(NOON + timedelta(seconds=2), NOON + timedelta(seconds=6))
    text = compile_script("Logs | top 3 by Time", CATALOG, within=within)[0].sql
    assert "-infinity" in text
    found = store.run_kql(kql.Query("Logs | top 3 by Time | project Time, Authority", within=within)).rows
    assert [row[1] for row in found] == ["local"] * 3
