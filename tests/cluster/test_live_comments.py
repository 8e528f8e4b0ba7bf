"""AdminComment and job mails on a real Slurm: what its programs accept and print, and who may write."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import pytest

from faultline.admin_comments import Slurm, SlurmError
from faultline.mail_line import job_of
from faultline.verdict_line import line_of
from test_live_cluster import HERE, REASON, alone, cluster, host

pytestmark = [pytest.mark.long, pytest.mark.cluster, pytest.mark.skipif(REASON is not None, reason=REASON or "")]

#: In a folder that each host has of its own.
FOLDER = "/var/spool/faultline-mail"
LINE = line_of({
    "category": "infra.network", "confidence": 0.97, "root_cause": {"host": "gpu02"},
    "headline": "Your job died because a link, eth0=down, was lost; not because of your code.",
})  # fmt: skip


def slurm_of(*user: str) -> Slurm:
    """Slurm's programs on the controller."""

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(HERE / "cluster.py"), "run", *user, "ctl", *command]
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)

    return Slurm("sacct", "sacctmgr", run)


@pytest.fixture(scope="module")
def job() -> Iterator[int]:
    """A job that failed and asked for a mail."""
    with alone():
        try:
            cluster("up", "--nodes", "1", "--set", f"MailProg={FOLDER}/mailprog")
            folder = host("ctl") / FOLDER.lstrip("/")
            folder.mkdir(parents=True)
            folder.chmod(0o777)
            conf = f"program={FOLDER}/mail\nfaultline={FOLDER}/faultline\nwait=1\n"
            (folder / "mail.conf").write_text(conf)
            for name, text in (
                ("mailprog", f"FAULTLINE_MAIL_CONF={FOLDER}/mail.conf exec /bin/sh {FOLDER}/faultline-mail.sh \"$@\""),
                ("mail", f'{{ printf "%s\\n" "$@"; cat; }} >>{FOLDER}/sent'), ("faultline", "echo faultline: $1 $2"),
            ):  # fmt: skip
                (folder / name).write_text(f"#!/bin/sh\n{text}\n")
                (folder / name).chmod(0o755)
            ours = HERE.parents[1] / "deploy/slurm/faultline-mail.sh"
            (folder / "faultline-mail.sh").write_text(ours.read_text())
            said = cluster("run", "--user", "alice", "ctl", "sh", "-c",
                           "cd /tmp; sbatch --mail-type=FAIL -J 'Job_id=99 x' -o /dev/null --wrap 'exit 3'")  # fmt: skip
            number = int(said.split()[-1])
            until = time.monotonic() + 60
            while not (known := slurm_of().records([number]).get(number)) or known.state != "FAILED":
                assert time.monotonic() < until, known
                time.sleep(0.5)
            yield number
        finally:
            cluster("down")


def test_a_comment_is_written_and_read_back(job: int) -> None:
    slurm = slurm_of()
    slurm.comment(job, LINE)
    found = slurm.records([job, job + 1])
    assert list(found) == [job] and found[job].comment.lower() == LINE.lower()
    assert (found[job].user, found[job].state) == ("alice", "FAILED")


def test_only_an_administrator_writes_one(job: int) -> None:
    with pytest.raises(SlurmError, match=r"privilege|denied"):
        slurm_of("--user", "alice").comment(job, "faultline: by alice")
    with pytest.raises(SlurmError, match="affect anything"):
        slurm_of().comment(job + 1000, LINE)
    assert "alice" not in slurm_of().records([job])[job].comment


def test_a_job_mail_has_the_line_and_everything_that_slurm_gave(job: int) -> None:
    sent = host("ctl") / FOLDER.lstrip("/") / "sent"
    until = time.monotonic() + 30
    while not (sent.exists() and "faultline:" in sent.read_text()):
        assert time.monotonic() < until, "no mail"
        time.sleep(0.5)
    flag, subject, to, *text = sent.read_text().splitlines()
    assert (flag, to) == ("-s", "alice") and job_of([flag, subject, to]) == str(job)
    assert text == ["", "faultline: hook mail"]
