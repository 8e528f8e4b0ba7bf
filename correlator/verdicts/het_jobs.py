"""Heterogeneous jobs: components that end because another one failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from correlator.facts.jobs.kinds import RUN_CANCELLED, RUN_FAILED, RUN_NODE_FAIL
from correlator.facts.world import World
from correlator.model.attributes import WORDS
from parsers.hostlist import fold

if TYPE_CHECKING:
    from correlator.verdicts.verdict import Verdict

#: Whole seconds of accounting, beside slurmctld's own timestamp.
END_SLACK_S = 5.0

#: Slurm ends the other components of a heterogeneous job with the first that fails; KillWait is 30 s.
TAKEN_ALONG_S = 60.0


def taken_along(world: World, verdicts: list[Verdict]) -> None:
    """Gives components of a heterogeneous job without a cause of their own that of the component that failed."""
    of_job: dict[int, list[Verdict]] = {}
    for verdict in verdicts:
        of_job.setdefault(verdict.run.job_id, []).append(verdict)
    blamed = {id(v): v for v in verdicts if v.chain is not None}
    for verdict in verdicts:
        parts = world.het_components.get(verdict.run.job_id, frozenset()) - {verdict.run.job_id}
        if not parts or id(verdict) in blamed or not _of_itself(verdict):
            continue
        near = [
            v for part in sorted(parts) for v in of_job.get(part, ())
            if id(v) in blamed and -END_SLACK_S <= verdict.end.start - v.end.start <= TAKEN_ALONG_S
        ]  # fmt: skip
        if near:
            first = min(near, key=lambda v: (v.end.start, v.run.job_id))
            verdict.chain, verdict.category, verdict.own = first.chain, first.category, []
            verdict.ended_with = first.run
            verdict.confidence, verdict.at_most = first.confidence, first.at_most
            verdict.doubts.append(
                f"It is a part of a heterogeneous job: part {first.run.key} on {fold(first.run.nodes)} failed, and Slurm ended all parts"
            )


def _of_itself(verdict: Verdict) -> bool:
    """Did it end without an error of its own and without a request?"""
    if verdict.end.kind == RUN_CANCELLED.name:
        return not verdict.own and str(verdict.run.row.get("cancelled_by") or "0") in ("0", "root", "slurm")
    return verdict.end.kind in (RUN_FAILED.name, RUN_NODE_FAIL.name) and not verdict.end.attrs[WORDS]["own"]
