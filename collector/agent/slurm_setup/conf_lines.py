"""The lines of slurm.conf: which are missing, and a block of them put in and taken out again, byte for byte."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.agent.failure import AgentError
from collector.agent.slurm.conf import SlurmConf
from collector.agent.slurm.host import Host
from collector.agent.slurm.programs import Call

BEGIN, END = b"# begin: lines of 'faultline slurm install'", b"# end: lines of 'faultline slurm install'"
#: Added to the first line of the block if the file did not end with a newline.
UNENDED = b" (the line above had no end)"
#: How often a node runs HealthCheckProgram where the site says nothing.
HEALTH_INTERVAL_S = 300
BACKUP = ".before-faultline"


def missing(conf: SlurmConf, calls: Sequence[Call]) -> list[str]:
    """The lines that slurm.conf needs for the hooks that nothing else has taken."""
    lines = [f"{made.program.setting}={made.program.script}" for made in calls if made.state == "unset"]
    health = any(made.program.event == "healthcheck" and made.state == "unset" for made in calls)
    if health and conf.get("HealthCheckInterval", "0") == "0":
        lines.append(f"HealthCheckInterval={HEALTH_INTERVAL_S}")
    return lines


def with_block(text: bytes, lines: Sequence[str]) -> bytes:
    """The file with a block of ``lines`` at its end; a block that is there is replaced."""
    text = without_block(text)
    note = b"" if text.endswith(b"\n") or not text else UNENDED
    block = b"\n".join([BEGIN + note, *(line.encode() for line in lines), END])
    return text + (b"\n" if note else b"") + block + b"\n"


def without_block(text: bytes) -> bytes:
    """The file as it was before ``with_block``."""
    start = text.find(BEGIN)
    if start < 0 or (start > 0 and text[start - 1 : start] != b"\n"):
        return text
    end = text.find(END, start)
    if end < 0:
        raise AgentError("the block of 'faultline slurm install' in slurm.conf has no end; remove its lines by hand")
    end += len(END)
    end += text[end : end + 1] == b"\n"
    if text[start + len(BEGIN) :].startswith(UNENDED) and end == len(text):
        start -= 1
    return text[:start] + text[end:]


def block_lines(text: bytes) -> list[str]:
    """The lines of the block that is there."""
    inside = text[len(without_block(text).rstrip(b"\n")) :] if BEGIN in text else b""
    return [line.decode("utf-8", "replace") for line in inside.splitlines() if line and not line.startswith(b"#")]


@dataclass(frozen=True)
class Editor:
    """Writes slurm.conf. ``path``: as the host calls it."""

    host: Host
    path: str

    @property
    def _place(self) -> Path:
        """The file itself, where the name is a link to it."""
        place = self.host.path(self.path)
        return place.resolve() if self.host.is_this else place

    @property
    def backup(self) -> Path:
        return self._place.with_name(self._place.name + BACKUP)

    def read(self) -> bytes:
        try:
            return self._place.read_bytes()
        except OSError as error:
            raise AgentError(f"{self.path} cannot be read: {error.strerror}") from error

    def put(self, lines: Sequence[str]) -> str:
        """Adds the block, with the file as it was beside it. Returns what was done."""
        old = self.read()
        new = with_block(old, [*block_lines(old), *lines])
        original = without_block(old)
        if not self.backup.exists():
            _write(self.backup, original, self._place)
        _replace(self._place, new)
        return f"{self.path}: {len(lines)} lines added; as it was: {self.host.shown(self.backup)}"

    def take_out(self) -> str:
        """Removes the block; the backup goes once the file is again what it was. Returns what was done."""
        old = self.read()
        new = without_block(old)
        if new == old:
            return ""
        _replace(self._place, new)
        try:
            same = self.backup.read_bytes() == new
        except OSError:
            return f"{self.path}: the lines were removed"
        if same:
            self.backup.unlink()
            return f"{self.path}: as it was before"
        return f"{self.path}: the lines were removed; it was changed otherwise since {self.host.shown(self.backup)} was kept"


def _write(path: Path, data: bytes, like: Path) -> None:
    """A new file with mode and owner of another."""
    about = like.stat()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(handle, left) :]
            with contextlib.suppress(PermissionError):
                os.fchown(handle, about.st_uid, about.st_gid)
            os.fchmod(handle, about.st_mode & 0o7777)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise AgentError(f"{path} cannot be written: {error.strerror}; nothing was changed in {like}") from error


def _replace(path: Path, data: bytes) -> None:
    """Changes the file at once for all readers; in place if it is mounted by itself."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    _write(new, data, path)
    try:
        new.replace(path)
    except OSError:
        new.unlink()
        try:
            path.write_bytes(data)
        except OSError as error:
            raise AgentError(f"{path} cannot be written: {error.strerror}") from error
