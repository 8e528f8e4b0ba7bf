"""Real small disks for tests: one that is filled, and one whose file system turns read-only by itself. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk")


def _run(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A tmpfs of that size; skips if none can be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)):
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield folder
    finally:
        _run("umount", "-l", str(folder))


def fill(disk: Path) -> Path:
    """Another process's file that takes all the room there is."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return filler


class BreakableDisk:
    """An ext4 file system in a file.

    ``break_`` makes the kernel find an error in it: from then on it is read-only, with files open for writing on it, as
    when a real disk fails. ``repair`` is what an operator does: unmount, copy to a new disk, check, mount. (The old one may
    still be mounted, and read-only, in the namespace of a test that runs meanwhile. Mounting it again would give that one.)
    """

    def __init__(self, image: Path, folder: Path) -> None:
        self.image, self.folder = image, folder

    def mount(self) -> bool:
        return _run("mount", "-o", "loop,errors=remount-ro", str(self.image), str(self.folder))

    def break_(self) -> None:
        found = subprocess.run(
            ["findmnt", "-no", "SOURCE", str(self.folder)], capture_output=True, text=True, check=True
        )
        trigger = Path("/sys/fs/ext4") / Path(found.stdout.strip()).name / "trigger_fs_error"
        if not trigger.exists():
            pytest.skip("this kernel cannot be made to find an error in ext4")
        trigger.write_text("1")

    def unmount(self) -> bool:
        end = time.monotonic() + 120
        while not (done := _run("umount", str(self.folder))) and time.monotonic() < end:
            time.sleep(0.1)
        return done

    def repair(self) -> None:
        """No process may have files open on it."""
        assert self.unmount()
        broken, self.image = self.image, self.image.with_suffix(".new.img")
        assert _run("cp", "--sparse=always", str(broken), str(self.image))
        checked = subprocess.run(["e2fsck", "-p", str(self.image)], capture_output=True, check=False)
        assert checked.returncode in (0, 1), checked.stdout  # 1: errors were corrected
        assert self.mount()


@contextmanager
def breakable_disk(place: Path, megabytes: int = 64) -> Iterator[BreakableDisk]:
    """Skips if loop devices or ext4 are missing."""
    if shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin") is None:
        pytest.skip("mkfs.ext4 is not installed")
    disk = BreakableDisk(place.with_suffix(".img"), place)
    place.mkdir()
    with disk.image.open("wb") as file:
        file.truncate(megabytes << 20)
    if not _run("mkfs.ext4", "-q", "-F", str(disk.image)) or not disk.mount():
        pytest.skip("no loop device can be mounted here")
    try:
        yield disk
    finally:
        _run("umount", "-l", str(place))
