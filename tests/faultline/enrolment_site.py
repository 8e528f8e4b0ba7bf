"""A service that enrols machines, and requests to it as its machines and others send them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import enrolment_clouds as clouds

from collector.intake import PORT
from faultline.enrolment.door import PATH, Enroller
from faultline.enrolment.settings import Enrolment
from web.access.audit import Audit
from web.access.authentication import PEER

#: The site's names and addresses; gpu003 is an alias of gpu001's machine.
NAMES = {"gpu001": "10.0.0.1", "gpu002": "10.0.0.2", "gpu003": "10.0.0.1", "ctl": "10.0.0.1"}
Said = tuple[int, dict[str, Any]]


def digest(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


class Site:
    """A service that enrols; ``ask`` is a request to it, by default as root of gpu001 sends it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.now = datetime.now(UTC).timestamp()
        self.settings = Enrolment.model_validate(clouds.write(folder) | settings)
        self.audit = folder / "audit.ndjson"
        self.enroller = Enroller(
            self.settings, folder, audit=Audit(self.audit), proxies=("10.9.9.9",), clock=lambda: self.now,
            resolve=lambda host: {NAMES[host]} if host in NAMES else set(), steady=lambda: self.now,
        )  # fmt: skip
        self.enroller._began -= 3600  # not just started
        self.folder = folder / "enrolled"

    def ask(self, body: object, peer: str = "10.0.0.1", port: int = 700, token: str = "", method: str = "POST") -> Said:
        """Status and answer."""
        return asyncio.run(self.asked(body, peer, port, token, method))

    async def asked(
        self, body: object, peer: str = "10.0.0.1", port: int = 700, token: str = "", method: str = "POST"
    ) -> Said:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        scope = {
            "type": "http",
            "method": method,
            "path": PATH,
            "headers": headers,
            "client": (peer, port),
            PEER: peer,
            PORT: port,
        }
        pieces = [sent[at : at + 8192] for at in range(0, len(sent), 8192)] or [b""]
        replies: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message: Any) -> None:
            replies.append(message)

        await self.enroller(scope, receive, send)
        return replies[0]["status"], json.loads(replies[1]["body"])

    def nonce(self, new: str, host: str = "gpu001", **how: Any) -> str:
        status, said = self.ask({"host": host, "digest": digest(new), "way": "azure"}, **how)
        assert status == 200, said
        return str(said["nonce"])

    def azure(self, new: str, document: str | None = None, host: str = "gpu001", **how: Any) -> Said:
        document = document or clouds.azure(
            self.nonce(new, host, **{k: v for k, v in how.items() if k != "token"}), kind="good"
        )
        return self.ask({"host": host, "digest": digest(new), "way": "azure", "document": document}, **how)

    def aws(self, new: str, document: str, host: str = "gpu001", **how: Any) -> Said:
        return self.ask({"host": host, "digest": digest(new), "way": "aws", "document": document}, **how)
