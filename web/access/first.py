"""The first administrator of a new service without users: by a link that is shown once, where the service starts.

Only the link's hash is on disk, in the data folder: the link of another service is not valid here, and a new one, of a
restart or of ``faultline access first``, invalidates the one before.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FILE = "first.link"
LASTING_S = 15 * 60.0
TOKEN_BYTES = 32


@dataclass
class FirstLink:
    """``folder``: the data folder; None: there is no link. ``names``: allowed names; empty: any name."""

    folder: Path | None = None
    names: tuple[str, ...] = ()
    clock: Callable[[], float] = time.time

    def make(self) -> str:
        """A new link's secret. Raises ``OSError``."""
        assert self.folder is not None
        secret = secrets.token_urlsafe(TOKEN_BYTES)
        document = {"hash": self._digest(secret), "until": self.clock() + LASTING_S}
        draft = self.folder / f".{FILE}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(json.dumps(document))
                about = self.folder.stat()
                if os.geteuid() != about.st_uid:  # root made it for a service that is not root
                    os.fchown(file.fileno(), about.st_uid, about.st_gid)
            draft.replace(self.folder / FILE)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        return secret

    def opens(self, secret: str) -> bool:
        """Is the link the last one that was made, within its time, and unused?"""
        if self.folder is None:
            return False
        try:
            document = json.loads((self.folder / FILE).read_text(encoding="utf-8"))
            digest, until = str(document["hash"]), float(document["until"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        now = self.clock()
        # A clock that was set back must not extend it.
        return hmac.compare_digest(digest, self._digest(secret)) and until - LASTING_S - 60 <= now < until

    def use_up(self) -> bool:
        """False for all callers but the first."""
        assert self.folder is not None
        try:
            (self.folder / FILE).unlink()
        except FileNotFoundError:
            return False
        return True

    def _digest(self, secret: str) -> str:
        return hashlib.sha256(f"faultline first {secret}".encode()).hexdigest()
