"""Job output on a file system that hangs: a real FUSE mount whose server answers nothing, as a dead file server's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.agent import artifacts
from collector.agent.artifacts import Owner, Places, collect, fetch

FS = Path(__file__).resolve().parents[1] / "cluster" / "hanging_fs.py"
#: hanging_fs.py answers nothing while this file exists.
HANGS = Path("/run/fs.hang")
USER = 20001
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="needs root and /dev/fuse")


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Path]:
    """A mounted folder that stopped answering."""
    place = tmp_path / "nas"
    place.mkdir()
    for path in (tmp_path, *list(tmp_path.parents)[:-2]):  # the job's user passes these
        if not path.stat().st_mode & 0o001:
            path.chmod(0o755)
    server = subprocess.Popen([sys.executable, str(FS), str(place)], stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while f" {place} " not in Path("/proc/mounts").read_text():
            if server.poll() is not None:
                pytest.skip("this machine mounts no FUSE")
            assert time.monotonic() < until
            time.sleep(0.05)
        HANGS.touch()
        yield place
    finally:
        HANGS.unlink(missing_ok=True)
        server.kill()
        server.wait(120)
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def test_nothing_waits_for_a_file_system_that_hangs_and_the_reason_is_kept(
    dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()
    artifact = fetch("stdout", str(dead / "data.bin"), Owner(USER, USER, (), True), time_limit_s=0.5)
    assert (artifact.content, artifact.reason) == (b"", "no answer from the file system in 0.5 s")
    # The output of another job, elsewhere, is read meanwhile.
    home = dead.parent / "home"
    home.mkdir()
    (home / "out").write_text("hello\n")
    for path in (home, home / "out"):
        os.chown(path, USER, USER)
    env = {
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_UID": str(USER),
        "SLURM_JOB_GID": str(USER),
        "SLURM_JOB_WORK_DIR": str(home),
    }
    monkeypatch.setitem(artifacts.fetch.__kwdefaults__, "time_limit_s", 300.0)
    (other,) = collect({**env, "SLURM_JOB_STDOUT": "out"}, Places(None, None))
    assert other.content == b"hello\n"
    assert time.monotonic() - begun < 300, "it was waited for"
