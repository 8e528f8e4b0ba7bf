"""Why a hook would write nothing: what ``verify`` finds, each with its cure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """``code``: one word for programs; ``hook``: the setting of slurm.conf, or empty for what concerns all."""

    code: str
    what: str
    cure: str
    hook: str = ""

    def __str__(self) -> str:
        return f"{self.hook + ': ' if self.hook else ''}{self.what}; {self.cure}"
