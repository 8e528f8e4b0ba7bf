"""An edge that names a kind of fact that no detector concludes is an error with a suggestion: it would never hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from correlator.edges import load, scopes
from correlator.edges.conditions.declaration import Condition, declared
from correlator.edges.conditions.registry import conditions
from correlator.edges.scopes import Scope
from correlator.facts import registry
from correlator.facts.world import World
from correlator.model.nouns import Fact
from correlator.selftest import situations
from faultline.checking import check_all
from parsers import extensions


def site(tmp_path: Path, name: str = "site", **change: object) -> Path:
    edge = {"id": "SITE1", "cause": ["disk.error"], "effect": ["run.failed"], "scope": "same node", "window": "[0s, 60s]",
            "prior": 0.5, "text": "a test", **change}  # fmt: skip
    path = tmp_path / f"{name}.toml"
    path.write_text("[[edge]]\n" + "".join(f"{k} = {v!r}\n" for k, v in edge.items()))
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cause": ["disk.eror"]}, "unknown kind of fact 'disk.eror' in cause; did you mean 'disk.error'?"),
        ({"effect": ["run.failed", "run.faild"]}, "'run.faild' in effect; did you mean 'run.failed'?"),
        ({"cause": ["nic.link_down"]}, "an event, edges join facts: did you mean 'link.outage'?"),
        ({"cause": ["coolant"]}, "unknown kind of fact 'coolant' in cause; known: admin.down, "),
        ({"cause": "disk.error"}, "cause must be a list of kinds of facts, not 'disk.error'"),
        ({"effect": []}, "effect must be a list of kinds of facts, not []"),
    ],
)
def test_an_unknown_kind_is_named_with_what_was_probably_meant(change: dict[str, object], says: str, tmp_path: Path) -> None:  # fmt: skip
    found, problems = load.load([site(tmp_path, **change)])
    assert [p.entry for p in problems] == ["SITE1"] and says in problems[0].reason
    assert "SITE1" not in {e.id for e in found}


def test_a_sites_file_may_have_the_former_name_of_a_scope_or_a_requirement(tmp_path: Path) -> None:
    former = site(tmp_path, scope="told by the run", requires=["outlasts usual retries", "no words of its own"])
    found, problems = load.load([former])
    (edge,) = [e for e in found if e.id == "SITE1"]
    assert problems == [] and edge.scope == "reported by the run"
    assert edge.requires == ("outlasts typical retries", "no words of its own")


def test_a_packages_requirement_has_the_name_that_edges_use() -> None:
    offered = Condition("other name", "The tray is wet.", lambda *_: None, formerly="wet tray")
    found = declared("tray still wet", offered)
    assert (found.name, found.summary, found.formerly) == ("tray still wet", "The tray is wet.", "wet tray")
    assert declared("other name", offered) is offered


def same_rack(world: World, cause: Fact, effect: Fact) -> bool:
    """The cause and the effect are in one rack.

    The first two digits of a node's name are its rack.
    """
    return str(cause.host)[:4] == str(effect.host)[:4]


def test_a_packages_scope_may_be_a_bare_function_or_say_all_that_depends_on_it() -> None:
    bare = scopes.declared("same rack", same_rack)
    assert bare == Scope("same rack", "The cause and the effect are in one rack.", same_rack) and not bare.shared
    offered = Scope("other name", "Both are in one rack.", same_rack, reaches=lambda world, cause: ["gx01"])
    found = scopes.declared("same rack", offered)
    assert (found.name, found.summary, found.reaches, found.shared) == (
        "same rack",
        offered.summary,
        offered.reaches,
        True,
    )
    assert scopes.declared("other name", offered) is offered
    assert not replace(offered, reaches_alone=False).shared


def test_an_edge_may_use_all_that_a_packages_scope_declares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its former name, too, unless that is a name of today: no package gives built-in edges another scope."""
    offered = Scope(
        "same rack", "Both are in one rack.", same_rack, reaches=lambda world, cause: ["gx01"], formerly="one rack"
    )
    theirs = {"same rack": offered, "bare": same_rack, "taking": replace(offered, name="taking", formerly="same node")}
    asked = {"taking": Condition("taking", "It is so.", lambda world, cause, effect: None, formerly="several nodes")}
    before = registry.subjects()
    monkeypatch.setattr(
        registry,
        "subjects",
        lambda: (*before, SimpleNamespace(KINDS=(), DETECTORS=(), SCOPES=theirs, CONDITIONS=asked)),
    )
    scopes.scopes.cache_clear()
    try:
        files = [
            site(tmp_path, scope, id=scope, scope=scope) for scope in ("same rack", "one rack", "bare", "same node")
        ]
        found, problems = load.load(files)
        edges = {edge.id: (edge.scope, edge.shared) for edge in found if edge.file in {path.name for path in files}}
        _, refused = load.load([site(tmp_path, id="alone", scope="bare", shared=1)])
        conditions.cache_clear()
        asking = site(tmp_path, id="asks", requires=["several nodes"])
        (kept,) = [edge for edge in load.load([asking])[0] if edge.id == "asks"]
    finally:
        scopes.scopes.cache_clear()
        conditions.cache_clear()
    assert kept.requires == ("several nodes",)
    assert problems == [] and edges == {
        "same rack": ("same rack", True), "one rack": ("same rack", True), "bare": ("bare", False),
        "same node": ("same node", False),
    }  # fmt: skip
    assert [p.reason for p in refused] == [
        "scope 'bare' reaches one run only; shared: controller's own link, node in allocation, node under switch, "
        "run used the storage, same node, same rack, taking"
    ]


