"""A log tree with users' names, links and files: they are never taken for the cluster's, and block nothing."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from collector import files as reading
from collector import ingest as ingesting
from collector.ingest import FileResult, Ingest, Options, Report
from faultline.cli import run
from store import open_store
from store.duckdb.store import DuckStore
from tests.line_parser import line_parser

PARSER = line_parser()
ALICE, MALLORY = 20001, 20003
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python, GPU has fallen off the bus."
NODE_LINE = "2026-11-22T10:10:55.000000+00:00 gpu70 kernel: [  123.456789] "
DOWN = "[2026-11-22T10:10:55.000] error: Nodes gpu70 not responding, setting DOWN\n"
SACCT = (
    "JobID|JobIDRaw|JobName|User|UID|Cluster|State|ExitCode|Submit|Start|End|NodeList\n"
    "9005|9005|slow|alice|20001|mini|FAILED|1:0|2026-11-22T10:00:00|2026-11-22T10:01:00|2026-11-22T10:11:00|gpu70\n"
)
PROM = 'DCGM_FI_DEV_XID_ERRORS{gpu="0",Hostname="gpu70"} 79\n'
CANCELLED = "slurmstepd-gpu73: error: *** JOB 9005 ON gpu73 CANCELLED AT 2026-11-22T10:10:59 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"
OUTPUT = "SELECT DISTINCT file, job_id FROM raw.logs WHERE source LIKE 'job_%'"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of several users")

#: What a user may write into the folder of a job's files, with its content.
FORGED = {
    "slurm.conf": "ClusterName=evil\nSlurmctldHost=ctl\nSlurmdTimeout=3600\nNodeName=gpu[70-73] CPUs=8\n",
    "inventory/links.csv": "host,device,switch,switch_port,plane\ngpu70,eth0,leaf66,Ethernet1,management\n",
    "nodes/gpu70/kern.log": NODE_LINE + XID + "\n",
    "hosts/gpu70/dmesg.log": f"[  123.456789] {XID}\n",
    "nodes/gpu70/class/infiniband/mlx5_0/ports/1/counters/symbol_error": "77\n",
    "controller/slurmctld.log": DOWN,
    "slurmctld.log": DOWN,
    "restart-1/slurmctld.log": DOWN,
    "switches/leaf01/syslog": "Nov 22 10:10:55 leaf01 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet1, changed state to down\n",
    "accounting/sacct.txt": SACCT.replace("alice", "mallory"),
    "sacct.json": '{"meta": {"plugin": {"type": "openapi/dbv0.0.39"}}, "jobs": [{"job_id": 9005, "association": {"user": "mallory"}}]}',
    "metrics/gpu70/1795000000.prom": PROM,
    "9001.epilog.gpu70.1.1.hook": "faultline-hook/1\nFAULTLINE_EVENT=epilog\0SLURM_JOB_ID=9005\0SLURM_JOB_UID=20003\0",
    "kmsg.jsonl": json.dumps({"read_at": 1795000000.0, "kmsg_us": 5, "text": XID, "level": 2}) + "\n",
    "topology.conf": "SwitchName=leaf66 Nodes=gpu[70-73]\n",
    "syslog": NODE_LINE + XID + "\n",
    "journal.json": json.dumps({"_HOSTNAME": "gpu70", "_TRANSPORT": "kernel", "__REALTIME_TIMESTAMP": "1795000000000000", "MESSAGE": XID}) + "\n",
    "jobs/9005/stdout": CANCELLED,
    "jobs/9005/env": "SLURM_JOB_ID=9005\nNCCL_IB_TIMEOUT=1\n",
    "sub/env": "SLURM_JOB_ID=9005\nNCCL_IB_TIMEOUT=1\n",
    "slurm-9005.out": CANCELLED,
}  # fmt: skip


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def ingest(store: DuckStore, *paths: Path, **options: Any) -> Report:
    return Ingest(store, Options(**options), parser=PARSER).run(list(paths))


def of(report: Report, name: str) -> FileResult:
    (found,) = [f for f in report.files if f.path.name == name]
    return found


def raws(store: DuckStore) -> list[str]:
    return [r["raw"] for r in store.rows("SELECT raw FROM raw.logs ORDER BY file, line")]


def machines_words(store: DuckStore) -> list[dict[str, Any]]:
    return store.rows("""SELECT source, host, event, job_id, raw FROM raw.logs
        WHERE host IS NOT NULL OR source NOT IN ('job_stdout', 'job_stderr') OR (event NOT LIKE 'job.%' AND event <> 'other')
           OR job_id IS DISTINCT FROM 9002""")


@pytest.fixture
def store() -> Any:
    with open_store(None) as opened:
        yield opened


@pytest.mark.parametrize("below", ["jobs/9002", "jobs/mine"])
def test_what_lies_below_jobs_is_that_jobs_or_nothing(store: DuckStore, tmp_path: Path, below: str) -> None:
    """Each file is the only one of a tree, and all are in one store."""
    for number, (name, text) in enumerate(FORGED.items()):
        report = ingest(store, write(tmp_path, f"{number}/{below}/{name}", text).parents[name.count("/") + 2])
        (result,) = report.files
        assert result.status in ("stored", "left"), name
    for table in ("jobs", "steps", "node_states", "metrics", "settings", "links", "topology", "boots", "artifacts"):
        rows = store.rows(f"SELECT * FROM raw.{table}")
        assert [r for r in rows if r.get("job_id") != 9002] == [], table
    stated = machines_words(store)
    if below == "jobs/mine":  # of a job without a number
        stated = [r for r in stated if r["job_id"] is not None or r["source"] != "job_stdout" or r["host"]]
    assert stated == []


@pytest.mark.parametrize("named", ["jobs", "jobs/9002", "jobs/9002/nodes", "jobs/9002/nodes/gpu70/kern.log"])
def test_naming_a_folder_in_there_changes_nothing(store: DuckStore, tmp_path: Path, named: str) -> None:
    write(tmp_path, "tree/jobs/9002/nodes/gpu70/kern.log", FORGED["nodes/gpu70/kern.log"])
    ingest(store, tmp_path / "tree" / named, source="kernel")
    assert [(r["source"], r["host"], r["job_id"]) for r in store.rows("SELECT * FROM raw.logs")] == [
        ("job_stdout", None, 9002)
    ]


def test_a_folder_of_jobs_above_what_was_named_says_nothing(store: DuckStore, tmp_path: Path) -> None:
    write(tmp_path, "jobs/site/nodes/gpu70/kern.log", FORGED["nodes/gpu70/kern.log"])
    ingest(store, tmp_path / "jobs" / "site")
    assert [(r["source"], r["host"], r["event"]) for r in store.rows("SELECT * FROM raw.logs")] == [
        ("kernel", "gpu70", "gpu.xid")
    ]


@pytest.mark.parametrize("number", ["9" * 19, "٣", "9²"])
def test_no_number_no_job(store: DuckStore, tmp_path: Path, number: str) -> None:
    write(tmp_path, f"tree/jobs/{number}/stdout", "hello\n")
    write(tmp_path, f"tree/jobs/x-{number}.out", "hello\n")
    ingest(store, tmp_path / "tree")
    assert {r["job_id"] for r in store.rows("SELECT job_id FROM raw.logs")} == {None} and len(raws(store)) == 2


# --------------------------------------------------------------------------------------------------------------- links


def test_a_link_below_jobs_is_not_followed(store: DuckStore, tmp_path: Path) -> None:
    secret = write(tmp_path, "shadow", "TOPSECRET\n")
    inside = write(tmp_path, "tree/nodes/gpu72/syslog", NODE_LINE + "fine\n")
    jobs = tmp_path / "tree" / "jobs" / "9002"
    jobs.mkdir(parents=True)
    (jobs / "stdout").symlink_to(secret)
    (jobs / "stderr").symlink_to(inside)
    (jobs / "restart-1").symlink_to(tmp_path)
    (tmp_path / "tree" / "latest.log").symlink_to(jobs / "stdout")
    report = ingest(store, tmp_path / "tree")
    assert len(raws(store)) == 1 and "fine" in raws(store)[0]
    assert {f.path.name for f in report.files if f.status == "left"} == {"stdout", "stderr", "restart-1", "latest.log"}
    assert all("link" in f.warnings[0] for f in report.files if f.status == "left") and not report.troubled


def test_the_operators_links_are_followed(store: DuckStore, tmp_path: Path) -> None:
    real = write(tmp_path, "real/nodes/gpu70/syslog", NODE_LINE + "fine\n")
    (tmp_path / "named").symlink_to(tmp_path / "real")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "log").symlink_to(real)
    ingest(store, tmp_path / "named")
    assert len(raws(store)) == 1
    ingest(store, tmp_path / "tree")  # the operator's own link, out of the tree: the same file
    assert len(raws(store)) == 1
    with open_store(None) as other:
        ingest(other, tmp_path / "tree" / "log")
        assert len(raws(other)) == 1


@needs_root
def test_a_strangers_link_leads_nowhere_but_within_the_tree(store: DuckStore, tmp_path: Path) -> None:
    secret, logs = write(tmp_path, "shadow", "TOPSECRET\n"), tmp_path / "tree" / "nodes" / "gpu70"
    write(logs, "syslog.1", NODE_LINE + "fine\n")
    (logs / "messages").symlink_to(secret)
    (logs / "syslog").symlink_to(logs / "syslog.1")
    hop = tmp_path / "hop"
    hop.symlink_to(secret)
    (logs / "kern.log").symlink_to(hop)  # the operator's, over a stranger's
    for link in (logs / "messages", logs / "syslog", hop):
        os.lchown(link, MALLORY, MALLORY)
    report = ingest(store, tmp_path / "tree")
    assert len(raws(store)) == 1 and {f.path.name for f in report.files if f.status == "left"} == {
        "messages",
        "kern.log",
    }


@needs_root
def test_a_hard_link_to_somebody_elses_file_is_left_alone(store: DuckStore, tmp_path: Path) -> None:
    secret = write(tmp_path, "shadow", "TOPSECRET\n")
    own = write(tmp_path, "tree/jobs/9002/stdout", "my own\n")
    os.link(own, tmp_path / "backup")
    os.link(secret, own.parent / "stderr")
    for path in (own, own.parent):
        os.chown(path, MALLORY, MALLORY)
    (tmp_path / "tree" / "jobs").chmod(0o1777)
    os.link(secret, tmp_path / "tree" / "jobs" / "x-9002.out")
    report = ingest(store, tmp_path / "tree")
    assert raws(store) == ["my own"]
    assert {f.path.name for f in report.files if f.status == "left"} == {"stderr", "x-9002.out"}


def test_a_path_that_became_a_link_is_not_opened(tmp_path: Path) -> None:
    secret = write(tmp_path, "real/shadow", "TOPSECRET\n")
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "folder").symlink_to(secret.parent)
    for path in (tmp_path / "link", tmp_path / "folder" / "shadow"):
        with pytest.raises(OSError):
            reading.head_of(path)
    assert reading.head_of(secret) == b"TOPSECRET\n"


# ------------------------------------------------------------------------------------------------------- whose output


@needs_root
def test_a_files_name_claims_a_job_of_its_owner_only(store: DuckStore, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    write(tree, "zz/sacct.txt", SACCT)  # processed after the files because of its name
    for name, uid in (("jobs/evil-9005.out", MALLORY), ("jobs/slow-9005.out", ALICE), ("home/slurm-9005.out", MALLORY),
                      ("jobs/9005/stderr", MALLORY), ("jobs/new-9009.out", MALLORY)):  # fmt: skip
        os.chown(write(tree, name, CANCELLED), uid, uid)
    report = ingest(store, tree)
    jobs = {Path(r["file"]).name: r["job_id"] for r in store.rows(OUTPUT)}
    assert jobs == {
        "evil-9005.out": None, "slow-9005.out": 9005, "slurm-9005.out": None, "stderr": None, "new-9009.out": 9009,
    }  # fmt: skip
    assert {r["job_id"] for r in store.rows("SELECT job_id FROM raw.artifacts")} == {9005, 9009}
    assert "20003" in of(report, "evil-9005.out").warnings[0] and "9005" in of(report, "evil-9005.out").warnings[0]


def test_a_folder_of_the_collectors_is_surer_than_a_name_beside_it(store: DuckStore, tmp_path: Path) -> None:
    """As a tree that one user unpacked: the file system gives no evidence about users."""
    write(tmp_path, "tree/accounting/sacct.txt", SACCT)
    write(tmp_path, "tree/jobs/9005/stdout", "epoch 1\n")
    write(tmp_path, "tree/jobs/evil-9005.out", CANCELLED)
    write(tmp_path, "tree/jobs/ring-9007.out", "epoch 1\n")
    ingest(store, tmp_path / "tree")
    jobs = {Path(r["file"]).name: r["job_id"] for r in store.rows(OUTPUT)}
    assert jobs == {"stdout": 9005, "evil-9005.out": None, "ring-9007.out": 9007}


SCONTROL = (
    "JobId={} JobName={} UserId={}({}) JobState=FAILED Restarts=0 ExitCode=1:0 SubmitTime=2026-11-22T10:00:00 StartTime=2026-11-22T10:01:00"
    " EndTime=2026-11-22T10:11:00 NodeList=gpu70 WorkDir=/home/x StdErr={} StdIn=/dev/null StdOut={}\n"
)
FIT, TRAIN = "/home/alice/fit-9005.out", "/home/mallory/train-9005.out"


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        pytest.param(
            SCONTROL.format(9005, "fit", "alice", ALICE, FIT, FIT)
            + SCONTROL.format(9006, "train", "mallory", MALLORY, TRAIN, TRAIN),
            {"fit-9005.out": 9005, "train-9005.out": 9006},
            id="Slurm names both",
        ),
        pytest.param(
            SCONTROL.format(9005, "fit", "alice", ALICE, FIT, FIT),
            {"fit-9005.out": 9005, "train-9005.out": None},
            id="Slurm names her own",
        ),
        pytest.param(
            SCONTROL.format(9006, "train", "mallory", MALLORY, TRAIN, TRAIN)
            + SCONTROL.format(9005, "fit", "alice", ALICE, "(null)", "(null)"),
            {"fit-9005.out": 9005, "train-9005.out": None},
            id="Slurm names his own",
        ),
        pytest.param(
            SACCT.replace("slow", "fit"),
            {"fit-9005.out": 9005, "train-9005.out": None},
            id="only one has the job's name",
        ),
        pytest.param(
            SCONTROL.format(9005, "fit", "alice", ALICE, TRAIN, FIT),
            {"fit-9005.out": 9005, "train-9005.out": 9005},
            id="both are hers",
        ),
        pytest.param(
            SCONTROL.format(9005, "fit", "alice", ALICE, "/home/alice/train-9004.out", FIT),
            {"fit-9005.out": 9005, "train-9005.out": 9005},
            id="a name that differs in numbers only",
        ),
    ],
)
def test_a_file_belongs_to_the_job_that_slurm_says(
    store: DuckStore, tmp_path: Path, named: str, expected: dict[str, int | None]
) -> None:
    """As a tree that a collector copied: nobody owns anything."""
    write(tmp_path, "tree/slurm/" + ("sacct.txt" if named.startswith("JobID|") else "jobs.after.txt"), named)
    for name in expected:
        write(tmp_path, f"tree/jobs/{name}", CANCELLED)
    report = ingest(store, tmp_path / "tree")
    assert {Path(r["file"]).name: r["job_id"] for r in store.rows(OUTPUT)} == expected
    moved = {name for name, job in expected.items() if job != 9005}
    assert {f.path.name for f in report.files if f.warnings} == moved


@needs_root
def test_an_owner_is_surer_than_what_slurm_names(store: DuckStore, tmp_path: Path) -> None:
    """A program of hers wrote it beside the output that Slurm names."""
    tree = tmp_path / "tree"
    write(tree, "slurm/jobs.after.txt", SCONTROL.format(9005, "fit", "alice", ALICE, FIT, FIT))
    os.chown(write(tree, "jobs/metrics-9005.log", CANCELLED), ALICE, ALICE)
    os.chown(write(tree, "jobs/train-9005.out", CANCELLED), MALLORY, MALLORY)
    ingest(store, tree)
    jobs = {Path(r["file"]).name: r["job_id"] for r in store.rows(OUTPUT)}
    assert jobs == {"metrics-9005.log": 9005, "train-9005.out": None}


# -------------------------------------------------------------------------------------------- what would never end


def test_what_is_no_file_is_named_and_blocks_nobody(store: DuckStore, tmp_path: Path) -> None:
    write(tmp_path, "tree/jobs/9002/stderr", "hello\n")
    os.mkfifo(tmp_path / "tree/jobs/9002/stdout")
    os.mkfifo(tmp_path / "tree/kern.log")
    (tmp_path / "tree/round").symlink_to(tmp_path / "tree/round")
    (tmp_path / "tree/a").symlink_to(tmp_path / "tree")
    report = ingest(store, tmp_path / "tree")
    assert raws(store) == ["hello"]
    assert "a FIFO" in of(report, "stdout").warnings[0] and "a FIFO" in of(report, "kern.log").warnings[0]
    assert "circle" in of(report, "round").warnings[0]


def test_a_fifo_that_takes_a_files_place_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        reading.head_of(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["jobs/9002/stdout", "jobs/9002/script.sh", "jobs/9002/env", "nodes/gpu70/syslog"])
def test_a_terabyte_of_holes_is_read_up_to_the_first(store: DuckStore, tmp_path: Path, name: str) -> None:
    path = write(tmp_path, f"tree/{name}", "A=1\n" * 5000)
    os.truncate(path, 1 << 40)
    if path.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("a file system without holes")
    report = ingest(store, tmp_path / "tree")
    (found,) = report.files
    assert found.status == "partial" and "holes" in found.warnings[-1]


def test_a_line_without_an_end_is_bounded(store: DuckStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_LINE", 1 << 20)
    write(tmp_path, "tree/jobs/9002/stdout", b"first\n" + b"x" * (12 << 20) + b"\nlast\n")
    report = ingest(store, tmp_path / "tree")
    assert raws(store) == ["first"] and report.files[0].status == "partial"
    assert "no line ends within" in report.files[0].warnings[-1]


def test_so_much_of_a_jobs_file_is_read(store: DuckStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingesting, "JOB_OUTPUT_BYTES", 100_000)
    monkeypatch.setattr(ingesting, "JOB_FILE_BYTES", 100_000)
    for name in ("jobs/9002/stdout", "jobs/9002/script.sh", "nodes/gpu70/syslog"):
        write(tmp_path, f"tree/{name}", "0123456789abcde\n" * 10_000)
    report = ingest(store, tmp_path / "tree")
    assert of(report, "stdout").status == of(report, "script.sh").status == "partial"
    assert "more than 100,000 bytes" in of(report, "stdout").warnings[-1]
    assert (of(report, "syslog").status, of(report, "syslog").lines) == ("stored", 10_000)


def test_names_of_users_print_one_line_each(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    jobs = tmp_path / "tree" / "jobs" / "9002"
    jobs.mkdir(parents=True)
    for name in (b"\x1b]0;owned\x07", b"x\nfaultline: all is well", b"\xff\xfe", "\x9b31m\u202e".encode()):
        (jobs / os.fsdecode(name)).symlink_to("/etc/shadow")
    for number in range(70):
        (jobs / f"link{number:02}").symlink_to("/etc/shadow")
    assert run(["ingest", str(tmp_path / "tree"), "--data", str(tmp_path / "data")]) == 0
    stated = capfd.readouterr().err
    assert not {c for c in stated if c != "\n" and (c < " " or "\x7f" <= c <= "\x9f" or c == "\u202e")}
    assert sum(line.startswith("faultline: ") for line in stated.splitlines()) == 51
    assert "faultline: all is well" not in stated.splitlines() and "24 more files were left alone" in stated


def test_files_in_the_tree_are_what_they_were(tmp_path: Path, store: DuckStore) -> None:
    """Files are opened for reading only: a FIFO with a writer is not drained."""
    path = write(tmp_path, "tree/nodes/gpu70/syslog", NODE_LINE + "fine\n")
    before = path.stat()
    ingest(store, tmp_path / "tree")
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == stat.S_IMODE(before.st_mode) and after.st_mtime_ns == before.st_mtime_ns


def test_a_file_whose_name_is_no_text_stops_nothing(tmp_path: Path) -> None:
    jobs = tmp_path / "logs" / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "train-1234567.out").write_text("step 1\n")
    try:
        Path(os.fsdecode(os.fsencode(jobs) + b"/x\xff-1234567.out")).write_text("Traceback (most recent call last):\n")
    except OSError:
        pytest.skip("the file system takes no such name")
    with open_store(None) as store:
        Ingest(store, workers=1).run([tmp_path / "logs"])
        assert store.rows("SELECT count(*) AS n FROM raw.logs WHERE contains(raw, 'step 1')") == [{"n": 1}]
