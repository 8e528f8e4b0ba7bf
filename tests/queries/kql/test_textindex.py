"""Text filters only remove lines that the conditions would: every answer equals that of the whole table."""

from __future__ import annotations

import random
import threading
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.record import frame
from queries.kql import Query, Result, run
from queries.kql.textindex import Pruner
from queries.kql.textneeds import All, Some, regex_need
from store import open_store
from store.duckdb import segments
from store.duckdb.store import DuckStore
from store.text_filter import Phrase
from tests.examples import examples

START = datetime(2026, 2, 27)
RARE = {
    700: "NVRM: GPU at PCI:0000:53:00: GPU-803dba6f has Fallen off the bus.",
    1500: "mlx5_core 0000:53:00.0 enp83s0f0np0: Link down",
    2100: "error: Überhitzung, K\u0130\u017fte \u212aelvin",
    2601: "JobId=428042 slain by user99",
}


def lines(texts: list[str]) -> list[dict[str, object]]:
    """Syslog lines of a few hosts; every seventh has a message that is not its tail."""
    return [{"time": START + timedelta(seconds=n), "host": f"gx{n % 7}", "raw": f"Feb 27 host{n % 7} prog[{n}]: {text}",
             "message": f"seen {text}" if n % 7 == 3 else text, "format": "rfc3164", "source": "kernel", "file": "f", "line": n,
             "event": "other"} for n, text in enumerate(texts)]  # fmt: skip


@pytest.fixture(scope="module")
def store() -> DuckStore:
    """3,000 lines in two closed segments, and 300 that are in none yet."""
    rng = random.Random(5)
    words = [
        "sched",
        "done",
        "backfill",
        "usec",
        "power",
        "sample",
        "restored",
        "connection",
        "launch",
        "task",
        "batch",
        "epilog",
        "trap",
    ]
    texts = [RARE.get(n) or f"{rng.choice(words)} {rng.choice(words)} id{rng.randrange(10**6)}" for n in range(3300)]
    made = open_store(None)
    for low, high in ((0, 1600), (1600, 3000)):
        made.add({"logs": frame("logs", lines(texts)[low:high])})
        segments.seal(made, least=1)
    made.add({"logs": frame("logs", lines([*texts[3000:], "this one has fallen off too"])[-301:])})
    return made


def both(store: DuckStore, query: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Result, Result]:
    """The answer with the filters, and without them."""
    with_filters = store.run_kql(Query(query))
    with monkeypatch.context() as patch:
        patch.setattr(Pruner, "blocks", lambda self, table, need, period: None)
        return with_filters, store.run_kql(Query(f"{query}\n// unfiltered"))  # another text: statements are kept by it


