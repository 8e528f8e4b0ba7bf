"""Output that hooks fetched becomes lines of its run: once, after a restart as well, and later if the spool is full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from collector.job_output import LOOKS_BACK, JobOutput
from parsers.record import frame
from store import open_store
from store.duckdb.store import DuckStore

NOW = datetime.now(UTC).replace(tzinfo=None, microsecond=0)


@pytest.fixture
def store() -> Iterator[DuckStore]:
    with open_store(None) as made:
        yield made


class Kept:
    """The spool and what is stored of it."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.keys: dict[str, datetime] = {}
        self.full = False

    def keep(self, records: bytes, key: str) -> None:
        if self.full:
            raise OSError("full")
        self.records += [json.loads(record) for record in records.splitlines()]
        self.keys[key] = datetime.now(UTC).replace(tzinfo=None)

    def watch(self, store: DuckStore) -> JobOutput:
        return JobOutput(store, self.keep, lambda: self.keys)


def fetched(store: DuckStore, **reported: Any) -> None:
    row = {"cluster": "mini", "job_id": 15, "restarts": 1, "kind": "stdout", "path": "/home/a/15.out", "host": "gpu01",
           "content": "one\ntwo\n", "truncated": False, "taken_at": NOW, "file": "gpu01:/home/a/15.out", **reported}  # fmt: skip
    store.add({"artifacts": frame("artifacts", [row])}, [])


def test_lines_are_reported_as_their_batch_hosts_at_the_time_of_the_hook(store: DuckStore) -> None:
    kept = Kept()
    fetched(store)
    assert kept.watch(store).round() == 1
    (record,) = kept.records
    names = ("host", "path", "source", "job_id", "restarts", "cluster", "lines", "read")
    assert tuple(record[name] for name in names) == (
        "gpu01", "/home/a/15.out", "job_stdout", 15, 1, "mini", "one\ntwo", f"{NOW.isoformat()}.000000Z",
    )  # fmt: skip


def test_the_same_file_from_two_hooks_and_after_a_restart_is_delivered_once(store: DuckStore) -> None:
    kept = Kept()
    watch = kept.watch(store)
    fetched(store)
    fetched(store, host="ctl")
    assert (watch.round(), watch.round(), kept.watch(store).round()) == (1, 0, 0)
    fetched(store, restarts=2)
    fetched(store, kind="stderr", path="/home/a/15.err", file="gpu01:/home/a/15.err")
    assert (watch.round(), len(kept.records)) == (2, 3)


@pytest.mark.parametrize(
    "told", [{"kind": "script"}, {"content": " \n"}, {"taken_at": None}, {"taken_at": NOW - LOOKS_BACK - timedelta(minutes=1)}]
)  # fmt: skip
def test_what_is_no_output_empty_read_from_a_tree_or_long_delivered_is_not(
    store: DuckStore, told: dict[str, Any]
) -> None:
    kept = Kept()
    fetched(store, **told)
    assert kept.watch(store).round() == 0


def test_a_full_spool_is_tried_again(store: DuckStore) -> None:
    kept = Kept()
    watch = kept.watch(store)
    fetched(store)
    fetched(store, job_id=16)
    kept.full = True
    with pytest.raises(OSError, match="full"):
        watch.round()
    kept.full = False
    assert watch.round() == 2 and [record["job_id"] for record in kept.records] == [15, 16]


def test_rows_that_retention_takes_away_hide_no_new_one(store: DuckStore) -> None:
    kept = Kept()
    watch = kept.watch(store)
    for job in range(5):
        fetched(store, job_id=job)
    assert watch.round() == 5
    with store.transaction() as connection:
        connection.execute("CREATE TABLE few AS SELECT * FROM raw.artifacts WHERE job_id = 4")
        connection.execute("DELETE FROM raw.artifacts")
        connection.execute("DROP TABLE raw.artifacts")
        connection.execute("CREATE TABLE raw.artifacts AS SELECT * FROM few")
    assert watch.round() == 0  # the rest was delivered
    fetched(store, job_id=9)
    assert watch.round() == 1


def test_late_word_of_long_ago_is_news_to_a_service_that_runs(store: DuckStore) -> None:
    kept = Kept()
    watch = kept.watch(store)
    fetched(store)
    watch.round()
    fetched(store, job_id=17, taken_at=NOW - timedelta(days=3))
    assert watch.round() == 1


def begun(store: DuckStore, at: datetime, source: str = "hook", **reported: Any) -> None:
    row = {"cluster": "mini", "job_id": 15, "source": source, "start": at, "observed_at": at, **reported}
    store.add({"jobs": frame("jobs", [row])}, [])


def test_a_number_that_is_used_again_with_the_same_file_is_another_output(store: DuckStore) -> None:
    kept, later = Kept(), NOW - timedelta(hours=1)
    watch = kept.watch(store)
    begun(store, NOW - timedelta(hours=8))
    fetched(store, taken_at=NOW - timedelta(hours=7))
    fetched(store, taken_at=NOW - timedelta(hours=7) + timedelta(minutes=9), host="ctl")
    assert watch.round() == 1
    begun(store, later)
    fetched(store, taken_at=NOW - timedelta(seconds=3), content="three\n")
    fetched(store, taken_at=NOW, content="three\n", host="ctl")
    assert (watch.round(), watch.round(), kept.watch(store).round()) == (1, 0, 0)
    assert [record["lines"] for record in kept.records] == ["one\ntwo", "three"]


def test_accounting_that_comes_between_two_hooks_of_a_run_makes_no_second_output(store: DuckStore) -> None:
    kept, start = Kept(), NOW - timedelta(hours=2)
    watch = kept.watch(store)
    begun(store, start)
    fetched(store, taken_at=NOW - timedelta(minutes=5))
    assert watch.round() == 1
    begun(store, start + timedelta(seconds=2), "sacct", submit=start - timedelta(hours=1))
    begun(store, NOW - timedelta(minutes=1), "task_hook")
    fetched(store, taken_at=NOW, host="ctl")
    assert (watch.round(), kept.watch(store).round()) == (0, 0)


def test_what_the_version_before_delivered_is_not_delivered_again_and_what_it_missed_is(store: DuckStore) -> None:
    kept = Kept()
    begun(store, NOW - timedelta(hours=8))
    fetched(store, taken_at=NOW - timedelta(hours=7))
    kept.keys["output mini 15 1 stdout /home/a/15.out"] = NOW - timedelta(hours=7) + timedelta(seconds=2)
    begun(store, NOW - timedelta(hours=2))
    fetched(store, taken_at=NOW, content="three\n")
    assert (kept.watch(store).round(), kept.watch(store).round()) == (1, 0)
    assert [record["lines"] for record in kept.records] == ["three"]