def test_check_fails_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(situations, "outcomes_of_lines", lambda *_: iter(()))  # test_edge_tests runs them
    config = tmp_path / "faultline.toml"
    config.write_text(f"edges = [{str(site(tmp_path, cause=['disk.eror']))!r}]\n")
    assert check_all(config, None) == 1
    assert "site.toml: edge SITE1: unknown kind of fact 'disk.eror'" in capsys.readouterr().out


def test_a_kind_that_a_packages_detector_names_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pumps(world: World) -> list[object]:
        return []

    pumps.kinds = ("site.pump",)  # type: ignore[attr-defined]
    before = registry.detectors()
    registry.kinds.cache_clear()
    monkeypatch.setattr(registry, "detectors", lambda: (*before, pumps))
    try:
        assert load.load([site(tmp_path, cause=["site.pump"])])[1] == []
    finally:
        registry.kinds.cache_clear()


def test_a_window_that_cannot_be_read_is_refused_with_the_units(tmp_path: Path) -> None:
    _, problems = load.load([site(tmp_path, window="[0s, 3 minutes]")])
    assert [p.reason for p in problems] == [
        "window: '[0s, 3 minutes]': not a window at column 8; write [FROM, TO], with units us, ms, s, min, h, d"
    ]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (("E04",), ["site.toml replaces the built-in edge E04"]),
        (("E07", "E04", "SITE1"), ["site.toml replaces the built-in edges E04, E07"]),
        (("SITE1",), []),
    ],
)
def test_check_says_which_built_in_edges_a_file_replaces(
    ids: tuple[str, ...],
    says: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(situations, "outcomes_of_lines", lambda *_: iter(()))
    path = tmp_path / "site.toml"
    texts = [site(tmp_path, id=name).read_text() for name in ids]
    path.write_text("".join(texts))
    assert load.replaced([path]) == says
    config = tmp_path / "faultline.toml"
    config.write_text(f"edges = [{str(path)!r}]\n")
    check_all(config, None)
    assert [line for line in capsys.readouterr().out.splitlines() if "replaces" in line] == [
        f"edges          {line}" for line in says
    ]


def test_a_built_in_edge_that_is_disabled_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('[[edge]]\nid = "E04"\ndisabled = true\n')
    assert load.replaced([path]) == []


@pytest.mark.parametrize(
    ("change", "used", "says"),
    [
        (
            {"id": "THEIRS", "text": "another"},
            {"THEIRS", "MINE"},
            "edge THEIRS: the id is taken by package a; it is left out",
        ),
        ({"prior": "high"}, {"THEIRS"}, "second.toml: edge -: ValueError: could not convert string to float: 'high'"),
        ({"scope": "same rack"}, {"THEIRS"}, "edge MINE: unknown scope 'same rack'; known: all its clients, "),
        ({"cause": ["run.failed"], "effect": ["disk.error"]}, {"THEIRS"}, "the edges form a cycle; it is left out"),
    ],
)
def test_what_is_wrong_in_a_packages_edges_is_left_out_and_stops_nobody(
    change: dict[str, object], used: set[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = site(tmp_path, "first", id="THEIRS")
    second = site(tmp_path, "second", **{"id": "MINE", **change})
    if "id" in change:
        second.write_text(second.read_text() + site(tmp_path, "third", id="MINE").read_text())
    monkeypatch.setattr(extensions, "_warned", {})
    monkeypatch.setattr(load, "edge_files", lambda: {first: "package a", second: "package b"})
    found, problems = load.load()
    edges = {edge.id: edge for edge in found}
    assert problems == [] and edges.keys() & {"THEIRS", "MINE"} == used and edges["THEIRS"].text == "a test"
    (warning,) = extensions.problems()
    assert warning.startswith("package b: second.toml: edge ") and says in warning
