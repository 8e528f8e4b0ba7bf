"""Files and accounts of a host, below a root: ``/``, a node image, or a folder made for a test."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

#: No configuration is larger; a larger file is read up to here.
MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Account:
    """A user that Slurm runs a hook as, with all its groups."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name if self.name == str(self.uid) else f"{self.name} (uid {self.uid})"


ROOT = Account("root", 0, 0, (0,))
#: Stands for any job's user: nobody has fewer rights.
ANY_USER = Account("nobody", 65534, 65534, (65534,))


@dataclass(frozen=True)
class Host:
    """``path("/etc/x")`` is that file below ``root``; all paths of Slurm's configuration are meant so."""

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def is_this(self) -> bool:
        """Whether it is the running system: only there can programs be run and accounts be asked for."""
        return self.root == Path("/")

    def path(self, name: str | PurePath) -> Path:
        return self.root / str(name).lstrip("/")

    def shown(self, path: Path) -> str:
        """A path below the root as the host itself calls it."""
        return str(path) if self.is_this else f"/{path.relative_to(self.root)}"

    def bytes(self, name: str | PurePath) -> bytes | None:
        """A file's content; None if it cannot be read. Reads no device and no pipe."""
        path = self.path(name)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            return None
        try:
            with os.fdopen(handle, "rb") as stream:
                return stream.read(MOST_BYTES)
        except OSError:
            return None

    def text(self, name: str | PurePath) -> str | None:
        found = self.bytes(name)
        return None if found is None else found.decode("utf-8", "replace")

    def account(self, name: str) -> Account | None:
        """The account of a name or of a number; None if the host has no such account."""
        return _named(name) if self.is_this else self._in_files(name)

    def _in_files(self, name: str) -> Account | None:
        rows = [line.split(":") for line in (self.text("/etc/passwd") or "").splitlines()]
        for row in rows:
            if len(row) > 3 and name in (row[0], row[2]) and row[2].isdigit() and row[3].isdigit():
                groups = [line.split(":") for line in (self.text("/etc/group") or "").splitlines()]
                more = [int(g[2]) for g in groups if len(g) > 3 and g[2].isdigit() and row[0] in g[3].split(",")]
                return Account(row[0], int(row[2]), int(row[3]), (int(row[3]), *more))
        return ROOT if name in ("root", "0") else None


def _named(name: str) -> Account | None:
    try:
        row = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        return ROOT if name in ("root", "0") else None
    return Account(row.pw_name, row.pw_uid, row.pw_gid, tuple(os.getgrouplist(row.pw_name, row.pw_gid)))


def owner_name(uid: int) -> str:
    """A user's name for a person; the number where nobody has it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid {uid}"


def group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return str(gid)
