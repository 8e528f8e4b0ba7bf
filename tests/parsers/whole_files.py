"""Real files parsed whole: the number of resulting lines, and of those that were only stored.

    python tests/parsers/whole_files.py [FOLDER]

Prints for every file below FOLDER (default ``../shared/data/raw`` beside the repository) its recognised kind, its
lines, its rows, and the share of ``plain`` or unparsed ones.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from parsers.documents import REGISTRY, read
from parsers.engine import LineParser
from parsers.lines import split
from parsers.recognise import recognise
from parsers.record import Origin

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "raw"
READ = datetime(2026, 11, 21)


@dataclass(frozen=True)
class Reading:
    """``kept``: every line's bytes can be restored; ``unread``: the number of lines that were not understood."""

    path: Path
    kind: str
    source: str | None
    lines: int
    rows: int
    kept: bool
    unread: int
    samples: int = 0


def read_file(path: Path, root: Path, parser: LineParser) -> Reading:
    data = path.read_bytes()
    seen = recognise(path, data[:65536], root)
    origin = Origin(path=str(path), host=seen.host, source=seen.source, reference=READ, received=READ)
    if seen.kind in REGISTRY:
        parsed = read(seen.kind, data, origin)
        logs = parsed.rows("logs")
        unread = int(logs["tags"].list.contains("unparsed").sum() or 0)
        samples = sum(len(frame) for name, frame in parsed.tables.items() if name != "logs")
        return Reading(path, seen.kind, seen.source, data.count(b"\n"), len(logs), True, unread, samples)
    if seen.kind != "lines":
        return Reading(path, seen.kind, None, 0, 0, True, 0)
    lines = split(data).lines
    rows = parser.parse(lines, origin)
    exact = [
        raw if raw is not None else text.encode() for text, raw in zip(rows["raw"], rows["raw_bytes"], strict=True)
    ]
    plain = int((rows["format"] == "plain").sum())
    return Reading(path, "lines", seen.source, len(lines), len(rows), exact == lines, plain)


def main(folder: Path) -> int:
    parser = LineParser()
    lost = 0
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        one = read_file(path, folder, parser)
        if one.kind in ("skip", "binary", "sysfs_file"):
            continue
        lost += one.kind == "lines" and (one.rows != one.lines or not one.kept)
        share = f"{100 * one.unread / one.rows:6.2f} %" if one.rows else "     - "
        what = one.source or one.kind
        print(
            f"{path.relative_to(folder).as_posix()[-70:]:70} {what:18} {one.lines:7} lines {one.rows:7} rows {share} plain  {one.samples} other rows"
        )
    print(f"{lost} files lost lines")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
