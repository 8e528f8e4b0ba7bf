"""Reads a spool folder of Slurm's hooks safely: establishes who wrote a file, allows one reader at a time, and follows
no link, blocks on nothing and opens nothing by a path that somebody else can change.

Two kinds of folder are read. Only the owner (and root) can write into the first: its files come from Slurm. Every user
can write into the second (``task-hooks``, sticky): a file there comes from the uid that owns it, whatever it claims.
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

from collector.agent import exported
from collector.agent.failure import Denied
from collector.agent.strangers import quoted

#: Held by the process that empties the spool: two readers would both read a file before one removes it.
CLAIM = ".reader"
ASIDE = "bad"
#: A hook ends after a second or two (docs/hooks.md); a file still unfinished after this long stays unfinished.
DEAD_AFTER_S = 60.0
#: A hook writes at most 256 KiB, and at most 4096 files.
MOST_BYTES = 512 << 10
#: Most entries that one look examines, so that a folder filled by a user costs no more than that.
MOST_ENTRIES = 50_000
#: Limits of what is set aside; anything beyond them is removed.
MOST_ASIDE, MOST_ASIDE_BYTES = 200, 16 << 20

#: Small files may occupy no disk block.
MOST_INLINE = 4096
#: Errors that an entry's owner can cause on open: links, sockets, a file system of their own (FUSE), a lease
#: (``F_SETLEASE``).
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
    """Why an entry is not a hook file."""


@dataclass(frozen=True, slots=True)
class Word:
    """A hook file: its bytes and its owner. ``is_slurms``: root or the folder's owner wrote it, in a folder closed to
    users. ``inode`` tells it from a later file of its name."""

    data: bytes
    uid: int
    is_slurms: bool
    inode: int = 0


@dataclass
class HookFolder:
    path: Path
    #: Every user may write here.
    is_users: bool = False
    _handle: int = -1
    _claim: int = -1
    _owner: int = -1
    #: Entries that cannot be removed: not looked at again.
    _stuck: set[str] = field(default_factory=set)

    # ------------------------------------------------------------------------------------------- whose folder it is

    def look(self) -> None:
        """Opens the folder, or verifies that the open one is still it. Raises ``OSError``, and ``Denied`` for a folder
        that may not be read."""
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
        """Why the folder is not trusted, and the cure; empty if it is trusted."""
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
        """Why this folder would be refused; empty if it would be read or does not exist (hooks create it)."""
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
        """Whether this process may empty the spool: True until ``release()``, False while another process does. Call
        ``look()`` first.

        A folder that cannot hold a lock (a read-only disk) has no owner: reading it twice is better than not at all.
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
        """Opens the lock file. In Slurm's folder, anyone who may read the spool may lock it. In a folder that users
        write into (task prologs), only its owner and root may: a lock file that a user put there is removed."""
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
        """Names of the files that hooks left, in the order in which the hooks ran, without ``but`` and the stuck
        ones."""
        names = list(self._names())
        self._stuck.intersection_update(names)  # a user who changes names occupies no memory
        found = [
            name for name in names
            if name.endswith((".hook", exported.SUFFIX)) and name[0] != "." and name not in self._stuck and name not in but
            and (not name.endswith(exported.SUFFIX) or self._is_whole(name))
        ]  # fmt: skip
        found.sort(key=lambda name: (self.written_ns(name), name))
        return found if most is None else found[:most]

    def _is_whole(self, name: str) -> bool:
        """Whether a file in memory was written to its end (nothing renames it). True too for what is no file of a hook:
        ``read`` says what it is. A file that its hook gave up is removed."""
        try:
            handle = os.open(name, _READ, dir_fd=self._handle)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode):
                return True
            tail = os.pread(handle, 64, max(0, about.st_size - 64))
        finally:
            os.close(handle)
        if tail == exported.VOID:
            self.remove(name)
        return exported.is_whole(tail)

    def written_ns(self, name: str) -> int:
        """When a hook ran: from the name, or from the time of a file whose hook could not ask for the time. A prolog comes
        before its epilog, which relies on it."""
        if name.endswith(exported.SUFFIX):
            try:
                return os.stat(name, dir_fd=self._handle, follow_symlinks=False).st_mtime_ns
            except OSError:
                return 0
        at = name.split(".")[-2]
        return int(at) if at.isascii() and at.isdigit() and len(at) < 24 else 0

    def inode(self, name: str) -> int:
        """The number of the file of this name; 0 for none."""
        try:
            return os.stat(name, dir_fd=self._handle, follow_symlinks=False).st_ino
        except OSError:
            return 0

    def _names(self) -> Iterator[str]:
        with os.scandir(self._handle) as entries:
            yield from islice((entry.name for entry in entries if entry.name not in _OURS), MOST_ENTRIES)

    def read(self, name: str) -> Word:
        """Reads a hook file. Raises ``Odd`` if it is not one, and ``OSError`` if it cannot be read now."""
        try:
            seen = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
            if not stat.S_ISREG(seen.st_mode):  # do not open it: opening a device has side effects
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
            if about.st_nlink > 1:  # a hard link to somebody else's file would pass as that owner's file
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
        if name.endswith(exported.SUFFIX):
            try:
                data = exported.hook_file(data, about.st_mtime_ns)
            except ValueError as why:
                raise Odd(str(why)) from why
        return Word(data, about.st_uid, is_slurms, about.st_ino)

    def about(self, name: str) -> tuple[str, str, str]:
        """Event, host and job of a file in memory, as far as it was written."""
        try:
            handle = os.open(name, _READ, dir_fd=self._handle)
        except OSError:
            return exported.about(b"")
        try:
            return exported.about(os.pread(handle, 512, 0))
        finally:
            os.close(handle)

    def remove(self, name: str) -> str:
        """Removes a delivered file. Returns why it cannot be removed; empty once it is gone. It is not looked at again
        either way."""
        try:
            os.unlink(name, dir_fd=self._handle)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._stuck.add(name)
            return error.strerror or str(error)
        return ""

    def set_aside(self, name: str) -> str:
        """Moves an entry that is no hook file into ``bad/``, or removes it if that is full. Returns what was done, in
        words."""
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
        """Opens ``bad/`` of this folder, which belongs to us alone: anything a user put in its place is removed
        first."""
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
        """Names of unfinished files left by hooks that were killed while writing."""
        found, before = [], time.time() - DEAD_AFTER_S
        torn = (n for n in self._names() if (n[0] == "." and n.endswith(".hook.tmp")) or n.endswith(exported.SUFFIX))
        for name in islice(torn, most):
            if name in self._stuck:
                continue
            try:
                seen = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError:
                self._stuck.add(name)
                continue
            if seen.st_mtime < before and not (name.endswith(exported.SUFFIX) and self._is_whole(name)):
                found.append(name)
        return sorted(found)

    def given_up(self, name: str = "dropped") -> tuple[int, float]:
        """How many hooks gave up here (one byte each in ``dropped``), and when the last one did (epoch seconds).
        User-written content is not trusted."""
        try:
            seen = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        except OSError:
            return 0, 0.0
        believed = stat.S_ISREG(seen.st_mode) and seen.st_uid in self._trusted() and not self.is_users
        # Holes do not count: a file extended without being written counts no hooks.
        count = min(seen.st_size, max(seen.st_blocks * 512, MOST_INLINE))
        return (count, seen.st_mtime) if believed else (0, 0.0)

    def begin_anew(self) -> str:
        """Moves ``dropped`` away, so that counting restarts. Returns the name of the counted file, to be removed once
        it is reported. A file that was moved away but not removed (after a crash) comes first."""
        aside = ".dropped.told"
        if not self._exists(aside) and self.given_up()[0]:
            os.rename("dropped", aside, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        return aside


def _all(handle: int) -> bytes:
    pieces, size = [], 0
    while size <= MOST_BYTES and (piece := os.read(handle, MOST_BYTES + 1 - size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def words_given_up(folder: Path, count: int) -> str:
    return f"{count} hooks gave up: the spool {folder} was full, or slow for a second"


def words_unfinished(folder: HookFolder, name: str) -> str:
    """Describes an unfinished file. Its name gives its origin, ``.JOB.EVENT.HOST.PID.TIME.hook.tmp``, unless a user
    chose it."""
    if folder.is_users:
        return f"a task prolog ended in the middle of writing: {quoted(name)} in {folder.path}"
    if name.endswith(exported.SUFFIX):
        event, host, job = folder.about(name)
    else:
        job, event, host = (name.lstrip(".").split(".") + ["?"] * 3)[:3]
    return f"the {event} hook of job {job} on {host} ended in the middle of writing: {folder.path / name}"
