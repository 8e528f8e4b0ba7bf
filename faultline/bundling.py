"""``faultline incidents --bundle ID``: one incident as a file for a ticket."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

from faultline.backends import Backend
from faultline.failure import CommandError

_NO_FILE_NAME = re.compile(r"[^\w.#-]")


def save(backend: Backend, incident_id: str, out: Path | None, *, redacted: bool) -> None:
    """Writes the bundle to ``out``, by default ID.html in the current folder, readable by its owner only.

    The file appears whole or not at all; one of that name is replaced. Its digest goes to stderr. Raises
    ``CommandError``.
    """
    try:
        body = backend.bundle(incident_id, redacted=redacted)
    finally:
        backend.close()
    path = out or Path(_NO_FILE_NAME.sub("_", incident_id).lstrip(".") + ".html")
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(body)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CommandError(f"{path}: cannot be written: {error.strerror}") from error
    sys.stderr.write(f"{path}: {len(body):,} bytes, SHA-256 {hashlib.sha256(body).hexdigest()}\n")
