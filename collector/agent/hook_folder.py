"""A spool of Slurm's hooks as whoever empties it sees it: whose word it holds, one reader at a time, and nothing in it is
followed, waited for, or opened by a path that somebody could change meanwhile.

Two kinds of folder are read. Nobody but its owner (and root) writes into the first: what lies there is Slurm's word. Into the
second (``task-hooks``, sticky) every user writes: what lies there is the word of the uid that owns the file, whatever it says.
Any other folder is refused with the reason.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from collector.agent.failure import Denied
from collector.agent.strangers import quoted

#: Held by the process that empties the spool: two of them would both read a file before one removes it.
CLAIM = ".reader"
ASIDE = "bad"
#: A hook ends after a second or two (docs/hooks.md); what it has not finished by then, nobody will.
DEAD_AFTER_S = 60.0
#: A hook writes 256 KiB at most, and 4096 files.
MOST_BYTES = 512 << 10
#: One look goes over so many entries, so that a folder that a user filled costs no more than that.
MOST_ENTRIES = 50_000
#: What is set aside is bounded; more is removed.
MOST_ASIDE, MOST_ASIDE_BYTES = 200, 16 << 20

#: Small files may take no block of a disk.
MOST_INLINE = 4096
#: What an entry's owner can make of opening it: links, sockets, a file system of its own (FUSE), a lease (``F_SETLEASE``).
_BY_ITS_OWNER = (
    errno.ELOOP,
    errno.ENXIO,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTCONN,
    errno.EWOULDBLOCK,
    errno.EOVERFLOW,
)
_OURS = (".", "..", CLAIM, ASIDE, "dropped", ".dropped.told")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Odd(Exception):  # noqa: N818 - the reason in words
    """Why an entry is no hook's file."""


@dataclass(frozen=True, slots=True)
class Word:
    """A hook's file: its bytes and who owns it. ``is_slurms``: root or the folder's owner wrote it, where users cannot."""

    data: bytes
    uid: int
    is_slurms: bool


