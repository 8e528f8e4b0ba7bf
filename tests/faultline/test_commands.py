"""The commands as people and scripts run them: outputs, exit codes, one line of error that says what to do."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from faultline.query import explain_job
from store import open_store
from tests.faultline.command import faultline
from web.app import create_app

CAPTURES = Path(__file__).parent.parent / "captures"
FLAP = CAPTURES / "mgmt_flap_long"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    done = faultline("ingest", FLAP, "--data", folder)
    assert done.returncode == 0, done.stderr.decode()
    return folder


def test_ingest_again_stores_nothing(data: Path) -> None:
    before = faultline("query", "Logs | count", "--data", data, "--format", "json").stdout
    again = faultline("ingest", FLAP, "--data", data)
    assert again.returncode == 0 and b"nothing new stored" in again.stdout
    assert faultline("query", "Logs | count", "--data", data, "--format", "json").stdout == before


def test_incidents_as_table_and_json(data: Path) -> None:
    assert b"gpu02" in faultline("incidents", "--data", data).stdout
    found = json.loads(faultline("incidents", "--data", data, "--format", "json").stdout)
    assert found["format"] == "corr-result/1"
    (incident,) = [i for i in found["incidents"] if i["severity"] == "impact"]
    assert incident["root_cause"] == {"event": "nic.link_down", "code": None, "host": "gpu02", "device": "eth0"}
    assert [j["job_id"] for j in incident["jobs"]] == ["15"] and "16" not in found["verdicts"]
    assert faultline("incidents", "--data", data, "--host", "gpu04").stdout.startswith(b"No incidents")


def test_why_shows_chain_lines_windows_and_rivals(data: Path) -> None:
    reported = faultline("why", "15", "--data", data)
    text = reported.stdout.decode()
    assert reported.returncode == 0
    assert "slurmctld.log:7" in text and "Killing JobId=15 on failed node gpu02" in text
    assert "allowed" in text and "SlurmdTimeout" in text and "Rivals rejected" in text
    machine = json.loads(faultline("why", "15", "--data", data, "--format", "json").stdout)
    assert machine["verdict"]["category"] == "infra.network" and machine["verdict"]["rivals"]


def test_why_shows_the_whole_traceback(tmp_path: Path) -> None:
    columns = "JobID|JobName|User|Partition|State|ExitCode|Submit|Start|End|NodeList"
    ran = "2026-03-02T04:00:00|2026-03-02T04:00:01|2026-03-02T04:11:11"
    (tmp_path / "accounting").mkdir()
    (tmp_path / "accounting/sacct.txt").write_text(f"{columns}\n901|fit|eva|gpu|FAILED|1:0|{ran}|n01\n")
    (tmp_path / "jobs/901").mkdir(parents=True)
    frames = [f'  File "/opt/fit.py", line {n}, in step{n}' for n in range(20)]
    lines = ["epoch 1", "Traceback (most recent call last):", *frames, "ValueError: loss is nan", "bye"]
    (tmp_path / "jobs/901/stdout").write_text("\n".join(lines) + "\n")
    data = tmp_path / "data"
    assert faultline("ingest", tmp_path / "accounting", tmp_path / "jobs", "--data", data).returncode == 0
    text = faultline("why", "901", "--data", data).stdout.decode()
    assert "Traceback (most recent call last)" in text and "step0" in text and "step19" in text
    assert "... 14 lines" in text and "step9" not in text and "epoch 1" not in text
    machine = json.loads(faultline("why", "901", "--data", data, "--format", "json").stdout)
    (error,) = [e for e in machine["verdict"]["evidence"] if e["event"] == "job.exit_error"]
    assert [row["line"] for row in error["lines"]] == [*range(2, 24)]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "slurm.conf",
            "ClusterName=c9\nSlurmctldHost=ctl\nSlurmdTimeout=120\nNodeName=n[1-4]\nnonsense\n",
            " line 5: no Key=Value",
        ),
        ("core", "\x7fELF\0\0\0", ": "),  # ingest's own message
    ],
)
def test_a_warning_of_ingest_has_the_path_once(name: str, text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    done = faultline("ingest", path, "--data", tmp_path / "data").stderr.decode()
    warnings = [line for line in done.splitlines() if str(path) in line]
    assert len(warnings) == bool(says) and all(f"faultline: {path}{says}" in line for line in warnings)
    assert [line.count(str(path)) for line in warnings] == [1] * len(warnings)


def test_why_of_a_good_and_of_an_unknown_job(data: Path) -> None:
    assert faultline("why", "16", "--data", data).returncode == 1
    unknown = faultline("why", "4711", "--data", data)
    assert unknown.returncode == 2 and unknown.stderr.count(b"\n") == 1 and b"4711" in unknown.stderr


def test_sources_are_those_of_the_api(data: Path) -> None:
    with open_store(data, read_only=True) as store:
        reported = TestClient(create_app(store)).get("/api/v1/sources").json()
    done = faultline("sources", "--data", data, "--format", "json")
    assert done.returncode == 0 and json.loads(done.stdout) == reported
    table = faultline("sources", "--data", data, "--search", "GPU02").stdout.decode().splitlines()
    rows = [row for row in table[1:] if not row.startswith("text filters: ")]  # those are about the whole store
    assert table[0].startswith("host") and rows and all("gpu02" in row.lower() for row in rows)
    assert faultline("sources", "--data", data, "--only", "nothing").returncode == 2


def test_query_formats_and_errors_with_position(data: Path) -> None:
    answer = json.loads(
        faultline(
            "query",
            "Events | where Event == 'nic.link_down' | summarize n=count() by Host",
            "--data",
            data,
            "--format",
            "json",
        ).stdout
    )
    assert answer == {
        "columns": [{"name": "Host", "type": "string"}, {"name": "n", "type": "long"}],
        "rows": [["gpu02", 1]],
    }
    wrong = faultline("query", "Logs | wher Host == 'x'", "--data", data)
    assert wrong.returncode == 2 and b"where" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ingest", "/no/such/place"], b"/no/such/place"),
        (["incidents", "--data", "/no/such/store"], b"/no/such/store"),
        (["incidents", "--since", "yesterdayish", "--data", "/tmp"], b"yesterdayish"),
        (["query"], b"--file"),
        (["report", "nothing-such"], b"failure-patterns"),
        (["frobnicate"], b"frobnicate"),
        (["serve", "--listen", "nowhere"], b"listen"),
        (["parse", "--timezone", "Mars/Olympus"], b"Mars/Olympus"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_2(arguments: list[str], said: bytes) -> None:
    done = faultline(*arguments)
    assert done.returncode == 2 and said in done.stderr
    assert b"Traceback" not in done.stderr and done.stderr.strip().count(b"\n") == 0


def test_parse_gives_one_object_per_line_in_order() -> None:
    lines = [
        b"2026-11-21T00:30:17.735551+00:00 gpu02 kernel: [260450.493079] igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down",
        b"\xff\xfe what \x00 is this", b"", b"[2026-11-21T00:30:52.709] error: Nodes gpu[01-02] not responding, setting DOWN",
    ]  # fmt: skip
    done = faultline("parse", stdin=b"\n".join(lines) + b"\n")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [r["event"] for r in rows] == ["nic.link_down", "other", "other", "slurm.node_down"]
    assert rows[0]["host"] == "gpu02" and rows[0]["time"] == "2026-11-21T00:30:17.735551Z"
    assert rows[0]["entities"]["pci"] == "0000:01:00.0" and rows[3]["entities"]["nodes"] == ["gpu01", "gpu02"]


def test_check_passes_and_names_a_broken_pattern(tmp_path: Path) -> None:
    assert faultline("check", cwd=tmp_path).returncode == 0
    pattern = tmp_path / "site.toml"
    pattern.write_text(
        '[[pattern]]\nid = "site-fan"\nevent = "site.fan"\nliteral = ["fan tray"]\nregex = "fan tray (?P<device>\\\\d+) failed"\nexample = "fan tray seven failed"\n'
    )
    config = tmp_path / "faultline.toml"
    config.write_text(f'patterns = ["{pattern}"]\n')
    broken = faultline("check", "--config", config, cwd=tmp_path)
    assert broken.returncode == 1 and b"site.toml" in broken.stdout and b"site-fan" in broken.stdout
    config.write_text("listne = 'x'\n")
    assert faultline("check", "--config", config, cwd=tmp_path).returncode == 2


def test_report_lists_and_writes(data: Path, tmp_path: Path) -> None:
    assert b"failure-patterns" in faultline("report", "--list").stdout
    out = tmp_path / "week.html"
    assert faultline("report", "failure-patterns", "--data", data, "--format", "html", "--out", out).returncode == 0
    assert "eth0" in out.read_text() and "<script" not in out.read_text()


def _answered(address: str) -> Any:
    """The first answer of an address: the first pass over waiting lines runs beside the service's start."""
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(address, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 404 or time.monotonic() > until:
                raise
        time.sleep(0.1)


@pytest.mark.long
def test_service_takes_in_hook_files_and_names_its_address(tmp_path: Path) -> None:
    spool = tmp_path / "hooks"
    spool.mkdir()
    pairs = ["FAULTLINE_EVENT=epilogslurmctld", "FAULTLINE_HOST=ctl", "FAULTLINE_TIME=1795221052.7", "SLURM_JOB_ID=77", "SLURM_JOB_USER=alice",
             "SLURM_CLUSTER_NAME=mini", "SLURM_JOB_NODELIST=gpu[01-02]", "SLURM_JOB_EXIT_CODE2=3:0"]  # fmt: skip
    (spool / "77.epilogslurmctld.ctl.1.1.hook").write_bytes(b"faultline-hook/1\n" + "\0".join(pairs).encode())
    config = tmp_path / "faultline.toml"
    config.write_text(f'data = "{tmp_path}/data"\nlisten = "127.0.0.1:0"\n[hooks]\nspool = "{spool}"\n')
    command = [sys.executable, "-m", "faultline.entry", "serve", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as service:
        assert service.stdout is not None
        address = service.stdout.readline().decode().split("Faultline is at ")[1].split()[0].rstrip("/")
        try:
            job = _answered(f"{address}/api/v1/jobs/77")
            assert (job["user"], job["exit_code"], job["nodes"]) == ("alice", 3, ["gpu01", "gpu02"])
            held = faultline("incidents", "--data", tmp_path / "data")
            assert held.returncode == 2 and address.encode() in held.stderr
            assert faultline("query", "Jobs | count", "--server", address).returncode == 0
        finally:
            service.terminate()
            service.wait(timeout=240)
    deadline = time.monotonic() + 120
    while (tmp_path / "data" / "service.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(spool.glob("*.hook")) and faultline("why", "77", "--data", tmp_path / "data").returncode == 1


#: What is loaded by ``--help``, ``incidents`` and the service, and what must not be loaded after it.
STARTS = (
    ("faultline.cli", "sqlalchemy polars duckdb fastapi numba pyparsing pydantic"),
    ("faultline.backends, faultline.terminal, correlator.incidents.stored", "fastapi numba pyparsing pydantic"),
    ("faultline.serving", "numba"),
)


def test_a_start_loads_only_what_it_needs() -> None:
    """Each name is 0.1 to 0.3 s of every start. One process, from the smallest start to the largest: what is loaded too
    early is printed after the start that loads it."""
    code = "import sys\n" + "".join(
        f"import {loaded}\nprint({loaded!r}, *set({without.split()}) & sys.modules.keys())\n"
        for loaded, without in STARTS
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()) == (0, [loaded for loaded, _ in STARTS]), done.stderr[-2_000:]


def test_why_names_the_run_that_did_not_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    """A job that was requeued and then ended well."""
    requeued = "18@2026-11-22T19:08:24"
    access: Any = SimpleNamespace(
        result=lambda: {"verdicts": {requeued: {"cluster": "mini"}}, "incidents": []},
        run_keys=lambda: [{"run_key": "18", "state": "COMPLETED"}, {"run_key": requeued, "state": "REQUEUED"}],
        run_named=lambda key: key,
        slowed=lambda key: [{"start": None, "end": None, "cause": f"of heat in {key}", "nodes": []}],
    )
    assert explain_job(access, "18", "text") == 1
    shown = capsys.readouterr().out
    assert f"faultline why {requeued}" in shown and "It was made slower, because of heat in 18." in shown
