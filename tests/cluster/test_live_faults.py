"""A working week's faults and its users' failures, one after another, on a real Slurm with all of Faultline installed as a site would: how many seconds from
each to the first word about it and to the final verdict, which mails were sent, and that no run is left without a state.

A week is compressed by leaving out its quiet hours, but for those in which verdicts wait to be final (test_quiet_week.py has a
whole week of 50 hosts, with a clock of its own). It takes most of an hour, so it runs with ``make test-cluster`` (nightly) only. A verdict is final once nothing can change it any
more, up to half an hour after a fault; ``FAULTLINE_FINAL_S`` bounds the wait for that, and 0 only prints when each will be.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import cluster as mini
from live_site import NODES, SERVER, lines, query, runs, start_agent, whole_site, within
from spaces import hdir, inside, write
from test_live_cluster import REASON, cluster, host
from tests.measured import Measured

SWITCH = "FAULTLINE_LIVE_FAULTS"
WHY_NOT = REASON or (None if os.environ.get(SWITCH) else "runs by `make test-cluster`: it takes most of an hour")
pytestmark = [pytest.mark.long, pytest.mark.cluster, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]

FINAL_S = float(os.environ.get("FAULTLINE_FINAL_S", "3000"))
ENDS = ("COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY")


@dataclass
class Fault:
    """``at``: when it was injected; ``run``: the run that it ends, if any, and ``category``: of its verdict."""

    name: str
    at: float
    host: str | None = None
    run: str | None = None
    category: str | None = None


def scontrol(*words: str) -> None:
    cluster("run", "ctl", "scontrol", *words)


def started(site: Path, job: int) -> int:
    """Has the watcher follow a job, and waits until it runs."""
    with (site / "jobs").open("a") as stream:
        stream.write(f"{job}\n")
    runs(job, "RUNNING", limit=240)
    time.sleep(4)
    return job


def all_idle() -> bool:
    return set(mini.node_states().values()) == {"idle"}


def flap(
    site: Path, victim: str, seconds: float, count: int, *, name: str, hurts: bool, requeue: bool = False
) -> Fault:
    """The management link of a node is lost COUNT times under a job on it and gpu01."""
    how = "--requeue" if requeue else "--no-requeue"
    job = started(site, mini.ring(2, 45, 10, "-w", f"gpu01,{victim}", how))
    fault = Fault(name, time.time(), victim, str(job) if hurts else None, "infra.network" if hurts else None)
    mini.flap(victim, "mgmt", down_for=seconds, count=count, gap=5)
    if requeue:
        runs(job, "RUNNING", limit=300)
        with (site / "jobs").open("a") as stream:
            stream.write(f"{job}#1\n")
    runs(job, *ENDS, limit=240)
    return fault


def slurmd_killed(site: Path) -> Fault:
    job = started(site, mini.ring(2, 120, 10, "-w", "gpu[02-03]", "--no-requeue"))
    at, _ = mini.kill_daemon("gpu03", sig=signal.SIGKILL)
    runs(job, *ENDS, limit=240)
    mini.daemon("gpu03", ["slurmd"])
    return Fault("slurmd killed", at, "gpu03", str(job), "infra.scheduler")


def reboot(site: Path) -> Fault:
    job = started(site, mini.ring(2, 120, 60, "-w", "gpu[01-02]", "--no-requeue"))
    at = mini.power_off("gpu02")
    time.sleep(6)
    mini.power_on("gpu02")
    start_agent("gpu02")
    runs(job, *ENDS, limit=240)
    within(240, lambda: "down" in mini.node_states()["gpu02"] or all_idle(), "gpu02 down or back")
    if "down" in mini.node_states()["gpu02"]:
        scontrol("update", "NodeName=gpu02", "State=RESUME")
    return Fault("reboot", at, "gpu02", str(job), "infra.node")


def out_of_memory(site: Path) -> Fault:
    at = time.time()
    job = mini.submit("srun python3 /home/jobs/memhog.py 600", "-w", "gpu01", "--mem=100", name="memhog", user="bob")
    with (site / "jobs").open("a") as stream:
        stream.write(f"{job}\n")
    runs(job, *ENDS, limit=240)
    return Fault("out of memory", at, None, str(job), "app.oom")


def users_own(site: Path) -> Fault:
    """What users' programs do all week: they end well, fail, crash, are cancelled, reach their limit. None of it is worth a mail."""
    at = time.time()
    for number in range(12):
        mini.submit("srun hostname; sleep 1", name=f"well-{number}", user=("alice", "bob")[number % 2])
    ends = {
        mini.submit("srun sh -c 'exit 3'", name="exits"): "FAILED",
        mini.submit("srun sh -c 'kill -SEGV $$'", name="crashes", user="bob"): "FAILED",
        mini.submit("sleep 300", "-t", "1", name="too-long"): "TIMEOUT",
        mini.submit("sleep 300", name="cancelled", user="bob"): "CANCELLED",
        mini.submit("[ $SLURM_ARRAY_TASK_ID != 2 ]", "-a", "1-3", name="array"): None,
    }
    exits, _, _, cancelled, _ = ends
    with (site / "jobs").open("a") as stream:
        stream.write(f"{exits}\n")
    runs(cancelled, "RUNNING", limit=120)
    inside("ctl", ["scancel", str(cancelled)], user="bob")
    for job, state in ends.items():
        if state:
            runs(job, state, limit=240)
    within(240, lambda: not cluster("run", "ctl", "squeue", "-h").strip(), "no job left")
    return Fault("users' own failures, and jobs that end well", at, None, str(exits), "app.error")