CONDITIONS = [
    ('Logs | where Message has "fallen off the bus"', 1),
    ('Logs | where Message has_cs "Fallen"', 1),
    ('Logs | where Message contains "allen off t"', 2),
    ('Logs | where Message contains_cs "Fallen off"', 1),
    ('Logs | where Message has "fallen"', 2),
    ('Logs | where Message hasprefix "falle"', 2),
    ('Logs | where Message hassuffix "elvin"', 1),
    ('Logs | where Message startswith "nvrm: GPU"', 1),
    ('Logs | where Message endswith "THE BUS."', 1),
    ('Logs | where Message == "JobId=428042 slain by user99"', 1),
    ('Logs | where Message =~ "jobid=428042 SLAIN by user99"', 1),
    ('Logs | where Message in ("JobId=428042 slain by user99", "nothing like it")', 1),
    ('Logs | where Message in~ ("jobid=428042 slain by user99")', 1),
    ('Logs | where Message contains "JobId=4280"', 1),
    ('Logs | where Message has_any ("slain", "fallen")', 3),
    ('Logs | where Message has_any (dynamic(["slain", "fallen"]))', 3),
    ('Logs | where Message has_all ("gpu", "fallen")', 1),
    (r'Logs | where Message matches regex @"GPU-\w+ has (Fallen|risen) off"', 1),
    (r'Logs | where Message matches regex @"(?i)fallen|slain"', 3),
    ('Logs | where Message contains "kiste kelvin"', None),
    ('Logs | where Message has "überhitzung"', 1),
    ('Logs | where Message has "slain" or Message has "fallen"', 3),
    ('Logs | where Message has "slain" and Message has "fallen"', 0),
    ('Logs | where Message !has "id" and Message has "link"', 1),
    ('Logs | where not(Message has "id")', None),
    ('Logs | where Message has "link" or Host == "gx1"', None),
    ('Logs | where Host != "" | extend A = 1 | project Message, A | where Message has "slain"', 1),
    ('let w = "slain"; Logs | where Message has w', 1),
    ('let found = Logs | where Message has "slain"; found | join kind=inner (Logs | where Message has "by") on Line | count', None),
    ('Syslog | where SyslogMessage has "slain" | project Computer', 1),
    ('dmesg_raw_CL | where RawData contains "prog[2601]: JobId"', 1),
    ('union (Logs | where Message has "slain"), (Logs | where Message has "fallen") | project Message', 3),
    ('let w = "slain"; Logs | extend w = "id" | where Message contains w | count', None),
    ('let Host = "slain"; Logs | where Message !has Host or Message contains Host | count', None),
    ('let Source = "slain"; Logs | where Message has Source', 0),
    ('Logs | where Message has "never there"', 0),
    ('Logs | where Message has ""', 3301),
    ('Logs | where Message has "link down"', 1),
    ('Logs | where Message has_cs "Link down"', 1),
    ('Logs | where Message has_cs "link down"', 0),
    ('Logs | where Message contains_cs "ink dow"', 1),
    ('Logs | where Message contains "9 Slain B"', None),
    (r'Logs | where Message matches regex @"ink d\w+n$"', 1),
    (r'Logs | where Message matches regex @"(?i)LINK DOW"', 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "count"),
    [pytest.param(*case, marks=pytest.mark.long if n % 2 else ()) for n, case in enumerate(CONDITIONS)],
)
def test_the_answer_is_that_of_the_scan(
    query: str, count: int | None, store: DuckStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned, scanned = both(store, query, monkeypatch)
    assert sorted(map(str, pruned.rows)) == sorted(map(str, scanned.rows))
    assert count is None or len(pruned.rows) == count


@pytest.mark.parametrize(("query", "count"), [c for c in CONDITIONS if c[1] in (0, 1)][:20])
def test_few_blocks_are_read_for_a_rare_text(query: str, count: int, store: DuckStore) -> None:
    found = store.run_kql(Query(query)).pruned
    assert found and found[0].used and found[0].blocks_left <= 5 and found[0].blocks == 13


def test_adjacent_words_are_told_from_words_that_are_only_both_there() -> None:
    """Every block has the words, with and without capitals; in one of them they follow each other, written so."""
    texts = [f"LINK is up: down 3 Link {n}, XID errors of the NVRM: none; link down-projection" for n in range(2000)]
    texts[700] = "eth0: Link down"
    texts[1500] = "NVRM: Xid (PCI:0000:53:00): 79"
    with open_store(None) as made:
        made.add({"logs": frame("logs", lines(texts))})
        segments.seal(made, least=1)
        for condition in (
            'has_cs "Link down"', 'contains_cs ": Link down"', 'endswith_cs ": Link down"', 'in ("eth0: Link down")', 'has "nvrm xid"',
            'contains "vrm: Xid"', 'has_all ("nvrm: xid", "PCI")', r'matches regex @"NVRM: Xid \([^)]*\): \d+"', 'startswith "NVRM: Xid"',
        ):  # fmt: skip
            found = made.run_kql(Query(f"Logs | where Message {condition} | project Line"))
            wanted = 0 if condition == 'has "nvrm xid"' else 1
            assert len(found.rows) == wanted, condition
            assert found.pruned[0].blocks == 8 and found.pruned[0].blocks_left == 1, condition
        found = made.run_kql(Query('Logs | where Message has "link down" | count'))
        assert found.rows == [[2000 - 1]] and found.pruned[0].blocks_left == 8


@pytest.mark.parametrize(
    "change", ["UPDATE raw.log_segments SET pairs = NULL", "ALTER TABLE raw.log_segments DROP COLUMN pairs"]
)
def test_filters_of_earlier_versions_are_not_asked_for_pairs_of_words(change: str) -> None:
    """A filter over the same words, of which no two are adjacent, is one without pairs."""
    texts = [f"noise {n}" for n in range(1000)] + ["NVRM: Xid 79"]
    with open_store(None) as made:
        for apart in (False, True):
            shown = [text.replace(" ", " 0 ") if apart else text for text in texts]
            made.add(
                {"logs": frame("logs", [{"raw": text, "message": text, "line": n} for n, text in enumerate(shown)])}
            )
            segments.seal(made, least=1)
        with made.transaction() as connection:
            connection.execute("""UPDATE raw.log_segments SET filter = o.filter, filter_rows = o.filter_rows, always = o.always
                FROM raw.log_segments o WHERE o.first_block > 1 AND log_segments.first_block = 1""")
            connection.execute(change)
        found = made.run_kql(Query('Logs | where Message has_cs "NVRM: Xid" | count'))
        assert found.pruned[0].blocks_left < found.pruned[0].blocks and found.rows == [[1]]


KEPT_WHOLE = [
    'Logs | take 10 | where Message has "slain"',
    'Logs | extend Message = Host | where Message has "slain"',
    'Logs | serialize | extend Before = prev(Message) | where Message has "slain"',
    'Logs | serialize N = row_number() | where Message has "slain"',
    'Logs | summarize arg_max(Time, Message) by Host | where Message has "slain"',
    'Logs | as T | where Message has "slain" | union T | count',
    'let Logs = datatable(Message:string)["slain"]; Logs | where Message has "slain"',
    'Logs | where Message has "a" or true',
]


@pytest.mark.parametrize("query", KEPT_WHOLE)
def test_nothing_is_taken_away_where_other_rows_count(query: str, store: DuckStore) -> None:
    assert store.run_kql(Query(query)).pruned == ()


def test_a_store_without_segments_is_just_read() -> None:
    with open_store(None) as fresh:
        fresh.add({"logs": frame("logs", lines(["slain"]))})
        result = fresh.run_kql(Query('Logs | where Message has "slain" | count'))
        assert result.rows == [[1]] and [(p.blocks, p.used, p.loose) for p in result.pruned] == [(0, False, 1)]


def test_fresh_lines_are_read_beside_none_and_some_closed_ones() -> None:
    with open_store(None) as fresh:
        fresh.add({"logs": frame("logs", lines([f"noise {n}" for n in range(2000)] + ["slain"]))})
        segments.seal(fresh, least=1)
        result = fresh.run_kql(Query('Logs | where Message has "slain" | count'))
        assert result.rows == [[1]] and "UNION ALL" not in result.sql
        fresh.add({"logs": frame("logs", lines(["slain again"]))})
        result = fresh.run_kql(Query('Logs | where Message has "slain" | count'))
        assert result.rows == [[2]] and "UNION ALL" in result.sql


def test_a_query_inside_a_transaction_sees_its_lines(store: DuckStore) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction() as connection:
        connection.execute("UPDATE raw.logs SET host = 'here' WHERE line = 2601")
        assert run(connection, 'Logs | where Message has "slain" | project Host').rows == [["here"]]
        assert run(connection, 'Logs | where Message has "slain" | project Host').rows == [["here"]]
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("pattern", "need"),
    [
        ("abc", All((Phrase("abc", exact=True),))),
        ("abc?d", All((Phrase("ab", exact=True), Phrase("d", exact=True)))),
        (
            "a(bc|de)f",
            All(
                (
                    Phrase("a", exact=True),
                    All((Some((All((Phrase("bc", exact=True),)), All((Phrase("de", exact=True),)))),)),
                    Phrase("f", exact=True),
                )
            ),
        ),
        ("a|", None),
        (r"\d+", None),
        ("(ab){2}", All((All((All((Phrase("ab", exact=True),)),)),))),
        ("(ab)*", None),
        ("[[:alpha:]]foo", None),
        (r"\pLfoo", None),
        ("(", None),
        ("(?i)abc", All((Phrase("abc"),))),
        ("a(?s-i:bc)", All((Phrase("a"), All((Phrase("bc"),))))),
    ],
)
def test_what_every_match_of_a_regex_holds(pattern: str, need: object) -> None:
    assert regex_need(pattern) == need


