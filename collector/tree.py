"""Decides which files of a log tree are read: regular ones, reached through no link that another user made.

A tree holds folders that users write into (``jobs/``). Its reader may have more rights than they do: a symbolic or hard
link there would store a file that they cannot open under their name, and a FIFO would block for ever. Paths on the
command line are followed; inside the tree, only links of root, the caller or the tree's owner may lead outside, and no
link below ``jobs/`` is followed at all. Skipped entries are reported.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Linux follows this many links in a row.
_MOST_LINKS = 40
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A file to read, by a path without links; or one to skip, and ``why``. ``root`` is the path that the user
    named."""

    path: Path
    root: Path
    why: str | None = None
    #: It cannot be read, as opposed to may not; or it was named itself.
    broken: bool = False


class _LinkError(Exception):
    """Why a link is not followed."""


def walk(paths: list[Path]) -> list[Entry]:
    """Every file below ``paths``, sorted, each once; hidden folders are skipped."""
    found: dict[Path, Entry] = {}
    for named in paths:
        root = named.resolve()
        if root.is_dir():
            for entry in _below(root):
                known = found.get(entry.path)
                if known is None or (known.why and not entry.why):
                    found[entry.path] = entry
        else:
            seen = _seen(root)
            why = None if seen is None or stat.S_ISREG(seen.st_mode) else _irregular(seen)
            found.setdefault(root, Entry(root, root.parent, why, broken=why is not None))
    return [found[path] for path in sorted(found)]


def opened_at(path: Path) -> int:
    """A handle of the regular file at an absolute path without any link in it; never blocks. Raises ``OSError``."""
    parts = path.parts
    folder = os.open(parts[0], _FOLDER)
    try:
        for part in parts[1:-1]:
            folder, before = os.open(part, _FOLDER, dir_fd=folder), folder
            os.close(before)
        handle = os.open(parts[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("not a regular file")
    return handle


def trusted(root: Path) -> frozenset[int]:
    """Owners whose links are trusted: root, the caller, and the owner of the tree."""
    seen = _seen(root)
    return frozenset({0, os.geteuid()} | ({seen.st_uid} if seen is not None else set()))


def is_jobs(path: Path, root: Path) -> bool:
    """Whether a path of the tree is below its jobs folder."""
    if "jobs" in path.relative_to(root).parts[:-1] or root.name == "jobs":
        return True
    return any(a == "jobs" and b.isdecimal() for a, b in zip(root.parts, root.parts[1:], strict=False))


def _below(root: Path) -> Iterator[Entry]:
    ours = trusted(root)
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = [name for name in folders if (here / name).is_symlink()]
        owner = _seen(here)
        for name in names:
            yield from _entry(here / name, root, owner, ours)
        for name in links:
            target = (here / name).resolve()
            if not target.is_relative_to(root):  # otherwise it is found at its own place
                yield Entry(here / name, root, "a link to a folder elsewhere, which is not followed")


def _entry(path: Path, root: Path, folder: os.stat_result | None, ours: frozenset[int]) -> Iterator[Entry]:
    seen = _seen(path)
    if seen is None or folder is None:
        return  # gone meanwhile
    if stat.S_ISLNK(seen.st_mode):
        try:
            target = _followed(path, root, ours)
        except _LinkError as why:
            yield Entry(path, root, str(why))
            return
        except OSError as error:
            yield Entry(path, root, f"a link that leads nowhere: {error.strerror}", broken=True)
            return
        behind = _seen(target)
        if behind is not None and stat.S_ISREG(behind.st_mode):
            yield Entry(target, root)
        elif behind is not None:
            yield Entry(path, root, f"a link to {_irregular(behind)}")
        return
    if not stat.S_ISREG(seen.st_mode):
        yield Entry(path, root, _irregular(seen))
    elif seen.st_nlink > 1 and _is_strangers(seen, folder, is_jobs(path, root), ours):
        yield Entry(path, root, "a hard link to a file of somebody else")
    else:
        yield Entry(path, root)


def _is_strangers(seen: os.stat_result, folder: os.stat_result, of_job: bool, ours: frozenset[int]) -> bool:
    """Whether somebody may have linked a file of another user into a folder."""
    open_to_all = bool(folder.st_mode & stat.S_IWOTH)
    return (seen.st_uid != folder.st_uid or open_to_all) if of_job else (folder.st_uid not in ours or open_to_all)


def _followed(path: Path, root: Path, ours: frozenset[int]) -> Path:
    """The target of a link, with every link on the way checked. Raises ``_LinkError``, and ``OSError`` if there is no
    target."""
    if is_jobs(path, root):
        raise _LinkError("a symbolic link below jobs/, which is not followed")
    at, left, links, strange = Path("/"), list(reversed(path.parts[1:])), 0, False
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at = at.parent
            continue
        step = at / part
        seen = step.lstat()
        if not stat.S_ISLNK(seen.st_mode):
            at = step
            continue
        links += 1
        if links > _MOST_LINKS:
            raise _LinkError("links that lead in a circle")
        if step.is_relative_to(root) and is_jobs(step, root):
            raise _LinkError("a link to a symbolic link below jobs/, which is not followed")
        strange = strange or seen.st_uid not in ours
        target = step.readlink()
        if target.is_absolute():
            at = Path("/")
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    if strange and not at.is_relative_to(root):
        raise _LinkError("a symbolic link of another user that leads out of the tree")
    return at


def _irregular(seen: os.stat_result) -> str:
    return f"{_KINDS.get(stat.S_IFMT(seen.st_mode), 'something')}, not a regular file"


def _seen(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None
