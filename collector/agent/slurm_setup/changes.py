"""Folders and files that the installation makes, each with what was there before: installing twice changes nothing, and
removing leaves what was there."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.agent.failure import AgentError
from collector.agent.slurm.host import Host, group_name, owner_name

#: What was made, and what was there before.
RECORD = "/etc/faultline/slurm/.installed.json"
FORMAT = "faultline-slurm/1"
#: What the agent and the hooks leave in a spool beside records; nothing of it is worth keeping.
LEFT_IN_SPOOLS = (".reader", ".dropped.told")


@dataclass(frozen=True, slots=True)
class Change:
    """A folder (``content`` is None) or a file that shall be there, with mode and owner. ``path``: as the host calls it."""

    path: str
    mode: int
    uid: int
    gid: int
    content: bytes | None = None

    @property
    def owner(self) -> str:
        return f"{owner_name(self.uid)}:{group_name(self.gid)} {self.mode:04o}"

    def words(self, host: Host) -> str:
        """What ``apply`` would do, in a sentence; empty if nothing."""
        now = state(host.path(self.path))
        if now == self.wanted():
            return ""
        kind = "folder" if self.content is None else "file"
        if now is None:
            return f"make {kind} {self.path} ({self.owner})"
        was = f"{owner_name(now['uid'])}:{group_name(now['gid'])} {now['mode']:04o}"
        if now.get("content") != self.wanted().get("content"):
            return f"replace file {self.path} ({self.owner}); 'remove' brings the present one back"
        return f"change {kind} {self.path} from {was} to {self.owner}"

    def wanted(self) -> dict[str, Any]:
        return _described(self.mode, self.uid, self.gid, self.content)

    def apply(self, host: Host) -> None:
        _make(host.path(self.path), self.wanted())


def _described(mode: int, uid: int, gid: int, content: bytes | None) -> dict[str, Any]:
    found: dict[str, Any] = {"mode": mode, "uid": uid, "gid": gid}
    if content is not None:
        found["content"] = base64.b64encode(content).decode()
    return found


def state(path: Path) -> dict[str, Any] | None:
    """What is at a path: mode, owner, and a file's content; None for nothing. Raises ``AgentError`` for a link or a
    device in its place."""
    try:
        about = path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AgentError(f"{path}: {error.strerror}") from error
    content = None
    if stat.S_ISREG(about.st_mode):
        content = path.read_bytes()
    elif not stat.S_ISDIR(about.st_mode):
        raise AgentError(f"{path} is neither a folder nor a file; move it away, then try again")
    return _described(stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid, content)


def _make(path: Path, wanted: dict[str, Any]) -> None:
    content = wanted.get("content")
    try:
        if content is None:
            with contextlib.suppress(FileExistsError):
                path.mkdir(0o700)
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            target = path
        else:
            target = path.with_name(f".{path.name}.new")
            target.unlink(missing_ok=True)
            handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if content is not None:
                os.write(handle, base64.b64decode(content))
            about = os.fstat(handle)
            if (about.st_uid, about.st_gid) != (wanted["uid"], wanted["gid"]):
                with contextlib.suppress(*(PermissionError,) * (os.geteuid() != 0)):  # who packs an image is not root
                    os.fchown(handle, wanted["uid"], wanted["gid"])
            os.fchmod(handle, wanted["mode"])
        finally:
            os.close(handle)
        if target != path:
            target.replace(path)
    except OSError as error:
        raise AgentError(f"{path} cannot be written: {error.strerror}; run this as root") from error


@dataclass
class Record:
    """What was made on this host: path -> what was there ``before`` (None: nothing) and what was put there."""

    host: Host
    made: dict[str, dict[str, Any]]

    @classmethod
    def load(cls, host: Host) -> Record:
        """Raises ``AgentError`` for a record that is damaged."""
        text = host.text(RECORD)
        if text is None:
            return cls(host, {})
        try:
            found = json.loads(text)
            if found["format"] != FORMAT:
                raise ValueError(f"its format is {found['format']}")
            return cls(host, dict(found["made"]))
        except (ValueError, KeyError, TypeError) as error:
            raise AgentError(
                f"{RECORD} cannot be read ({error}): it says what was there before; restore it, or remove by hand "
                "what it names (docs/hooks.md)"
            ) from error

    def note(self, change: Change, before: dict[str, Any] | None) -> None:
        """Before a change is made: what was there the first time is what comes back."""
        kept = self.made.get(change.path, {"before": before})["before"]
        self.made[change.path] = {"before": kept, "after": change.wanted()}
        self.save()

    def save(self) -> None:
        folder = self.host.path(RECORD).parent
        if folder.is_dir():
            text = json.dumps({"format": FORMAT, "made": self.made}, indent=1)
            _make(self.host.path(RECORD), _described(0o644, os.geteuid(), os.getegid(), text.encode()))

    def undo(self, path: str) -> str:
        """Brings back what was at ``path``. Returns why not, in words; empty once it is done."""
        place, made = self.host.path(path), self.made[path]
        now = state(place)
        before = made["before"]
        if now is not None and "content" in made["after"] and now.get("content") != made["after"]["content"]:
            return f"{path} was changed since it was installed: it stays; remove it by hand"
        if before is not None:
            _make(place, before)
        elif now is not None and "content" in now:
            place.unlink()
        elif now is not None:
            why = _remove_folder(place)
            if why:
                return f"{path} stays: {why}"
        del self.made[path]
        return ""

    def forget(self) -> None:
        """Removes the record itself and its folder, where nothing else lies in it."""
        place = self.host.path(RECORD)
        place.unlink(missing_ok=True)


def _remove_folder(folder: Path) -> str:
    """Removes an empty folder, or a spool that holds no records. Returns why not."""
    names = [entry.name for entry in folder.iterdir()]
    waiting = [name for name in names if name.endswith((".hook", ".hook.tmp"))]
    if waiting:
        return f"{len(waiting)} records wait in it; the agent takes them within seconds, then run this again"
    for name in names:
        if name in LEFT_IN_SPOOLS and (folder / name).is_file():
            (folder / name).unlink()
    try:
        folder.rmdir()
    except OSError:
        left = sorted(name for name in names if name not in LEFT_IN_SPOOLS)
        return f"it holds {', '.join(left[:3])}{' and more' if len(left) > 3 else ''}"
    return ""
