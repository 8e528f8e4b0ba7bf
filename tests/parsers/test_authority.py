"""Who can have written a line: what one line alone shows (parsers/authority.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parsers import documents
from parsers.patterns import load
from parsers.recognise import recognise
from parsers.record import Origin
from tests.line_parser import line_parser

PARSER = line_parser()
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
JOURNAL = (
    '{"_HOSTNAME":"gpu70","SYSLOG_IDENTIFIER":"kernel",%s"__REALTIME_TIMESTAMP":"1795221017734309","MESSAGE":"'
    + XID
    + '"}'
)


def read(line: str, **origin: Any) -> dict[str, Any]:
    return PARSER.parse([line.encode()], Origin(**origin)).row(0, named=True)


@pytest.mark.parametrize("line", [
    JOURNAL % '"_TRANSPORT":"kernel",', f"[123.4] {XID}", f"kernel: {XID}", XID, f"<3>Nov 24 00:00:01 gpu70 kernel: {XID}",
    f"2026-11-24 00:00:01,5 - healthagent - ERROR - {XID}",
])  # fmt: skip
def test_what_a_job_prints_is_its_own_and_names_no_other(line: str) -> None:
    row = read(line, source="job_stdout", job_id=7)
    assert (row["source"], row["host"], row["facility"], row["job_id"], row["event"]) == (
        "job_stdout",
        None,
        None,
        7,
        "other",
    )
    assert "claims:gpu.xid" in row["tags"] and row["raw"] == line and "uptime" not in (row["entities"] or "")


def test_a_job_speaks_of_no_other_job() -> None:
    for line in (
        "slurmstepd: error: *** JOB 99 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***",
        "[2026-01-01T00:00:00.1] [99.0] error: Killed",
    ):
        assert read(line, source="job_stderr", job_id=7)["job_id"] == 7


def test_a_line_of_a_job_is_still_read_as_what_a_job_may_say() -> None:
    row = read("RuntimeError: CUDA error: uncorrectable ECC error encountered", source="job_stdout", job_id=7)
    assert row["event"] == "job.cuda_error"


@pytest.mark.parametrize(("line", "event"), [
    (f"<3>Nov 24 00:00:01 gx01 kernel: {XID}", "gpu.xid"),
    (f"Nov 24 00:00:01 gx01 kernel: [12.5] {XID}", "gpu.xid"),
    (f"<13>Nov 24 00:00:01 gx01 kernel: {XID}", "other"),
    (f"<27>Nov 24 00:00:01 gx01 kernel: {XID}", "other"),
    (f"Nov 24 00:00:01 gx01 kernel[77]: {XID}", "other"),
    (f"Nov 24 00:00:01 gx01 alice: {XID}", "other"),
    (f"2026-11-24T00:00:01+00:00 2026-11-24T00:00:01+00:00 gx01 user.err kernel {XID}", "other"),
    (JOURNAL % '"_TRANSPORT":"kernel",', "gpu.xid"),
    (JOURNAL % '"_TRANSPORT":"syslog","SYSLOG_FACILITY":"1","PRIORITY":"3","_PID":"77",', "other"),
    (JOURNAL % '"_TRANSPORT":"journal",', "other"),
    ("<13>Nov 24 00:00:01 gx01 slurmctld[7]: error: Nodes gx70 not responding, setting DOWN", "other"),
    ("<27>Nov 24 00:00:01 ctl slurmctld[7]: error: Nodes gx70 not responding, setting DOWN", "slurm.node_down"),
    ("Nov 24 00:00:01 gx01 systemd[1]: slurmd.service: Main process exited, code=exited, status=1/FAILURE", "sys.service_failed"),
])  # fmt: skip
def test_who_may_speak_as_whom_in_syslog(line: str, event: str) -> None:
    row = read(line)
    assert row["event"] == event
    assert row["source"] == "syslog" or event != "other"


@pytest.mark.parametrize(("noted", "event"), [
    ('"_UID":"0",', "gpu.xid"), ('"_UID":"0","_SYSTEMD_UNIT":"session-3.scope",', "gpu.xid"), ('"_UID":"996",', "gpu.xid"),
    ('"_UID":"61200",', "gpu.xid"), ('"_UID":"1001",', "other"), ('"_UID":"1001","_SYSTEMD_UNIT":"slurmd.service",', "other"),
    ('"_SYSTEMD_UNIT":"session-3.scope",', "other"), ('"_SYSTEMD_UNIT":"user@1001.service",', "other"),
    ('"_SYSTEMD_USER_UNIT":"nvidia.service",', "other"), ('"_UID":"5001","_SYSTEMD_UNIT":"slurmctld.service",', "gpu.xid"),
])  # fmt: skip
@pytest.mark.parametrize("host", ["gpu70", "gpu\\u00370"])
def test_what_journald_noted_of_the_writer_counts(noted: str, event: str, host: str) -> None:
    """Parsed by the compiled parser, and by the thorough one if a field has an escape."""
    stated = '"_TRANSPORT":"journal","PRIORITY":"3","SYSLOG_FACILITY":"3",' + noted
    row = read((JOURNAL % stated).replace('"kernel"', '"nvidia-smi"').replace("gpu70", host))
    assert (row["event"], row["host"]) == (event, "gpu70")
    assert event != "other" or "claims:gpu.xid" in row["tags"]


@pytest.mark.parametrize(
    "noted", [{"_UID": "1001"}, {"journald": {"uid": 1001}}, {"labels": {"__journal__uid": "1001"}}]
)
def test_what_a_shipper_reports_the_account_counts(noted: dict[str, Any]) -> None:
    for text in (XID, f"<3>Nov 24 00:00:01 gpu70 kernel: {XID}"):
        stated = {"message": text, "programname": "nvidia-smi", "host": "gx01", "timestamp": "2026-11-24T00:00:01Z"}
        assert read(json.dumps(stated))["event"] == "gpu.xid"
        row = read(json.dumps(stated | noted))
        assert (row["event"], row["host"], row["source"]) == ("other", "gx01", "syslog")


def test_many_lines_mean_what_each_means_alone() -> None:
    lines = [
        XID.encode(),
        f"[123.4] {XID}".encode(),
        b"RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ] * 100
    origin = Origin(source="job_stdout", job_id=7)
    many = PARSER.parse(lines, origin)
    alone = [PARSER.parse([line], origin).row(0, named=True) for line in lines[:3]]
    assert many["event"].to_list() == [row["event"] for row in alone] * 100
    assert many["tags"].to_list() == [row["tags"] for row in alone] * 100


def test_labels_of_many_ranks_are_read() -> None:
    """Polars has no look-ahead: with it, fifty lines of mpirun's could not be parsed."""
    rows = PARSER.parse([b"[1,0]<stderr>:RuntimeError: CUDA error: x"] * 500, Origin(source="job_stderr", job_id=7))
    assert set(rows["event"]) == {"job.cuda_error"}


