"""How long a prolog's gate takes beside ``sh -c :``, in the same run and in turn: p50, p99 and their ratios.

Situations: an answer that is fit, one that is unfit with many reasons, none at all, and one that is too old. Whether the
service lives makes no difference by construction (the gate reads one local file), so it is not a situation. ``--load N``
keeps N processes busy meanwhile, for a loaded node.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.agent.exported import SUFFIX
from collector.agent.gate.answer_file import ANSWER, KEY, KEY_BYTES, Answer, signed
from tests.deploy.installed import lay_out

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "deploy" / "slurm"
YARDSTICK = "sh -c :"
#: The program in Python, which the installed one calls for all but hooks.
IN_PYTHON = "the same in Python"


def commands(folder: Path) -> dict[str, Sequence[str]]:
    """What is run: the yardstick, the gate's script, the whole prolog with it, and the command as pip installs it, also through
    a link as an administrator may put it into the PATH."""
    program = lay_out(folder / "bin", f'#!/bin/sh\nexec {sys.executable} -m faultline.entry "$@"\n')
    (folder / "faultline").symlink_to(program)
    return {
        YARDSTICK: ("/bin/sh", "-c", ":"),
        "faultline-gate.sh": ("/bin/sh", str(SCRIPTS / "faultline-gate.sh")),
        "prolog.sh": ("/bin/sh", str(SCRIPTS / "prolog.sh")),
        "prolog-gate.sh": ("/bin/sh", str(SCRIPTS / "prolog-gate.sh")),
        "faultline hook prolog --gate": (str(program), "hook", "prolog", "--gate"),
        "the same by a link": (str(folder / "faultline"), "hook", "prolog", "--gate"),
        IN_PYTHON: (sys.executable, "-m", "faultline.entry", "hook", "prolog", "--gate"),
    }


def situations(folder: Path) -> dict[str, Path]:
    """Folders with answers: fit, unfit, missing, old."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    now = int(float(Path("/proc/uptime").read_text().split()[0]))
    reasons = tuple(f"GPU 0000:{n:02x}:00 reported Xid 79 ({'x' * 200})" for n in range(12))
    answers = {
        "fit": Answer("gpu01", "fit", (), boot, now, now + 86_400, 0, 5),
        "unfit": Answer("gpu01", "unfit", reasons, boot, now, now + 86_400, 0, 5),
        "old": Answer("gpu01", "fit", (), boot, 0, 1, 0, 5),
    }
    for name, answer in answers.items():
        (folder / name).mkdir(mode=0o700)
        for file, data in ((KEY, b"k" * KEY_BYTES), (ANSWER, signed(answer, b"k" * KEY_BYTES))):
            (folder / name / file).write_bytes(data)
            (folder / name / file).chmod(0o600)
    return {name: folder / name for name in (*answers, "missing")}


def measured(asked: Mapping[str, Sequence[str]], runs: int, gate: Path, spool: Path) -> dict[str, list[float]]:
    """Seconds of each command, sorted; the commands take turns, so that a busy moment meets all of them."""
    environment = {
        **os.environ,
        "FAULTLINE_GATE": str(gate),
        "FAULTLINE_HOOK_MEMORY": str(spool),
        "FAULTLINE_HOOK_SPOOL": str(spool),
        "PYTHONPATH": str(ROOT),
    }
    found: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(runs):
        for name, times in random.sample(list(found.items()), len(found)):
            begun = time.perf_counter()
            subprocess.run(
                asked[name], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
            )
            times.append(time.perf_counter() - begun)
        for file in (*spool.glob("*.hook"), *spool.glob(f"*{SUFFIX}")):
            file.unlink()
    return {name: sorted(times) for name, times in found.items()}


def percentile(times: Sequence[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))]


def _burn() -> None:
    while True:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="of each command in each situation")
    parser.add_argument("--load", type=int, default=0, help="busy processes meanwhile")
    parser.add_argument("--python", action="store_true", help="also the command in Python")
    given = parser.parse_args()
    busy = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(given.load)]
    for process in busy:
        process.start()
    show: Callable[[str], None] = print
    show(
        f"{given.runs} runs each, in turn; {os.cpu_count()} CPUs, {given.load} busy processes, load {os.getloadavg()[0]:.1f}"
    )
    show(f"{'situation':<9} {'command':<30} {'p50 ms':>8} {'p99 ms':>8} {'p50 ratio':>10} {'p99 ratio':>10}")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        spool = folder / "spool"
        spool.mkdir(mode=0o700)
        asked = {name: words for name, words in commands(folder).items() if given.python or name != IN_PYTHON}
        for situation, gate in situations(folder).items():
            found = measured(asked, given.runs, gate, spool)
            base = {share: percentile(found[YARDSTICK], share) for share in (0.5, 0.99)}
            for command, times in found.items():
                middle, slow = percentile(times, 0.5), percentile(times, 0.99)
                ratios = f"{middle / base[0.5]:>10.1f} {slow / base[0.99]:>10.1f}"
                show(f"{situation:<9} {command:<30} {middle * 1e3:>8.2f} {slow * 1e3:>8.2f} {ratios}")
    for process in busy:
        process.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
