"""Closed segments: nothing lost, everything in order, and filters that never miss a line."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.record import frame
from store import line_order, open_store
from store.duckdb import segments
from store.duckdb.arrow import as_arrow
from store.duckdb.store import DuckStore
from store.filter_terms import LONG_WORD, SHORTEST
from store.line_frames import coded, logs_for_storage, plain
from store.text_filter import (
    BLOCK_ROWS,
    FOLDS_TO_ASCII,
    MOST_WORDS,
    SEGMENT_BLOCKS,
    FilterBuilder,
    Phrase,
    Test,
    TextFilter,
    term,
)
from tests.examples import examples

START = datetime(2026, 2, 27)


def lines(count: int, seed: int = 1) -> pl.DataFrame:
    """Lines of 20 hosts over three hours, in no order."""
    rng = random.Random(seed)
    return frame("logs", [{"time": START + timedelta(seconds=rng.randrange(10800)) if n % 100 else None,
                           "host": f"gx{rng.randrange(20):02d}" if n % 50 else None, "raw": f"line {n} of id{n * 7919 % 9973}",
                           "message": None if n % 3 else f"of id{n * 7919 % 9973}", "file": "f", "line": n, "event": "other" if n % 70 else "gpu.xid"}
                          for n in range(count)])  # fmt: skip


def content(store: DuckStore) -> list[dict[str, Any]]:
    return store.rows("SELECT time, host, raw, message, line FROM raw.log_view ORDER BY line")


def test_sealing_keeps_every_line_once_and_in_order() -> None:
    with open_store(None) as store:
        store.add({"logs": lines(3000)})
        before = content(store)
        assert segments.seal(store, least=5000) == segments.Sealed()
        assert segments.unsealed(store) == 3000
        assert segments.seal(store, least=1000) == segments.Sealed(3000, 1)
        assert content(store) == before and segments.unsealed(store) == 0
        stored = store.rows("""SELECT coalesce(event, 'other') = 'other' AS plain, date_trunc('hour', coalesce(time, TIMESTAMP '2026-02-27')) AS hour,
            coalesce(host, '') AS host, coalesce(time, TIMESTAMP '2026-02-27') AS time, block FROM raw.logs""")
        keys = [(r["plain"], r["hour"], r["host"], r["time"]) for r in stored]
        assert keys == sorted(keys) and sum(not r["plain"] for r in stored) == 43
        assert [r["block"] for r in stored] == [1 + n // BLOCK_ROWS for n in range(3000)]


def test_coded_lines_are_stored_as_they_are_and_columns_of_nulls_as_nulls() -> None:
    first = lines(700).with_columns(source=pl.lit("kernel"), unit=pl.lit(None, pl.String), host=pl.lit(None, pl.String))
    second = lines(500, 2).with_columns(
        pl.col("line") + 700, source=pl.Series([None, "sshd", "näme"] * 166 + ["", "x"])
    )
    silent = lines(300, 3).with_columns(
        pl.col("line") + 1200, host=pl.lit(None, pl.String), event=pl.lit(None, pl.String)
    )
    with open_store(None) as store:
        for parts in ((first, second), (silent,)):
            stored = pl.concat([coded(logs_for_storage(part)) for part in parts])
            with store.transaction() as connection:
                segments.insert_sealed(connection, line_order.in_order(stored))
        reported = store.frame("SELECT * EXCLUDE (block, message) FROM raw.logs ORDER BY line")
        wanted = pl.concat([logs_for_storage(part) for part in (first, second, silent)]).sort("line").drop("message")
        assert reported.rows() == wanted.select(reported.columns).rows()


@pytest.mark.parametrize("spread", [60, 10_800, 400_000_000])  # seconds; the last leaves no room for one key
@pytest.mark.parametrize("count", [1, 900, 3 * BLOCK_ROWS + 5])
def test_lines_lie_by_hour_host_and_time_with_events_before_others(
    spread: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_order, "SEGMENT_ROWS", BLOCK_ROWS * 3)
    rng = random.Random(spread + count)
    shift = pl.Series(
        [timedelta(seconds=rng.randrange(-spread, spread), microseconds=rng.randrange(3)) for _ in range(count)]
    )
    given = coded(lines(count).with_columns(pl.col("time") + shift))
    oldest = given["time"].min() or START

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        time = row["time"] or oldest
        return time.replace(minute=0, second=0, microsecond=0), row["host"] or "", time, row["line"]

    expected = sorted(given.iter_rows(named=True), key=place)
    for at in range(0, count, line_order.SEGMENT_ROWS):
        one = slice(at, at + line_order.SEGMENT_ROWS)
        expected[one] = sorted(expected[one], key=lambda row: row["event"] == "other")
    found = line_order.in_order(given)
    assert found.rows(named=True) == expected and found.schema == given.schema


@pytest.mark.parametrize("segment_rows", [BLOCK_ROWS, 4 * BLOCK_ROWS])
def test_the_events_of_a_segment_lie_by_kind(segment_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for one of them reads a few places, not one in each host's lines. Lines that are none come last."""
    monkeypatch.setattr(line_order, "SEGMENT_ROWS", segment_rows)
    kinds = ["zfs.error", "gpu.xid", None, "other", "pcie.aer", "nic.link_down"]
    made = lines(3 * BLOCK_ROWS).with_columns(event=pl.Series(kinds * (BLOCK_ROWS // 2), dtype=pl.String))
    for stored in (made, coded(made)):
        found = line_order.in_order(stored).with_columns(pl.col("event", "host").cast(pl.String))
        for at in range(0, len(found), segment_rows):
            rows = found.slice(at, segment_rows).select("event", "host", "time").rows()
            kept = [row for row in rows if row[0] not in (None, "other")]
            assert rows[: len(kept)] == kept and [row[0] for row in kept] == sorted(row[0] for row in kept)
            keys = [(row[0], (row[2] or START).replace(minute=0, second=0), row[1] or "") for row in kept]
            assert keys == sorted(keys) and 0 < len(kept) < len(rows)


@pytest.mark.parametrize("segment_rows", [4 * BLOCK_ROWS, 12 * BLOCK_ROWS])
def test_lines_that_report_trouble_lie_together_by_program(segment_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for an error that is no event reads a few places, too: events, errors of a program, then the other lines."""
    monkeypatch.setattr(line_order, "SEGMENT_ROWS", segment_rows)
    count = 8 * BLOCK_ROWS
    severities = ["info", "error", None, "debug", "warning", "notice"]
    made = lines(count).with_columns(
        event=pl.Series([("gpu.xid", None, "other")[min(n % 32, 2)] for n in range(count)], dtype=pl.String),
        severity=pl.Series([severities[n // 32 % 6] if n % 32 < 2 else "info" for n in range(count)], dtype=pl.String),
        unit=pl.Series([("slurmd", "sshd", None)[n % 3] for n in range(count)], dtype=pl.String),
    )

    def kind(row: dict[str, Any]) -> tuple[int, str]:
        if row["event"] == "gpu.xid":
            return 0, ""
        return (1, row["unit"] or "") if row["severity"] in ("error", "warning") else (2, "")

    for stored in (made, coded(made)):
        found = plain(line_order.in_order(stored))
        for at in range(0, count, segment_rows):
            rows = list(found.slice(at, segment_rows).iter_rows(named=True))
            kinds = [kind(row) for row in rows]
            assert kinds == sorted(kinds) and {first for first, _ in kinds} == {0, 1, 2}
            keys = [(*kind(row), (row["time"] or START).replace(minute=0, second=0), row["host"] or "") for row in rows]
            assert keys == sorted(keys)
        assert found.sort("line").rows() == plain(stored).sort("line").rows()


def test_where_most_lines_report_trouble_they_stay_with_their_hosts() -> None:
    made = lines(4 * BLOCK_ROWS).with_columns(
        event=pl.lit("other"), severity=pl.Series(["error", "info"] * (2 * BLOCK_ROWS), dtype=pl.String)
    )
    calm = made.with_columns(severity=pl.lit("info"))
    assert line_order.in_order(made)["line"].equals(line_order.in_order(calm)["line"])


@pytest.mark.parametrize("others", [0, 50])
def test_dictionaries_go_to_the_store_as_the_texts_that_they_are(others: int) -> None:
    coded(pl.DataFrame({"unit": [f"other{n}" for n in range(others)]}, schema={"unit": pl.String}))
    data = coded(pl.DataFrame({"unit": ["sshd", None, "crond", "sshd", "", "näme"] * 5, "line": range(30)}))
    assert as_arrow(data).to_pydict() == data.to_dict(as_series=False)
    assert len(as_arrow(data)["unit"].chunk(0).dictionary) <= len(data)


def test_later_segments_get_later_blocks_and_fresh_lines_none() -> None:
    with open_store(None) as store:
        for seed in (1, 2):
            store.add({"logs": lines(600, seed)})
            segments.seal(store, least=1)
        store.add({"logs": lines(5, 3)})
        blocks = store.rows("SELECT block, count(*) AS n FROM raw.logs GROUP BY block ORDER BY block")
        assert [(r["block"], r["n"]) for r in blocks] == [
            (0, 5),
            (1, 256),
            (2, 256),
            (3, 88),
            (4, 256),
            (5, 256),
            (6, 88),
        ]
        spans = store.rows("SELECT first_block, last_block, lines FROM raw.log_segments ORDER BY first_block")
        assert spans == [{"first_block": 1, "last_block": 3, "lines": 600}, {"first_block": 4, "last_block": 6, "lines": 600}]  # fmt: skip


def test_a_failure_while_sealing_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(None) as store:
        store.add({"logs": lines(600)})
        before = content(store)
        monkeypatch.setattr(TextFilter, "to_bytes", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            segments.seal(store, least=1)
        assert content(store) == before and segments.unsealed(store) == 600


def test_segments_without_lines_are_forgotten() -> None:
    with open_store(None) as store:
        store.add({"logs": lines(600)})
        segments.seal(store, least=1)
        with store.transaction() as connection:
            connection.execute("DELETE FROM raw.logs WHERE block = 1")
            segments.forget_empty(connection)
        assert len(store.rows("SELECT * FROM raw.log_segments")) == 1
        with store.transaction() as connection:
            connection.execute("DELETE FROM raw.logs")
            segments.forget_empty(connection)
        assert store.rows("SELECT * FROM raw.log_segments") == []


def built(texts: list[str]) -> tuple[TextFilter, list[str]]:
    """One text a block."""
    data = [t.encode() + b"\n" for t in texts]
    builder = FilterBuilder()
    builder.add(0, np.cumsum([len(d) for d in data]), b"".join(data))
    return builder.build(len(texts)), sorted(builder.words)


def completions(test: Test, words: list[str]) -> list[str] | None:
    """The words that a partial word may be part of, from the engine; None if there are too many."""
    found = [
        word
        for word in words
        if (word.startswith(test.half) if test.left else word.endswith(test.half) if test.right else test.half in word)
    ]
    return found if len(found) <= MOST_WORDS else None


def candidates(phrase: Phrase, texts: list[str]) -> list[int]:
    """The blocks that may contain the phrase."""
    made, words = built(texts)
    left = np.ones(len(texts), bool)
    for test in phrase.tests():
        if test.term is not None:
            left &= made.having(test.term)
        elif (found := completions(test, words)) is not None:
            left &= np.any([made.having(LONG_WORD), *(made.having(term(w)) for w in found)], axis=0)
    for pair in phrase.pairs():
        one, other = pair.first.lower(), pair.second.lower()
        if min([SHORTEST, *([] if pair.begins else [len(one)]), *([] if pair.ends else [len(other)])]) < SHORTEST:
            continue
        firsts = [one] if pair.begins else completions(Test(half=one, right=True), words)
        seconds = [other] if pair.ends else completions(Test(half=other, left=True), words)
        if firsts is not None and seconds is not None:
            left &= np.any([made.having(*terms) for terms in pair.terms(firsts, seconds)], axis=0)
    return [int(n) for n in np.flatnonzero(left | made.always)]


NOISE = [f"sched: allocated job {n}{n * 31} on rack{n} code 0x{n * 2654435761 % 2**32:08x}" for n in range(200)]


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        (Phrase("fallen off the bus"), "GPU has Fallen off the bus."),
        (Phrase("allen off the bu"), "GPU has fallen off the bus."),
        (Phrase("FALLEN OFF"), "it has fallen off"),
        (Phrase("link"), "mlx5link0down"),
        (Phrase("lx5_core"), "driver mlx5_core loaded"),
        (Phrase("JobId=4280"), "complete JobId=428042 ok"),
        (Phrase("JobId=428042", True, True), "complete JobId=428042 ok"),
        (Phrase("übertemp war"), "Warnung: Übertemp Warn"),
        (Phrase("0000:53:00.0: aer"), "pcieport 0000:53:00.0: AER err"),
        (Phrase("Ausgänge", True, True), "alle Ausgänge aus"),
        (Phrase("g" * 50), "x" + "g" * 60),
        (Phrase("Job allocated", exact=True), "sched: Job allocated to rack"),
        (Phrase("job allocated"), "sched: Job allocated to rack"),
        (Phrase("Job alloc", exact=True), "sched: Job allocated to rack"),
        (Phrase("ned: " + "h" * 50), "sched: fined: " + "H" * 60),
        (Phrase("g" * 44 + " OFF", True, True, True), "sched " + "g" * 44 + " OFF"),
    ],
)
def test_a_filter_finds_what_is_there_and_skips_the_rest(phrase: Phrase, text: str) -> None:
    found = candidates(phrase, [*NOISE, text])
    assert 200 in found
    assert len(found) < 20


@pytest.mark.parametrize("letter", FOLDS_TO_ASCII)
def test_letters_that_fold_to_ascii_always_pass(letter: str) -> None:
    assert 0 in candidates(Phrase("disk off"), [f"d{letter}sk off", "other"])


def test_no_other_character_folds_to_ascii() -> None:
    """The engine's `lower`, and the matches of its (?i), over all of Unicode."""
    found = duckdb.sql("""SELECT c FROM (SELECT chr(range::INTEGER) AS c FROM range(128, 1114112) WHERE range NOT BETWEEN 55296 AND 57343)
        WHERE regexp_matches(lower(c), '[a-z0-9]') OR regexp_matches(c, '(?i)[a-z0-9]')""").fetchall()
    assert sorted(c for (c,) in found) == sorted(FOLDS_TO_ASCII)


ALPHABET = st.sampled_from(
    [*"abfxkisAKS019", " ", ".", "_", "-", "é", "ſ", "K", "İ", "日", "\x00", "gpu", "link", " Link ", " is"]
)
TEXTS = st.lists(ALPHABET, max_size=14).map("".join)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=6), TEXTS, st.booleans(), st.booleans(), st.booleans(), st.data())
def test_a_filter_never_misses(
    texts: list[str], needle: str, left: bool, right: bool, exact: bool, data: st.DataObject
) -> None:
    whole = data.draw(st.sampled_from(texts))
    if data.draw(st.booleans()) and whole:
        low = data.draw(st.integers(0, len(whole)))
        needle = whole[low : data.draw(st.integers(low, len(whole)))]
    edge = r"(?:^|[^\p{L}\p{N}])", r"(?:$|[^\p{L}\p{N}])"
    pattern = (edge[0] if left else "") + r"\Q" + needle.lower().replace("\\", "") + r"\E" + (edge[1] if right else "")
    if "\\E" in needle or "\x00" in needle:
        return
    matches = duckdb.execute(
        "SELECT contains(lower(t), lower($2)) AND regexp_matches(lower(t), $3) FROM (SELECT unnest($1::VARCHAR[]) AS t)",
        [texts, needle, pattern],
    ).fetchall()
    found = candidates(Phrase(needle, left, right, exact), texts)
    assert {n for n, (hit,) in enumerate(matches) if hit and (not exact or needle in texts[n])} <= set(found)


def test_a_segment_is_whole_blocks() -> None:
    assert line_order.SEGMENT_ROWS == BLOCK_ROWS * SEGMENT_BLOCKS


def without_filters(store: DuckStore) -> None:
    """Gives all segments the filter that lets every block pass, as earlier versions did under load."""
    with store.transaction() as connection:
        for first, last in connection.execute("SELECT first_block, last_block FROM raw.log_segments").fetchall():
            blocks = last - first + 1
            everything = np.full((blocks + 7) // 8, 255, np.uint8).tobytes()
            connection.execute(
                "UPDATE raw.log_segments SET segment = uuid(), filter_rows = 1, filter = $1, always = $1, words_known = false WHERE first_block = $2",
                [everything, first],
            )  # fmt: skip
        connection.execute("DELETE FROM raw.log_words")


def test_filters_made_later_are_those_made_at_once() -> None:
    def content_of(store: DuckStore) -> list[dict[str, Any]]:
        return store.rows(
            "SELECT first_block, last_block, filter_rows, filter, always, words_known FROM raw.log_segments"
        )

    with open_store(None) as store:
        with store.transaction() as connection:
            segments.insert_sealed(connection, line_order.in_order(logs_for_storage(lines(3000))))
        at_once, words = content_of(store), store.rows("SELECT word FROM raw.log_words ORDER BY word")
        without_filters(store)
        (before,) = store.rows("SELECT segment::VARCHAR AS name FROM raw.log_segments")
        assert (segments.add_filters(store), segments.add_filters(store)) == (1, 0)
        assert content_of(store) == at_once and store.rows("SELECT word FROM raw.log_words ORDER BY word") == words
        assert store.rows("SELECT segment::VARCHAR AS name FROM raw.log_segments") != [before]


def test_filters_made_later_know_which_lines_are_gone() -> None:
    with open_store(None) as store:
        with store.transaction() as connection:
            segments.insert_sealed(connection, line_order.in_order(logs_for_storage(lines(1000))))
            connection.execute("DELETE FROM raw.logs WHERE block IN (1, 4) OR line % 3 = 0")
        without_filters(store)
        assert segments.add_filters(store) == 1
        (row,) = store.rows("SELECT filter_rows, filter, always FROM raw.log_segments")
        made = TextFilter(np.frombuffer(row["filter"], np.uint8).reshape(row["filter_rows"], -1), 4, np.zeros(4, bool))
        assert made.having(term("line")).tolist() == [False, True, True, False]
