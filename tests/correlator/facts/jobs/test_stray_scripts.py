"""A batch script's slurmstepd that slurmd finds gone: of the run that goes on, or of an earlier run of the same job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.correlator.situations import conclude

STARTED, ENDED, AGAIN, GONE, CANCELLED = "10:00:00", "10:01:00", "10:05:00", "10:07:00", "10:30:00"
HEADER = "JobIDRaw|JobName|User|UID|Partition|State|ExitCode|Submit|Start|End|NodeList"
STRAY = "_handle_stray_script: Purging vestigial job script /var/spool/slurmd/job00501/slurm_script"


@pytest.mark.parametrize(
    ("earlier", "root"),
    [(None, "slurm.slurmd_crash"), ("gpu09", "slurm.slurmd_crash"), ("gpu07", None)],
    ids=["its only run", "an earlier run elsewhere", "an earlier run on the same node"],
)
def test_the_socket_may_be_that_of_an_earlier_run_on_the_node(
    tmp_path: Path, earlier: str | None, root: str | None
) -> None:
    rows = [HEADER]
    if earlier:
        rows.append(
            f"501|solve|eve|2001|gpu|REQUEUED|0:0|2026-02-28T{STARTED}|2026-02-28T{STARTED}|2026-02-28T{ENDED}|{earlier}"
        )
    rows.append(
        f"501|solve|eve|2001|gpu|CANCELLED by 0|0:0|2026-02-28T{AGAIN}|2026-02-28T{AGAIN}|2026-02-28T{CANCELLED}|gpu07"
    )
    slurmd = [
        f"[2026-02-28T{STARTED}.100] Launching batch job 400 for UID 2003",
        f"[2026-02-28T{AGAIN}.200] Launching batch job 501 for UID 2001", f"[2026-02-28T{GONE}.300] {STRAY}",
    ]  # fmt: skip
    for name, lines in (("accounting/sacct.txt", rows), ("nodes/gpu07/slurmd.log", slurmd)):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text("\n".join(lines) + "\n")
    verdicts = conclude(tmp_path)["verdicts"]
    last = verdicts["501#1" if earlier else "501"]
    assert ((last["root_cause"] or {}).get("event"), last["category"]) == (
        (root, "infra.scheduler") if root else (None, "user.cancel")
    )
