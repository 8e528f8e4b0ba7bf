"""The file of people with passwords and of tokens for programs: names and hashes, no secret.

    [people]
    ada = "$argon2id$v=19$m=65536,t=3,p=1$SALT$HASH"

    [tokens]                      # the first word is who it stands for
    [senders]                     # for sending data only, to what it is bound
    "ada laptop" = { hash = "sha256:HASH", ends = "x1Yz", expires = 2027-11-24T00:00:00Z, scope = "query" }
    "grafana" = "sha256:HASH"     # as before: for all that its role may, for ever

``faultline access`` writes it. It is looked at again whenever it changes: a name that is taken out is out at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w

from collector.senders import Limits, Sender, SenderError, digest_of
from web.access.passwords import ARGON2, LEAST_CHARS, SCRYPT, hashed_password, is_old, password_fits
from web.access.scopes import ALL, SCOPES

__all__ = ["LEAST_CHARS", "TOKEN_BYTES", "Token", "Users", "UsersError", "hashed_password", "hashed_token"]

#: Tokens are random, so that one round of SHA-256 hides them as well as many would.
TOKEN_BYTES = 32
#: So many of a token's last characters are kept, to tell one from another; 39 of the 43 stay secret.
SHOWN = 4
#: What the file may tell of a token. Another key may be a limit that is not understood here, and must not be left out.
TOKEN_KEYS = {"hash", "ends", "expires", "scope"}


class UsersError(Exception):
    """The file cannot be read or written, or a line of it says nothing; the text names file, place and way out."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token: ``digest`` ("sha256:HEX"), when it ends (None: never), what it may ask, its last characters."""

    digest: str
    expires: datetime | None = None
    scope: str = ALL
    ends: str = ""

    def is_over(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now

    def written(self) -> str | dict[str, Any]:
        """As a value of TOML; one without anything else stays a string, as older versions read it."""
        if self.expires is None and self.scope == ALL and not self.ends:
            return self.digest
        expires = {} if self.expires is None else {"expires": self.expires.replace(microsecond=0)}
        return {"hash": self.digest, "ends": self.ends, **expires, "scope": self.scope}


def hashed_token(token: str, *, expires: datetime | None = None, scope: str = ALL) -> Token:
    return Token("sha256:" + hashlib.sha256(token.encode()).hexdigest(), expires, scope)


def fresh_token(expires: datetime | None, scope: str) -> tuple[str, Token]:
    """A token to be shown once, and what is kept of it."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    kept = hashed_token(token, expires=expires, scope=scope)
    return token, Token(kept.digest, expires, scope, token[-SHOWN:])


#: Asked for a name that is not there, where nobody has a password: no password's hash, and as slow as one.
_NOBODY = f"{ARGON2}v=19$m=65536,t=3,p=1${'A' * 22}${'A' * 43}"
#: Which of the kept hashes a name that is not there takes as long as: always the same one, and nobody can tell which.
_SALT = secrets.token_bytes(16)


@dataclass
class Users:
    """The file's content. ``people`` and ``tokens`` map names to hashes."""

    path: Path | None = None
    people: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    #: Tokens for sending data (``[ingest] senders``); nobody reads with one.
    senders: dict[str, Sender] = field(default_factory=dict)
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
                self.people, self.tokens, self.senders, self._read = {}, {}, {}, None

    def has_password(self, name: str, password: str) -> bool:
        """As slow for a name that is not there as for a wrong password of somebody."""
        people = self.people
        kept = people.get(name)
        return password_fits(password, kept or _stand_in(people, name)) and kept is not None

    def token(self, given: str) -> tuple[str, Token] | None:
        """The name of a token, and what is kept of it; also of one that is over."""
        digest = hashed_token(given).digest.encode()
        found = [(n, kept) for n, kept in self.tokens.items() if hmac.compare_digest(digest, kept.digest.encode())]
        return found[0] if found else None

    def mark(self, name: str) -> str:
        """Changes with the password, so that sessions of the old one end; empty for a name that is not there."""
        kept = self.people.get(name)
        return hashlib.sha256(kept.encode()).hexdigest()[:16] if kept else ""

    def rehash(self, name: str, password: str) -> bool:
        """Hashes a password that was just typed rightly anew where its hash is old. True where that was done: only in a file that
        belongs to this process' user. An administrator's is his, and `faultline access list` says which are old."""
        old = self.people.get(name)
        if self.path is None or old is None or not is_old(old):
            return False
        try:
            if self.path.stat().st_uid != os.geteuid():
                return False
            fresh = hashed_password(password)
            with self.changing():
                if self.people.get(name) != old:
                    return False
                self.people = {**self.people, name: fresh}
                self.save()
        except (OSError, UsersError):
            return False
        return True

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """For what reads the file, changes it and saves it: one at a time, also of several processes. Raises ``UsersError``."""
        assert self.path is not None
        try:
            lock = os.open(
                self.path.with_name(f".{self.path.name}.lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise UsersError(f"{self.path}: cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self._lock:
                if self.path.exists():
                    self._take(self.path)
                yield
        finally:
            os.close(lock)

    def save(self) -> None:
        """Writes the file anew, for its owner and group only. Raises ``UsersError``."""
        assert self.path is not None
        people = dict(sorted(self.people.items()))
        tokens = {name: kept.written() for name, kept in sorted(self.tokens.items())}
        content = {"people": people, "tokens": tokens}
        if self.senders:
            content["senders"] = {name: kept.written() for name, kept in sorted(self.senders.items())}
        text = f"# Written by `faultline access`: names and hashes.\n{tomli_w.dumps(content)}"
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            mode = self.path.stat().st_mode & 0o777 if self.path.exists() else 0o640
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
                file.write(text)
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
        if unknown := set(content) - {"people", "tokens", "senders"}:
            raise UsersError(f"{path}: [{min(unknown)}] is unknown; there are [people], [tokens] and [senders]")
        people = {name: _password(name, kept, path) for name, kept in _table(content, "people", path).items()}
        tokens = {name: _token(name, kept, path) for name, kept in _table(content, "tokens", path).items()}
        senders = {name: _sender(name, kept, path) for name, kept in _table(content, "senders", path).items()}
        self.people, self.tokens, self.senders, self._read = people, tokens, senders, seen

    @staticmethod
    def _seen(path: Path) -> tuple[int, int, int] | None:
        try:
            about = path.stat()
        except OSError:
            return None
        return about.st_ino, about.st_mtime_ns, about.st_size


def _stand_in(people: dict[str, str], name: str) -> str:
    """A hash that takes as long as somebody's: which kinds are in the file is not told by how long a name takes."""
    if not people:
        return _NOBODY
    kinds = [people[one] for one in sorted(people)]
    return kinds[int.from_bytes(hmac.digest(_SALT, name.encode(), "sha256")[:8]) % len(kinds)]


def _table(content: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise UsersError(f"{path}: {name} is no table; write [{name}]")
    return table


def _password(name: str, kept: object, path: Path) -> str:
    if not isinstance(kept, str) or not kept.startswith((ARGON2, SCRYPT)) or not name.split():
        raise UsersError(f"{path}: people.{name}: not written by `faultline access`; make it anew with it")
    return kept


def _sender(name: str, kept: object, path: Path) -> Sender:
    try:
        return Sender.read(name, kept)
    except SenderError as error:
        raise UsersError(f"{path}: senders.{name}: {error}") from error


def fresh_sender(expires: datetime | None, limits: Limits) -> tuple[str, Sender]:
    """A token for sending, to be shown once, and what is kept of it."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    return token, Sender(limits.name, digest_of(token), expires, limits, token[-SHOWN:])


def _token(name: str, kept: object, path: Path) -> Token:
    document = {"hash": kept} if isinstance(kept, str) else kept
    if not isinstance(document, dict) or not name.split() or not str(document.get("hash", "")).startswith("sha256:"):
        raise UsersError(f"{path}: tokens.{name}: not written by `faultline access`; make it anew with it")
    if unknown := set(document) - TOKEN_KEYS:
        raise UsersError(f"{path}: tokens.{name}: {min(unknown)} is unknown; make it anew with `faultline access`")
    expires, scope = document.get("expires"), document.get("scope", ALL)
    if expires is not None and not (isinstance(expires, datetime) and expires.tzinfo is not None):
        raise UsersError(f"{path}: tokens.{name}: expires is no time with a zone, such as 2027-11-24T00:00:00Z")
    if scope not in SCOPES:
        raise UsersError(f"{path}: tokens.{name}: scope {scope!r} is unknown; there are {', '.join(SCOPES)}")
    return Token(str(document["hash"]), expires and expires.astimezone(UTC), str(scope), str(document.get("ends", "")))
