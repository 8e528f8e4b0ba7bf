"""Writes the verdict's line into Slurm's AdminComment of a finished job, so that ``sacct -o AdminComment`` shows it.

Only if the site asked for it, by the service, never by a hook. A comment that is not Faultline's stays as it is. Whatever
fails is counted, logged, and tried again later and later.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from faultline import programs
from faultline.verdict_line import PREFIX, line_of
from parsers.job_states import NOT_STARTED, OPEN
from store import run_names
from store.questions import runs
from web.access.own import OwnReader
from web.problems import ProblemError
from web.reading import Reader

if TYPE_CHECKING:
    from faultline.config import AdminComment
    from store.door import Door

log = structlog.get_logger()

#: How often jobs are looked for, in seconds.
EVERY_S = 60
#: How long a program of Slurm may take, in seconds.
TIMEOUT_S = 30.0
#: A verdict is written once it has been the same for this long, in seconds: it may change every second at first.
SETTLE_S = 60.0
#: Delay between attempts for one job, in seconds, doubled up to the longest; after so many it is given up.
RETRY_S, LONGEST_RETRY_S, MOST_TRIES = 60.0, 3600.0, 8

#: More of the job's run is to come, or another run.
NOT_FINAL = OPEN | NOT_STARTED

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


class SlurmError(Exception):
    """A program of Slurm did not do what it was asked; the text says which and why."""


@dataclass(frozen=True)
class Record:
    """A job as accounting knows it."""

    user: str
    state: str
    comment: str


def run_program(command: Sequence[str], ended: threading.Event | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program without a shell. It is killed when ``ended`` is set. Raises as ``programs.finished``."""
    environ = {**os.environ, "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    code, out, error = programs.finished(command, TIMEOUT_S, stderr=subprocess.PIPE, ended=ended, env=environ)
    return subprocess.CompletedProcess(command, code, out, error)


class Slurm:
    """Reads and writes comments by ``sacct`` and ``sacctmgr``. All raise ``SlurmError``."""

    def __init__(self, sacct: str, sacctmgr: str, run: Run = run_program) -> None:
        self._sacct, self._sacctmgr, self._run = sacct, sacctmgr, run

    def records(self, jobs: Sequence[int]) -> dict[int, Record]:
        """The last run of each job."""
        text = self._output_of([
            self._sacct, "--allusers", "--allocations", "--noheader", "--parsable2", f"--jobs={','.join(map(str, jobs))}",
            "--format=JobIDRaw,User,State,AdminComment",
        ])  # fmt: skip
        found = {}
        for row in text.splitlines():
            number, *rest = row.split("|", 3)
            if number.isdecimal() and len(rest) == 3 and int(number) in jobs:
                found[int(number)] = Record(*rest)
        return found

    def comment(self, job: int, text: str) -> None:
        """Sets the AdminComment of a job."""
        self._output_of([self._sacctmgr, "-i", "modify", "job", "where", f"jobid={job}", "set", f"AdminComment={text}"])

    def _output_of(self, command: Sequence[str]) -> str:
        try:
            done = self._run(command)
        except subprocess.TimeoutExpired as error:
            raise SlurmError(f"{command[0]}: no answer within {TIMEOUT_S:g} s") from error
        except programs.ServiceEndsError as error:
            raise SlurmError(f"{command[0]}: {error}") from error
        except OSError as error:
            raise SlurmError(f"{command[0]}: {error.strerror}") from error
        if done.returncode:
            why = " ".join((done.stderr or done.stdout).split())[:200] or f"exit code {done.returncode}"
            raise SlurmError(f"{os.path.basename(command[0])}: {why.removeprefix(f'{command[0]}: ')}")  # noqa: PTH119
        return done.stdout


@dataclass
class _Job:
    """What is known of one run. ``seen``: its verdict, since ``since``; ``written``: the verdict whose line Slurm has."""

    seen: tuple[Any, ...] = ()
    since: float = 0.0
    written: tuple[Any, ...] | None = None
    is_closed: bool = False
    tries: int = 0
    not_before: float = 0.0


@dataclass(eq=False)
class AdminComments(Collector):
    """``cluster``: the one of this service's configuration."""

    store: Door
    config: AdminComment
    cluster: str | None
    slurm: Slurm
    now: Callable[[], datetime] = lambda: datetime.now(UTC).replace(tzinfo=None)
    monotonic: Callable[[], float] = time.monotonic
    trouble: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    _jobs: dict[str, _Job] = field(default_factory=dict)

    def round(self) -> None:
        """Writes what is due, at most ``per_minute`` jobs."""
        reader = Reader(self.store)
        if self.cluster is None and reader.ask(runs.CLUSTERS)[0]["n"] > 1:
            self._in_trouble(
                "several clusters are stored: say which is this Slurm's (cluster = ... in the configuration)"
            )
            return
        due = self._due(reader)[: self.config.per_minute]
        lines = {row["run_key"]: self._line(reader, row) for row in due}
        for row in due:
            if not lines[row["run_key"]]:
                self._jobs[row["run_key"]].written = self._jobs[row["run_key"]].seen
        asked = [row for row in due if lines[row["run_key"]]]
        if not asked:
            return
        try:
            known = self.slurm.records([row["job_id"] for row in asked])
        except SlurmError as error:
            for row in asked:
                self._again(row, str(error))
            return
        for row in asked:
            self._write(row, lines[row["run_key"]], known.get(row["job_id"]))

    def _due(self, reader: Reader) -> list[dict[str, Any]]:
        """Runs with a verdict that is not written yet, the newest first; of a job only its last run."""
        since, now = self.now() - timedelta(hours=self.config.hours), self.monotonic()
        rows = reader.ask(runs.ended_since(run_names.named_runs(reader), since, self.cluster))
        self._jobs = {row["run_key"]: self._jobs.get(row["run_key"], _Job()) for row in rows}
        due = []
        for row in rows:
            job = self._jobs[row["run_key"]]
            verdict = (row["category"], row["incident_id"], round(row["confidence"] or 0, 2))
            if job.seen != verdict:
                job.seen, job.since = verdict, now
            is_time = now >= job.not_before and now - job.since >= SETTLE_S
            if row["category"] and is_time and not job.is_closed and job.written != verdict:
                due.append(row)
        return due

    def _line(self, reader: Reader, row: dict[str, Any]) -> str:
        """What the job's owner may know; nothing if that cannot be determined."""
        try:
            return line_of(OwnReader(reader, row["user"]).run(row["run_key"])["document"])
        except ProblemError:  # its user is disputed, or it is gone
            return ""

    def _write(self, row: dict[str, Any], line: str, known: Record | None) -> None:
        job = self._jobs[row["run_key"]]
        if known is None or known.user != row["user"] or known.state.split(" ", 1)[0] in NOT_FINAL:
            # Accounting learns of a job's end late; a job of that number that somebody else has is another one.
            self._again(row, f"job {row['job_id']}: sacct does not have it as an ended job of its user")
            return
        if known.comment and not known.comment.startswith(PREFIX):
            job.is_closed = True
            self._count("kept")  # somebody else's
            return
        try:
            if known.comment.lower() != line.lower():  # sacctmgr of 22.05 stores it in lower case
                self.slurm.comment(row["job_id"], line)
                self._count("written")
        except SlurmError as error:
            self._again(row, str(error))
            return
        job.written, job.tries, self.trouble = job.seen, 0, None

    def _again(self, row: dict[str, Any], why: str) -> None:
        job = self._jobs[row["run_key"]]
        job.tries += 1
        job.not_before = self.monotonic() + min(RETRY_S * 2 ** (job.tries - 1), LONGEST_RETRY_S)
        self._count("failed")
        if job.tries >= MOST_TRIES:
            job.is_closed = True
            log.warning("no AdminComment was written; it is given up", job=row["run_key"], error=why)
        if not why.startswith("job "):
            self._in_trouble(why)

    def _in_trouble(self, why: str) -> None:
        if why != self.trouble:
            log.warning("no AdminComment is written; it is tried again", error=why)
        self.trouble = why

    def _count(self, outcome: str) -> None:
        self.counts[outcome] = self.counts.get(outcome, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """Prometheus metrics of comments."""
        family = CounterMetricFamily(
            "faultline_admin_comments", "Jobs whose AdminComment was written, kept or failed.", labels=("outcome",)
        )
        for outcome, count in sorted(self.counts.items()):
            family.add_metric((outcome,), count)
        yield family
