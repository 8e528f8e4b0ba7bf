"""Which lines may show a run, or how it ended: any user of a node can write to its syslog in the name of slurmstepd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate
from correlator.gather.of_runs import Witnesses
from correlator.gather.runs import assemble
from correlator.live.ticker import Ticker
from correlator.model.nouns import Event
from correlator.site.senders import Senders
from parsers.writers import DAEMON, JOB, LOCAL, NETWORK, UNVERIFIED
from store import open_store
from tests.correlator.making import T0, event
from tests.correlator.rows import answer

OVER = "*** {} ON n1 CANCELLED AT 2026-02-06T16:05:00 DUE TO TIME LIMIT ***"
ACCOUNTED, BARE = Witnesses(accounted=True), Witnesses()
CLOSED = Witnesses(Senders(users_write_syslog=False), accounted=True)
SYSLOG = "hosts/n1/syslog"


def told(authority: str, file: str = SYSLOG, source: str = "slurmstepd", **more: Any) -> Event:
    """A node's word that job 7 reached its limit."""
    line = event("slurm.job_timeout", 300, "n1", OVER.format("JOB 7"), source=source, job_id=7, **more)
    return replace(line, authority=authority, file=file)


def ctl(at: float, kind: str, source: str = "slurmctld", authority: str = DAEMON, **more: Any) -> Event:
    line = event(kind, at, "ctl" if source == "slurmctld" else "n1", f"JobId=7 {kind}", source=source, job_id=7, **more)
    return replace(line, authority=authority)


CASES = [
    (told(DAEMON, "hosts/n1/slurmd.log"), ACCOUNTED, True),
    (told(JOB, "jobs/7/stderr", "job_stderr"), ACCOUNTED, True),
    (told(LOCAL), BARE, True),
    (told(LOCAL), CLOSED, True),
    (told(LOCAL), ACCOUNTED, False),
    (told(LOCAL, "syslog:n1"), CLOSED, False),
    (told(NETWORK, "syslog:n1", sender="203.0.113.9"), BARE, False),
    (told(UNVERIFIED, "loki:n1"), BARE, False),
]
IDS = [
    "slurmd's file",
    "its own output",
    "without accounting",
    "closed files",
    "a syslog",
    "relayed",
    "a packet",
    "a shipper",
]


@pytest.mark.parametrize(("line", "witnesses", "counts"), CASES, ids=IDS)
def test_who_can_show_a_run_that_slurm_did_not(line: Event, witnesses: Witnesses, counts: bool) -> None:
    found = [(r.key, r.state) for r in assemble([], [], [line], witnesses)]
    assert found == ([("7", "TIMEOUT")] if counts else [])


@pytest.mark.parametrize(("line", "witnesses", "counts"), CASES, ids=IDS)
def test_who_can_end_a_run_that_slurmctld_began(line: Event, witnesses: Witnesses, counts: bool) -> None:
    (run,) = assemble([], [], [ctl(0, "slurm.job_start", nodes=["n1"]), line], witnesses)
    assert (run.state, run.end) == (("TIMEOUT", T0 + 300) if counts else ("RUNNING", None))


@pytest.mark.parametrize(("sender", "keys"), [("203.0.113.9", []), ("127.0.0.1", ["7"])])
def test_a_packet_in_slurmctlds_name_of_an_unknown_address_makes_no_run(sender: str, keys: list[str]) -> None:
    """Where nothing shows which host is the controller, its name alone would do."""
    lines = [ctl(0, "slurm.job_start", authority=NETWORK, nodes=["n1"], sender=sender),
             ctl(9, "slurm.job_failed", authority=NETWORK, exit_code=1, sender=sender)]  # fmt: skip
    assert [r.key for r in assemble([], [], lines)] == keys


@pytest.mark.parametrize(("authority", "state"), [(DAEMON, "CANCELLED"), (LOCAL, "RUNNING")])
def test_who_can_give_up_a_launch(authority: str, state: str) -> None:
    given_up = event("slurm.node_error", 2, "n1", "Could not launch job 7 and not able to requeue it, cancelling job", source="slurmd", job_id=7)  # fmt: skip
    lines = [ctl(0, "slurm.job_start", nodes=["n1"]), replace(given_up, authority=authority)]
    assert [r.state for r in assemble([], [], lines, ACCOUNTED)] == [state]


@pytest.mark.parametrize("witnesses", [ACCOUNTED, BARE], ids=["accounting", "no accounting"])
@pytest.mark.parametrize(
    ("source", "keys"), [("slurmctld", ["7@2026-02-06T16:00:00", "7"]), ("slurmstepd", ["7", "7#1"])]
)
def test_only_slurmctld_tells_that_a_job_id_was_submitted_again(
    source: str, keys: list[str], witnesses: Witnesses
) -> None:
    lines = [
        ctl(0, "slurm.job_start", nodes=["n1"]), ctl(300, "slurm.job_requeue", nodes=["n1"]),
        ctl(350, "slurm.job_submit", source, DAEMON if source == "slurmctld" else LOCAL),
        ctl(400, "slurm.job_start", nodes=["n1"]), ctl(500, "slurm.job_failed", exit_code=1),
    ]  # fmt: skip
    assert [r.key for r in assemble([], [], lines, witnesses)] == keys


def test_a_users_line_does_not_hide_a_run() -> None:
    """A run is not made if slurmctld has a line about the job: only slurmctld's own line shows that."""
    named = replace(event("kernel.oom", 200, "n1", "job_7", source="kernel", job_id=7), authority=LOCAL)
    shown = told(JOB, "jobs/7/stderr", "job_stderr")
    assert [(r.key, r.nodes) for r in assemble([], [], [named, shown], ACCOUNTED)] == [("7", ("n1",))]


SACCT = (
    "JobID|JobIDRaw|User|JobName|Partition|State|ExitCode|Submit|Start|End|NodeList\n"
    "5|5|ann|a|p|COMPLETED|0:0|2026-02-06T23:00:00|2026-02-06T23:00:00|2026-02-06T23:10:00|n2\n"
)
#: Enough events before, so that a tick reads only a part of them.
BUSY = "".join(
    f"2026-02-0{5 + h // 24}T{h % 24:02}:{m:02}:00.000000+00:00 n1 kernel: mlx5_core 0000:c4:00.0 eth0: Link {how}\n"
    for h in range(36) for m in range(0, 60, 10) for how in ("down", "up")
)  # fmt: skip
LINES = (
    f"{BUSY}2026-02-06T14:00:00.000000+00:00 n1 systemd[1]: Started Session 7 of user root.\n"
    f"2026-02-06T16:05:00.000000+00:00 n1 slurmstepd[77]: error: {OVER.format('JOB 7')}\n"
)


def test_the_first_row_of_accounting_decides_for_earlier_lines_too(tmp_path: Path) -> None:
    with open_store(None) as store:
        ticker = Ticker(store)
        keys = []
        for number, files in enumerate(({SYSLOG: LINES}, {"accounting/sacct.psv": SACCT})):
            for name, text in files.items():
                path = tmp_path / f"{number}" / name
                path.parent.mkdir(parents=True)
                path.write_text(text, encoding="utf-8")
            Ingest(store).run([tmp_path / f"{number}"])
            ticker.tick()
            ticked = answer(store)
            correlate(store)
            assert ticked == answer(store), "a tick says what a full pass says"
            keys.append(sorted({r["job_id"] for r in store.rows("SELECT job_id FROM model.runs")}))
    assert keys == [[7], [5]]
