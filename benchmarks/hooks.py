"""How long Slurm's hooks hold a job beside ``sh -c :``, in the same run and in turn: p50, p99 and their ratios.

The way in memory (``faultline-memory.sh``) in each situation that a node may be in; then the ways that write to the disk, which
hooks take where no agent has run since the boot: the guarded script, and Python. ``--load N`` keeps N processes busy meanwhile.
Whether the service is up, down or hangs is tried as well, with a listener that never answers: hooks ask nobody.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.agent.exported import SUFFIX
from tests.deploy.installed import lay_out

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "deploy" / "slurm"
YARDSTICK = "sh -c :"
PYTHON = (sys.executable, "-I", "-S", str(ROOT / "collector" / "hooks.py"))
#: What slurmd gives an epilog, and what a task has beside it.
SLURM = {f"SLURM_JOB_VALUE_{number}": f"/home/alice/run-{number}" for number in range(24)} | {
    "SLURM_JOB_ID": "35", "SLURM_JOB_USER": "alice", "SLURM_JOB_UID": "20001", "SLURM_NODELIST": "gpu[03-04]",
    "SLURMD_NODENAME": "gpu03", "SLURM_CLUSTER_NAME": "mini", "CUDA_VISIBLE_DEVICES": "0,1",
}  # fmt: skip
TASK = (
    SLURM | {f"SITE_VARIABLE_{number}": "x" * 80 for number in range(90)} | {"SLURM_PROCID": "0", "NCCL_DEBUG": "INFO"}
)


@dataclass(frozen=True)
class Situation:
    """``command`` with ``environment``; ``before`` each run the folder is made as it says."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path | None = None
    #: Files that stay where they are between runs.
    keeps: bool = False
    times: list[float] = field(default_factory=list)

    def run(self) -> None:
        begun = time.perf_counter()
        done = subprocess.run(
            self.command, env=dict(self.environment), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
        )
        self.times.append(time.perf_counter() - begun)
        if done.returncode:
            raise SystemExit(f"{self.name}: exit {done.returncode}: a hook must exit 0")
        if self.folder is not None and not self.keeps:
            for path in self.folder.glob("*.hook"):
                path.unlink()
            for path in self.folder.glob(f"*{SUFFIX}"):
                path.unlink()

    def percentile(self, share: float) -> float:
        return sorted(self.times)[min(len(self.times) - 1, int(share * len(self.times)))]


def shell(event: str) -> tuple[str, ...]:
    return ("/bin/sh", str(SCRIPTS / f"{event}.sh"))


def situations(folder: Path, full: Path | None, slow: bool) -> Iterator[Situation]:
    """``folder`` and ``full`` lie in memory; ``full``: a file system without a free byte."""
    words = folder / "words"
    words.mkdir()

    def made(name: str, command: Sequence[str], env: Mapping[str, str], where: str, keeps: bool = False) -> Situation:
        place = folder / where
        place.mkdir(exist_ok=True)
        variable = "FAULTLINE_HOOK_MEMORY" if "on disk" not in name else "FAULTLINE_HOOK_SPOOL"
        return Situation(name, command, {**env, variable: str(place), "FAULTLINE_HOOK_WORDS": str(words)}, place, keeps)

    yield Situation(YARDSTICK, ("/bin/sh", "-c", ":"), SLURM)
    yield made("epilog, agent reads", shell("epilog"), SLURM, "epilog")
    yield made("task prolog, 90 variables more", shell("taskprolog"), TASK, "task")
    program = lay_out(folder / "bin", "#!/bin/sh\nexit 9\n")
    yield made("faultline hook epilog", (str(program), "hook", "epilog"), SLURM, "program")
    with _hung_service() as address:
        environ = {**SLURM, "FAULTLINE_SERVER": address}
        yield made("service hangs", shell("epilog"), environ, "hung")
    yield made("service down", shell("epilog"), {**SLURM, "FAULTLINE_SERVER": "http://127.0.0.1:9"}, "down")
    yield made("agent dead: 1,000 records wait", shell("epilog"), SLURM, "dead", keeps=True)
    for number in range(1000):
        (folder / "dead" / f"{number * 4:03x}{SUFFIX}").write_bytes(b"x")
    yield made("spool full: 4,096 records wait", shell("epilog"), SLURM, "taken", keeps=True)
    for number in range(4096):
        (folder / "taken" / f"{number:03x}{SUFFIX}").write_bytes(b"x")
    if full is not None:
        where = {"FAULTLINE_HOOK_MEMORY": str(full), "FAULTLINE_HOOK_WORDS": str(words)}
        yield Situation("memory full", shell("epilog"), {**SLURM, **where}, full)
    if slow:
        yield made("on disk: faultline-hook.sh", shell("epilog"), SLURM, "disk")
        yield made("on disk: Python", (*PYTHON, "epilog"), SLURM, "python")


@contextlib.contextmanager
def _hung_service() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def full_memory(spot: Path) -> Iterator[Path | None]:
    """A tmpfs without a free byte; None where none can be mounted."""
    spot.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,mode=0700", "tmpfs", str(spot)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        (spot / "fill").write_bytes(b"x" * 4096)
        yield spot
    finally:
        subprocess.run(["umount", "-l", str(spot)], check=False)


def _burn() -> None:
    while True:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="of each in turn")
    parser.add_argument("--load", type=int, default=0, help="busy processes meanwhile")
    parser.add_argument("--disk", action="store_true", help="also the ways that write to the disk")
    given = parser.parse_args()
    busy = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(given.load)]
    for process in busy:
        process.start()
    show: Callable[[str], None] = print
    try:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as name, full_memory(Path(name) / "full") as full:
            found = list(situations(Path(name), full, given.disk))
            for _ in range(given.runs):  # in turn: a busy moment meets all, and none always comes behind the same one
                for situation in random.sample(found, len(found)):
                    situation.run()
    finally:
        for process in busy:
            process.terminate()
    show(f"{given.runs} runs each; {os.cpu_count()} CPUs, {given.load} busy processes, load {os.getloadavg()[0]:.1f}")
    show(f"{'':<32} {'p50 ms':>8} {'p99 ms':>8} {'p50 ratio':>10} {'p99 ratio':>10}")
    base = found[0]
    for situation in found:
        middle, slowest = situation.percentile(0.5), situation.percentile(0.99)
        ratios = f"{middle / base.percentile(0.5):>10.1f} {slowest / base.percentile(0.99):>10.1f}"
        show(f"{situation.name:<32} {middle * 1e3:>8.2f} {slowest * 1e3:>8.2f} {ratios}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
