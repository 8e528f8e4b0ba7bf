"""``POST /api/v1/backup``: the running service copies its own store.

It needs the right to operate. The service writes nowhere on request alone: the folder must belong to the service's own
account, be closed to others, and hold one empty file whose name the request has. So only somebody with that account's
rights on this machine can have a copy made, and only where nothing lies: no file is ever written over.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field

from collector import spool_files
from collector.pipeline import Pipeline
from faultline.backup_command import PROOF, ROUTE, described, named
from store.door import Door
from store.errors import StoreError
from web.access.audit import address_of, audit_of
from web.access.authentication import asking
from web.problems import ProblemError

#: The copy waits at most this many seconds until what was received is stored: files of the spool make it longer.
DRAIN_S = 5.0
_CONTROL = re.compile(r"[\x00-\x1f]")
_DO = "Run 'faultline backup DEST' on the service's machine, as its user or as root."


class Asked(BaseModel):
    """``folder``: an absolute path on the service's machine. ``proof``: the end of the name of the file that lies there."""

    model_config = ConfigDict(extra="forbid")
    folder: str = Field(max_length=4096, examples=["/backup/faultline-2026-11-29"])
    proof: str = Field(pattern="^[0-9a-f]{32}$")


def add(app: FastAPI, store: Door, pipeline: Any) -> None:
    """Adds the route. ``pipeline``: gives the service's pipeline, None while it has none."""
    running = threading.Lock()

    @app.post(ROUTE, tags=["store"])
    def backup(request: Request, asked: Asked) -> dict[str, Any]:
        """Copies the store into a folder that was prepared for it; answers what was copied, with digests."""
        if not running.acquire(blocking=False):
            raise ProblemError(409, "A copy is being made.", do="Wait until it is done.")
        try:
            folder = _prepared(asked)
            found = _copied(store, folder, pipeline())
        finally:
            running.release()
        person = asking(request)
        audit_of(request).record("backup", person.name if person else "", address_of(request), folder=str(folder))
        return found


def _copied(store: Door, folder: Path, pipeline: Pipeline | None) -> dict[str, Any]:
    def spooled() -> Mapping[str, Path]:
        return spool_files.unstored(store, pipeline.spool.folder) if pipeline is not None else {}

    if pipeline is not None:
        pipeline.drain(DRAIN_S)
    try:
        return described(store.backup(folder, spooled))
    except StoreError as error:
        raise ProblemError(409, str(error), do="Nothing was copied.") from error


def _prepared(asked: Asked) -> Path:
    """The folder, empty. Raises ``ProblemError`` unless this account prepared it for this request."""
    folder, file = Path(asked.folder), f"{PROOF}{asked.proof}"
    if not folder.is_absolute() or _CONTROL.search(asked.folder):
        raise ProblemError(400, "folder: must be an absolute path.", do=_DO)
    # One answer, whatever is there: nobody learns about folders that this request did not prepare.
    refusal = ProblemError(
        403, f"{folder} was not prepared for this copy: it must belong to {named(os.geteuid())}, be closed to others, and hold "
        "the file that shows who asks.", do=_DO, extra={"uid": os.geteuid()},
    )  # fmt: skip
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise refusal from error
    try:
        about = os.fstat(handle)
        with os.scandir(handle) as entries:
            names = {entry.name for entry in entries}
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o022 or file not in names:
            raise refusal
        if names - {file, "lost+found"}:
            raise ProblemError(409, f"{folder} is not empty.", do="Give an empty or new folder.")
        os.unlink(file, dir_fd=handle)
    finally:
        os.close(handle)
    return folder
