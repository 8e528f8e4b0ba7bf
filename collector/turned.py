"""Files that a log was moved to: logrotate renames and packs it, and its lines are stored already under its old name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collector import files as reading

#: What is put behind a log's name: a number or a date, and the ending of a packed file.
_BEHIND = re.compile(r"(?:[.-](?:\d{1,14}|old))?(?:\.(?:gz|xz|zst|bz2))?$")


class Turned:
    """The files that were read before, by folder and log. ``known``: their entries in the ledger."""

    def __init__(self, known: Sequence[Mapping[str, Any]]) -> None:
        self._known: defaultdict[tuple[str, str, str | None], list[Mapping[str, Any]]] = defaultdict(list)
        for entry in known:
            if entry["consumed"]:
                self._known[_log(Path(entry["path"]), entry["cluster"])].append(entry)

    def source_of(self, path: Path, name: str, cluster: str | None) -> Mapping[str, Any] | None:
        """The entry of the log that was moved to ``path``: its content is there, and at its old place no longer. None if
        there is none, also for a copy beside the log. ``name``: the path as the ledger has it."""
        logs = [_log(Path(name), of) for of in dict.fromkeys((cluster, None))]
        for entry in (entry for log in logs for entry in self._known.get(log, ())):
            if entry["path"] != name and _has(path, entry) and _has(Path(entry["path"]), entry) is False:
                return entry
        return None


def _log(path: Path, cluster: str | None) -> tuple[str, str, str | None]:
    return str(path.parent), _BEHIND.sub("", path.name), cluster


def _has(path: Path, entry: Mapping[str, Any]) -> bool | None:
    """Whether a file begins with what was read under this entry; None if it cannot be read so far."""
    try:
        return bool(reading.prefix_digest(path, entry["consumed"]) == entry["digest"])
    except FileNotFoundError:
        return False
    except reading.BROKEN:
        return None
