"""Logins as signed cookies. The only state kept here is which sessions ended early (``web.access.ended``).

A second cookie proves that this browser signed a user in before: attempts on that user's password from elsewhere slow
down other browsers, and not this one (``web.access.attempts``).
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from itsdangerous import BadData, URLSafeTimedSerializer

from web.access.ended import Ended

COOKIE, BROWSER_COOKIE = "faultline_session", "faultline_browser"
#: How long a browser is known after its last login, seconds.
KNOWN_S = 180 * 24 * 3600
KEY_FILE = "session.key"


@dataclass(frozen=True, slots=True)
class Session:
    """``mark`` is ``Users.mark`` for a user with a password, and empty for other logins. ``until``: Unix seconds."""

    name: str
    groups: frozenset[str]
    mark: str
    identity: str
    until: float


def cookie_named(name: str, *, secure: bool) -> str:
    """The cookie's name; the ``__Host-`` prefix over HTTPS keeps others from setting it (RFC 6265bis, 4.1.3.2).

    Neither a page of a neighbouring host nor the network can then set it.
    """
    return f"__Host-{name}" if secure else name


def key_of(folder: Path) -> bytes:
    """The signing key, created at first use and readable by its owner only. Removing the file ends all sessions."""
    path = folder / KEY_FILE
    for _ in range(2):
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / f".{KEY_FILE}.{os.getpid()}.{secrets.token_hex(4)}"
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)  # of two that start at once, both use the first one's key
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        else:
            if len(key) >= 32:
                return key
            path.unlink()
    raise OSError(f"{path}: holds no key and cannot be made anew")


class Sessions:
    def __init__(self, key: bytes, lasting_s: float, ended: Ended | None = None) -> None:
        self.key = key
        self._signer = URLSafeTimedSerializer(key, salt="faultline session")
        self._browsers = URLSafeTimedSerializer(key, salt="faultline browser")
        self.lasting_s = int(lasting_s)
        self.ended = ended if ended is not None else Ended()

    def write(self, name: str, groups: Iterable[str] = (), mark: str = "") -> str:
        """The value of a cookie for a new session."""
        until = int(time.time()) + self.lasting_s
        return _text(self._signer.dumps([name, sorted(groups), mark, secrets.token_urlsafe(12), until]))

    def read(self, text: str) -> Session | None:
        """The session; None if the cookie was not issued here, is too old, or ended."""
        try:
            name, groups, mark, identity, until = self._signer.loads(text, max_age=self.lasting_s)
            session = Session(str(name), frozenset(map(str, groups)), str(mark), str(identity), float(until))
        except (BadData, ValueError, TypeError):
            return None
        return session if session.until >= time.time() and session.identity not in self.ended else None

    def end(self, text: str) -> Session | None:
        """Ends the session for all copies of the cookie. Returns the session, None if it was not valid."""
        session = self.read(text)
        if session is not None:
            self.ended.add(session.identity, session.until)
        return session

    def know(self, name: str, known: str | None = None) -> str:
        """A cookie value for the browser of a login; ``known``: the identity that it had before."""
        return _text(self._browsers.dumps([name, known or secrets.token_urlsafe(12)]))

    def browser(self, text: str, name: str) -> str | None:
        """The identity of a browser in which this name signed in before; None for all others."""
        try:
            whose, identity = self._browsers.loads(text, max_age=KNOWN_S)
        except (BadData, ValueError, TypeError):
            return None
        return str(identity) if whose == name else None


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
