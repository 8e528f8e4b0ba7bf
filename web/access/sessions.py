"""Who signed in, as a signed cookie. Kept here is only which sessions ended before their time (``web.access.ended``).

A second cookie says that this browser signed somebody in before: who tries that person's passwords from elsewhere slows
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
#: So long a browser is known after its last sign-in, seconds.
KNOWN_S = 180 * 24 * 3600
KEY_FILE = "session.key"


@dataclass(frozen=True, slots=True)
class Session:
    """``mark`` is ``Users.mark`` of a password's holder, and empty for who came from elsewhere. ``until``: Unix seconds."""

    name: str
    groups: frozenset[str]
    mark: str
    identity: str
    until: float


def cookie_named(name: str, *, secure: bool) -> str:
    """Over HTTPS no page of a neighbouring host and nobody on the way can set a cookie of this name (RFC 6265bis, 4.1.3.2)."""
    return f"__Host-{name}" if secure else name


def key_of(folder: Path) -> bytes:
    """The key that signs, made at first use and readable by its owner only. Removing the file ends all sessions."""
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
                os.link(draft, path)  # of two that start at once the first one's key is both's
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
        """A cookie's value, of a session that is new each time."""
        until = int(time.time()) + self.lasting_s
        return _text(self._signer.dumps([name, sorted(groups), mark, secrets.token_urlsafe(12), until]))

    def read(self, text: str) -> Session | None:
        """None for what was not written here, too long ago, or ended."""
        try:
            name, groups, mark, identity, until = self._signer.loads(text, max_age=self.lasting_s)
            session = Session(str(name), frozenset(map(str, groups)), str(mark), str(identity), float(until))
        except (BadData, ValueError, TypeError):
            return None
        return session if session.until >= time.time() and session.identity not in self.ended else None

    def end(self, text: str) -> Session | None:
        """Nobody is that session's person any more, whoever kept a copy of the cookie. None where it is none (any more)."""
        session = self.read(text)
        if session is not None:
            self.ended.add(session.identity, session.until)
        return session

    def know(self, name: str, known: str | None = None) -> str:
        """A cookie's value for the browser in which somebody signed in; ``known``: the identity that it had before."""
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
