"""Lines that were shown to be false are events for operators: what they say, and what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from correlator.engine import correlate, result
from correlator.live.ticker import Ticker
from correlator.model.false_lines import FORGED
from queries.reports.failure_patterns import build
from queries.reports.reader import Reader
from store import open_store
from store.duckdb import visible
from store.duckdb.store import DuckStore
from tests.correlator.attacked import _TREE
from tests.correlator.erins_job import (
    BARE,
    FITTING,
    HERS,
    QUIET,
    RING,
    RING_ALIVE,
    SHARED,
    SYSLOG,
    WITH_UPTIMES,
    WITHOUT,
    XID,
    bring_in,
    bsd,
    in_both_ways,
    stamped,
)
from tests.correlator.gather.test_kernel_copies import ALIVE, CENTRAL, PASSED, SENT, both, central
from tests.correlator.gather.test_standing_everywhere import CONFIGURATION, TRUE
from tests.correlator.gather.test_standing_everywhere import FILE as CONTROLLERS_FILE
from tests.correlator.gather.test_standing_everywhere import ingest as add_tree
from tests.correlator.site.test_syslog_senders import FORGED as SENT_AS_GX02
from tests.correlator.site.test_syslog_senders import LINE as SENT_AS_CTL
from tests.correlator.site.test_syslog_senders import loaded, sent


def told(store: DuckStore) -> list[dict[str, Any]]:
    """The events about false lines, by time; ``entities`` read."""
    rows = store.rows(f"SELECT * FROM model.events WHERE event = '{FORGED}' ORDER BY time, event_id")
    return [row | {"entities": json.loads(row["entities"])} for row in rows]


def all_events(store: DuckStore) -> list[dict[str, Any]]:
    return store.rows("SELECT * FROM model.events ORDER BY event_id")


def after(files: dict[str, str], live: bool = False, tree: dict[str, str] = HERS) -> list[dict[str, Any]]:
    """The events about false lines in erin's cluster. ``live``: by ticks, line by line; a full pass says the same."""
    return events_and_result(files, live, tree)[0]