@dataclass
class HookFolder:
    path: Path
    #: Every user may write here.
    is_users: bool = False
    _handle: int = -1
    _claim: int = -1
    _owner: int = -1
    #: What cannot be taken away: not looked at again.
    _stuck: set[str] = field(default_factory=set)

    # ------------------------------------------------------------------------------------------- whose folder it is

    def look(self) -> None:
        """Opens the folder, or finds that it is still the one that is open. Raises ``Denied`` for one that may not be read,
        and ``OSError``."""
        try:
            now = self.path.lstat()
        except OSError:
            self.release()
            raise
        if self._handle >= 0:
            held = os.fstat(self._handle)
            if (held.st_dev, held.st_ino) != (now.st_dev, now.st_ino):
                self.release()
        if self._handle < 0:
            try:
                self._handle = os.open(self.path, _FOLDER)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise Denied(f"{self.path} is no folder; name the folder itself, no link to it") from error
                raise
        reason = self._distrust(os.fstat(self._handle))
        if reason:
            self.release()
            raise Denied(f"{self.path} is not read: {reason}")

    def _distrust(self, about: os.stat_result) -> str:
        """Why the folder cannot be believed, and the cure; empty where it can."""
        self._owner = about.st_uid
        known = (0, os.geteuid())
        if about.st_uid not in known:
            above = self.path.parent.stat()
            if above.st_uid not in (*known, about.st_uid) or above.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return (
                    f"it belongs to uid {about.st_uid}, and users may write into {self.path.parent}; "
                    f"keep it below a folder that is root's alone, or chown root {self.path}"
                )
        self.is_users = bool(about.st_mode & stat.S_ISVTX and about.st_mode & stat.S_IWOTH)
        if self.is_users:
            if about.st_uid not in known:
                return f"users write into it and it belongs to uid {about.st_uid}; chown root {self.path}"
            return ""
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return (
                f"its mode {stat.S_IMODE(about.st_mode):04o} lets others write into it, who could speak for Slurm; "
                f"chmod 0700 {self.path} (1733 for task prologs)"
            )
        return ""

    def problem(self) -> str:
        """Why this folder would not be read; empty where it would be, or is not there (hooks make it)."""
        try:
            self.look()
        except FileNotFoundError:
            return ""
        except Denied as why:
            return str(why)
        except OSError as error:
            return f"{self.path} cannot be read: {error.strerror}"
        self.release()
        return ""

    # ------------------------------------------------------------------------------------------- one reader at a time

    def claim(self) -> bool:
        """Whether this process may empty the spool: True until ``release()``, False while another one does. ``look()`` comes
        first.

        A folder where no lock can be kept (a read-only disk) is nobody's: reading it twice is better than not at all.
        """
        if self._claim >= 0:
            return True
        if self._handle < 0:
            self.look()
        try:
            handle = self._open_claim()
        except OSError:
            return not self._exists(CLAIM)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except OSError:  # a file system without locks
            os.close(handle)
            return True
        self._claim = handle
        return True

    def _open_claim(self) -> int:
        """Who may look into the spool may lock it, as its owner beside root. Where users write into it (task prologs) they may
        not, and what one of them put there is no reader's lock: it is taken away."""
        with contextlib.suppress(FileNotFoundError):
            seen = os.stat(CLAIM, dir_fd=self._handle, follow_symlinks=False)
            if seen.st_uid not in self._trusted() or not stat.S_ISREG(seen.st_mode) or seen.st_nlink > 1:
                self._take_away(CLAIM, seen)
        flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(CLAIM, flags, 0o600, dir_fd=self._handle)
        seen = os.fstat(handle)
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid not in self._trusted() or seen.st_nlink > 1:
            os.close(handle)
            raise OSError(errno.EBUSY, "a user puts things into the place of the lock")
        if not self.is_users and seen.st_uid == os.geteuid():
            os.fchmod(handle, 0o644)
        return handle

    def _trusted(self) -> tuple[int, ...]:
        return (0, os.geteuid(), self._owner)

    def _exists(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        except OSError:
            return False
        return True

    def release(self) -> None:
        for handle in (self._claim, self._handle):
            if handle >= 0:
                os.close(handle)
        self._claim = self._handle = -1

    # ------------------------------------------------------------------------------------------- its files

    def waiting(self, but: Collection[str] = (), most: int | None = None) -> list[str]:
        """Names of what hooks left, in the order in which they ran; ``but`` and what is stuck are left out."""
        names = list(self._names())
        self._stuck.intersection_update(names)  # a user who changes names holds no memory
        found = [
            name for name in names
            if name.endswith(".hook") and name[0] != "." and name not in self._stuck and name not in but
        ]  # fmt: skip
        found.sort(key=_written)
        return found if most is None else found[:most]

    def _names(self) -> Iterator[str]:
        with os.scandir(self._handle) as entries:
            yield from islice((entry.name for entry in entries if entry.name not in _OURS), MOST_ENTRIES)

    def read(self, name: str) -> Word:
        """A hook's file. Raises ``Odd`` for what is none, and ``OSError`` where reading it does not go now."""
        try:
            seen = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
            if not stat.S_ISREG(seen.st_mode):  # not opened: a device does something when it is
                raise Odd("a symbolic link" if stat.S_ISLNK(seen.st_mode) else "not a regular file")
            handle = os.open(name, _READ, dir_fd=self._handle)
        except OSError as error:
            if error.errno in _BY_ITS_OWNER:
                raise Odd(os.strerror(error.errno).lower()) from error
            raise
        try:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode):
                raise Odd("not a regular file")
            if about.st_nlink > 1:  # a link to a file of somebody else would speak as that one
                raise Odd(f"a file of {about.st_nlink} names")
            is_slurms = not self.is_users and about.st_uid in self._trusted()
            if not is_slurms and not self.is_users:
                raise Odd(f"uid {about.st_uid} may not say what Slurm says")
            if about.st_size > MOST_BYTES:
                raise Odd(f"{about.st_size} bytes are more than a hook writes")
            data = _all(handle)
        finally:
            os.close(handle)
        if len(data) > MOST_BYTES:
            raise Odd("grows while it is read")
        return Word(data, about.st_uid, is_slurms)

    def remove(self, name: str) -> str:
        """Why a file that was delivered cannot be removed; empty once it is gone. It is not looked at again either way."""
        try:
            os.unlink(name, dir_fd=self._handle)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._stuck.add(name)
            return error.strerror or str(error)
        return ""

    def set_aside(self, name: str) -> str:
        """Moves what is no hook's file into ``bad/``, or removes it where that is full. Returns what became of it, in words."""
        try:
            return self._take_away(name, os.stat(name, dir_fd=self._handle, follow_symlinks=False))
        except FileNotFoundError:
            return "it is gone"
        except OSError as error:
            self._stuck.add(name)
            return f"it cannot be moved to {ASIDE}/: {error.strerror}"

    def _take_away(self, name: str, about: os.stat_result) -> str:
        aside = self._aside()
        try:
            count, size = 0, about.st_blocks * 512
            with os.scandir(aside) as entries:
                for entry in entries:
                    count, size = count + 1, size + entry.stat(follow_symlinks=False).st_blocks * 512
                    if count > MOST_ASIDE:
                        break
            if count >= MOST_ASIDE or size > MOST_ASIDE_BYTES:
                if stat.S_ISDIR(about.st_mode):
                    os.rmdir(name, dir_fd=self._handle)
                else:
                    os.unlink(name, dir_fd=self._handle)
                return f"it was removed, {ASIDE}/ is full"
            free = name
            for place in range(1, 10):
                try:
                    os.stat(free, dir_fd=aside, follow_symlinks=False)
                except FileNotFoundError:
                    break
                free = f"{place}.{name}"[:200]
            os.rename(name, free, src_dir_fd=self._handle, dst_dir_fd=aside)
        finally:
            os.close(aside)
        return f"it lies in {ASIDE}/"

    def _aside(self) -> int:
        """``bad/`` of this folder, ours alone: what a user put into its place is taken away first."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(ASIDE, 0o700, dir_fd=self._handle)
        about = os.stat(ASIDE, dir_fd=self._handle, follow_symlinks=False)
        if not stat.S_ISDIR(about.st_mode):
            os.unlink(ASIDE, dir_fd=self._handle)
            os.mkdir(ASIDE, 0o700, dir_fd=self._handle)
        elif about.st_uid not in self._trusted():
            os.rename(ASIDE, f"{ASIDE}.{time.time_ns()}", src_dir_fd=self._handle, dst_dir_fd=self._handle)
            os.mkdir(ASIDE, 0o700, dir_fd=self._handle)
        handle = os.open(ASIDE, _FOLDER, dir_fd=self._handle)
        about = os.fstat(handle)
        if about.st_uid not in self._trusted():
            os.close(handle)
            raise OSError(errno.EPERM, f"{ASIDE}/ belongs to uid {about.st_uid}")
        if about.st_uid == os.geteuid():
            os.fchmod(handle, 0o700)
        return handle

    # ------------------------------------------------------------------------------------------- what was lost

    def unfinished(self, most: int = MOST_ENTRIES) -> list[str]:
        """Names of what hooks that were killed in the middle of writing left behind."""
        found, before = [], time.time() - DEAD_AFTER_S
        for name in islice((n for n in self._names() if n[0] == "." and n.endswith(".hook.tmp")), most):
            if name in self._stuck:
                continue
            try:
                seen = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError:
                self._stuck.add(name)
                continue
            if seen.st_mtime < before:
                found.append(name)
        return sorted(found)

    def given_up(self, name: str = "dropped") -> tuple[int, float]:
        """How many hooks gave up here (a byte each in ``dropped``), and when the last one did (seconds since 1970). What users
        write about it is not believed."""
        try:
            seen = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        except OSError:
            return 0, 0.0
        believed = stat.S_ISREG(seen.st_mode) and seen.st_uid in self._trusted() and not self.is_users
        # Holes are nobody's bytes: a file that was made long, and not written, counts no hooks.
        count = min(seen.st_size, max(seen.st_blocks * 512, MOST_INLINE))
        return (count, seen.st_mtime) if believed else (0, 0.0)

    def begin_anew(self) -> str:
        """Moves ``dropped`` away, so that counting begins anew; the name of what was counted, to be removed once it is told.
        What was moved away and not removed before (a crash) comes first."""
        aside = ".dropped.told"
        if not self._exists(aside) and self.given_up()[0]:
            os.rename("dropped", aside, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        return aside


def _written(name: str) -> tuple[int, str]:
    """In the order in which hooks ran, which stands in the name: an epilog is told apart by its prolog."""
    at = name.split(".")[-2]
    return int(at) if at.isascii() and at.isdigit() and len(at) < 24 else 0, name


def _all(handle: int) -> bytes:
    pieces, size = [], 0
    while size <= MOST_BYTES and (piece := os.read(handle, MOST_BYTES + 1 - size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def words_given_up(folder: Path, count: int) -> str:
    return f"{count} hooks gave up: the spool {folder} was full, or slow for a second"


def words_unfinished(folder: HookFolder, name: str) -> str:
    """The name says whose it is: ``.JOB.EVENT.HOST.PID.TIME.hook.tmp``, unless a user chose it."""
    if folder.is_users:
        return f"a task prolog ended in the middle of writing: {quoted(name)} in {folder.path}"
    job, event, host = (name.lstrip(".").split(".") + ["?"] * 3)[:3]
    return f"the {event} hook of job {job} on {host} ended in the middle of writing: {folder.path / name}"
