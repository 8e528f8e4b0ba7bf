"""docs/formats.md names every format and every kind of document, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from parsers.documents import REGISTRY
from parsers.formats import all_formats

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")


def named(section: str) -> set[str]:
    part = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return {name for cell in re.findall(r"^\| ([^|]+) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}


def test_every_format_is_on_the_page() -> None:
    #: The name of the lines of a parser for several framings.
    readers_of_several = {"journald", "tai64n", "stamped"}
    known = {form.name for form in all_formats()} | readers_of_several
    assert named("Lines") - {"time_quality", "leap_second", "future", "dst_fold", "bad_time"} == known


def test_every_kind_of_document_is_on_the_page() -> None:
    assert named("Documents") == set(REGISTRY)
