"""Bytes -> lines -> text, without ever losing a byte."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SplitLines:
    """Lines of one input without their line ends; ``terminated`` is false when the last one had none."""

    lines: list[bytes] = field(default_factory=list)
    terminated: bool = True


def split(data: bytes) -> SplitLines:
    r"""Cuts at ``\n`` and ``\r\n``. A lone ``\r`` (a progress bar) and NULs stay inside their line."""
    if not data:
        return SplitLines()
    parts = data.split(b"\n")
    terminated = parts[-1] == b""
    if terminated:
        parts.pop()
    if b"\r" in data:
        last = len(parts) - 1
        # An unterminated last line keeps its \r: the \n may still be on its way.
        parts = [
            part[:-1] if part.endswith(b"\r") and (terminated or at != last) else part for at, part in enumerate(parts)
        ]
    return SplitLines(parts, terminated)


def decode(lines: list[bytes]) -> tuple[list[str], list[bytes | None]]:
    """Text of each line (undecodable bytes as U+FFFD), and the exact bytes of those whose text lost something."""
    try:
        return [line.decode() for line in lines], [None] * len(lines)
    except UnicodeDecodeError:
        pass
    texts: list[str] = []
    exact: list[bytes | None] = []
    for line in lines:
        try:
            texts.append(line.decode())
            exact.append(None)
        except UnicodeDecodeError:
            texts.append(line.decode(errors="replace"))
            exact.append(line)
    return texts, exact
