"""A job of ``faultline slurm verify --job``: it runs, and the agent of this host must have what each hook wrote about it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from collector.agent.failure import Missing
from collector.agent.slurm.programs import Call
from collector.agent.slurm_setup.findings import Finding
from collector.agent.source import Context

#: It may have to wait for a free node, and then for its epilog and for the agent's next look.
JOB_LIMIT_S, ARRIVES_WITHIN_S = 180.0, 30.0
LOOK_EVERY_S = 0.5
#: Hooks that a job has; a health check has none.
OF_A_JOB = ("prolog", "epilog", "prologslurmctld", "epilogslurmctld", "taskprolog")
NAME = "faultline-verify"


def command(node: str, user: str) -> list[str]:
    """Asks Slurm for the job. ``node``: where it must run, "" for any; ``user``: whose it is, "" for who asks."""
    words = [
        "srun",
        "--quiet",
        f"--job-name={NAME}",
        "--nodes=1",
        "--ntasks=1",
        "--time=1",
        "--chdir=/",
        "--export=NONE",
    ]
    words += [f"--nodelist={node}"] if node else []
    words += ["/bin/sh", "-c", "echo job=$SLURM_JOB_ID"]
    return ["runuser", "-u", user, "--", *words] if user else words


def run(
    context: Context, calls: Sequence[Call], status: Path, node: str, user: str, say: Callable[[str], None]
) -> Iterator[Finding]:
    """Runs it and waits. ``status``: the agent's file. What did not arrive is a finding; ``say`` gets a line on what did."""
    expected = {
        made.program.event: made.program.setting for made in calls if made.is_made and made.program.event in OF_A_JOB
    }
    if not expected:
        return
    try:
        output = context.answer(command(node, user), JOB_LIMIT_S)
    except (Missing, OSError, TimeoutError) as why:
        yield Finding("trial-job", f"the test job did not run: {why}", "name a user who may submit jobs with --job-user, or see why Slurm "
                      "does not start it here; without --job all but this is verified")  # fmt: skip
        return
    found = re.search(r"^job=(\d+)$", output, re.MULTILINE)
    if found is None:
        yield Finding(
            "trial-job",
            f"the output of the test job has no number: {output.strip()[:80]!r}",
            "run srun by hand on this host",
        )
        return
    job, until = found[1], time.monotonic() + ARRIVES_WITHIN_S
    while not set(expected) <= (there := arrived(status, job)) and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
    say(
        f"job      {job} ran; the agent has what these hooks wrote: {', '.join(sorted(there & set(expected))) or 'none'}"
    )
    for event in sorted(set(expected) - there):
        yield Finding("not-arrived", f"what it wrote about the test job {job} did not reach the agent within {ARRIVES_WITHIN_S:g} s",
                      "the log of the daemon that runs it says whether it did", expected[event])  # fmt: skip


def arrived(status: Path, job: str) -> set[str]:
    """Events of which the agent has a record of this job, from its own status."""
    try:
        state: Any = json.loads(status.read_text(encoding="utf-8"))
        return set(state["hooks"].get(job, ()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()
