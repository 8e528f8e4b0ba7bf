"""The sources that lines can have: valid values for ``sources`` of a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from parsers import extensions
from parsers.pattern import BUILT_IN, GROUPS, Pattern

#: Sources that the built-in formats write, and those that come from a file's name or pattern.
WRITTEN = frozenset({
    "kernel", "kmsg", "kmsg_json", "dmesg", "syslog", "journald", "central", "switch", "opensm", "ibdiagnet", "ufm", "fabricmanager",
    "ip_monitor", "nhc", "bmc", "storage", "healthagent", "jetpack", "jetpackd", "hpc", "loghub", "prolog", "epilog", "faultline-agent",
    *GROUPS["slurm"], *GROUPS["job"],
})  # fmt: skip


def unwritten(patterns: Sequence[Pattern]) -> list[str]:
    """Values of ``sources`` in a site's patterns that nothing built-in writes, one line of text each. An installed
    format or receiver may write such a source, and so may a sender that names its own: a warning, not a fault."""
    others = any(one.group in ("faultline.formats", "faultline.receivers") for one in extensions.known())
    lines = []
    for pattern in patterns:
        if Path(pattern.file).parent == BUILT_IN:
            continue
        for source in sorted(pattern.sources - WRITTEN):
            near = get_close_matches(source, sorted({*WRITTEN, *GROUPS}), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(sorted({*WRITTEN, *GROUPS}))}"
            if others:
                hint += "; installed formats and receivers may write others"
            lines.append(
                f"catalogue: {pattern.file}: {pattern.id}: nothing built-in writes the source {source!r}; {hint}"
            )
    return lines


def counted(lines: Sequence[str]) -> str:
    """The number of ``unwritten`` sources, as the end of a sentence; empty for none."""
    return (
        f", {len(lines)} source{'s' if len(lines) > 1 else ''} named that nothing built-in writes, see below"
        if lines
        else ""
    )
