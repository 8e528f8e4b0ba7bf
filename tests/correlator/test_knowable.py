"""A replay of an incident: what could be known when. No moment uses a line of its future; the last is what is stored."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from correlator.incidents.stored import result
from correlator.replay import neighbourhood as near_rows
from correlator.replay.arrivals import ARRIVAL, assumed, few, with_arrivals
from correlator.replay.neighbourhood import Neighbourhood, TooManyLinesError, neighbourhood
from correlator.replay.process import ReplayFailedError, replayed
from correlator.replay.replay import Replay, Subject, replay
from parsers.record import frame
from tests.correlator.rows import CAPTURES, concluded

FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_requeue")
T = datetime(2026, 11, 20, 8)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)


def asked(folder: Path) -> list[tuple[Neighbourhood, Subject, dict[str, Any], dict[str, Any]]]:
    """Of each incident of a capture: the rows, what is replayed, its document, and all verdicts."""
    found = []
    with concluded(folder) as store:
        whole = result(store)
        for incident in whole["incidents"]:
            keys = [job["job_id"] for job in incident["jobs"]]
            evidence = {one["id"]: one for one in incident["events"]}
            evidence |= {one["id"]: one for key in keys for one in whole["verdicts"][key]["evidence"]}
            root = incident["root_cause"]
            subject = Subject(
                incident["id"], root["host"], root["device"], {key: (int(key.split("#")[0]), whole["verdicts"][key]["end"]) for key in keys},
                list(evidence.values()),
            )  # fmt: skip
            start, end = moment(incident["start"]), moment(incident["end"] or incident["start"])
            near = neighbourhood(store, incident["cluster"], start, end, incident["hosts"])
            found.append((near, subject, incident, whole["verdicts"]))
    return found


Asked = tuple[Neighbourhood, Subject, dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def flap() -> Asked:
    return next(one for one in asked(FLAP) if one[1].jobs)


@pytest.fixture(scope="module")
def whole(flap: Asked) -> Replay:
    return replay(flap[0], flap[1])


def same_as_stored(found: Replay, incident: dict[str, Any], verdicts: dict[str, Any]) -> None:
    last = found.moments[-1]
    for name in ("id", "title", "confidence", "root_cause", "category", "severity", "status"):
        assert last["incident"][name] == incident[name], name
    for key, verdict in last["verdicts"].items():
        said = {name: verdicts[key][name] for name in verdict}
        assert verdict == said, key


def test_the_last_moment_is_what_is_stored(flap: Asked, whole: Replay) -> None:
    _, subject, incident, verdicts = flap
    assert len(subject.jobs) == 1
    same_as_stored(whole, incident, verdicts)


@pytest.mark.long
@pytest.mark.parametrize("folder", [pytest.param(one, id=one.name) for one in CAPTURES])
def test_the_last_moment_of_every_capture_is_what_is_stored(folder: Path) -> None:
    for near, subject, incident, verdicts in asked(folder):
        same_as_stored(replay(near, subject), incident, verdicts)


def test_a_verdict_goes_from_nothing_over_provisional_to_final(flap: Asked, whole: Replay) -> None:
    (key,) = flap[1].jobs
    states = [
        "none" if (said := one["verdicts"][key]) is None else "final" if said["final"] else "provisional"
        for one in whole.moments
    ]
    assert list(dict.fromkeys(states)) == ["none", "provisional", "final"] and states == sorted(states, key=["none", "provisional", "final"].index)  # fmt: skip
    times = [one["time"] for one in whole.moments]
    assert times == sorted(set(times)) and len(times) <= 30
    ended = moment(flap[1].jobs[key][1] or "")
    assert all((said["verdicts"][key] is None) == (moment(said["time"]) < ended) for said in whole.moments)
    listed = [row["id"] for one in whole.moments for row in one["arrived"] if row["id"]]
    assert sorted(listed) == sorted({row["id"] for row in flap[1].evidence}), "each line of the evidence arrives once"


def test_no_moment_uses_a_line_of_its_future(flap: Asked, whole: Replay) -> None:
    near, subject, _, _ = flap
    cut = moment(whole.moments[3]["time"])
    past = {
        name: rows.filter(pl.col(ARRIVAL) <= cut).drop(ARRIVAL) if ARRIVAL in rows.columns else rows
        for name, rows in {**near.tables, **with_arrivals(near)}.items()
    }
    assert past["logs"].height < near.tables["logs"].height and past["jobs"].height < near.tables["jobs"].height
    known = replay(dataclasses.replace(near, tables=past), subject)
    assert known.moments[:4] == whole.moments[:4] != whole.moments[-4:]


def lines(*rows: dict[str, Any]) -> pl.DataFrame:
    return frame("logs", [{"host": "n1", "source": "slurmctld", "message": "", "raw": "", **row} for row in rows])


def test_a_line_counts_from_its_receipt_else_from_when_it_was_written() -> None:
    logs = lines(
        {"line": 1, "time": T, "received_time": T + timedelta(hours=3)}, {"line": 2, "time": T}, {"line": 3, "time": T, "source": "syslog"},
        {"line": 4, "file": "a.out", "time": T + timedelta(minutes=1)}, {"line": 5, "file": "a.out", "job_id": 7},
        {"line": 6, "job_id": 7}, {"line": 7},
    )  # fmt: skip
    jobs = frame("jobs", [
        {"job_id": 7, "state": "FAILED", "start": T, "end": T + timedelta(minutes=9)},
        {"job_id": 8, "state": "RUNNING", "start": T, "end": T + timedelta(days=1), "observed_at": T + timedelta(minutes=2)},
    ])  # fmt: skip
    near = Neighbourhood({"logs": logs, "jobs": jobs}, T, T + timedelta(days=2), {("n1", "syslog"): 2.5})
    found = with_arrivals(near)
    after = {row["line"]: (row[ARRIVAL] - T).total_seconds() for row in found["logs"].iter_rows(named=True)}
    assert after == {1: 10800.0, 2: 0.0, 3: 2.5, 4: 60.0, 5: 60.0, 6: 540.0, 7: 172800.0}
    assert {row["job_id"]: (row[ARRIVAL] - T).total_seconds() for row in found["jobs"].iter_rows(named=True)} == {7: 540.0, 8: 120.0}  # fmt: skip
    assert assumed(logs) == 6


def test_of_many_moments_those_closest_together_count_as_their_last() -> None:
    times = [T + timedelta(seconds=s) for s in (0, 0, 0.1, 0.2, 60, 60.05, 3600)]
    assert [(one - T).total_seconds() for one in few(times, 3)] == [0.2, 60.05, 3600.0]
    assert few(times, 10) == sorted(set(times))


def test_too_many_lines_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_rows, "MOST_LINES", 10)
    with concluded(FLAP) as store, pytest.raises(TooManyLinesError, match="10 at most"):
        start = moment(result(store)["incidents"][0]["start"])
        neighbourhood(store, result(store)["incidents"][0]["cluster"], start, start, [])


def test_a_process_that_takes_too_long_is_ended(flap: Asked) -> None:
    near = dataclasses.replace(flap[0], tables=dict(flap[0].tables))
    with pytest.raises(ReplayFailedError, match="did not end within"):
        replayed(near, flap[1], limit_s=0.02)


@pytest.mark.long
def test_the_process_answers_the_same(flap: Asked, whole: Replay) -> None:
    near = dataclasses.replace(flap[0], tables=dict(flap[0].tables))
    found = replayed(near, flap[1])
    assert found["moments"] == whole.moments and found["lines"] == whole.lines and found["assumed"] == whole.assumed
    with pytest.raises(ReplayFailedError, match=r"status 1.*nowhere\.toml"):
        replayed(dataclasses.replace(flap[0], tables=dict(flap[0].tables)), flap[1], edge_paths=[Path("/nowhere.toml")])
