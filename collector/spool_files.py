"""The files of a spool without which a copy of its store would lack what was acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from collector.segment_file import FIRST_RECORD, Position, scan
from store.door import Asks
from store.errors import NoSuchTable
from store.questions import intake


def unstored(store: Asks, folder: Path) -> Mapping[str, Path]:
    """What holds batches after the store's watermark and lines that wait for their segment, by name, in order; with the
    spool's identity and the segment of the watermark, so that a service goes on there. Nothing if all is stored.

    The spool may be in use: the end of the last file may then hold half a batch, as after a crash.
    """
    identity = folder / "id"
    try:
        spool = identity.read_text(encoding="utf-8").strip()
    except OSError:  # nothing was ever received
        return {}
    try:
        marks, steps = store.ask(intake.watermark(spool)), store.ask(intake.last_step(spool))
    except NoSuchTable:  # nothing was ever stored from it
        marks, steps = [], []
    mark = Position(marks[0]["segment"], marks[0]["at"]) if marks else Position(0, 0)
    numbers = sorted(int(path.stem) for path in folder.glob("*.seg") if path.stem.isdigit())
    segments = {f"{number:012d}.seg": number for number in numbers if number >= mark.segment}
    rows = [str(step["file"]) for step in steps if step["file"] is not None and (folder / str(step["file"])).is_file()]
    if not rows and not any(_has_more(folder / name, number, mark) for name, number in segments.items()):
        return {}
    return {name: folder / name for name in (identity.name, *rows, *segments)}


def _has_more(path: Path, number: int, mark: Position) -> bool:
    """Whether a segment holds a batch after the watermark."""
    start = max(mark.offset, FIRST_RECORD) if number == mark.segment else FIRST_RECORD
    return next(iter(scan(path, number, start, path.stat().st_size)), None) is not None
