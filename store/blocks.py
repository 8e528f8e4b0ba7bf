"""Groups the lines of one message: the traceback before an error, the block after an Xid, the second line of a daemon's
message.

A line's block is searched among the stored lines of its file on demand, by line number alone. So the batches, the order
and the repetition of incoming lines do not matter: blocks are never parsed together. Several writers may write to one
file at once (ranks, programs): only lines of the same writer count, and the first one that does not belong ends the
block.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from store.door import Answers
from store.questions import lines

Row = Mapping[str, Any]

#: Lines of a file examined before and after a line. Framework tracebacks have up to some 60 frames of two or three
#: lines, a kernel block about 100; several ranks may write at once.
BEFORE, BEHIND = 300, 400
#: Most lines listed of one block.
LONGEST = 200

#: Who wrote a line of a job: srun's task number, labels of a launcher and of torchrun.
_LABEL = re.compile(r"^(?:\d{1,6}: ?)?(?:\[\d+\] )?(?:\[[A-Za-z][A-Za-z_]*\d+(?:\|\d+)?\]:? ?)*")

_HEAD = re.compile(r"Traceback \(most recent call last\):|\u256d.*Traceback")
#: Lines between a traceback's head and its error: frames with their code; and the text that joins it to the previous
#: one.
_FRAME = re.compile(r"[ \t]|[\u2502\u256d\u2570]|$")
_JOINED = re.compile(r"During handling of the above exception|The above exception was the direct cause")

#: Continuations after an error in job output: C++ frames and PyTorch text, its launcher's report, stacks of MPICH, Open
#: MPI and UCX, a shell's core dump message.
_JOB_GOES_ON = re.compile(
    r"\s+what\(\): |frame #\d+: |Exception raised from |C\+\+ CapturedTraceback|#\d+ +0x[0-9a-f]+ |#\d+ \S.* from "
    r"|(?:CUDA|HIP) kernel errors might be|For debugging consider passing|Compile with `?TORCH_USE|Device-side assertion tracking"
    r"|\s+(?:time|host|rank|exitcode|error_file|traceback) +: |={20,}$|-{20,}$|.* FAILED$|(?:Other )?Failures:$|\s*<NO_OTHER_FAILURES>$"
    r"|Root Cause \(first observed failure\):$|\[\d+\]:$"
    r"|(?:P?MPI\w*|internal_\w+)\(\d+\)[. ]*: |\[[\w.-]+:\d+\] (?:\*\*\*|\[ ?\d+\]) |=+ backtrace|\s*\d+ +0x[0-9a-f]+ "
)

#: Continuations after a kernel error, beside those that the catalogue marks as part of a block.
_KERNEL_GOES_ON = re.compile(
    r"NVRM: (?:GPU (?:at PCI|Board)|GPU\d* .*(?:history|RPC|GSP)|[ \t(]|installed in|fallen off|Note)|[ \t]|Call Trace|Code: "
    r"|R[A-Z0-9]{2}: |CPU: \d+ |PKRU|CR2: |FS: |Workqueue: |Mem-Info|Tasks state|\[ *\d+\] +\d+ +\d+ "
)
_JOB = ("job_stdout", "job_stderr")


def attach(store: Answers, events: Iterable[dict[str, Any]]) -> None:
    """Adds ``lines`` (``{"line", "text"}`` each, in file order) to every event whose block has several.

    ``events`` are rows as pages and commands show them: ``source`` is the file, ``line`` the line number. ``store`` is
    queried for the lines.
    """
    wanted: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("line") and event.get("source"):
            wanted[str(event["source"])].append(event)
    for file, mine in wanted.items():
        for low, high in _ranges([int(event["line"]) for event in mine]):
            near = store.ask(lines.between(file, low, high))
            for event in mine:
                if low <= event["line"] <= high:
                    found = block(near, int(event["line"]))
                    if len(found) > 1:
                        event["lines"] = [{"line": row["line"], "text": row["raw"]} for row in found]


def _ranges(lines: list[int]) -> list[tuple[int, int]]:
    """Non-overlapping ranges to read for ``lines``."""
    found: list[tuple[int, int]] = []
    for line in sorted(set(lines)):
        low, high = max(1, line - BEFORE), line + BEHIND
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return found


def block(near: Sequence[Row], line: int) -> list[Row]:
    """The lines of the block of ``line`` among ``near`` (ordered lines of one file); empty if the line is not there."""
    own = next((row for row in near if row["line"] == line), None)
    if own is None:
        return []
    speaker = _speaker(own)
    lines = [
        row
        for row in near
        if line - BEFORE <= row["line"] <= line + BEHIND and (speaker is None or _speaker(row) == speaker)
    ]
    at = next(place for place, row in enumerate(lines) if row["line"] == line)
    behind = at + 1
    while behind < len(lines) and _goes_on(lines[behind], own):
        behind += 1
    return lines[_first(lines, at) : behind][:LONGEST]


def _speaker(row: Row) -> tuple[object, ...] | None:
    """Who wrote a line, if several write to one file at once; None: continuations directly follow the line."""
    if row["source"] in _JOB:
        text = str(row["raw"] or "")
        return (text[: _end_of_label(text)].strip(),)
    return ("kernel", row["host"]) if row["source"] == "kernel" else None


def _first(lines: Sequence[Row], at: int) -> int:
    """The index of the block's first line: a traceback's head, or the line with a header; else ``at`` itself."""
    if lines[at]["format"] == "continuation":
        return next((place for place in range(at - 1, -1, -1) if lines[place]["format"] != "continuation"), at)
    head = at
    if lines[at]["source"] in _JOB:
        joined = False
        for place in range(at - 1, -1, -1):
            text = _text(lines[place])
            if _HEAD.match(text.lstrip()):
                head, joined = place, False
            elif _JOINED.match(text):
                joined = True
            elif not _FRAME.match(text):
                if not joined:
                    break
                joined = False  # the text of the error that came first
    return head


def _goes_on(row: Row, own: Row) -> bool:
    if row["format"] == "continuation":
        return True
    if (row["source"], row["unit"]) != (own["source"], own["unit"]):
        return False
    if "multiline" in (row["tags"] or ()):
        return True
    if row["source"] == "kernel":
        return row["event"] in ("other", None) and _KERNEL_GOES_ON.match(row["message"] or "") is not None
    return row["source"] in _JOB and _JOB_GOES_ON.match(_text(row)) is not None


def _text(row: Row) -> str:
    """The text of a line without its writer's label."""
    text = str(row["raw"] or "")
    return text[_end_of_label(text) :] if row["source"] in _JOB else text


def _end_of_label(text: str) -> int:
    found = _LABEL.match(text)
    return found.end() if found else 0
