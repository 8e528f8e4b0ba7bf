"""The verdict on a job in one line, for places that others may read too: Slurm's AdminComment and job mails.

Standard library only. It has the cause in words of ours, and the node; no text of the job, of its output or of paths.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from correlator.model.categories import UNKNOWN
from correlator.model.certainty import sure_of

#: Comments that begin so are Faultline's; all others stay as they are.
PREFIX = "faultline:"
#: Most characters of the line.
MOST = 240
#: Where words of ours go on behind a text that Slurm or the job wrote.
_BLAME = "Your job died because"
#: What marks a sentence that quotes something: quotation marks, paths, addresses.
_QUOTES = frozenset("'\"`/@\u2018\u2019\u201c\u201d|\\")


def line_of(verdict: Mapping[str, Any] | None) -> str:
    """ "faultline: infra.network 0.97: Your job died because ... (gpu02)"; "" if there is nothing to say."""
    category = str((verdict or {}).get("category") or "")
    if verdict is None or not category or category == UNKNOWN:
        return ""
    sentences = " ".join(_sentences(str(verdict.get("headline") or "")))
    host = str((verdict.get("root_cause") or {}).get("host") or "")
    where = f" ({host})" if category.startswith("infra.") and host and host not in sentences else ""
    sure = sure_of(verdict.get("confidence"), category)
    line = f"{PREFIX} {category}{'' if sure is None else f' {sure:.2f}'}{': ' + sentences if sentences else ''}"
    return f"{_plain(line)[: MOST - len(where)]}{_plain(where)}"


def _sentences(headline: str) -> list[str]:
    """The sentences of ours: what is quoted behind a colon is left out."""
    first, colon, rest = headline.partition(": ")
    if colon:
        at = rest.find(_BLAME)
        headline = f"{first}." + (f" {rest[at:]}" if at >= 0 else "")
    return [one for one in re.split(r"(?<=[.!?])\s+", headline) if one and not _QUOTES & set(one.replace("'s ", " "))]


def _plain(text: str) -> str:
    """Printable ASCII without what a terminal, a shell or a table of sacct could take for its own."""
    return "".join(sign if " " <= sign <= "~" and sign not in _QUOTES else "?" for sign in text.replace("'s ", "s "))
