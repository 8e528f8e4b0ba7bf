"""The file of people with passwords and of tokens for programs: names and hashes, no secret.

    [people]
    ada = "$argon2id$v=19$m=65536,t=3,p=1$SALT$HASH"

    [tokens]                      # the first word is the user it acts for
    [senders]                     # for sending data only, and what it is bound to
    "ada laptop" = { hash = "sha256:HASH", ends = "x1Yz", expires = 2027-11-24T00:00:00Z, scope = "query" }
    "grafana" = "sha256:HASH"     # older form: everything that its role may do, without an end

``faultline access`` writes it. The file is read again whenever it changes: a removed name loses access at once.
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

#: Tokens are random, so one round of SHA-256 hides them as well as many would.
TOKEN_BYTES = 32
#: The number of a token's last characters that are kept, to identify it; 39 of the 43 stay secret.
SHOWN = 4
#: The keys of a token in the file. Any other key may be a limit that this version does not know, and must not be
#: ignored.
TOKEN_KEYS = {"hash", "ends", "expires", "scope"}


class UsersError(Exception):
    """The file cannot be read or written, or a line of it is invalid; the text names file, place and remedy."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token: ``digest`` ("sha256:HEX"), when it ends (None: never), its scope, its last characters."""

    digest: str
    expires: datetime | None = None
    scope: str = ALL
    ends: str = ""

    def is_over(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now

    def written(self) -> str | dict[str, Any]:
        """As a value of TOML; a token without any limits stays a string, as older versions read it."""
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


#: The hash checked for an unknown name if there are no passwords: no password's hash, and as slow as one.
_NOBODY = f"{ARGON2}v=19$m=65536,t=3,p=1${'A' * 22}${'A' * 43}"
#: Selects the stored hash that an unknown name is as slow as: always the same one, and not predictable.
_SALT = secrets.token_bytes(16)


@dataclass
class Users:
    """The file's content. ``people`` and ``tokens`` map names to hashes."""

    path: Path | None = None
    people: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    #: Tokens for sending data (``[ingest] senders``); they give no read access.
    senders: dict[str, Sender] = field(default_factory=dict)
    _read: tuple[int, int, int] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def load(cls, path: Path | None) -> Users:
        """Raises ``UsersError``. Without a file there are no passwords here."""
        users = cls(path)
        if path is not None:
            users._take(path)
        return users

    def refresh(self) -> None:
        """Reads a changed file.

        An invalid one denies everybody: a removed user must not stay because of a typing error.
        """
        if self.path is None:
            return
        with self._lock:
            try:
                if self._seen(self.path) != self._read:
                    self._take(self.path)
            except (OSError, UsersError):
                self.people, self.tokens, self.senders, self._read = {}, {}, {}, None

    def has_password(self, name: str, password: str) -> bool:
        """Checks a password; as slow for an unknown name as for a wrong password."""
        people = self.people
        kept = people.get(name)
        return password_fits(password, kept or _stand_in(people, name)) and kept is not None

    def token(self, given: str) -> tuple[str, Token] | None:
        """The name of a token, and what is kept of it; also of one that has expired."""
        digest = hashed_token(given).digest.encode()
        found = [(n, kept) for n, kept in self.tokens.items() if hmac.compare_digest(digest, kept.digest.encode())]
        return found[0] if found else None

    def mark(self, name: str) -> str:
        """A value that changes with the password, so that its sessions end; empty for an unknown name."""
        kept = self.people.get(name)
        return hashlib.sha256(kept.encode()).hexdigest()[:16] if kept else ""

    def rehash(self, name: str, password: str) -> bool:
        """Replaces an old hash by a new one of the password that was just entered correctly. Returns whether it did.

        Only in a file that this process's user owns. An administrator's file is left alone; `faultline access list`
        shows which hashes are old.
        """
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
        """Holds the lock for reading, changing and saving the file, across processes. Raises ``UsersError``."""
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
        """Rewrites the file, for its owner and group only. Raises ``UsersError``."""
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
            made = "; faultline access makes it" if isinstance(error, FileNotFoundError) else ""
            raise UsersError(f"{path}: cannot be read: {error.strerror}{made}") from error
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
    """A hash that is as slow as a stored one, so that timing does not reveal which kinds are in the file."""
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