PIECES = st.sampled_from(["fallen", "off", " ", ".", "_", "K", "\u212a", "ſ", "İ", "é", "日本", "0x1f", "42", "gpu", "GPU", "-", "a" * 45])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=8).map("".join)
OPERATORS = [
    "has",
    "!has",
    "has_cs",
    "contains",
    "contains_cs",
    "startswith",
    "endswith",
    "hasprefix",
    "hassuffix",
    "==",
    "=~",
]


@settings(max_examples=examples(5), deadline=None)
@given(
    st.lists(st.lists(TEXTS, min_size=1, max_size=5), min_size=1, max_size=3),
    st.lists(TEXTS, max_size=3),
    st.lists(st.tuples(st.sampled_from(OPERATORS), TEXTS), min_size=1, max_size=4),
    st.booleans(),
)
def test_random_lines_and_random_conditions(
    closed: list[list[str]], fresh: list[str], conditions: list[tuple[str, str]], either: bool
) -> None:
    """Several closed segments, lines outside them, every operator, letters with special case folding."""
    with open_store(None) as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr("queries.kql.textindex.WORTH_IT", 1.0)
        for texts in closed:
            made.add({"logs": frame("logs", lines(texts))})
            segments.seal(made, least=1)
        made.add({"logs": frame("logs", lines(fresh))})
        joined = (" or " if either else " and ").join(f"Message {op} @'{text}'" for op, text in conditions)
        query = f"Logs | where {joined} | project Message"
        pruned, scanned = both(made, query, patch)
        assert sorted(map(str, pruned.rows)) == sorted(map(str, scanned.rows))


