"""Every fault of a real mini cluster, concluded from its logs: the right cause, and no other one blamed.

The truth of a capture says what was injected; this table says what Faultline must answer. Captures beside the
repository (``../shared/captures``) are judged by the same table if they exist.
"""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate, result
from store import open_store
from tests.correlator.rows import EACH
from tests.line_parser import remembering

ROOT = Path(__file__).resolve().parents[3]
BUNDLED = sorted(p.parent for p in (ROOT / "tests" / "captures").glob("*/truth.json"))
#: Faults that overlap, hide or look like another one (tests/cluster/entangled*.py), and those of a site's daily life or
#: under other settings (further.py): logs only, one archive each.
ARCHIVES = sorted(p for kind in ("entangled", "further") for p in (ROOT / "tests" / "captures" / kind).glob("*.tar.xz"))
#: One of each kind of failure that no bundled capture shows, for ``make test``; ``make test-long`` takes all.
QUICK = {
    "cancelled_in_flap", "gpu_lost", "two_faults", "launcher_lost",
}  # fmt: skip
#: Three flaps of a fabric's link that hurt nobody. ``make test`` takes those of the other network, and one of the fabric.
FABRIC_FLAPS = "fabric_flap_short"
BESIDE = sorted(p.parent for p in (ROOT.parent / "shared" / "captures").glob("*/truth.json"))

#: The interface of each of the mini cluster's networks.
DEVICES = {"mgmt": "eth0", "hsn": "hsn0"}
LINK = {"nic.link_down", "nic.link_flap"}
#: Honest answers if nothing shows more: no cause is blamed.
UNSAID = frozenset({"unknown", "app.error"})
#: Severities of an incident without victims.
HARMLESS = ("benign", "degraded")


@dataclass(frozen=True)
class Expected:
    """The required verdict on a run. ``events`` empty: the run is its own cause, no incident is blamed.

    ``or_else``: categories that are as honest if logs do not show what happened; then no incident is blamed either.
    """

    category: str
    events: frozenset[str] = frozenset()
    host: str | None = None
    device: str | None = None
    or_else: frozenset[str] = frozenset()


def expected(cause: str) -> Expected:
    """The answer for the words of a truth file: "link_down gpu02 mgmt", "own exit code", ..."""
    words = cause.split()
    match words:
        case ["link_down", host, network]:
            return Expected("infra.network", frozenset(LINK), host, DEVICES[network])
        case ["switch", _]:
            return Expected("infra.network", frozenset({"switch.failure"}), "leaf01")
        case ["slurmd", "killed", host]:
            return Expected("infra.scheduler", frozenset({"slurm.slurmd_crash"}), host)
        case ["slurmd", "stopped", host]:
            return Expected("infra.scheduler", frozenset({"slurm.admin_action"}), host)
        case ["stepd", "killed", host]:
            return Expected("infra.scheduler", frozenset({"slurm.slurmd_crash"}), host)
        case ["power_off" | "power_lost", host]:
            return Expected("infra.node", frozenset({"node.reboot"}), host)
        case ["munged", "killed" | "key", host] | ["clock", host, *_]:
            return Expected("infra.node", frozenset({"node.munge_failure"}), host)
        case ["silence", host]:
            return Expected("infra.node", frozenset({"node.unresponsive"}), host)
        case ["xid", _, host]:
            return Expected("infra.gpu", frozenset({"gpu.xid"}), host)
        case ["admin", "down", host]:
            return Expected("infra.scheduler", frozenset({"slurm.admin_action"}), host)
        case ["preempted"]:
            return Expected("sched.preempt")
        case ["slurmd", "spool", "full", host]:
            return Expected("infra.node", frozenset({"node.disk_full"}), host)
        case ["prolog", "exit", _, host] | ["prolog", "hang", host]:
            return Expected("infra.scheduler", frozenset({"slurm.prolog_failure"}), host)
        case ["disk", "full", host]:
            # the job's own output says that there is no space, and nothing shows what used it up
            return Expected("infra.node", frozenset({"node.disk_full"}), host, or_else=UNSAID)
        case ["cgroups", host]:
            # the node could not launch the job and cancelled it
            return Expected("infra.node", frozenset({"node.plugin_failure"}), host, or_else=frozenset({"unknown"}))
        case ["names", "lost", _]:
            return Expected("app.error", or_else=UNSAID)
        case ["launcher", "lost", host]:
            return Expected("infra.node", frozenset({"node.reboot"}), host, or_else=UNSAID | {"user.cancel"})
        case ["deadline"]:
            return Expected("app.timeout", or_else=frozenset({"user.cancel"}))
        case ["own", "memory"]:
            return Expected("app.oom")
        case ["own", "deadlock"]:
            return Expected("app.error", or_else=frozenset({"unknown"}))  # its ranks log only that they lost each other
        case ["own" | "own:", *_]:
            return Expected("app.error")
        case ["time", "limit"]:
            return Expected("app.timeout")
        case ["scancel", *_]:
            return Expected("user.cancel")
    raise AssertionError(f"the truth speaks of {cause!r}, which this table does not know")


