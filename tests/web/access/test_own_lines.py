"""Lines of one's own output in documents: those of the document's cluster, and of each document that one request reads."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import fixture
import pytest
from around import insert

from store.duckdb.visible import View
from web.access.own import OwnReader
from web.access.own_documents import OwnDocuments
from web.api import read_axis
from web.reading import Reader

BEGAN = datetime(2026, 11, 21, 5)
FILE = "jobs/train.out"
#: By cluster and job: the lines that the job printed to a file of the same name.
PRINTED = {("mini", 501): ["loss of mini", "step of mini"], ("other", 601): ["loss of other"]}


@pytest.fixture(scope="module")
def documents() -> Any:
    """A maker of ``OwnDocuments`` for alice, who has a run in each of two clusters."""
    store = fixture.build()
    for (cluster, job), texts in PRINTED.items():
        insert(store.con, "model.runs", {
            "run_key": str(job), "cluster": cluster, "job_id": job, "attempt": 0, "state": "FAILED", "user": "alice", "nodes": ["gpu01"],
            "node_list": "gpu01", "submit": BEGAN, "start": BEGAN, "end": BEGAN,
        })  # fmt: skip
        for number, text in enumerate(texts, 1):
            insert(store.con, "raw.logs", {
                "time": BEGAN, "time_quality": "line", "received_time": BEGAN, "cluster": cluster, "host": "gpu01", "source": "job_stdout",
                "severity": "info", "event": "other", "message": text, "raw": text, "job_id": job, "file": FILE, "line": number, "tags": [],
            })  # fmt: skip
    return lambda: OwnDocuments(OwnReader(Reader(store), "alice"))


def read_line(documents: OwnDocuments, cluster: str, job: int, **item: Any) -> list[str]:
    """What alice reads of a verdict with one line of evidence."""
    row = {
        "run_key": str(job),
        "own_key": str(job),
        "cluster": cluster,
        "job_id": job,
        "attempt": 0,
        "state": "FAILED",
        "nodes": ["gpu01"],
    }
    shown = documents.verdict(row, {"category": "app.error", "evidence": [{"source": FILE, **item}]})
    return [line["message"] for line in shown["evidence"]]


def test_a_line_without_an_id_is_found_in_each_document(documents: Any) -> None:
    one = documents()
    assert read_line(one, "mini", 501, line=1) == ["loss of mini"]
    assert read_line(one, "mini", 501, line=2) == ["step of mini"]
    assert read_line(one, "mini", 501, id=None, line=2) == ["step of mini"]


@pytest.mark.parametrize("order", [("mini", "other"), ("other", "mini")])
@pytest.mark.parametrize("ids", [{}, {"id": "of the output"}])
def test_a_line_is_that_of_the_documents_cluster(documents: Any, order: tuple[str, str], ids: dict[str, str]) -> None:
    one, jobs = documents(), dict(PRINTED.keys())
    for cluster in order:
        assert read_line(one, cluster, jobs[cluster], line=1, **ids) == [f"loss of {cluster}"]
    assert read_line(one, "other", jobs["other"], line=2, **ids) == [], "the file of that cluster has one line"


def test_an_owners_axis_asks_nothing_twice_and_counts_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asked 22 questions where an operator's asks 16, eight of them how many clusters there are."""
    asked: list[str] = []
    ask = View.ask
    monkeypatch.setattr(View, "ask", lambda view, question: asked.append(_whole_text(question)) or ask(view, question))
    own = OwnReader(Reader(fixture.build()), "alice")
    axis = read_axis(own, own.incident("I1"))
    assert axis["marks"] and len(asked) > 5
    assert len(asked) == len(set(asked))
    assert not [text for text in asked if text.startswith("SELECT count") and "FROM model.events" in text]


def _whole_text(question: Any) -> str:
    compiled = question.compile()
    return f"{compiled} {compiled.params}"


def test_more_events_of_an_owner_than_are_drawn_are_gathered() -> None:
    reader = Reader(fixture.build())
    own = OwnReader(reader, "alice")
    row = own.incident("I1")
    around = {"start": row["start"], "end": row["end"], "hosts": ["gpu01", "gpu02"], "of": row, "in_document": []}
    every = own.events_around(**around)
    gathered = own.events_around(**around, most=len(every) - 1)
    assert len(every) > 2 and every == own.events_around(**around, most=len(every))
    assert sum(one.get("count") or 1 for one in gathered) >= len(every) and gathered != every
