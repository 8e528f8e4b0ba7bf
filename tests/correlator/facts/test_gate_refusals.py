"""A job that Faultline's gate refused: Slurm logs a failed prolog, and the verdict names the check that found the node unfit.

The site is that of a capture of a real Slurm 22.05 in which gpu02's prolog fails; beside it lies the record that the gate leaves.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate
from correlator.facts.control import PROLOG_FAILURE, UNFIT, _refused
from parsers.documents import read as parse_document
from parsers.record import Origin
from store import open_store
from tests.correlator.making import T0, event, world
from tests.line_parser import remembering

CAPTURE = Path(__file__).resolve().parents[2] / "captures" / "prolog_fails"
#: Its prolog failed at this moment.
AT = 1795272189.681
SAID = (
    "unfit gpu02 (answer of the service 71 s ago)\n"
    "  - GPU 0000:1b:00 reported Xid 79 (the GPU no longer answers on the bus) [NVRM: Xid 79, pid=9, name=bobs_job, since 2026-11-21T14:01:07Z]\n"
    "  - an open incident has its cause here: gpu02 rebooted. Slurm ended job 77 as NODE_FAIL. [incident I-1]"
)
XID = "GPU 0000:1b:00 reported Xid 79 (the GPU no longer answers on the bus), since 2026-11-21 14:01 UTC"


def record(**more: str) -> bytes:
    env = {
        "FAULTLINE_EVENT": "gate", "FAULTLINE_HOST": "gpu02", "FAULTLINE_TIME": f"{AT - 0.02:.3f}", "SLURM_JOB_ID": "1",
        "SLURM_CLUSTER_NAME": "mini", "SLURM_JOB_RESTART_COUNT": "0", "FAULTLINE_GATE_ANSWER": SAID, **more,
    }  # fmt: skip
    return b"faultline-hook/1\n" + b"\0".join(f"{name}={value}".encode() for name, value in env.items())


def concluded(
    tmp_path: Path, *records: bytes, folder: str = "hosts/gpu02/hooks"
) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """The verdict on the job's first run, all incidents, and the texts of all lines about the gate."""
    site = tmp_path / "site"
    shutil.copytree(CAPTURE, site)
    for number, data in enumerate(records):
        file = site / folder / f"1.gate.gpu02.{number}.hook"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    with open_store(None) as store:
        Ingest(store, parser=remembering()).run([site])
        (found,) = correlate(store)
        lines = store.frame("SELECT raw FROM raw.log_view WHERE event = 'sys.gate_refused'")["raw"].to_list()
    return found.verdicts["1"], list(found.incidents), "\n".join(lines)


def test_the_verdict_names_the_check_and_the_node(tmp_path: Path) -> None:
    verdict, incidents, line = concluded(tmp_path, record())
    (incident,) = [one for one in incidents if one["root_cause"]["event"] == "node.unfit"]
    assert verdict["incident_id"] == incident["id"]
    assert (verdict["category"], incident["root_cause"]["host"]) == ("infra.node", "gpu02")
    assert f"gpu02 was found unfit by Faultline's gate: {XID}" in verdict["summary"]
    assert "job 1 ended REQUEUED" in verdict["summary"] and "prolog failed" not in verdict["summary"]
    assert "faultline node gpu02" in [step["command"] for step in verdict["advice"]]
    # The job's user sees this line: what the reasons quote, and the lesser ones, may be about other users' processes and jobs.
    assert "Xid 79" in line and line.endswith("; and 1 more") and "bobs_job" not in line and "77" not in line
    assert any("Faultline's gate refused job 1" in one["message"] for one in verdict["evidence"])