def conclude(paths: list[Path], times: int = 1) -> dict[str, Any]:
    with open_store(None) as store:
        for _ in range(times):
            Ingest(store, parser=remembering()).run(paths)
            correlate(store)
        return result(store)


@cache
def concluded(folder: Path) -> dict[str, Any]:
    return conclude([folder])


def truth_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    return found


def check_capture(folder: Path) -> None:
    found, truth = concluded(folder), truth_of(folder)
    incidents = {i["id"]: i for i in found["incidents"]}
    ours = {str(j["id"]) for j in truth["jobs"]}
    to_blame: dict[str, Expected] = {}
    for job in truth["jobs"]:
        # for an array's task, whose number Slurm does not show, the note gives its name
        names = {str(job["id"]), job["note"]}
        runs = {k: v for k, v in found["verdicts"].items() if re.split("[#@]", k)[0] in names}
        if job["cause"] is None or job["expected"] == "COMPLETED":
            assert not runs, f"job {job['id']} ended well and has a verdict"
            continue
        assert runs, f"job {job['id']} ({job['cause']}) has no verdict"
        # the causes of runs of one job, in order, are separated by ";"
        causes = [expected(cause) for cause in job["cause"].split("; ")]
        for place, (key, verdict) in enumerate(sorted(runs.items())):
            wanted = causes[min(place, len(causes) - 1)]
            assert verdict["category"] in {wanted.category, *wanted.or_else}, f"{key}: {verdict['summary']}"
            if not wanted.events or verdict["category"] in wanted.or_else:
                blamed = [i["title"] for i in incidents.values() if key in {j["job_id"] for j in i["jobs"]}]
                assert not blamed, f"{key} is its own cause, but: {blamed}"
                continue
            assert verdict["incident_id"] in incidents, f"{key} has no incident"
            incident = incidents[verdict["incident_id"]]
            root = incident["root_cause"]
            assert incident["severity"] == "impact"
            assert root["event"] in wanted.events, incident["title"]
            assert root["host"] in str(wanted.host).split(","), incident["title"]
            assert wanted.device is None or root["device"] == wanted.device, incident["title"]
            assert key in {j["job_id"] for j in incident["jobs"]}
            to_blame[key] = wanted
    for incident in incidents.values():
        named = {j["job_id"] for j in incident["jobs"] if j["job_id"].split("#")[0] in ours}
        assert named <= to_blame.keys(), f"bystanders blamed: {named - to_blame.keys()}"
        if not to_blame:
            assert incident["severity"] in HARMLESS, f"nobody was hurt, but: {incident['title']}"
    assert len([i for i in incidents.values() if i["severity"] == "impact"]) == len(
        {(w.host, w.device) for w in to_blame.values()}
    ), "one cause, one incident"


@pytest.mark.parametrize(
    "folder",
    [pytest.param(p, id=p.name, marks=pytest.mark.long if p.name == FABRIC_FLAPS else ()) for p in BUNDLED],
)
def test_bundled_capture(folder: Path) -> None:
    check_capture(folder)


