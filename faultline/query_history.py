"""A person's query history, newest last: one JSON object per line in ``$XDG_STATE_HOME/faultline/queries.ndjson``.

Recorded at a terminal, or if ``FAULTLINE_HISTORY`` names a file; an empty value disables it.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: Older entries are dropped.
MOST = 1000


def place() -> Path | None:
    """The file, or None if the history is disabled."""
    named = os.environ.get("FAULTLINE_HISTORY")
    if named is not None:
        return Path(named) if named else None
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "faultline" / "queries.ndjson"


def entries() -> list[dict[str, Any]]:
    """The queries, oldest first; unreadable lines are skipped."""
    path, out = place(), []
    if path is None:
        return []
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and "query" in entry:
                    out.append(entry)
    return out


def keep(query: str, elapsed_ms: float, rows: int) -> None:
    """Adds one query; a failure to write the history is ignored."""
    path = place()
    if path is None or not (sys.stderr.isatty() or "FAULTLINE_HISTORY" in os.environ):
        return
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    kept = [*entries(), {"time": now, "ms": round(elapsed_ms, 1), "rows": rows, "query": query}][-MOST:]
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in kept)
        draft.replace(path)
