"""Wraps formats of installed packages, whose bugs must lose no line: a line that such a format fails on goes to the
next format."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from parsers import extensions
from parsers.formats.base import (
    HEADER,
    STAMPED,
    ByLine,
    Format,
    FrameReader,
    LineReader,
    Row,
    accepted,
    conform,
    nothing,
)
from parsers.record import Origin


def guarded(offered: object, extension: extensions.Extension) -> Format:
    """A package's format whose readers report the package instead of raising. Raises what its test of a line raises."""
    form = extensions.expect(offered, Format)
    accepted(form, pl.Series("text", ["a line"]))
    if isinstance(form.read, ByLine):
        many = form.read.of_many
        return replace(form, read=ByLine(_of_line(form.read.line, extension), many and _of_frame(many, extension)))
    if not callable(form.read):
        raise TypeError(
            f"read is of type {type(form.read).__name__}, not a function: by_line makes one of a single line's"
        )
    return replace(form, read=_of_frame(form.read, extension))


def _of_line(read: LineReader, extension: extensions.Extension) -> LineReader:
    def line(text: str, origin: Origin) -> Row | None:
        try:
            row = read(text, origin)
            unknown = [] if row is None else [name for name in row if name not in STAMPED]
        except Exception as error:
            extensions.warn_once(
                f"{extension.called} raised {extensions.described(error)}; the next format reads the line"
            )
            return None
        if unknown:
            _name_unknown(unknown, extension)
        return row

    return line


def _of_frame(read: FrameReader, extension: extensions.Extension) -> FrameReader:
    def frame(lines: pl.DataFrame, origin: Origin) -> pl.DataFrame:
        try:
            found = read(lines, origin)
            if unknown := [name for name in found.columns if name not in STAMPED and name != "text"]:
                _name_unknown(unknown, extension)
            return conform(found)
        except Exception as error:
            extensions.warn_once(
                f"{extension.called} raised {extensions.described(error)}; the next format reads the lines"
            )
            return pl.DataFrame([nothing(name, kind, 0) for name, kind in HEADER.items()])

    return frame


def _name_unknown(names: list[str], extension: extensions.Extension) -> None:
    there = ", ".join(name for name in STAMPED if name != "i")
    extensions.warn_once(
        f"{extension.called}: no format says {', '.join(sorted(names))!r}, which is dropped; there is {there}"
    )
