"""The file of people with passwords and of tokens for programs: names and hashes, no secret.

    [people]
    ada = "scrypt:32768:8:3:SALT:HASH"

    [tokens]                      # the first word is who it stands for
    "ada laptop" = "sha256:HASH"

``faultline access`` writes it. It is looked at again whenever it changes: a name that is taken out is out at once.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import threading
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

#: Cost of a password's hash: 32 MB and some tenths of a second (OWASP Password Storage Cheat Sheet, scrypt, N=2^15 r=8 p=3).
COST, BLOCK, PARALLEL = 2**15, 8, 3
#: Tokens are random, so that one round of SHA-256 hides them as well as many would.
TOKEN_BYTES = 32
LEAST_CHARS = 8
_MEMORY = 128 * 1024 * 1024


class UsersError(Exception):
    """The file cannot be read or written, or a line of it says nothing; the text names file, place and way out."""


def hashed_password(password: str, salt: bytes | None = None) -> str:
    """What the file keeps of a password."""
    salt = salt if salt is not None else secrets.token_bytes(16)
    return _kept(salt, _scrypt(password, salt, COST, BLOCK, PARALLEL))


def hashed_token(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


def password_fits(password: str, kept: str) -> bool:
    kind, *parts = kept.split(":")
    if kind != "scrypt" or len(parts) != 5:
        return False
    cost, block, parallel = (int(part) for part in parts[:3])
    digest = _scrypt(password, base64.b64decode(parts[3]), cost, block, parallel)
    return hmac.compare_digest(digest, base64.b64decode(parts[4]))


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=_MEMORY, dklen=32)


def _kept(salt: bytes, digest: bytes) -> str:
    return f"scrypt:{COST}:{BLOCK}:{PARALLEL}:{_text(salt)}:{_text(digest)}"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


#: Asked for a name that is not there, so that its absence takes as long as a wrong password. No password's hash: making one
#: would be a tenth of every start of the service.
_NOBODY = _kept(secrets.token_bytes(16), secrets.token_bytes(32))


@dataclass
class Users:
    """The file's content. ``people`` and ``tokens`` map names to hashes."""

    path: Path | None = None
    people: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    _read: tuple[int, int, int] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def load(cls, path: Path | None) -> Users:
        """Raises ``UsersError``. Without a file nobody has a password here."""
        users = cls(path)
        if path is not None:
            users._take(path)
        return users

    def refresh(self) -> None:
        """Takes up a changed file. One that cannot be read leaves nobody in: who was taken out must not stay by a typing error."""
        if self.path is None:
            return
        with self._lock:
            try:
                if self._seen(self.path) != self._read:
                    self._take(self.path)
            except (OSError, UsersError):
                self.people, self.tokens, self._read = {}, {}, None

    def has_password(self, name: str, password: str) -> bool:
        """As slow for a name that is not there as for a wrong password."""
        kept = self.people.get(name)
        return password_fits(password, kept or _NOBODY) and kept is not None

    def holder(self, token: str) -> str | None:
        """Whom a token stands for."""
        given = hashed_token(token).encode()
        found = [name for name, kept in self.tokens.items() if hmac.compare_digest(given, kept.encode())]
        return found[0].split()[0] if found else None

    def mark(self, name: str) -> str:
        """Changes with the password, so that sessions of the old one end; empty for a name that is not there."""
        kept = self.people.get(name)
        return hashlib.sha256(kept.encode()).hexdigest()[:16] if kept else ""

    def save(self) -> None:
        """Writes the file anew, for its owner and group only. Raises ``UsersError``."""
        assert self.path is not None
        lines = ["# Written by `faultline access`: names and hashes.", "[people]"]
        lines += [f"{json.dumps(name)} = {json.dumps(kept)}" for name, kept in sorted(self.people.items())]
        lines += ["", "[tokens]"]
        lines += [f"{json.dumps(name)} = {json.dumps(kept)}" for name, kept in sorted(self.tokens.items())]
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            mode = self.path.stat().st_mode & 0o777 if self.path.exists() else 0o640
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
                file.flush()
                os.fsync(file.fileno())
            if self.path.exists():  # the service, which is not root, must still be able to read what root wrote
                about = self.path.stat()
                with contextlib.suppress(PermissionError):
                    os.chown(draft, about.st_uid, about.st_gid)
            draft.replace(self.path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise UsersError(f"{self.path}: cannot be written: {error.strerror}") from error

    def _take(self, path: Path) -> None:
        seen = self._seen(path)
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsersError(f"{path}: cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsersError(f"{path}: not TOML: {error}") from error
        people, tokens = _table(content, "people", path), _table(content, "tokens", path)
        self.people, self.tokens, self._read = people, tokens, seen

    @staticmethod
    def _seen(path: Path) -> tuple[int, int, int] | None:
        try:
            about = path.stat()
        except OSError:
            return None
        return about.st_ino, about.st_mtime_ns, about.st_size


#: How a kept value of each table begins.
_KINDS = {"people": "scrypt:", "tokens": "sha256:"}


def _table(content: dict[str, object], name: str, path: Path) -> dict[str, str]:
    if unknown := set(content) - set(_KINDS):
        raise UsersError(f"{path}: [{min(unknown)}] is unknown; there are [people] and [tokens]")
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise UsersError(f"{path}: {name} is no table; write [{name}]")
    for key, kept in table.items():
        if not isinstance(kept, str) or not kept.startswith(_KINDS[name]) or not key.split():
            raise UsersError(f"{path}: {name}.{key}: not written by `faultline access`; make it anew with it")
    return dict(table)