def prolog_fails(site: Path) -> Fault:
    write(hdir("gpu02", "run/fault.prolog"), "1")
    at = time.time()
    job = mini.submit("srun hostname; sleep 3", "-w", "gpu02", name="unlucky")
    with (site / "jobs").open("a") as stream:
        stream.write(f"{job}\n")
    within(240, lambda: "drain" in mini.node_states()["gpu02"], "gpu02 drained")
    (host("gpu02") / "run/fault.prolog").unlink()
    time.sleep(3)
    cluster("run", "ctl", "scancel", str(job))
    runs(job, *ENDS, limit=240)
    scontrol("update", "NodeName=gpu02", "State=RESUME")
    return Fault("prolog fails", at, "gpu02", str(job), "infra.scheduler")


def gate_refuses(site: Path) -> Fault:
    """A GPU falls off the bus: the service says unfit, grants the right to refuse, and the next job's prolog drains the node."""
    at = time.time()
    mini.kmsg(
        "gpu01", "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 3
    )
    answer = host("gpu01") / "var/spool/agent/gate/answer"
    within(300, lambda: answer.exists() and b"unfit" in answer.read_bytes(), "the gate's answer")
    # The grant comes with one of the next answers; what a job meets until then is only said.
    job = None
    end = time.monotonic() + 400
    while "drain" not in mini.node_states()["gpu01"] and time.monotonic() < end:
        job = mini.submit("hostname", "-w", "gpu01", name="refused")
        with (site / "jobs").open("a") as stream:
            stream.write(f"{job}\n")
        time.sleep(10)
    assert "drain" in mini.node_states()["gpu01"], answer.read_text()
    cluster("run", "ctl", "scancel", "-u", "alice", "-n", "refused")
    assert job is not None
    return Fault("gate refuses a node", at, "gpu01", str(job), "infra.node")


def person_drains(site: Path) -> Fault:
    at = time.time()
    scontrol("update", "NodeName=gpu02", "State=DRAIN", "Reason=bad cable")
    known = lambda undone: [one for one in lines(site / "seen") if one["kind"] == "drain" and one["host"] == "gpu02"  # noqa: E731
                            and one["reason"] == "bad cable" and bool(one["undone_by"]) == undone]  # fmt: skip
    within(240, lambda: known(False), "the ledger's word on the drain")
    scontrol("update", "NodeName=gpu02", "State=RESUME")
    within(240, lambda: known(True), "the ledger's word on the resume")
    return Fault("a person drains and resumes", at, "gpu02")


def advisor_drains(site: Path) -> Fault:
    """The link of gpu02 came and went, and a job with it: the advisor drains the node, and a person takes it over."""
    at = time.time()

    def advised() -> bool:
        return any(
            one["kind"] == "drain" and one["host"] == "gpu02" and str(one["reason"]).startswith("faultline:I-")
            for one in lines(site / "seen")
        )

    within(400, advised, "the advisor's drain")
    assert "drain" in mini.node_states()["gpu02"]
    scontrol("update", "NodeName=gpu02", "State=RESUME")
    return Fault("the advisor drains, since the link is back", at, "gpu02")


#: In this order; between two of them all nodes are idle again.
FAULTS: tuple[Callable[[Path], Fault], ...] = (
    lambda site: flap(site, "gpu02", 3, 3, name="flap, three times 3 s", hurts=False),
    lambda site: flap(site, "gpu02", 9, 1, name="flap, 9 s", hurts=False),
    lambda site: flap(site, "gpu02", 40, 1, name="flap, 40 s", hurts=True),
    advisor_drains,
    lambda site: flap(site, "gpu03", 40, 1, name="flap, 40 s, requeued", hurts=True, requeue=True),
    slurmd_killed, reboot, out_of_memory, users_own, prolog_fails, person_drains, gate_refuses,
)  # fmt: skip


@pytest.fixture(scope="module")
def week() -> Iterator[tuple[Path, list[Fault]]]:
    """The site after all faults, with each verdict final or its time known."""
    with whole_site() as site:
        good = started(site, mini.ring(3, 10, 10))
        runs(good, "COMPLETED", limit=120)
        faults = []
        for inject in FAULTS:
            before = faults[-1].name if faults else "the start"
            if inject is not advisor_drains:  # it may have drained the node already
                within(300, all_idle, f"nodes idle, after {before}: {mini.node_states()}")
            faults.append(inject(site))
        wanted = {fault.run for fault in faults if fault.run}
        end = time.monotonic() + FINAL_S
        while time.monotonic() < end and not wanted <= {v["name"] for v in verdicts(site) if v["final"]}:
            time.sleep(5)
        time.sleep(20)
        yield site, faults