WITHHELD = "reason withheld (the agent is older than its hooks)"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("Xid 79 (the bus) (NVRM: Xid 79, pid=9, name=bobs_job, since 2026-11-21T14:01:07Z)", WITHHELD),
        ("Xid 79 (the bus) (NVRM: name=bobs_job [x], since 2026-11-21T14:01:07Z)", WITHHELD),
        ("Xid 79 (the bus) (NVRM: name=bobs_job [x], since...", WITHHELD),
        ("rdma0 is down (seen by the agent)", WITHHELD),
        ("Xid 79 (the bus) [NVRM: name=bobs_job [x] (y)]", "Xid 79 (the bus)"),
        ("the service has not been reached for 3 h", "the service has not been reached for 3 h"),
    ],
)
def test_an_agent_older_than_its_hooks_quotes_nothing_to_the_jobs_user(reason: str, shown: str) -> None:
    """It wrote evidence in round brackets, as a reason itself may have: what is the quoted line cannot be distinguished."""
    data = record(FAULTLINE_GATE_ANSWER=f"unfit gpu02 (answer of the service 71 s ago)\n  - {reason}")
    (line,) = parse_document("hook_spool", data, Origin(host="gpu02")).rows("logs").to_dicts()
    assert line["raw"].partition("s ago): ")[2] == shown and "bobs_job" not in str(line)


@pytest.mark.parametrize(
    ("data", "folder"),
    [
        pytest.param(record(SLURM_JOB_ID="2"), "hosts/gpu02/hooks", marks=pytest.mark.long),
        (record(FAULTLINE_TIME=f"{AT - 3600:.3f}"), "hosts/gpu02/hooks"),
        pytest.param(record(FAULTLINE_HOST="gpu01"), "hosts/gpu01/hooks", marks=pytest.mark.long),
        (record(FAULTLINE_GATE_ANSWER="doubtful gpu02 (x)\n  - it is a lemon"), "hosts/gpu02/hooks"),
        pytest.param(record(FAULTLINE_GATE_ANSWER=""), "hosts/gpu02/hooks", marks=pytest.mark.long),
        (record(), "hosts/gpu02/task-hooks"),  # users write there
        pytest.param(record(FAULTLINE_EVENT="taskprolog"), "hosts/gpu02/hooks", marks=pytest.mark.long),
    ],
    ids=["another job", "an hour before", "another node", "doubtful", "without reason", "a user's", "a task prolog's"],
)
def test_what_proves_no_refusal_leaves_a_failed_prolog(data: bytes, folder: str, tmp_path: Path) -> None:
    verdict, incidents, _ = concluded(tmp_path, data, folder=folder)
    assert {one["root_cause"]["event"] for one in incidents} == {"slurm.prolog_failure"}
    assert "the prolog failed on gpu02" in verdict["summary"]


@pytest.mark.parametrize("more", [{"FAULTLINE_EVENT": "taskprolog"}, {"FAULTLINE_GATE_ANSWER": ""}, {}])
def test_only_a_whole_record_of_the_gate_is_a_line(more: dict[str, str]) -> None:
    found = parse_document("hook_spool", record(**more), Origin(host="gpu02"))
    assert len(found.rows("logs")) == (not more) and not len(found.rows("jobs")), "a task prolog's words are a user's"


@pytest.mark.parametrize(
    ("host", "job", "at", "is_of_it"),
    [("gpu02", 1, 0.0, True), ("gpu01", 1, 0.0, False), ("gpu02", 2, 0.0, False), ("gpu02", 1, -3600.0, False)],
)
def test_a_refusal_is_of_a_failed_prolog_of_its_job_on_its_node(host: str, job: int, at: float, is_of_it: bool) -> None:
    """What the long cases above show of whole trees."""
    failed = PROLOG_FAILURE.fact(T0, T0, 0.1, host="gpu02", run="1", attrs={"which": "prolog"})
    refusal = event("sys.gate_refused", at, host, job_id=job, reason="Xid 79")
    assert (_refused(failed, world([refusal])).attrs.get(UNFIT) is not None) is is_of_it


def test_a_site_that_goes_on_after_the_gate_has_no_refused_job(tmp_path: Path) -> None:
    """The record alone ends no job."""
    site = tmp_path / "site"
    shutil.copytree(CAPTURE.with_name("job_faults"), site)
    file = site / "hosts/gpu02/hooks/1.gate.gpu02.1.hook"
    file.parent.mkdir(parents=True)
    file.write_bytes(record())
    with open_store(None) as store:
        Ingest(store, parser=remembering()).run([site])
        assert "node.unfit" not in {one["root_cause"]["event"] for one in correlate(store)[0].incidents}
