"""The compiled reader of a header, made from its grammar (parsers/header_grammar.py).

The grammar's steps are written as the lines of a Python function, and the compiler makes machine code of it as of every other
one. A loop over the steps took 1.4 times as long: for each step it had to find out what the step does.
"""

from __future__ import annotations

from collections import namedtuple
from functools import cache
from typing import Any

import numpy as np

from parsers.compiled import part
from parsers.header_grammar import BEGIN, BYTE, CLASSES, END, ENDLESS, RUN, Header, Step
from parsers.scan import NOWHERE

#: Runs of one length up to this one are written out, character by character.
_WRITTEN_OUT = 4


@cache
def reader(header: Header) -> Any:
    """A compiled function of the bytes and the place where the header begins. It answers a named tuple: ``end``, where the header
    ends (below zero: it is not there in its plain spelling), and for each field its begin, under the field's name, and its end,
    under that name and ``_end`` (both below zero for a part that is left out)."""
    places = [place for name in header.fields for place in (name, f"{name}_end")]
    names: dict[str, Any] = {"Places": namedtuple("Places", ["end", *places]), "CLASSES": CLASSES}
    exec(compile(source(header), f"<reader of {header.plain}>", "exec"), names)
    return part(names["read"])


def source(header: Header) -> str:
    """The reader as Python."""
    fields = [f"{edge}_{number}" for number in range(len(header.fields)) for edge in ("begin", "end")]
    nothing = f"return Places({', '.join([str(NOWHERE)] * (len(fields) + 1))})"
    lines = ["def read(data, at):"]
    lines += [f"    {field} = {NOWHERE}" for field in fields]
    lines += ["    " + line for line in _lines(header.steps, nothing)]
    lines.append(f"    return Places({', '.join(['at', *fields])})")
    return "\n".join(lines)


def _lines(steps: tuple[Step, ...], nothing: str) -> list[str]:
    """The lines that go through ``steps``; ``nothing`` leaves the function where one does not fit."""
    lines: list[str] = []
    place = 0
    while place < len(steps):
        does, what, least, most = steps[place]
        place += 1
        if does == BYTE:
            lines += [f"if data[at] != {what}:", f"    {nothing}", "at += 1"]
        elif does == RUN:
            lines += _run(what, least, most, nothing)
        elif does == BEGIN:
            lines.append(f"begin_{what} = at")
        elif does == END:
            lines.append(f"end_{what} = at")
        else:  # a part that may be left out, of ``least`` steps
            inner = _lines(steps[place : place + least], nothing)
            lines += [f"if data[at] == {what}:", *(f"    {line}" for line in inner)]
            place += least
    return lines


def _run(letters: int, least: int, most: int, nothing: str) -> list[str]:
    """The lines that go through ``least`` to ``most`` characters of a class."""
    if least == most <= _WRITTEN_OUT:
        return [
            line for _ in range(least) for line in (f"if not {_of_class(letters, 'at')}:", f"    {nothing}", "at += 1")
        ]
    limit = "" if most == ENDLESS else f"end < at + {most} and "
    return [
        "end = at", f"while {limit}{_of_class(letters, 'end')}:", "    end += 1", f"if end < at + {least}:", f"    {nothing}", "at = end",
    ]  # fmt: skip


def _of_class(letters: int, place: str) -> str:
    """An expression: whether the byte at a place is of a class. Of one stretch of bytes it is compared with both ends."""
    members = np.flatnonzero(CLASSES[letters])
    if members[-1] - members[0] == len(members) - 1:
        return f"{members[0]} <= data[{place}] <= {members[-1]}"
    return f"CLASSES[{letters}, data[{place}]]"
