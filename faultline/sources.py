"""``faultline sources``: senders and their data, for people and as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from faultline import terminal
from faultline.why_text import short_time

#: Most blind periods, silent sources and batches set aside listed below the table; JSON has all.
MOST_SHOWN = 10


def list_sources(found: dict[str, Any], form: str, only: str | None) -> int:
    """Prints the answer of ``GET /api/v1/sources``; ``only`` selects the streams with that problem. Returns 1 if a
    source is silent while its node is up, or a batch was set aside."""
    if only:
        found["sources"] = [row for row in found["sources"] if row[only]]
    if form == "json":
        print(json.dumps(found, indent=1, sort_keys=True))
    else:
        _table(found)
    return 1 if found["alerts"] or found["quarantine"] else 0


def _table(found: dict[str, Any]) -> None:
    if not found["sources"]:
        print("No sources.")
    else:
        names = ["host", "source", "stream", "by", "lines", "events", "unparsed", "lines/s", "lag", "last (UTC)", ""]
        rows = [_row(row) for row in found["sources"]]
        terminal.table(names, rows, right=("lines", "events", "unparsed", "lines/s", "lag"))
    if folded := sum(row.get("files", 0) for row in found["sources"]):
        print(f"job output: {folded:,} files, one row for those of a host; --outputs lists each")
    _print_some("silent", [alert["text"] for alert in found["alerts"]])
    _print_some("gone", [one["text"] for one in found.get("gone", []) if one["batches"]])
    _print_some("not seen", [_blind(row) for row in found["blind"]])
    _print_some(
        "set aside", [f"{row['id']} ({row['kind']} from {row['peer']}): {row['reason']}" for row in found["quarantine"]]
    )
    _print_some("extension", found.get("extensions", []))  # a service of an older version says nothing of them
    if unfiltered := found.get("unfiltered"):
        print(f"text filters: {unfiltered:,} lines have none yet; every text search reads them")
    if (intake := found["intake"]) and intake.get("trouble"):
        _print_some("trouble", [intake["trouble"]])


def _row(row: dict[str, Any]) -> list[Any]:
    ahead = [f"{row['ahead']:,} stamped ahead"] if row.get("ahead") else []
    trouble = ", ".join([name for name in ("silent", "late") if row.get(name)] + ahead)
    lag = "" if row["lag_s"] is None else f"{row['lag_s']:.1f} s"
    rate = f"{row['rate']:.1f}" if row["rate"] else ""
    last = short_time(row["last"])[:19]
    stream = f"{row['files']:,} files" if row.get("files") else row["file"]
    return [row["host"], row["source"], stream, row["transport"], row["lines"], row["events"], row["unparsed"], rate,
            lag, last, trouble]  # fmt: skip


def _blind(row: dict[str, Any]) -> str:
    """One line about a blind period: where, from when to when, how much, why."""
    lost = "" if row["lines"] is None else f", {row['lines']:,} lines"
    where = " ".join(str(row[name]) for name in ("host", "source", "stream") if row[name])
    return f"{where} {_clock(row['start'])} to {_clock(row['end'])}{lost}: {row['reason']}"


def _clock(text: str | None) -> str:
    return "?" if text is None else datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _print_some(what: str, texts: list[str]) -> None:
    for text in texts[:MOST_SHOWN]:
        print(f"{what}: {text}")
    if len(texts) > MOST_SHOWN:
        print(f"{what}: {len(texts) - MOST_SHOWN} more; --format json has all")
