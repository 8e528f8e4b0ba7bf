"""A host made for a test: its file system, clock and programs; and what the service's own parsers make of records."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from collector.agent import wire
from collector.agent.runner import Runner
from collector.agent.source import Context, Reading
from collector.agent.sources import kinds
from parsers import documents
from parsers.engine import LineParser
from parsers.record import Origin

NOW = 1_795_278_600.0  # 2026-11-21T16:30:00Z
BOOT = "0d4f7c1e-0000-4000-8000-000000000001"


class Host:
    """A host with its own file system, a clock, and programs that answer from files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.time = NOW
        self.uptime = 5000.0
        self.put("/proc/sys/kernel/random/boot_id", BOOT)
        self.context = Context(
            host="gpu01", root=root, now=lambda: self.time, uptime=lambda: self.uptime, monotonic=lambda: self.uptime
        )

    def put(self, name: str, text: str) -> Path:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, name: str, script: str) -> str:
        """A program that runs ``script`` (sh)."""
        path = self.put(f"/bin/{name}", f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.uptime += seconds

    def runner(self, name: str, positions: dict[str, Any] | None = None, **options: Any) -> Runner:
        kind = kinds(only=[name])[name]
        return Runner(kind, {**kind.options, **options}, self.context, positions if positions is not None else {})


def rows(readings: Iterator[Reading]) -> list[dict[str, Any]]:
    return [row for reading in readings for row in wire.records(reading.body)]


def asked(runner: Runner) -> list[dict[str, Any]]:
    found = rows(runner.poll())
    assert runner.status.state == "ok", runner.status
    return found


def parsed(parser: LineParser, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The log rows that the service makes of line records."""
    made: list[dict[str, Any]] = []
    for row in found:
        text = row.get("lines") or (row.get("raw") if "document" not in row else None)
        if text is None:
            continue
        received = datetime.fromisoformat(row.get("read") or row["time"]).replace(tzinfo=None)
        origin = Origin(
            host="gpu01", source=row.get("source"), received=received, reference=received,
            timezone=row.get("timezone", "Europe/Berlin"), timezone_known="timezone" in row,
        )  # fmt: skip
        made += parser.parse([line.encode() for line in text.split("\n")], origin, 1).to_dicts()
    return made


def tables(row: dict[str, Any]) -> dict[str, pl.DataFrame]:
    """The tables that the service makes of a document record."""
    read = datetime.fromisoformat(row["read"]).replace(tzinfo=None)
    origin = Origin(
        host="gpu01", received=read, reference=read, timezone=row.get("timezone", "UTC"), path=row.get("path")
    )
    made = documents.read(row["document"], row["raw"].encode(), origin)
    assert made.warnings == []
    return made.tables


def values(row: dict[str, Any]) -> dict[tuple[str, str | None], float]:
    found = tables(row)["metrics"]
    return {(r["metric"], r["device"]): r["value"] for r in found.to_dicts()}
