"""Positions, replacements and JSON paths in text, by bodies in Python."""

from __future__ import annotations

import json
import re
from typing import Any

from queries.kql.functions.arrays import path_of
from queries.kql.functions.body import Body

Json = Any


def indexof(text: str, what: str, start: int = 0, length: int = -1, occurrence: int = 1) -> int | None:
    """R10: the place of the n-th hit, -1 when there is none; a negative start counts from the end."""
    if length < -1 or occurrence < 1:
        return None
    place = max(len(text) + start, 0) if start < 0 else start
    while True:
        # Kusto measures the length anew from each hit.
        end = len(text) if length == -1 else min(place + length, len(text))
        place = text.find(what, place, end) if place <= len(text) else -1
        if place < 0 or occurrence == 1:
            return place
        occurrence, place = occurrence - 1, place + 1


def replace_strings(text: str, old: Json, new: Json) -> str | None:
    """Each lookup by its replacement, in one pass from the left; what was put in is not looked at again."""
    if not isinstance(old, list) or not isinstance(new, list) or len(old) != len(new):
        return None
    # A lookup whose replacement is no text is found and stays.
    pairs = {o: n if isinstance(n, str) else o for o, n in zip(old, new, strict=True) if isinstance(o, str) and o}
    if not pairs:
        return text
    for before, after in pairs.items():
        if any(before in other or other in before for other in pairs if other != before):
            return _in_turn(text, pairs)
        del after
    return re.sub("|".join(map(re.escape, pairs)), lambda m: pairs[m[0]], text)


def _in_turn(text: str, pairs: dict[str, str]) -> str:
    """Lookups that overlap: the first in the list wins, on the text not yet replaced."""
    pieces: list[tuple[bool, str]] = [(False, text)]
    for before, after in pairs.items():
        made: list[tuple[bool, str]] = []
        for done, piece in pieces:
            if done:
                made.append((True, piece))
                continue
            for place, part in enumerate(piece.split(before)):
                made += [(True, after)] * (place > 0) + [(False, part)]
        pieces = made
    return "".join(piece for _, piece in pieces)


def extract_json(path: str, text: str) -> Json:
    """The value at a JSON path of a text."""
    try:
        node = json.loads(text)
    except ValueError:
        return None
    for step in path_of(path):
        if isinstance(node, dict) and isinstance(step, str):
            node = node.get(step)
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
        else:
            return None
    return node


def dynamic_to_json(value: Json) -> str:
    """One spelling for each value: keys in order, no blanks."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


BODIES = {
    "indexof_from": tuple(Body("s s" + " l" * n, "long", indexof) for n in range(1, 4)),
    "replace_each": (Body("s d d", "string", replace_strings),),
    "extract_json_path": (Body("s s", "dynamic", extract_json),),
    "dynamic_to_json": (Body("D", "string", dynamic_to_json),),
}