def test_a_jobs_file_is_output_whatever_it_begins_with() -> None:
    for head in (
        b"faultline-hook/1\nSLURM_JOB_ID=9\0",
        b"JobID|JobIDRaw|User|State\n9|9|bob|FAILED\n",
        b"[2026-01-01T00:00:00.000] sched: x\n",
    ):
        for path in ("jobs/7/stdout", "jobs/7/mine.txt", "jobs/train-7.out"):
            found = recognise(path, head)
            assert (found.kind, found.source, found.job_id) == ("lines", "job_stdout", 7), (path, head)


def test_every_event_of_the_catalogue_belongs_to_somebody() -> None:
    of_jobs = {entry.event.partition(".")[0] for entry in load().entries if entry.of_job}
    assert of_jobs <= {"job", "site", "other", "slurm"}


def test_a_row_within_a_jobs_name_is_no_row_of_accounting() -> None:
    times = "2026-02-28T09:59:00|2026-02-28T10:00:00|2026-02-28T10:20:00"
    text = (
        "JobID|JobIDRaw|User|UID|JobName|State|ExitCode|Submit|Start|End|NodeList\n"
        f"41|41|alice|1001|x\n45|45|erin|1005|y|NODE_FAIL|0:0|{times}|gx02\ny|FAILED|1:0|{times}|gx01\n"
        f"45|45|erin|1005|z|COMPLETED|0:0|{times}|gx02\n"
    )
    jobs = documents.read("sacct", text.encode(), Origin(path="sacct.txt")).tables["jobs"].to_dicts()
    assert [(job["job_id"], job["user"], job["state"]) for job in jobs] == [
        (41, "alice", "FAILED"),
        (45, "erin", "COMPLETED"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "[  123.456789] NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.",
        "6,339,51400,-;NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.",
        "[2026-03-01T10:00:00.000] error: Nodes gpu02 not responding, setting DOWN",
    ],
)
@pytest.mark.parametrize("path", ["nodes/gpu01/messages", "/var/log/syslog.1", "hosts/gpu01/kern.log"])
def test_the_second_line_of_somebodys_message_is_no_line_of_the_kernel_or_a_daemon(line: str, path: str) -> None:
    """Found by reading: syslog-ng writes the line ends in a message as they are."""
    first = "Mar  1 10:00:00 gpu01 app[7]: hello"
    data = f"{first}\n{line}\n{first}\n".encode()
    whole, alone = (line_parser().parse_data(data, Origin(path=one, host="gpu01")) for one in (path, "nodes/gpu01/x"))
    assert set(alone["event"]) > {"other"} and set(whole["event"]) == {"other"}
    assert whole["source"].to_list() == ["syslog"] * 3 and whole["facility"][1] == "user"
