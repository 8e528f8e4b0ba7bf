"""Who signed in, as a signed cookie: nothing is kept here, so nothing is lost at a restart."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from itsdangerous import BadData, URLSafeTimedSerializer

COOKIE = "faultline_session"
KEY_FILE = "session.key"


@dataclass(frozen=True, slots=True)
class Session:
    """``mark`` is ``Users.mark`` of a password's holder, and empty for who came from elsewhere."""

    name: str
    groups: frozenset[str]
    mark: str


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
    def __init__(self, key: bytes, lasting_s: float) -> None:
        self.key = key
        self._signer = URLSafeTimedSerializer(key, salt="faultline session")
        self.lasting_s = int(lasting_s)

    def write(self, name: str, groups: Iterable[str] = (), mark: str = "") -> str:
        """A cookie's value."""
        text = self._signer.dumps([name, sorted(groups), mark])
        return text if isinstance(text, str) else text.decode()

    def read(self, text: str) -> Session | None:
        """None for what was not written here, or too long ago."""
        try:
            name, groups, mark = self._signer.loads(text, max_age=self.lasting_s)
        except (BadData, ValueError, TypeError):
            return None
        return Session(str(name), frozenset(str(group) for group in groups), str(mark))
