"""A systemd for a test: process 1 of new namespaces over this machine's files; all changes are dropped with it.

It knows the units that it is given and empty targets, nothing of this machine's. Needs root, systemd and cgroup v2
(beside v1 is enough). Its network is this machine's.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INIT = Path("/lib/systemd/systemd")
TARGETS = (
    "sysinit",
    "basic",
    "network-online",
    "multi-user",
    "shutdown",
    "umount",
    "local-fs",
    "paths",
    "sockets",
    "timers",
    "slices",
)
#: The first commands in the namespace. ``$1`` is the folder of this test; what is below ``$1/root`` is overlaid on the
#: machine's files.
BOOT = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /run/layers
for at in etc var/lib var/cache var/spool var/log srv opt; do
    mkdir -p "/run/layers/$at/changes" "/run/layers/$at/work"
    mount -t overlay overlay -o "lowerdir=/$at,upperdir=/run/layers/$at/changes,workdir=/run/layers/$at/work" "/$at"
done
. "$1/prepare.sh"
export SYSTEMD_UNIT_PATH=/etc/units container=other
exec "$2" --system --unit=booted.target --log-target=null --show-status=no
"""


@dataclass
class Booted:
    """``pid``: that of its process 1, seen from here."""

    pid: int

    def run(self, *command: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Runs a command in its namespaces, as root."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "-p", "-C", "--"]
        return subprocess.run([*enter, *command], capture_output=True, text=True, timeout=timeout_s, check=False)

    def systemctl(self, *arguments: str) -> str:
        done = self.run("systemctl", "--no-pager", *arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        return self.systemctl("show", "--value", "-p", name, unit).strip()

    def file(self, path: str) -> Path:
        """A file of its own, seen from here."""
        return Path(f"/proc/{self.pid}/root{path}")

    def process(self, unit: str) -> dict[str, str]:
        """The kernel's properties of a unit's main process."""
        text = self.run("cat", f"/proc/{self.show(unit, 'MainPID')}/status").stdout
        pairs = (line.partition(":") for line in text.splitlines())
        return {name: value.strip() for name, _, value in pairs}


def python(folder: str) -> tuple[str, str]:
    """Shell commands that make this Python and its modules visible below ``folder``, and the command that runs it.

    A unit that sees neither home nor /tmp finds them there.
    """
    packages = [place for place in dict.fromkeys(sys.path) if Path(place).name == "site-packages"]
    shown = {f"{folder}/{number}": place for number, place in enumerate([str(ROOT), *packages])}
    command = f"env PYTHONPATH={':'.join(shown)} {Path(sys.executable).resolve()} -P"
    if not sys.base_prefix.startswith("/usr"):
        shown[f"{folder}/python"] = sys.base_prefix
        command = command.replace(f" {Path(sys.base_prefix).resolve()}/", f" {folder}/python/")
        command = command.replace(
            "env ", f"env LD_LIBRARY_PATH={folder}/python/lib ", 1
        )  # not another Python's library
    return "\n".join(f"mkdir -p {at} && mount --bind {shlex.quote(place)} {at}" for at, place in shown.items()), command


@contextlib.contextmanager
def booted(folder: Path, units: dict[str, str], prepare: str) -> Iterator[Booted]:
    """Starts a systemd with ``units`` (by file name below the folder of units). Skips if none can be started.

    ``prepare``: shell commands before systemd starts.
    """
    if os.geteuid() != 0 or not INIT.exists() or shutil.which("unshare") is None:
        pytest.skip("needs root and systemd")
    made = {f"{name}.target": "[Unit]\nDefaultDependencies=no\n" for name in (*TARGETS, "booted")} | units
    for name, text in made.items():
        path = folder / "units" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "prepare.sh").write_text(f"mkdir -p /etc/units && cp -r {folder}/units/. /etc/units\n{prepare}\n")
    unified = Path("/sys/fs/cgroup/unified")
    group = (unified if unified.is_dir() else Path("/sys/fs/cgroup")) / f"faultline-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    # The shell moves itself into the cgroup, which is the root of those that the new namespace sees.
    command = f'echo $$ > {group}/cgroup.procs && exec unshare --fork --pid --mount --uts --ipc --cgroup --kill-child sh -c "$0" sh "$@"'
    errors = (folder / "boot.err").open("wb+")
    outer = subprocess.Popen(
        ["sh", "-c", command, BOOT, str(folder), str(INIT)],
        stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True,
    )  # fmt: skip
    try:
        found = _first_process(outer)
        if found is None or not _answers(found):
            errors.seek(0)
            pytest.skip(f"systemd does not start in namespaces here: {errors.read().decode()[-500:]!r}")
        yield found
    finally:
        outer.send_signal(signal.SIGKILL)
        outer.wait(120)
        errors.close()
        _remove(group)


def _first_process(outer: subprocess.Popen[bytes]) -> Booted | None:
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    end = time.monotonic() + 120
    while time.monotonic() < end and outer.poll() is None:
        for pid in children.read_text().split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "systemd":
                    return Booted(int(pid))
        time.sleep(0.05)
    return None


def _answers(found: Booted) -> bool:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if found.run("systemctl", "is-active", "booted.target").stdout.strip() == "active":
            return True
        time.sleep(0.1)
    return False


def _remove(group: Path) -> None:
    """Removes the cgroup with everything below it, once its processes are gone."""
    end = time.monotonic() + 120
    while group.exists() and time.monotonic() < end:
        for below in sorted(group.rglob("*/"), reverse=True):
            with contextlib.suppress(OSError):
                below.rmdir()
        with contextlib.suppress(OSError):
            group.rmdir()
        time.sleep(0.05)
