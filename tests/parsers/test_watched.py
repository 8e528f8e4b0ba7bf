"""A site's patterns are reloaded while the service runs, and a mistake in them does no harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsers.patterns import Catalogue
from parsers.watched import LOOK_S, WatchedCatalogue

DOOR = """[[pattern]]
id = "site-door"
event = "{event}"
literal = ["door"]
regex = 'door (?P<door>\\d+) open'
example = "door 7 open"
"""


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def watched(tmp_path: Path, now: list[float]) -> WatchedCatalogue:
    return WatchedCatalogue([tmp_path], clock=lambda: now[0])


def meaning(watched: WatchedCatalogue) -> str | None:
    found = watched.catalogue.match("door 7 open", None)
    return found[0].event if found else None


def test_files_that_come_change_and_go_are_followed(
    watched: WatchedCatalogue, tmp_path: Path, now: list[float]
) -> None:
    file = tmp_path / "site.toml"
    assert meaning(watched) is None
    for event in ("site.door", "site.gate", None):
        file.write_text(DOOR.format(event=event)) if event else file.unlink()
        assert not watched.refresh(), "not looked at more often than needed"
        now[0] += LOOK_S
        assert watched.refresh() and meaning(watched) == event
        now[0] += LOOK_S
        assert not watched.refresh(), "nothing has changed since"


#: What a file may come to contain, and the word that names the mistake.
MISTAKES = (
    (DOOR.format(event="site.gate")[:60], "site.toml"),
    (DOOR.format(event="site.gate").replace("door 7 open", "window 7 open"), "none of the literals"),
    (DOOR.format(event="site.gate").replace("(?P<door>", "(?P<door"), "bad regex"),
    (DOOR.format(event="site.gate").replace("site-door", "gpu-xid"), "exists already"),
)


def test_a_mistake_keeps_the_old_catalogue_and_is_named(
    watched: WatchedCatalogue, tmp_path: Path, now: list[float]
) -> None:
    """One mistake after the other, each mended: loading the catalogue is what costs time."""
    file = tmp_path / "site.toml"
    file.write_text(DOOR.format(event="site.door0"))
    now[0] += LOOK_S
    assert watched.refresh()
    for n, (text, why) in enumerate(MISTAKES):
        old = watched.catalogue
        file.write_text(text)
        now[0] += LOOK_S
        assert not watched.refresh() and watched.catalogue is old and meaning(watched) == f"site.door{n}", why
        assert why in str(watched.problems[0]) and str(file) in str(watched.problems[0])
        file.write_text(DOOR.format(event=f"site.door{n + 1}") + "# mended\n")
        now[0] += LOOK_S
        assert watched.refresh() and not watched.problems and meaning(watched) == f"site.door{n + 1}"


def test_without_a_site_nothing_is_looked_at(now: list[float]) -> None:
    watched = WatchedCatalogue([], clock=lambda: now[0])
    now[0] += LOOK_S
    assert not watched.refresh() and watched.problems == []


def test_the_built_in_catalogue_is_loaded_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Catalogue] = []

    def load_once() -> Catalogue:
        loaded.append(Catalogue(()))
        return loaded[-1]

    monkeypatch.setattr("parsers.watched.load", load_once)
    watched = WatchedCatalogue([])
    assert not loaded  # a third of a second of each start of a service, which follows files only
    assert watched.catalogue is watched.catalogue is loaded[0] and len(loaded) == 1
