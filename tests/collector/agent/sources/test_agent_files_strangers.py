"""Globs match what users made: their links do not make root read files that they cannot read."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from collector.agent.hook_folder import MOST_INLINE, HookFolder
from tests.collector.agent.sources.test_agent_files import Following, numbers, write

MALLORY = 20003
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of several users")


@needs_root
@pytest.mark.parametrize("shape", ["file", "folder", "over root's link"])
def test_a_users_link_to_somebody_elses_file_is_refused(tmp_path: Path, shape: str) -> None:
    secret, home = tmp_path / "root" / "x.log", tmp_path / "scratch" / "mallory"
    secret.parent.mkdir()
    home.mkdir(parents=True)
    write(secret, 1, 5)
    link = home / "logs"
    if shape == "folder":
        link.symlink_to(secret.parent)
    else:
        link.mkdir()
        hop = tmp_path / "hop"
        hop.symlink_to(secret)
        link = link / "x.log"
        link.symlink_to(secret if shape == "file" else hop)
    os.lchown(link, MALLORY, MALLORY)
    os.chown(home, MALLORY, MALLORY)
    write(home.parent / "x.log", 7, 9)
    following = Following(str(tmp_path / "scratch/*/logs/*.log"), str(tmp_path / "scratch/*.log"), from_start=True)
    following.poll()
    assert numbers(following.lines) == list(range(7, 9 + 1))


@needs_root
def test_links_of_the_operator_and_to_ones_own_file_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    write(tmp_path / "real" / "a.log", 1, 3)
    write(tmp_path / "real" / "b.log", 4, 6)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").symlink_to(tmp_path / "real" / "a.log")
    (tmp_path / "logs" / "b.log").symlink_to(tmp_path / "real" / "b.log")
    for path in (tmp_path / "real" / "b.log", tmp_path / "logs" / "b.log"):
        os.lchown(path, MALLORY, MALLORY)
    following = Following(str(tmp_path / "logs/*.log"), from_start=True)
    following.poll()
    assert sorted(numbers(following.lines)) == [1, 2, 3, 4, 5, 6]


@needs_root
def test_who_owns_a_file_is_reported(tmp_path: Path) -> None:
    for name, uid in (("a.log", 0), ("b.log", MALLORY)):
        write(tmp_path / name, 1, 3)
        os.chown(tmp_path / name, uid, uid)
    (tmp_path / "b.log.1.gz").write_bytes(gzip.compress(b"7\n"))
    os.chown(tmp_path / "b.log.1.gz", MALLORY, MALLORY)
    following = Following(str(tmp_path / "*.log"), from_start=True)
    following.poll()
    assert following.owners == {str(tmp_path / "a.log"): "0", str(tmp_path / "b.log"): str(MALLORY)}


def test_a_link_is_no_earlier_generation(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(gzip.compress(b"TOPSECRET\n"))
    write(tmp_path / "a.log", 1, 3)
    (tmp_path / "a.log.1.gz").symlink_to(tmp_path / "secret")
    following = Following(str(tmp_path / "a.log"), from_start=True)
    following.poll()
    assert numbers(following.lines) == list(range(1, 3 + 1))


def test_holes_count_no_hooks(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "dropped").write_bytes(b"...")
    spool = HookFolder(tmp_path)
    spool.look()
    assert spool.given_up()[0] == 3
    os.truncate(tmp_path / "dropped", 1 << 40)
    assert spool.given_up()[0] <= MOST_INLINE
    spool.release()