@pytest.mark.long
def test_no_line_is_missed_or_reported_twice_while_segments_close() -> None:
    """A query sees lines before or after they were moved into a segment, whatever runs concurrently."""
    with open_store(None) as made:
        stored, failed = [0], []
        done = threading.Event()

        def write() -> None:
            try:
                for _ in range(25):
                    made.add({"logs": frame("logs", lines([f"needle {n} in hay" for n in range(8)]))})
                    stored[0] += 8
                    segments.seal(made, least=1)
            except Exception as error:
                failed.append(error)
            finally:
                done.set()

        writer = threading.Thread(target=write)
        writer.start()
        cursor, seen = made.cursor(), 0
        while not done.is_set():
            least = stored[0]
            ((count,),) = run(cursor, 'Logs | where Message has "needle" | count').rows
            assert max(least, seen) <= count <= stored[0] + 8
            seen = count
        writer.join()
        assert not failed
        assert run(cursor, 'Logs | where Message has "needle" | count').rows == [[200]]


def test_statements_are_kept_while_the_segments_are_the_same() -> None:
    query = 'Logs | where Message has "kept" | project Message'
    with open_store(None) as made:
        for count in range(1, 4):
            texts = [
                f"{n} is kept" if n in (0, 7, 14) else f"{n} is not" for n in range(1400)
            ]  # of one host: in one block
            made.add({"logs": frame("logs", lines(texts))})
            if count != 2:  # the second ones are in no segment until the third are closed
                segments.seal(made, least=1)
            for _ in range(2):
                found = made.run_kql(Query(query))
                assert len(found.rows) == 3 * count
                assert [one.loose for one in found.pruned] == [1400 if count == 2 else 0]
                assert all(one.used for one in found.pruned)
