"""The owner of a job, from a real agent to a real service with roles.

A user who claims another's number sees nothing of it. If trusted sources contradict each other, no user sees the job,
and operators are informed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import ROOT, Running
from test_agent_to_service import Agent

ALICE, MALLORY = 20001, 20002
#: Real processes: on a busy machine a service takes a minute until it parses. The small version is
#: tests/faultline/test_disputes.py, and tests/collector/agent/test_agent_strangers.py with
#: tests/correlator/gather/test_ownership.py.
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: processes of several users"),
]
CONFIG = 'cluster = "mini"\n[access]\nusers = "{users}"\noperate = ["ops"]\nown = ["alice", "mallory"]\n'


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "faultline.entry", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)  # fmt: skip


def until(what: Callable[[], Any], timeout_s: float = 200.0) -> Any:
    end = time.monotonic() + timeout_s
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


class Site:
    """A service with roles, an agent beside it and the two spools of its hooks."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        users = folder / "users.toml"
        self.tokens = {
            n: command("access", "token", n, "--users", str(users)).stdout.strip() for n in ("ops", "alice", "mallory")
        }
        self.service = Running(folder / "data", extra=CONFIG.format(users=users), syslog=())
        self.root, self.tasks = folder / "hooks", folder / "task-hooks"
        self.root.mkdir(mode=0o700)
        self.tasks.mkdir()
        self.tasks.chmod(0o1733)
        more = f'[sources.hooks]\nfolders = ["{self.root}", "{self.tasks}"]\nevery_s = 0.1\n'
        self.agent = Agent(folder, self.service, more)

    def start(self) -> Site:
        self.service.start()
        self.agent.start()
        return self

    def stop(self) -> None:
        self.agent.kill()
        self.service.stop()

    def ask(self, name: str, path: str) -> tuple[int, Any]:
        status, body, _ = self.service.request("GET", path, None, {"Authorization": f"Bearer {self.tokens[name]}"})
        return status, json.loads(body) if body[:1] == b"{" else body.decode()

    def may_see(self, job: int) -> set[str]:
        """The users who see the job; all others get 404."""
        answers = {name: self.ask(name, f"/api/v1/jobs/{job}")[0] for name in self.tokens}
        assert set(answers.values()) <= {200, 404}, answers
        return {name for name, status in answers.items() if status == 200}

    def account(self, kind: str, text: str) -> None:
        reported = json.dumps({"document": kind, "stream": kind, "raw": text, "cluster": "mini", "timezone": "UTC"})
        status, answer = self.service.post("/api/v1/ingest", reported.encode() + b"\n")
        assert status == 200, answer

    def sacct(self, job: int, user: str, uid: int, failed: bool = False) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        state, end = (f"FAILED|1:0|{now}|{now}", now) if failed else (f"RUNNING|0:0|{now}|{now}", "Unknown")
        self.account("sacct", "JobID|JobIDRaw|JobName|User|UID|State|ExitCode|Submit|Start|End|NodeList|Restarts\n"
                     f"{job}|{job}|train|{user}|{uid}|{state}|{end}|gpu01|0\n")  # fmt: skip

    def prolog(self, job: int, user: str, uid: int) -> None:
        """As slurmd runs it, as root."""
        env = {**claim(job, user, uid), "FAULTLINE_HOOK_SPOOL": str(self.root)}
        subprocess.run(["/bin/sh", str(ROOT / "deploy/slurm/prolog.sh")], env=env, check=True)

    def forge(self, job: int) -> None:
        """What mallory, with nothing but her own uid, writes about a job."""
        pairs = {"FAULTLINE_EVENT": "taskprolog", "FAULTLINE_HOST": "gpu01", "FAULTLINE_TIME": f"{time.time():.6f}",
                 **claim(job, "mallory", MALLORY)}  # fmt: skip
        content = b"faultline-hook/1\n" + "\0".join(f"{name}={value}" for name, value in pairs.items()).encode()
        path = self.tasks / f"{job}.taskprolog.gpu01.{job}.1.hook"
        draft = f"{self.tasks}/.draft.{job}"
        subprocess.run(["/bin/sh", "-c", f"umask 077; cat > {draft} && mv {draft} {path}"], input=content, check=True, cwd="/",
                       user=MALLORY, group=MALLORY, extra_groups=[])  # fmt: skip
        assert until(lambda: not path.exists()), "the agent did not take it"


