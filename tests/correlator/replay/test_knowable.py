"""A replay of an incident: what could be known when. No moment uses a line of its future; the last is what is stored."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from correlator.engine import load_edges
from correlator.incidents.stored import result
from correlator.replay import neighbourhood as near_rows
from correlator.replay import what_if
from correlator.replay.arrivals import ARRIVAL, assumed, few, with_arrivals
from correlator.replay.neighbourhood import Neighbourhood, TooManyLinesError, neighbourhood
from correlator.replay.process import ReplayFailedError, replayed
from correlator.replay.replay import Replay, Subject, replay
from correlator.site.windows import Value
from parsers.moments import utc
from parsers.record import frame
from tests.correlator.rows import CAPTURES, concluded

LOST = next(c for c in CAPTURES if c.name == "mgmt_flap_requeue")
T = datetime(2026, 11, 20, 8)


def moment(text: str) -> datetime:
    return utc(datetime.fromisoformat(text))


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
def lost() -> Asked:
    return next(one for one in asked(LOST) if one[1].jobs)


@pytest.fixture(scope="module")
def whole(lost: Asked) -> Replay:
    return replay(lost[0], lost[1])


def same_as_stored(found: Replay, incident: dict[str, Any], verdicts: dict[str, Any]) -> None:
    last = found.moments[-1]
    for name in ("id", "title", "confidence", "root_cause", "category", "severity", "status"):
        assert last["incident"][name] == incident[name], name
    for key, verdict in last["verdicts"].items():
        said = {name: verdicts[key][name] for name in verdict}
        assert verdict == said, key


def test_the_last_moment_is_what_is_stored(lost: Asked, whole: Replay) -> None:
    _, subject, incident, verdicts = lost
    assert len(subject.jobs) == 1
    same_as_stored(whole, incident, verdicts)


@pytest.mark.long
@pytest.mark.parametrize("folder", [pytest.param(one, id=one.name) for one in CAPTURES])
def test_the_last_moment_of_every_capture_is_what_is_stored(folder: Path) -> None:
    for near, subject, incident, verdicts in asked(folder):
        same_as_stored(replay(near, subject), incident, verdicts)


def test_a_verdict_goes_from_nothing_over_provisional_to_final(lost: Asked, whole: Replay) -> None:
    (key,) = lost[1].jobs
    states = [
        "none" if (said := one["verdicts"][key]) is None else "final" if said["final"] else "provisional"
        for one in whole.moments
    ]
    assert list(dict.fromkeys(states)) == ["none", "provisional", "final"] and states == sorted(states, key=["none", "provisional", "final"].index)  # fmt: skip
    times = [one["time"] for one in whole.moments]
    assert times == sorted(set(times)) and len(times) <= 30
    ended = moment(lost[1].jobs[key][1] or "")
    assert all((said["verdicts"][key] is None) == (moment(said["time"]) < ended) for said in whole.moments)
    listed = [row["id"] for one in whole.moments for row in one["arrived"] if row["id"]]
    assert sorted(listed) == sorted({row["id"] for row in lost[1].evidence}), "each line of the evidence arrives once"


def test_no_moment_uses_a_line_of_its_future(lost: Asked, whole: Replay) -> None:
    near, subject, _, _ = lost
    cut = moment(whole.moments[2]["time"])
    past = {
        name: rows.filter(pl.col(ARRIVAL) <= cut).drop(ARRIVAL) if ARRIVAL in rows.columns else rows
        for name, rows in {**near.tables, **with_arrivals(near)}.items()
    }
    assert past["logs"].height < near.tables["logs"].height and past["jobs"].height < near.tables["jobs"].height
    known = replay(dataclasses.replace(near, tables=past), subject)
    assert known.moments[:3] == whole.moments[:3] != whole.moments[-3:]


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


def test_a_line_of_a_nodes_own_file_counts_from_when_the_log_hosts_copy_was_received() -> None:
    """The node was cut off for a minute: its file has the line at once, the log host a minute later."""
    late = T + timedelta(seconds=60)
    logs = lines(
        {"line": 1, "file": "own", "time": T, "message": "Link is Down", "source": "kernel"},
        {"line": 2, "file": "central", "time": T + timedelta(milliseconds=1), "received_time": late, "message": "Link is Down", "source": "kernel"},
        {"line": 3, "file": "own", "time": T + timedelta(seconds=5), "message": "Link is Down", "source": "kernel"},
        {"line": 4, "file": "own", "time": T, "message": "another", "source": "kernel"},
        {"line": 5, "file": "own", "host": "n2", "time": T, "message": "Link is Down", "source": "kernel"},
    )  # fmt: skip
    found = with_arrivals(Neighbourhood({"logs": logs, "jobs": frame("jobs", [])}, T, T + timedelta(days=1)))
    after = {row["line"]: (row[ARRIVAL] - T).total_seconds() for row in found["logs"].iter_rows(named=True)}
    assert after == {1: 60.0, 2: 60.0, 3: 5.0, 4: 0.0, 5: 0.0}


def test_of_many_moments_those_closest_together_count_as_their_last() -> None:
    times = [T + timedelta(seconds=s) for s in (0, 0, 0.1, 0.2, 60, 60.05, 3600)]
    assert [(one - T).total_seconds() for one in few(times, 3)] == [0.2, 60.05, 3600.0]
    assert few(times, 10) == sorted(set(times))


def test_too_many_lines_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_rows, "MOST_LINES", 10)
    with concluded(LOST) as store, pytest.raises(TooManyLinesError, match="10 at most"):
        start = moment(result(store)["incidents"][0]["start"])
        neighbourhood(store, result(store)["incidents"][0]["cluster"], start, start, [])


def test_a_process_that_takes_too_long_is_ended(lost: Asked) -> None:
    near = dataclasses.replace(lost[0], tables=dict(lost[0].tables))
    with pytest.raises(ReplayFailedError, match="did not end within"):
        replayed(near, lost[1], limit_s=0.02)


@pytest.mark.long
def test_the_process_answers_the_same(lost: Asked, whole: Replay) -> None:
    near = dataclasses.replace(lost[0], tables=dict(lost[0].tables))
    found = replayed(near, lost[1])
    assert found["moments"] == whole.moments and found["lines"] == whole.lines and found["assumed"] == whole.assumed
    with pytest.raises(ReplayFailedError, match=r"status 1.*nowhere\.toml"):
        replayed(dataclasses.replace(lost[0], tables=dict(lost[0].tables)), lost[1], edge_paths=[Path("/nowhere.toml")])


# -- another SlurmdTimeout ---------------------------------------------------------------------------------------------

SETTINGS = {"SlurmdTimeout": Value.of(300), "MessageTimeout": Value.of(10)}


def loss(away_s: float | None, edge: str = "E03") -> what_if.Loss:
    windows = what_if.timeout_windows(load_edges().edges)
    return what_if.Loss("n1", "link.outage", "eth0", T, T + timedelta(seconds=400), away_s, edge, windows[edge])


def test_the_windows_are_those_of_losses_that_a_job_may_survive() -> None:
    assert set(what_if.timeout_windows(load_edges().edges)) == {"E03", "E03C", "E03S", "E34", "E34S"}


@pytest.mark.parametrize(
    ("timeout", "outcome"),
    [(300, what_if.LOST), (360, what_if.MAY_LIVE), (900, what_if.MAY_LIVE), (901, what_if.LIVES), (what_if.MOST_S, what_if.LIVES)],
)  # fmt: skip
def test_a_node_lives_that_was_back_before_it_could_be_given_up(timeout: int, outcome: str) -> None:
    # given up after 2/3 to 5/3 of SlurmdTimeout and MessageTimeout
    assert what_if.judged(loss(600.0), timeout, SETTINGS) == outcome


def test_the_least_timeout_keeps_all_nodes_and_one_less_does_not() -> None:
    losses = [loss(30.0), loss(600.0, "E34")]
    least = what_if.least_timeout(losses, SETTINGS)
    assert least == 901
    assert [what_if.judged(losses[1], one, SETTINGS) for one in (least - 1, least)] == [what_if.MAY_LIVE, what_if.LIVES]
    assert what_if.least_timeout([loss(30.0), loss(None)], SETTINGS) is None
    assert what_if.judged(loss(None), what_if.MOST_S, SETTINGS) == what_if.UNKNOWN


def test_a_job_fares_as_the_worst_of_its_nodes() -> None:
    assert what_if.worst([what_if.LIVES, what_if.MAY_LIVE]) == what_if.MAY_LIVE
    assert what_if.worst([what_if.LOST, what_if.LIVES]) == what_if.LOST
    assert what_if.took(loss(1.0), ["n1", "n2"], T + timedelta(seconds=398)) and not what_if.took(loss(1.0), ["n2"], T + timedelta(seconds=400))  # fmt: skip
    assert not what_if.took(loss(1.0), ["n1"], T + timedelta(seconds=60)), "it ended before its node was set DOWN"
