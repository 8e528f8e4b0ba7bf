"""Requests to the HTTP receivers without a socket, and the rows of their batches."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import polars as pl

from collector import decoding
from collector.decoding import Job
from collector.intake import Intake
from collector.segment_file import Position
from collector.spool import Spool
from tests.line_parser import line_parser

PARSER = line_parser()


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def ask(
    intake: Intake, method: str, path: str, body: bytes | list[bytes] = b"", *, hangs_up: bool = False, **headers: str
) -> Reply:
    """One request; ``body`` as a list arrives in those pieces. ``hangs_up``: the client does not wait for the answer."""
    pieces = body if isinstance(body, list) else [body]
    named = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": named,
        "client": ("10.0.0.9", 4),
    }
    waiting = [{"type": "http.request", "body": p, "more_body": at < len(pieces) - 1} for at, p in enumerate(pieces)]
    stated: list[Any] = []

    async def receive() -> Any:
        if not waiting and not hangs_up:
            await asyncio.Event().wait()
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        stated.append(message)

    async def talk() -> None:
        await intake(scope, receive, send)

    assert intake.find(method, path) is not None, f"nothing receives {method} {path}"
    asyncio.run(talk())
    start, end = stated
    return Reply(start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, end["body"])


def tables(spool: Spool) -> dict[str, pl.DataFrame]:
    """What a worker makes of everything in the spool."""
    jobs = [
        Job(r.path, r.payload_offset, r.payload_bytes, r.payload_crc, r.meta)
        for r in spool.read(Position(0, 0), 1 << 40)
    ]
    outcome = decoding.work(jobs, PARSER)
    assert outcome.poison == [], outcome.poison
    return frames(outcome)


def frames(outcome: decoding.Outcome) -> dict[str, pl.DataFrame]:
    """A worker's tables, messages in full (they are sent as their offset into the line)."""
    names = dict(outcome.tables)
    found = {name: pl.concat(p.frame() for n, p in outcome.tables if n == name) for name in names}
    if "logs" in found:
        tail = pl.col("raw").str.slice(pl.col("msg_start").cast(pl.Int64))
        whole = pl.when(pl.col("msg_start").is_null()).then("message").otherwise(tail)
        found["logs"] = found["logs"].with_columns(message=whole).drop("msg_start")
    return found


def lines(spool: Spool) -> list[dict[str, Any]]:
    found = tables(spool)
    return found["logs"].to_dicts() if "logs" in found else []
