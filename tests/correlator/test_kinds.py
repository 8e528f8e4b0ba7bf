"""A kind of fact has a home: what is special to it stands in one declaration, and its name nowhere else."""

from __future__ import annotations

import ast
import string
import tomllib
from pathlib import Path

import pytest

from correlator.facts import registry
from correlator.learning.feedback import CATEGORIES
from correlator.model.kinds import Kind, fill, literal
from correlator.model.nouns import Fact
from web.shaping import LAYERS

ROOT = Path(__file__).resolve().parents[2]
KINDS = sorted(registry.kinds().values(), key=lambda kind: kind.name)


def texts_of(kind: Kind) -> list[str]:
    """Every template of a declaration."""
    cause = kind.cause
    if cause is None:
        return [kind.brief]
    advice = [text for pair in cause.advice for text in pair if text]
    return [kind.brief, cause.title, cause.short, cause.plain, *advice]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_declaration_is_whole(kind: Kind) -> None:
    assert kind.layer in LAYERS
    assert kind.summary.endswith(".") and len(kind.summary) < 150
    if kind.cause is None:
        return
    assert kind.cause.category in CATEGORIES
    assert kind.cause.advice or not kind.cause.root, "a root cause says what to do"
    assert kind.cause.plain == kind.cause.plain.strip(" .") and kind.cause.disproof.endswith(".")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_its_texts_name_what_a_fact_has(kind: Kind) -> None:
    known = {
        "host",
        "device",
        "count",
        "nodes",
        "for_time",
        "runs",
        "what",
        "code",
        "behind",
        *kind.attrs.__annotations__,
    }
    named = {name for text in texts_of(kind) for _, name, _, _ in string.Formatter().parse(text) if name}
    assert named <= known


def test_a_text_from_outside_is_no_template() -> None:
    fact = Fact("node.down", 0.0, None, 0.0, "n1", attrs={"reason": "{host} {0} }{"})
    assert fill("set DOWN ({reason})", fact) == "set DOWN ({host} {0} }{)"
    assert fill(literal("by {host} {"), fact) == "by {host} {"


#: Names that are not of a kind only: the catalogue's events, the contract's root causes and categories have them as well.
SHARED = (
    {row["event"] for path in (ROOT / "parsers/catalogue").glob("*.toml")
     for row in tomllib.loads(path.read_text())["pattern"] if "event" in row}
    | registry.event_names() | set(CATEGORIES)
)  # fmt: skip


def homes() -> dict[str, set[Path]]:
    """Texts of the form of a kind's name -> the files in which they are written."""
    found: dict[str, set[Path]] = {}
    for room in ("correlator", "queries", "web", "collector", "store", "faultline"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.setdefault(node.value, set()).add(path.relative_to(ROOT))
    return found


def test_a_kinds_name_is_written_in_its_home_only() -> None:
    written = homes()
    own = {kind.name for kind in KINDS} - SHARED
    assert len(own) > 30
    assert {name: sorted(map(str, written[name])) for name in own if len(written[name]) != 1} == {}


def test_two_subjects_cannot_declare_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.kinds.cache_clear()
    monkeypatch.setattr(registry, "subjects", lambda: (*registry.BUILT_IN, registry.BUILT_IN[0]))
    try:
        with pytest.raises(ValueError, match=r"links\.detector: the kind of fact 'link\.outage' is declared already"):
            registry.kinds()
    finally:
        registry.kinds.cache_clear()