@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(path, id=name, marks=() if name in QUICK else pytest.mark.long)
        for path in ARCHIVES
        for name in [path.name.removesuffix(".tar.xz")]
    ],
)
def test_archived_capture(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    check_capture(tmp_path / archive.name.removesuffix(".tar.xz"))


@pytest.mark.long
def test_captures_beside_the_repository() -> None:
    if not BESIDE:
        pytest.skip("no ../shared/captures beside the repository; the bundled captures were judged")
    for folder in BESIDE:
        check_capture(folder)


def test_every_capture_of_the_list_is_bundled() -> None:
    assert len(BUNDLED) >= 19 and {p.name.removesuffix(".tar.xz") for p in ARCHIVES} >= QUICK


def test_a_healthy_cluster_has_no_incident() -> None:
    assert concluded(ROOT / "tests/captures/healthy")["incidents"] == []


@pytest.mark.parametrize("folder", EACH)
def test_ingesting_twice_changes_nothing(folder: Path) -> None:
    assert conclude([folder], times=2) == concluded(folder)


@pytest.mark.parametrize("folder", EACH)
def test_the_order_of_files_changes_no_byte(folder: Path) -> None:
    """Files in reverse order, each with an ingest and its own interim verdict: the same bytes."""
    parts = sorted((p for p in folder.iterdir() if p.name != "truth.json"), reverse=True)
    with open_store(None) as forward, open_store(None) as backward:
        for store, paths in ((forward, parts[::-1]), (backward, parts)):
            Ingest(store, parser=remembering()).run(paths)
            correlate(store)
        first, second = (json.dumps(result(s), sort_keys=True) for s in (forward, backward))
    assert first == second


@pytest.mark.parametrize(
    "name",
    [
        "mgmt_flap_long",
        pytest.param("switch_down", marks=pytest.mark.long),
        pytest.param("node_reboot", marks=pytest.mark.long),
    ],
)
def test_pieces_that_arrive_one_by_one_end_in_the_same_verdicts(name: str) -> None:
    """Two nodes at a time, the controller's later, a verdict after each: early conclusions leave no trace."""
    folder = ROOT / "tests/captures" / name
    hosts = sorted((folder / "hosts").iterdir(), reverse=True)
    rest = [p for p in sorted(folder.iterdir()) if p.name not in ("hosts", "truth.json")]
    parts = [some[n : n + 2] for some in (hosts, rest) for n in range(0, len(some), 2)]
    with open_store(None) as store:
        for part in parts:
            Ingest(store, parser=remembering()).run(part)
            correlate(store)
        found = result(store)
    wanted = concluded(folder)
    assert {k: v["category"] for k, v in found["verdicts"].items()} == {
        k: v["category"] for k, v in wanted["verdicts"].items()
    }
    assert [i["root_cause"] for i in found["incidents"]] == [i["root_cause"] for i in wanted["incidents"]]


def test_the_demo_shows_its_incident_and_nothing_is_stated_of_the_truth() -> None:
    folder = ROOT / "faultline/capture/mgmt_flap_long"
    assert not (folder / "truth.json").exists()
    found = concluded(folder)
    verdict = found["verdicts"]["15"]
    assert verdict["category"] == "infra.network"
    (incident,) = [i for i in found["incidents"] if i["severity"] == "impact"]
    assert (incident["root_cause"]["host"], incident["root_cause"]["device"]) == ("gpu02", "eth0")
    assert "SlurmdTimeout=24" in json.dumps(incident["chain"]), "the chain must name the site's own setting"


def test_the_chain_stands_inside_its_windows_and_names_stored_lines() -> None:
    for folder in (p for p in BUNDLED if p.name != FABRIC_FLAPS):
        for incident in concluded(folder)["incidents"]:
            events = {e["id"] for e in incident["events"]}
            for hop in incident["chain"]:
                low, high = hop["window_s"]
                assert low - 1.5 <= hop["lag_s"] <= high + 1.5, f"{folder.name}: {hop}"
                assert {hop["cause"], hop["effect"]} <= events, f"{folder.name}: {hop}"
            assert all(e["source"] for e in incident["events"]), folder.name
