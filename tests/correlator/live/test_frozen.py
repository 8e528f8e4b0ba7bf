"""Final documents are let go of once they are stored; nobody who reads conclusions sees a difference."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from correlator.engine import conclude_cluster
from correlator.live.frozen import Documents, Frozen
from correlator.live.state import LiveConclusions
from correlator.live.ticker import Ticker
from correlator.model.json_text import digest, has_digest
from store import open_store
from store.duckdb.store import DuckStore
from tests.correlator.live import test_streaming as streaming
from tests.correlator.rows import CAPTURES, rows_of

FOLDER = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
LONG_AFTER = datetime(2026, 12, 24, 12, 0, tzinfo=UTC)


def _stored(store: DuckStore) -> list[list[dict[str, Any]]]:
    return [
        store.rows(f"SELECT cluster, document FROM model.{table} ORDER BY ALL") for table in ("incidents", "runs")
    ] + [store.rows("SELECT * FROM kept.versions ORDER BY ALL")]


def _documents(known: LiveConclusions) -> list[Mapping[str, Any]]:
    return [*known.result.incidents, *known.result.verdicts.values()]


def _of_cluster(name: str) -> dict[str, pl.DataFrame]:
    return {table: rows.with_columns(pl.lit(name).alias("cluster")) for table, rows in rows_of(FOLDER).items()}


def test_final_documents_are_read_from_the_store() -> None:
    with open_store(None) as store:
        store.add(rows_of(FOLDER))
        ticker = Ticker(store)
        ticker.tick(LONG_AFTER)
        (known,) = ticker._known.values()
        result, documents = known.result, _documents(known)
        assert documents and all(isinstance(one, Frozen) for one in documents)
        whole = conclude_cluster(store, known.cluster, ticker._rules).result
        assert result.verdicts == whole.verdicts and result.incidents == whole.incidents
        for one, other in zip(result.incidents, whole.incidents, strict=True):
            assert {key: one[key] for key in one} == other and len(one) == len(other) and "awaited" not in one


def test_provisional_documents_stay_as_they_are() -> None:
    rows = rows_of(FOLDER)
    end = rows["logs"]["time"].max()
    assert isinstance(end, datetime)
    with open_store(None) as store:
        store.add(rows)
        ticker = Ticker(store)
        ticker.tick(end.replace(tzinfo=UTC))
        (known,) = ticker._known.values()
        waiting = [v for v in known.result.verdicts.values() if not v["final"]]
        assert waiting and not any(isinstance(one, Frozen) for one in waiting)


def test_the_tick_after_one_with_news_lets_go_of_its_documents() -> None:
    day = streaming.benchmark().Day(4)
    with open_store(None) as store:
        streaming.with_settings(store)
        day.fill(0, streaming.HOURS * 3600, 100, 600)
        day.store(store)
        ticker = Ticker(store)
        ticker.tick()
        for late in range(3):
            day.link(streaming.benchmark().NODES[late], "eth0", 24_900.0 + 600.0 * late, 90.0)
            day.store(store)
            report = ticker.tick()
            (known,) = ticker._known.values()
            assert report.opened and not report.full
            assert not all(isinstance(one, Frozen) for one in known.result.incidents)
            assert not ticker.tick().worked
            assert all(isinstance(one, Frozen) for one in _documents(known))
            assert not ticker._to_free and not ticker._to_freeze


def test_a_full_pass_publishes_and_stores_nothing_anew() -> None:
    with open_store(None) as store:
        store.add(rows_of(FOLDER))
        ticker = Ticker(store)
        ticker.tick(LONG_AFTER)
        stored = _stored(store)
        report = ticker.tick(LONG_AFTER, full=True)
        assert report.full and not (report.opened or report.changed or report.closed or report.final)
        assert _stored(store) == stored
        assert all(isinstance(one, Frozen) for known in ticker._known.values() for one in known.result.incidents)


def test_documents_of_one_cluster_stay_when_another_is_concluded_from_scratch() -> None:
    with open_store(None) as store:
        store.add(_of_cluster("one"))
        ticker = Ticker(store)
        ticker.tick(LONG_AFTER)
        (incidents, runs, _) = _stored(store)
        store.add(_of_cluster("two"))
        assert ticker.tick(LONG_AFTER).full
        later = _stored(store)
        assert [r for r in later[0] if r["cluster"] == "one"] == incidents != later[0]
        assert [r for r in later[1] if r["cluster"] == "one"] == runs != later[1]
        assert all(
            isinstance(one, Frozen) for known in ticker._known.values() for one in known.result.verdicts.values()
        )


def test_a_clock_that_goes_back_reads_no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """All documents are looked at again then, and one query for each would stop a long history's ticks for minutes."""
    read: list[list[str]] = []
    texts = Documents.texts
    monkeypatch.setattr(Documents, "texts", lambda self, names: read.append([*names]) or texts(self, read[-1]))
    with open_store(None) as store:
        store.add(rows_of(FOLDER))
        ticker = Ticker(store)
        ticker.tick(LONG_AFTER)
        ticker.tick(LONG_AFTER - timedelta(seconds=1))
        assert read == []
        (known,) = ticker._known.values()
        assert known.result.incidents[0]["title"] and len(read) == 1


def test_a_document_that_the_store_lost_is_named() -> None:
    with open_store(None) as store:
        store.add(rows_of(FOLDER))
        ticker = Ticker(store)
        ticker.tick(LONG_AFTER)
        (known,) = ticker._known.values()
        with store.transaction() as connection:
            connection.execute("DELETE FROM model.incidents")
        with pytest.raises(LookupError, match=known.result.incidents[0]["id"]):
            known.result.incidents[0]["title"]


def test_a_frozen_document_says_the_same_only_as_an_equal_one() -> None:
    with open_store(None) as store:
        store.add(rows_of(FOLDER))
        ticker = Ticker(store)
        ticker.tick(LONG_AFTER)
        (known,) = ticker._known.values()
        for one in _documents(known):
            assert isinstance(one, Frozen)
            document = dict(one)
            assert one.same_as({**document, "detected_at": "2026-11-21T12:00:00.000000Z"} if "id" in one else document)
            assert not one.same_as({**document, "confidence": document["confidence"] + 0.0001})


def test_the_digests_of_earlier_versions_are_known() -> None:
    """Otherwise the first tick of a new version would publish every document once more."""
    earlier = hashlib.blake2s(b"{}", digest_size=8).hexdigest()
    assert has_digest("{}", earlier) and not has_digest("{ }", earlier)
    assert has_digest("{}", digest("{}")) and not has_digest("{ }", digest("{}"))
    assert not has_digest("{}", None)
