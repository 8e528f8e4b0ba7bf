"""The table of the ways in which Slurm ends a job: ``endings/*.toml``, read and checked.

The correlator does not read it. It states what verdicts say about each way; ``docs/generate.py`` writes docs/endings.md
from it, and tests/correlator/verdicts/test_endings_table.py compares it with the verdicts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from correlator.model.categories import CATEGORIES

HERE = Path(__file__).parent / "endings"

#: In place of a category: the job has not ended, or ended well.
NO_VERDICT = "none"

#: How an entry is proven, from the strongest proof to the weakest.
PROOFS = {
    "capture": "captures of a real cluster, whose verdicts a test compares with the table",
    "situation": "situations that the test makes of accounting and log lines",
    "documentation": "Slurm's source or manual only",
}


@dataclass(frozen=True)
class Ending:
    """One way in which Slurm ends a job, or shows one that has not ended.

    ``shows``: how states, exit codes and log lines show it. ``verdict``: its category, alternatives with "|", or
    ``NO_VERDICT``; ``root``: the root cause's event, alternatives with "|". ``says``, ``headline``, ``advice`` and ``doubt``
    are parts of the verdict's texts, ``never`` are texts that its advice must not have. ``captures``: "NAME/RUN". ``made``:
    ``lines`` and ``jobs``, of which the first one has the verdict. ``open``: what
    the verdict does not do yet.
    """

    id: str
    title: str
    file: str
    shows: tuple[str, ...]
    verdict: str
    needs: str
    states: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    root: str = ""
    says: tuple[str, ...] = ()
    headline: str = ""
    advice: str = ""
    doubt: str = ""
    never: tuple[str, ...] = ()
    captures: tuple[str, ...] = ()
    made: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    open: str = ""

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories that are right; none if there is no verdict."""
        return () if self.verdict == NO_VERDICT else tuple(self.verdict.split("|"))

    @property
    def proof(self) -> str:
        """The strongest proof: a key of ``PROOFS``."""
        if self.captures:
            return "capture"
        return "situation" if self.made else "documentation"


def load() -> list[Ending]:
    """All entries, by file. Raises ``ValueError`` that names the file and entry with an unknown key or category, without
    what an entry needs, or with an id that another one has."""
    found: dict[str, Ending] = {}
    for path in sorted(HERE.glob("*.toml")):
        for table in tomllib.loads(path.read_text(encoding="utf-8"))["ending"]:
            entry = _entry(path.name, table)
            if entry.id in found:
                raise ValueError(f"{path.name}: {entry.id} is in {found[entry.id].file} already")
            found[entry.id] = entry
    return list(found.values())


def _entry(file: str, table: Mapping[str, Any]) -> Ending:
    known = {f.name for f in fields(Ending)} - {"file"}
    if unknown := set(table) - known:
        raise ValueError(f"{file}: {table.get('id')}: unknown {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    try:
        entry = Ending(file=file, **values)
    except TypeError as error:
        raise ValueError(f"{file}: {table.get('id')}: {error}") from error
    if wrong := set(entry.categories) - set(CATEGORIES):
        raise ValueError(f"{file}: {entry.id}: no category {', '.join(sorted(wrong))}")
    if entry.proof == "documentation" and not entry.source:
        raise ValueError(f"{file}: {entry.id}: no test proves it, so that it needs a source")
    return entry