def claim(job: int, user: str, uid: int) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(uid), "SLURM_JOB_GID": str(uid), "SLURM_JOB_USER": user, "SLURM_JOB_NAME": f"{user}s",
        "SLURM_JOB_NODELIST": "gpu01", "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "gpu01", "SLURM_CLUSTER_NAME": "mini",
        "PATH": "/usr/bin:/bin",
    }  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    # Not below pytest's own folder, which every pytest that starts on this machine closes to other users.
    with tempfile.TemporaryDirectory(prefix="whose-") as folder:
        made = Site(Path(folder))
        try:
            yield made.start()
        finally:
            made.stop()


@pytest.mark.parametrize("first", ["mallory", "the trusted source"])
@pytest.mark.parametrize("named_by", ["accounting", "root's prolog", "both", "nobody"])
def test_who_claims_anothers_job_by_a_file_sees_nothing_of_it(site: Site, named_by: str, first: str) -> None:
    job = 15 + ["accounting", "root's prolog", "both", "nobody"].index(named_by) * 10 + (first == "mallory")
    if first == "mallory":
        site.forge(job)
    if named_by in ("accounting", "both"):
        site.sacct(job, "alice", ALICE)
    if named_by in ("root's prolog", "both"):
        site.prolog(job, "alice", ALICE)
    if named_by != "nobody":
        assert until(lambda: "ops" in site.may_see(job))
    if first != "mallory":
        site.forge(job)
    site.prolog(job + 1000, "alice", ALICE)  # delivered after all the others, so it proves that those were processed
    assert until(lambda: "alice" in site.may_see(job + 1000))
    assert site.may_see(job) == (set() if named_by == "nobody" else {"ops", "alice"})
    if named_by != "nobody":
        reported = site.ask("alice", f"/api/v1/jobs/{job}")[1]
        assert reported["user"] == "alice" and "mallory" not in json.dumps(reported)


def disputed(site: Site, job: int, failed: bool = False) -> str:
    """Accounting says alice, slurmrestd mallory; the sentence that operators read."""
    now = int(time.time())
    site.sacct(job, "alice", ALICE, failed)
    row = {"job_id": job, "user_name": "mallory", "user_id": MALLORY, "job_state": "FAILED" if failed else "RUNNING",
           "submit_time": now, "start_time": now, **({"end_time": now} if failed else {}),
           "nodes": "gpu01", "cluster": "mini", "name": "train", "partition": "p"}  # fmt: skip
    site.account("rest_jobs", json.dumps({"jobs": [row]}))

    def reported() -> str:
        found = site.ask("ops", "/api/v1/sources")[1]["disputed"]
        return next((text for text in found if text.startswith(f"job {job} ")), "")

    text = str(until(reported))
    assert "sacct: alice (20001)" in text and "slurmrestd: mallory (20002)" in text
    return text


def test_a_disputed_run_is_nobodys_and_operators_are_told(site: Site) -> None:
    """A run that failed: one that is still active has no verdict."""
    text = disputed(site, 70, failed=True)
    assert until(lambda: site.ask("ops", "/api/v1/jobs/70/verdict")[0] == 200)
    assert site.may_see(70) == {"ops"}
    document = site.ask("ops", "/api/v1/jobs/70/verdict")[1]
    assert document["user"] is None and "mallory (20002)" in document["disputed"]
    for name in ("alice", "mallory"):
        assert site.ask(name, "/api/v1/jobs/70/verdict")[0] == 404
        assert "disputed" not in json.dumps(site.ask(name, "/api/v1/result")[1])
        assert site.ask(name, "/api/v1/sources")[0] == 403
    page = site.ask("ops", "/sources")[1]
    assert "Runs whose user is disputed" in page and "job 70 of cluster mini" in page
    # The text names users, and everybody who reaches the address may request it.
    assert "mallory" not in site.service.request("GET", "/readyz")[1].decode()
    assert text


def test_check_names_a_disputed_run_of_a_real_store(tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        site.service.start()
        text = disputed(site, 80)
        assert until(lambda: "job 80 of cluster mini" in site.service.log.read_text())
    finally:
        site.stop()
    assert site.service.log.read_text().count("job 80 of cluster mini") == 1
    checked = command("check", "--config", str(site.service.config))
    assert checked.returncode == 1 and f"WRONG  {text}" in checked.stdout, checked.stdout
