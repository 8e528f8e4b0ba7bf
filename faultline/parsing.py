"""``faultline parse``: lines in, JSON objects out; with ``--explain`` also why."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from collector.files import BROKEN, opened
from faultline.failure import CommandError
from parsers.engine import LineParser
from parsers.lines import split
from parsers.pattern import BUILT_IN
from parsers.patterns import load
from parsers.record import Origin
from parsers.zones import find

#: Lines passed to the parser at a time, in bytes; small enough that a pipe keeps flowing.
BATCH_BYTES = 1024 * 1024

_SHOWN = ("host", "source", "format", "unit", "pid", "facility", "severity", "message", "event", "job_id")


def known_zone(name: str | None) -> str:
    if find(name or "UTC") is None:
        raise CommandError(f"--timezone {name}: not an IANA zone name such as Europe/Berlin")
    return name or "UTC"


def parse_streams(
    files: list[str],
    *,
    source: str | None,
    host: str | None,
    timezone: str | None,
    catalogue: list[Path],
    explain: bool,
) -> int:
    patterns = load(catalogue)
    problems = [p for p in patterns.check() if BUILT_IN not in Path(p.file).parents]
    if problems:
        raise CommandError("; ".join(str(p) for p in problems))
    parser = LineParser(patterns, header_entities=True)
    now = datetime.now(UTC).replace(tzinfo=None)
    for named in files or ["-"]:
        given = None if named == "-" else named
        line = given if explain and given is not None and not _is_there(Path(given)) else None
        path: Path | None = Path(given) if given is not None and line is None else None
        origin = Origin(path=str(path) if path else None, host=host, source=source, timezone=known_zone(timezone),
                        timezone_known=timezone is not None, reference=now)  # fmt: skip
        try:
            with _stream(path) if line is None else _line(line) as stream:
                _parse(parser, stream, origin, explain)
        except BrokenPipeError:  # the output pipe, not the input
            raise
        except BROKEN as error:
            raise CommandError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return 0


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # longer than any file's name
        return False


def _line(text: str) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(io.BytesIO(text.encode(errors="surrogateescape")))


def _stream(path: Path | None) -> AbstractContextManager[IO[bytes]]:
    """A file, decompressed. A pipe is read unchanged: peeking at its first bytes would consume them."""
    if path is None:
        return nullcontext(sys.stdin.buffer)
    return opened(path.resolve()) if path.is_file() else path.open("rb")


def _parse(parser: LineParser, stream: IO[bytes], origin: Origin, explain: bool) -> None:
    number = 1
    for piece in _pieces(stream):
        lines = split(piece).lines
        for index, row in enumerate(parser.parse(lines, origin, number).iter_rows(named=True)):
            sys.stdout.write(json.dumps(shown(row), ensure_ascii=False) + "\n")
            if explain:  # each below its line, if both go to one terminal
                sys.stdout.flush()
                reasons = "\n   ".join(parser.explain(lines[index], origin))
                sys.stderr.write(f"{number + index}: {reasons}\n")
        sys.stdout.flush()
        number += len(lines)


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while block := (stream.read1(BATCH_BYTES) if hasattr(stream, "read1") else stream.read(BATCH_BYTES)):
        rest += block
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A record in the contract's format."""
    time = row["time"]
    out: dict[str, Any] = {
        "time": None if time is None else time.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "time_quality": row["time_quality"],
    }
    out.update({name: row[name] for name in _SHOWN})
    out["entities"] = json.loads(row["entities"]) if row["entities"] else {}
    out["tags"] = row["tags"] or []
    out["raw"] = row["raw"]
    return out