def events_and_result(
    files: dict[str, str], live: bool, tree: dict[str, str]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The same, with all that a full pass concludes."""
    with open_store(None) as store:
        bring_in(store, files, live, tree, all_events)
        found = result(store)
        ids = {row["event_id"] for row in told(store)}
        assert not ids & {e["id"] for i in found["incidents"] for e in i["events"]}
        assert FORGED not in json.dumps(found), "it is no evidence"
        return told(store), found


class Case(NamedTuple):
    """``channel``: None if nothing is shown to be false."""

    files: dict[str, str]
    channel: str | None
    writer: str = ""
    because: str = ""


LOCAL, LOG_HOST = "syslog of the host", "log host"
CASES = {
    "without an uptime, as no other line of this kernel": Case(
        {SYSLOG: WITH_UPTIMES + BARE}, LOCAL, "any user of gx02, where a job of erin ran", "earlier lines of this kernel carry one"
    ),
    "a copy with a user's facility": Case(
        {SYSLOG: WITHOUT + BARE, CENTRAL: central("10:19:55", XID, "user.err")}, LOCAL, "any user of gx02", "a user wrote it"
    ),
    "the node's own file, which gets others of this kernel, goes on without it": Case(
        both(PASSED, {SYSLOG: ALIVE, CENTRAL: SENT}), LOG_HOST, "anybody who can send a line to the log host", "does not have the line"
    ),
    "the node's own file goes on without it, and nothing shows what it gets": Case({SYSLOG: ALIVE, CENTRAL: SENT}, None),
    "nor earlier ones": Case({SYSLOG: ALIVE, CENTRAL: central("09:59:00", QUIET) + SENT}, None),
    "a clock that was set": Case({SYSLOG: WITH_UPTIMES + stamped("10:19:55", XID, "07:00:00")}, None),
    "an uptime that fits": Case({SYSLOG: WITH_UPTIMES + FITTING}, None),
    "the ring does not have it": Case({SYSLOG: WITHOUT + BARE, RING: RING_ALIVE}, None),
    "output with lines of dmesg, nvidia-smi and srun": Case(
        {"jobs/45/stdout": f"[ 9123.4] {XID}\nFeb 28 10:19:55 gx02 kernel: {XID}\n| GPU 0000:3B:00.0: GPU is lost. |\n"
                           "srun: error: Node failure on gx02\nslurmctld: error: Nodes gx02 not responding, setting DOWN\n"}, None
    ),
}  # fmt: skip
#: What ``make test`` gives to ticks too.
BY_TICKS = {"without an uptime, as no other line of this kernel", "a copy with a user's facility"}


@pytest.mark.parametrize(("name", "live"), in_both_ways(CASES, BY_TICKS))
def test_what_becomes_an_event(name: str, live: bool) -> None:
    case = CASES[name]
    found = after(case.files, live)
    if case.channel is None:
        assert not found
        return
    (event,) = found
    fields = event["entities"]
    assert (event["host"], event["count"], event["job_id"], event["device"]) == ("gx02", 1, None, None)
    assert (fields["channel"], fields["claimed_event"]) == (case.channel, "gpu.xid")
    assert (fields["blamed_hosts"], fields["blamed_devices"]) == (["gx02"], ["0000:3b:00"])
    assert case.writer in fields["writer"] and case.because in fields["because"]
    assert case.writer in event["message"] and case.because in event["message"]
    assert event["file"] and event["line"]


def test_all_who_could_have_written_it_are_named_and_nobody_is_accused() -> None:
    (event,) = after({SYSLOG: WITH_UPTIMES + BARE}, tree=SHARED)
    assert event["entities"]["users"] == ["bob", "erin"]
    assert "Could have been written by any user of gx02, where jobs of bob and erin ran" in event["message"]


@pytest.mark.parametrize("live", [False, pytest.param(True, marks=pytest.mark.long)], ids=["at once", "by ticks"])
def test_lines_of_a_quarter_of_an_hour_are_one_event(live: bool) -> None:
    lines = [bsd(clock, f"kernel: {XID.replace('3b', bus)}") for clock, bus in
             (("10:03:00", "3b"), ("10:16:00", "3b"), ("10:19:55", "4c"), ("10:19:56", "4c"))]  # fmt: skip
    first, second = after({SYSLOG: WITH_UPTIMES + "".join(lines)}, live)
    assert (first["count"], second["count"]) == (1, 3)
    assert second["entities"]["blamed_devices"] == ["0000:3b:00", "0000:4c:00"]
    assert [ref["line"] for ref in json.loads(second["refs"])] == [second["line"] + 1]


@pytest.mark.long
def test_a_run_that_becomes_known_later_is_named_too(tmp_path: Path) -> None:
    with open_store(None) as store:
        add_tree(store, tmp_path, {**_TREE, **HERS, SYSLOG: _TREE[SYSLOG] + WITH_UPTIMES + BARE})
        ticker = Ticker(store)
        ticker.tick()
        row = "77|77|zoe|1077|x|COMPLETED|0:0|2026-02-28T10:16:00|2026-02-28T10:16:00|2026-02-28T10:17:00|gx02|1|c\n"
        head = HERS["accounting/sacct.txt"].partition("\n")[0]
        add_tree(store, tmp_path, {"accounting/more.txt": f"{head}\n{row}"})
        ticker.tick()
        (event,) = told(store)
        assert event["entities"]["users"] == ["erin", "zoe"]
        ticked = all_events(store)
        correlate(store)
        assert ticked == all_events(store)


# ------------------------------------------------------------------------------------------------- slurmctld's name

DOWN = "Feb 28 10:16:00 {} slurmctld[77]: error: Nodes gx0[2-4] not responding, setting DOWN\n"
HEARD = {"slurm.conf": CONFIGURATION, "nodes/ctl/slurmctld.log": TRUE["controller/slurmctld.log"]}


@pytest.mark.parametrize("live", [pytest.param(False, marks=pytest.mark.long), True], ids=["at once", "by ticks"])
def test_a_compute_node_that_speaks_as_slurmctld(tmp_path: Path, live: bool) -> None:
    parts = (HEARD, {"nodes/gx01/syslog": DOWN.format("gx01")}, {"nodes/gx01/slurmctld.log": CONTROLLERS_FILE})
    with open_store(None) as store:
        ticker = Ticker(store)
        for part in parts:
            add_tree(store, tmp_path, part)
            if live:
                ticker.tick()
        if not live:
            correlate(store)
        found = {event["entities"]["channel"]: event for event in told(store)}
        ticked = all_events(store)
        correlate(store)
        assert ticked == all_events(store)
    assert set(found) == {"syslog as slurmctld", "file of slurmctld"}
    by_syslog = found["syslog as slurmctld"]
    assert by_syslog["host"] == "gx01" and by_syslog["entities"]["blamed_hosts"] == ["gx02", "gx03", "gx04"]
    assert by_syslog["entities"]["writer"].startswith("any user of gx01")
    assert found["file of slurmctld"]["entities"]["writer"].startswith("root of gx01")


@pytest.mark.parametrize(
    "tree",
    [
        {"slurm.conf": CONFIGURATION, "nodes/gx01/syslog": DOWN.format("gx01")},
        {**HEARD, "nodes/login1/syslog": DOWN.format("login1")},
        {"nodes/gx01/syslog": DOWN.format("gx01"), "accounting/sacct.txt": TRUE["accounting/sacct.txt"]},
    ],
    ids=["the controller of slurm.conf may have another name", "a host of another cluster", "no slurm.conf"],
)
def test_who_may_be_a_controller_forges_nothing(tmp_path: Path, tree: dict[str, str]) -> None:
    with open_store(None) as store:
        add_tree(store, tmp_path, tree)
        correlate(store)
        assert not told(store)


@pytest.mark.long
def test_a_controller_that_is_heard_later_shows_it(tmp_path: Path) -> None:
    with open_store(None) as store:
        ticker = Ticker(store)
        for part in ({"slurm.conf": CONFIGURATION, "nodes/gx01/syslog": DOWN.format("gx01")}, HEARD):
            assert not told(store)
            add_tree(store, tmp_path, part)
            ticker.tick()
        assert [event["entities"]["channel"] for event in told(store)] == ["syslog as slurmctld"]


# ------------------------------------------------------------------------------------------------ another's address

#: Something else that gx02 and ctl send from their own addresses.
GX02S = "<4>Feb 28 10:18:00 gx02 kernel: mlx5_core 0000:c4:00.0 eth1: Link down\n"
CTLS = "<30>Feb 28 10:18:00 ctl slurmctld[77]: error: Nodes gx04 not responding, setting DOWN\n"


@pytest.mark.one_of_each(kind=lambda packets: packets)
@pytest.mark.parametrize("live", [False, pytest.param(True, marks=pytest.mark.long)], ids=["at once", "by ticks"])
@pytest.mark.parametrize(
    ("packets", "blamed"),
    [
        ((("10.0.0.2", GX02S), ("10.0.0.1", SENT_AS_GX02)), ["gx02"]),
        ((("10.0.0.1", SENT_AS_GX02),), []),
        ((("10.0.0.2", SENT_AS_GX02), ("10.0.0.1", SENT_AS_GX02)), []),
        ((("10.0.0.250", CTLS), ("10.9.9.9", SENT_AS_CTL)), ["gx02"]),
    ],
    ids=["a node as another", "perhaps a relay", "a relay of what the node sends as well", "as the controller"],
)
def test_an_address_that_speaks_for_another(
    tmp_path: Path, packets: tuple[tuple[str, str], ...], blamed: list[str], live: bool
) -> None:
    with open_store(None) as store:
        loaded(store, tmp_path, "ctl(10.0.0.250)")
        ticker = Ticker(store)
        for packet in packets:
            sent(store, *packet)
            if live:
                ticker.tick()
        if not live:
            correlate(store)
        found = told(store)
        assert [host for event in found for host in event["entities"].get("blamed_hosts", ())] == blamed * len(found)
        assert bool(found) == bool(blamed)
        if found:
            assert {event["entities"]["channel"] for event in found} == {"syslog from another address"}
            assert found[0]["entities"]["addresses"] == [packets[-1][0]]
        ticked = all_events(store)
        correlate(store)
        assert ticked == all_events(store)


# -------------------------------------------------------------------------------------------------------- who is told


def test_users_who_see_their_own_runs_do_not_see_it_and_the_report_does(tmp_path: Path) -> None:
    with open_store(None) as store:
        add_tree(store, tmp_path, {**_TREE, **SHARED, SYSLOG: _TREE[SYSLOG] + WITH_UPTIMES + BARE})
        correlate(store)
        assert len(told(store)) == 1
        for user in ("erin", "bob", "alice", "root"):
            connection = visible.cursor(store, user)
            try:
                assert not connection.execute(f"SELECT * FROM model.events WHERE event = '{FORGED}'").fetchall()
                assert FORGED not in str(connection.execute("SELECT * FROM model.events").fetchall())
            finally:
                connection.close()
        sections = build(Reader(store, None, None))
        (coverage,) = (section for section in sections if section.key == "coverage")
        assert any("gx02" in note and FORGED in note for note in coverage.notes)