def verdicts(site: Path) -> list[dict[str, Any]]:
    return [one for one in lines(site / "seen") if one["kind"] == "verdict"]


def epoch(text: str) -> float:
    return (
        datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        if "+" not in text
        else datetime.fromisoformat(text).timestamp()
    )


def first_word(site: Path, fault: Fault) -> float | None:
    """When an answer first was about this fault: an incident on its host, its run's verdict, or a drain of its host."""
    for one in lines(site / "seen"):
        if one["at"] < fault.at:
            continue
        about = {
            "incident": lambda one: (
                fault.host in (one["hosts"] or ()) and epoch(one["start"].replace("Z", "+00:00")) >= fault.at - 30
            ),
            "verdict": lambda one: one["name"] == fault.run and one["category"] is not None,
            "drain": lambda one: (
                one["host"] == fault.host and epoch(one["name"].split()[1].replace("Z", "+00:00")) >= fault.at - 5
            ),
        }
        if about[one["kind"]](one):
            return float(one["at"])
    return None


def seconds(moment: float | None, fault: Fault) -> str:
    return "-" if moment is None else f"{moment - fault.at:.0f}"


def test_each_fault_is_stated_within_seconds_and_ends_in_the_right_verdict(
    week: tuple[Path, list[Fault]], measured: Measured
) -> None:
    site, faults = week
    wrong = []
    for fault in faults:
        stated = [one for one in verdicts(site) if one["name"] == fault.run]
        right = next((one["at"] for n, one in enumerate(stated)
                      if all(later["category"] == fault.category for later in stated[n:])), None)  # fmt: skip
        final = next((one["at"] for one in stated if one["final"]), None)
        will = epoch(stated[-1]["final_at"].replace("Z", "+00:00")) if stated and stated[-1]["final_at"] else None
        ends = seconds(final, fault) if final is not None or will is None else f"{seconds(will, fault)} (announced)"
        measured(f"{fault.name}: first word {seconds(first_word(site, fault), fault)} s, verdict as it stays {seconds(right, fault)} s, "
                 f"final {ends} s: {stated[-1]['category'] if stated else 'no job hurt'}")  # fmt: skip
        if first_word(site, fault) is None or (fault.run and (right is None or (FINAL_S and final is None))):
            wrong.append((fault, stated[-1:]))
    assert not wrong


def test_the_user_gets_the_answer_by_munge_and_only_her_own(week: tuple[Path, list[Fault]], measured: Measured) -> None:
    """From the bare package, by the machine's own Python, which has none of the service's packages."""
    _, faults = week
    hers = next(fault.run for fault in faults if fault.run and fault.host)
    his = next(fault.run for fault in faults if fault.name == "out of memory")
    command = [
        "env",
        "PYTHONPATH=/mnt",
        f"FAULTLINE_SERVER={SERVER}",
        "/usr/bin/python3",
        "-S",
        "-m",
        "faultline.entry",
        "why",
    ]
    begun = time.monotonic()
    done = inside("gpu01", [*command, str(hers)], user="alice", capture_output=True)
    measured(
        f"why {hers} by munge: {time.monotonic() - begun:.1f} s: {done.stdout.splitlines()[0] if done.stdout else done.stderr}"
    )
    assert done.returncode == 0 and "infra.network" in done.stdout, done.stderr
    other = inside("gpu01", [*command, str(his)], user="alice", capture_output=True)
    assert other.returncode != 0 and "no such job that you may see" in other.stderr, other


def test_no_run_is_left_without_a_state_or_a_verdict(week: tuple[Path, list[Fault]]) -> None:
    site, _ = week
    jobs = query(
        site,
        "Jobs | where isnotnull(End) or isempty(State) | project JobId, Attempt, State, Category, User | order by JobId asc",
    )
    phantoms = [row for row in jobs if not row[2] or (row[2] != "COMPLETED" and not row[3])]
    assert jobs and phantoms == []


def test_each_mail_is_about_a_fault_that_hurt_somebody(week: tuple[Path, list[Fault]], measured: Measured) -> None:
    """None about a quiet log, none about a fault that hurt nobody, and what changes stays in its fault's thread."""
    site, faults = week
    mails = lines(site / "mails")
    # By the cluster: what a user's own program did is no reason for a mail to an operator.
    hurt = {run for one in faults if (one.category or "").startswith("infra.") for run in (one.run, f"{one.run}#1")}
    useless = []
    for mail in mails:
        jobs = {str(job["job_id"]) for job in (mail["incident"] or {}).get("jobs", ())}
        useful = bool(jobs & hurt) or any(word in mail["title"] for word in ("Prolog", "prolog", "Xid", "GPU"))
        measured(
            f"mail {'useful' if useful else 'USELESS'}: thread {mail['thread']}, number {mail['number']}: {mail['text'].splitlines()[0]}"
        )
        useless += [] if useful else [mail["text"]]
    measured(
        f"mails: {len(mails)} in {len({mail['thread'] for mail in mails})} threads, {len(useless)} useless; {len(NODES) + 2} hosts"
    )
    assert mails and not useless
