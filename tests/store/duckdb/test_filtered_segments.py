"""Segments get their text filter when they are written: no answer differs from that of a full scan, also after a kill."""

from __future__ import annotations

import os
import random
import signal
import string
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from parsers.record import frame
from queries import kql
from store.duckdb import segments
from store.duckdb.store import DuckStore
from store.filter_terms import LONG_WORD, LONGEST_WORD
from store.line_frames import logs_for_storage
from store.line_order import in_order
from store.text_filter import FilterBuilder, TextFilter, term

ROOT = Path(__file__).resolve().parents[3]


def ordered(texts: list[str], first: int = 0) -> pl.DataFrame:
    """Lines in the order of segments; every third has a message beside its raw line."""
    return in_order(logs_for_storage(frame("logs", [
        {"host": f"gx{n % 5}", "raw": f"kernel: {text}", "message": f"apart {text}" if n % 3 == 0 else text, "file": "f", "line": first + n}
        for n, text in enumerate(texts)
    ])))  # fmt: skip


def test_a_step_of_input_leaves_no_segment_without_a_filter() -> None:
    with DuckStore(None) as store:
        sealed = [ordered([f"word{n} and more" for n in range(at, at + 600)], at) for at in (0, 600)]
        store.append({"logs": frame("logs", [{"raw": "loose", "message": "loose"}] * 7)}, sealed=sealed)
        assert store.rows(f"SELECT * FROM raw.log_segments WHERE {segments.OPEN}") == []
        assert store.info()["unfiltered"] == 7
        found = kql.run(store.cursor(), 'Logs | where Message has "word599" | project Line')
        assert found.rows == [[599]] and found.pruned[0].blocks_left < found.pruned[0].blocks == 6
        assert "lines that every text search reads: 7 not yet in a segment" in str(found.pruned[0])
        plan = kql.explain('Logs | where Message has "word599"', con=store.cursor())
        assert plan.startswith("segments: Logs: ") and "7 not yet in a segment" in plan.split("\n")[0]


def test_lines_that_no_filter_covers_are_counted_and_searched() -> None:
    with DuckStore(None) as store:
        store.add({"logs": frame("logs", [{"raw": "a needle", "message": "a needle"}] * 3)})
        found = kql.run(store.cursor(), 'Logs | where Message has "needle" | count')
        assert found.rows == [[3]] and "3 not yet in a segment" in str(found.pruned[0])
        with store.transaction() as connection:
            segments.insert_sealed(connection, ordered(["a needle"] * 300))
            connection.execute("UPDATE raw.log_segments SET filter_rows = 1, filter = '\\xFF', always = '\\xFF'")
        assert store.info()["unfiltered"] == 303
        found = kql.run(store.cursor(), 'Logs | where Message has "needle" | count')
        assert found.rows == [[303]] and "300 in segments without a filter" in str(found.pruned[0])
        store.add_filters()
        assert store.info()["unfiltered"] == 3


def has_all(made: TextFilter, texts: list[list[str]]) -> bool:
    """Whether each block passes for every term that it has."""
    return all(made.having(term(word))[block] for block, words in enumerate(texts) for word in words)


def test_blocks_of_many_terms_and_tokens_of_many_words_lose_none() -> None:
    """More terms than the tables begin with: they grow in the middle of a block."""
    rng = random.Random(3)
    words = [["".join(rng.choices(string.ascii_lowercase[6:], k=rng.randrange(3, 15))) for _ in range(9000)] for _ in range(3)]  # fmt: skip
    words[1] = words[1][:50]
    words[2].append("z" * (LONGEST_WORD + 1))
    joined = [" ".join(words[0]), "7".join(words[1]), "\n".join(words[2])]
    data = "".join(joined).encode()
    builder = FilterBuilder()
    builder.add_texts(data, np.cumsum([len(text) for text in joined]), np.arange(3))
    made = builder.build(3)
    assert has_all(made, words)
    assert made.having(LONG_WORD).tolist() == [False, False, True]
    assert builder.words == {word for part in words for word in part if len(word) <= LONGEST_WORD}
    absent = ["".join(rng.choices("ghijk", k=20)) for _ in range(200)]
    assert np.mean([made.having(term(word)) for word in absent]) < 0.1


def test_a_text_ends_a_term_where_nothing_stands_between_it_and_the_next() -> None:
    builder = FilterBuilder()
    builder.add_texts(b"falling starboard 12x", np.array([4, 12, 17, 21]), np.array([0, 0, 1, 1]))
    made = builder.build(2)
    assert builder.words == {"fall", "ing", "star", "board"}
    assert made.having(term("fall")).tolist() == [True, False] and made.having(term("board")).tolist() == [False, True]
    assert not made.having(term("falling")).any() and not made.having(term("starboard")).any()


KILLED = """
import os, signal, sys
from pathlib import Path
from store import open_store
from store.duckdb import segments
from store.duckdb.store import DuckStore
from tests.store.duckdb.test_filtered_segments import ordered
where, when = sys.argv[2], int(sys.argv[3])
owner = DuckStore if hasattr(DuckStore, where) else segments
real, calls = getattr(owner, where), []
def killing(*args, **more):
    calls.append(1)
    if len(calls) == when:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **more)
with open_store(Path(sys.argv[1])) as store:
    setattr(owner, where, killing)
    for step in range(4):
        store.append({}, sealed=[ordered([f"word{n} at id{n * 31}" for n in range(at, at + 300)], at) for at in (600 * step, 600 * step + 300)])
"""  # fmt: skip


def answers(store: DuckStore) -> int:
    """How many of the words have a line; each question has the answer of a scan."""
    found = [
        kql.run(store.cursor(), f'Logs | where Message has "word{n}" | project Line').rows for n in range(0, 2400, 97)
    ]
    lines = {row["line"] for row in store.rows("SELECT line FROM raw.logs")}
    assert found == [[[n]] if n in lines else [] for n in range(0, 2400, 97)]
    return len(lines)


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "when", "stored"),
    [
        ("learn", 4, 600),
        *(
            pytest.param(*at, marks=pytest.mark.long)
            for at in (("filters_of", 3, 600), ("insert", 5, 600), ("learn", 7, 1800), ("_commit", 3, 1200), ("announce", 4, 1800))
        ),
    ],
)  # fmt: skip
def test_a_kill_while_a_segment_is_written_leaves_no_wrong_filter(
    tmp_path: Path, where: str, when: int, stored: int
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), where, str(when)], cwd=ROOT, env={**os.environ}
    )
    assert ended.returncode == -signal.SIGKILL
    with DuckStore(tmp_path) as store:
        assert answers(store) == stored
        assert store.info()["unfiltered"] == 0
        rows = store.rows("SELECT first_block, last_block FROM raw.log_segments ORDER BY first_block")
        blocks = {row["block"] for row in store.rows("SELECT DISTINCT block FROM raw.logs")}
        assert {n for row in rows for n in range(row["first_block"], row["last_block"] + 1)} == blocks
        store.append({}, sealed=[ordered([f"word{n}" for n in range(5000, 5300)], 5000)])
        assert kql.run(store.cursor(), 'Logs | where Message has "word5007" | project Line').rows == [[5007]]
