"""A kind of fact has a home: one declaration has all that is special to it, and its name is written nowhere else."""

from __future__ import annotations

import ast
import string
import tomllib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NotRequired, get_origin, get_type_hints

import pytest

from correlator.engine import correlate
from correlator.evidence.weigh import Weigher
from correlator.facts import registry
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.silent_nodes import SWITCH_SILENT
from correlator.facts.world import World
from correlator.incidents.documents import verdict_document
from correlator.model import subjects
from correlator.model.attributes import HOSTS
from correlator.model.categories import CATEGORIES
from correlator.model.kinds import BUILT_IN_LANES, LANES, Cause, Grave, Kind, Lane, NoAttrs, fill, literal
from correlator.model.nouns import Fact, Revision
from correlator.model.unchanged import Unchanged
from correlator.verdicts.judge import judge
from parsers import extensions
from parsers.extensions import Extension
from parsers.patterns import load as catalogue_of
from store import open_store
from tests.correlator.making import event, run, world
from tests.correlator.rows import rows_of
from tests.correlator.situations import EDGES
from tests.syntax_trees import nodes_of
from web.shaping import LAYERS, layers

ROOT = Path(__file__).resolve().parents[3]
KINDS = sorted(registry.kinds().values(), key=lambda kind: kind.name)


def texts_of(kind: Kind) -> list[str]:
    """Every template of a declaration."""
    cause = kind.cause
    if cause is None:
        return [kind.brief]
    instead = (cause.instead.once, cause.instead.unhurt, cause.instead.switch)
    advice = [text for some in (cause.advice, *instead) for pair in some for text in pair if text]
    return [kind.brief, cause.title, cause.short, cause.plain, *advice]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_declaration_is_whole(kind: Kind) -> None:
    assert kind.layer in LANES
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


#: Names that are not of a kind only: the catalogue's events, the contract's root causes and categories use them as
#: well.
SHARED = (
    {row["event"] for path in (ROOT / "parsers/catalogue").glob("*.toml")
     for row in tomllib.loads(path.read_text())["pattern"] if "event" in row}
    | registry.event_names() | set(CATEGORIES)
)  # fmt: skip


def homes(names: Collection[str]) -> dict[str, set[Path]]:
    """Names of kinds -> the files in which they are written as a text of their own."""
    found: dict[str, set[Path]] = {}
    for room in ("correlator", "queries", "web", "collector", "store", "faultline"):
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if not any(name in text for name in names):
                continue  # most files: they need not be parsed
            for node in nodes_of(path):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
                    found.setdefault(node.value, set()).add(path.relative_to(ROOT))
    return found


def test_a_kinds_name_is_written_in_its_home_only() -> None:
    own = {kind.name for kind in KINDS} - SHARED
    assert len(own) > 30
    written = homes(own)
    assert {name: sorted(map(str, written[name])) for name in own if len(written[name]) != 1} == {}


def test_a_root_causes_name_is_written_beside_its_kind_only() -> None:
    """What depends on a root cause is a field of its declaration, not a table elsewhere."""
    own = {name for one in registry.causes() for name in (one.event, one.repeated) if name}
    own -= {entry.event for entry in catalogue_of().entries} | set(CATEGORIES)
    assert {"switch.failure", "node.reboot", "node.panic", "storage.outage"} <= own
    elsewhere = {
        name: sorted(str(path) for path in paths if path.parts[:2] != ("correlator", "facts"))
        for name, paths in homes(own).items()
    }
    assert {name: paths for name, paths in elsewhere.items() if paths} == {}


def test_what_special_facts_are_called_is_declared() -> None:
    """Software, categories and restarts of a root cause are looked up by its name."""
    assert registry.software_of("gpu.fabric_error") == registry.software_of("gpu.xid") != ()
    assert registry.software_of("node.reboot") and not registry.software_of("node.maintenance")
    assert registry.software_of("") == registry.software_of("no.such") == ()
    assert "gpu.fabric_error" in registry.names_of_category("infra.gpu")
    assert registry.restarts() == ("node.panic", "node.reboot")


def test_the_catalogue_has_the_events_that_declarations_name() -> None:
    known = {entry.event for entry in catalogue_of().entries}
    named = {*registry.signs(), *registry.grave(), *(event for kind in KINDS for event in kind.events)}
    assert named <= known


def required(declared: type) -> set[str]:
    """The attributes that each fact has. (With postponed annotations ``__required_keys__`` contains all.)"""
    hints = get_type_hints(declared, include_extras=True)
    return {name for name, hint in hints.items() if declared.__total__ and get_origin(hint) is not NotRequired}


#: Captures in which links, switches, nodes, daemons and jobs fail.
RECORDED = ["fabric_flap_long", "job_faults", "munge_dies", "node_reboot", "switch_down"]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ("munge_dies", "switch_down") else pytest.mark.long) for n in RECORDED]
)
def test_a_fact_is_what_its_kind_declares_and_nobody_changes_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts are frozen; their attributes are compared with those right after each detector concluded them."""
    made: dict[int, tuple[Fact, str]] = {}
    conclude = World.conclude

    def watched(world: World, found: Iterable[Fact | Revision]) -> None:
        listed = list(found)
        for one in listed:
            fact = one.fact if isinstance(one, Revision) else one
            made[id(fact)] = (fact, repr(fact.attrs))
        conclude(world, listed)

    monkeypatch.setattr(World, "conclude", watched)
    with open_store(None) as store:
        store.add(rows_of(ROOT / "tests" / "captures" / name))
        correlate(store)
    assert made
    for fact, before in made.values():
        assert repr(fact.attrs) == before, fact.kind
        declared = registry.kind_of(fact.kind).attrs
        assert required(declared) <= fact.attrs.keys() <= set(declared.__annotations__), fact.kind


def _of_a_package(detectors: Sequence[registry.Detector], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only these detectors run, all but the first of them of a package."""
    monkeypatch.setattr(registry, "detectors", lambda: tuple(detectors))
    monkeypatch.setattr(registry, "_brought", lambda: dict.fromkeys(detectors[1:], "harbour"))


def _downs(world: World) -> list[Fact]:
    made = [
        NODE_DOWN.fact(float(n), None, 0.0, f"n{n}", attrs={"said_by": "slurmctld", "unresumed": None}) for n in (1, 2)
    ]
    return [
        *made,
        SWITCH_SILENT.fact(3.0, 4.0, 0.0, "s1", attrs={"hosts": ["n1", "n2"], "until": 4.0, "unsaid": False}),
    ]


def _rewrites(world: World) -> list[Fact]:
    world.facts[0].attrs["said_by"] = "harbour"  # type: ignore[index]
    return []


def _appends(world: World) -> list[Fact]:
    world.facts[-1].attrs[HOSTS].append("n3")
    return []


def _removes(world: World) -> list[Fact]:
    world.facts.pop()
    return []


def _ends(world: World) -> list[Fact]:
    object.__setattr__(world.facts[0], "end", 7.0)
    object.__setattr__(world.facts[0], "host", "n9")
    object.__setattr__(world.facts[1], "attrs", None)
    return []


def _is_of_no_category(world: World) -> list[Fact]:
    return [_PUMPS.fact(6.0, None, 0.0, "n6")]


_PUMP = Cause("pump.stopped", "infra.node", "a pump of {host} stopped", "a pump stopped")
_PUMPS = Kind(
    "pump.stopped", "node", "Stopped.", NoAttrs, cause=_PUMP, variant=lambda _: replace(_PUMP, category="infra.pumps")
)


def _changes_and_fails(world: World) -> list[Fact]:
    _appends(world)
    raise OSError("no harbour")


def _concludes(world: World) -> list[Fact | Revision]:
    first = world.facts_of(NODE_DOWN.name)[0]
    return [Revision(first, replace(first, end=9.0)), Fact("node.drain", 5.0, None, 0.0, "n5")]


@pytest.mark.parametrize(
    ("detector", "why"),
    [
        (_rewrites, "it changed the attributes of a node.down of n1"),
        (_appends, "it changed the attributes of a switch.silent of s1"),
        (_removes, "it changed the list of facts"),
        (_ends, "it changed a node.down of n1"),
        (_is_of_no_category, "kind pump.stopped: there is no category 'infra.pumps', but infra.network"),
        (_changes_and_fails, "no harbour"),
    ],
)
def test_a_package_that_changes_facts_of_others_is_left_out_and_they_stay(
    detector: registry.Detector, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = world([])
    every = {**registry.kinds(), _PUMPS.name: _PUMPS}
    monkeypatch.setattr(registry, "kinds", lambda: every)
    _of_a_package([_downs, detector, _concludes], monkeypatch)
    monkeypatch.setattr(extensions, "_warned", {})
    found = registry.conclude(where)
    (left_out,) = where.left_out
    assert f"detector {detector.__name__} of harbour raised" in left_out and why in left_out
    assert [(fact.kind, fact.host, fact.end) for fact in found] == [
        ("node.down", "n1", 9.0), ("node.down", "n2", None), ("node.drain", "n5", None), ("switch.silent", "s1", 4.0),
    ]  # fmt: skip
    assert found[0].attrs == {"said_by": "slurmctld", "unresumed": None}
    assert found[-1].attrs == {"hosts": ["n1", "n2"], "until": 4.0, "unsaid": False}


@pytest.mark.parametrize("value", [
    Counter(n1=1), defaultdict(list, n1=["a"]), OrderedDict(n1={"a": 1}), deque([["a"]]), [Counter(n1=1)], ({"a"},), Revision,
])  # fmt: skip
def test_a_change_in_any_class_made_from_a_dict_a_list_or_a_set_is_undone(value: object) -> None:
    def changes(one: Any) -> None:
        for inner in one.values() if isinstance(one, dict) else one if isinstance(one, (list, tuple, deque)) else ():
            changes(inner)
        match one:
            case Counter():
                one["n2"] += 1
            case dict():
                one["n2"] = ["b"]
            case set():
                one.add("b")
            case list() | deque():
                one.append("b")

    first = Fact("node.down", 1.0, None, 0.0, "n1", attrs={"value": value})  # type: ignore[arg-type]
    before, was = Unchanged([first]), deepcopy(value)
    changes(value)
    if value is not Revision:  # a class has no items
        with pytest.raises(ValueError, match=r"it changed the attributes of a node\.down of n1"):
            before.check([first])
    (found,) = before.restored()
    assert found is first and found.attrs == {"value": was} and type(found.attrs["value"]) is type(was)  # type: ignore[index,comparison-overlap]
    before.check([first])


def test_an_own_field_of_a_fact_that_is_changed_is_found_and_undone() -> None:
    first = Fact("node.down", 1.0, None, 0.0, "n1")
    before = Unchanged([first])
    object.__setattr__(first, "end", 7.0)
    with pytest.raises(ValueError, match=r"it changed a node\.down of n1"):
        before.check([first])
    assert before.restored() == [first] and first.end is None


def _with_harbours(monkeypatch: pytest.MonkeyPatch, **declared: Any) -> list[str]:
    """A package declares this for events that built-in kinds declare already. Returns what is logged."""
    harbours = Kind("harbour.fact", "node", "Harbour.", NoAttrs, **declared)
    every = {**registry.kinds(), harbours.name: harbours}
    monkeypatch.setattr(registry, "kinds", lambda: every)
    logged: list[str] = []
    monkeypatch.setattr(extensions, "warn_once", lambda text, error=None: logged.append(text))
    return logged


def test_a_package_does_not_replace_what_built_in_kinds_say_of_their_events(monkeypatch: pytest.MonkeyPatch) -> None:
    signs, grave = registry.signs(), registry.grave()
    gone = Grave(lambda device, xid: None)
    logged = _with_harbours(
        monkeypatch,
        signs={"nic.link_up": "down", "harbour.shut": "down"},
        grave={"gpu.lost": gone, "harbour.shut": gone},
    )
    new_signs, new_grave = registry.signs.__wrapped__(), registry.grave.__wrapped__()
    assert new_signs["nic.link_up"] == signs["nic.link_up"] and new_signs["nic.link_up"][0] == "up"
    assert new_signs.keys() - signs.keys() == {"harbour.shut"} == new_grave.keys() - grave.keys()
    assert new_grave["gpu.lost"] == grave["gpu.lost"] and new_grave["harbour.shut"][0] is gone
    assert [text.partition(":")[0] for text in logged] == ["kind of fact harbour.fact"] * 2
    assert "'nic.link_up' of its signs is declared by link.outage, which is used" in logged[0]


def test_a_revision_takes_the_place_of_its_fact() -> None:
    where = world([])
    first, second = Fact("node.down", 1.0, None, 0.0, "n1"), Fact("node.down", 2.0, None, 0.0, "n2")
    where.conclude([second, first])
    better = Fact("node.down", 3.0, None, 0.0, "n1")
    where.conclude([Revision(first, better)])
    assert where.facts == [better, second] and where.facts_of("node.down") == [better, second]
    assert first.start == 1.0
    with pytest.raises(FrozenInstanceError):
        first.start = 3.0  # type: ignore[misc]


def test_two_subjects_cannot_declare_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.kinds.cache_clear()
    monkeypatch.setattr(registry, "subjects", lambda: (*registry.BUILT_IN, registry.BUILT_IN[0]))
    try:
        with pytest.raises(ValueError, match=r"links\.detector: the kind of fact 'link\.outage' is declared already"):
            registry.kinds()
    finally:
        registry.kinds.cache_clear()


def test_each_category_says_what_a_verdict_without_a_cause_needs() -> None:
    """Of a fault of the cluster, the cause says it; of every other end, the category."""
    assert {name for name, one in CATEGORIES.items() if not one.headline} == {
        n for n, one in CATEGORIES.items() if one.infra
    }
    assert len({one.words for one in CATEGORIES.values()}) == len(CATEGORIES)
    assert not [
        name
        for name, one in CATEGORIES.items()
        if one.your_code is not {"infra": False, "app": True}.get(name.split(".")[0])
    ]


@pytest.mark.parametrize(("name", "your_code"), [("infra.cooling", False), ("app.licence", True), ("user.quota", None)])
def test_a_verdict_of_a_category_that_a_removed_package_had_is_still_written(name: str, your_code: bool | None) -> None:
    where = world(
        [event("kernel.mce", t, "n1", "EDAC MC: Ver: 3.0.0") for t in (-800, 2000)], [run(1, ["n1"], -900, 350)]
    )
    weigher = Weigher(where, EDGES)
    (verdict,) = judge(where, weigher)
    verdict.category, verdict.headline, verdict.advice = name, "", ""
    written = verdict_document(where, weigher, verdict, None)
    assert (written["category"], written["your_code"], written["headline"]) == (name, your_code, "")
    assert written["advice"] == [] and written["change_my_mind"]


def test_operators_find_each_category_in_the_terms() -> None:
    terms = (ROOT / "docs/operations.md").read_text("utf-8").split("## Terms")[1]
    assert not [name for name in CATEGORIES if f"`{name}`" not in terms]


def test_a_family_of_events_is_on_one_lane() -> None:
    families = [family for lane in BUILT_IN_LANES for family in lane.families]
    assert sorted(families) == sorted(set(families))
    of_catalogue = {entry.event.split(".")[0] for entry in catalogue_of().entries if "." in entry.event}
    assert set(families) <= of_catalogue


@pytest.mark.parametrize(
    ("lane", "category", "reasons"),
    [
        ("storage", "infra.storage", []),
        ("disks", "infra.storage", ["no lane 'disks', but switch, link, gpu, storage, "]),
        ("storage", "infra.disk", ["no category 'infra.disk', but infra.network, infra.gpu, "]),
        ("disks", "infra.disk", ["no lane 'disks'", "no category 'infra.disk'"]),
        ("disks", None, ["no lane 'disks'"]),
    ],
)
def test_a_packages_kind_on_no_lane_or_of_no_category_is_refused_with_the_list(
    lane: str, category: str | None, reasons: list[str]
) -> None:
    module = ModuleType("harbour")
    cause = Cause("scratch.wiped", category, "scratch wiped", "x") if category else None
    module.KINDS = (Kind("scratch.wiped", lane, "Wiped.", NoAttrs, cause=cause),)  # type: ignore[attr-defined]
    module.DETECTORS = ()  # type: ignore[attr-defined]
    offered = Extension("faultline.facts", "harbour", "harbour", "harbour-site")
    if not reasons:
        assert subjects._admit(module, offered) == (offered.called, module)
        return
    with pytest.raises(ValueError, match=r"kind scratch\.wiped: ") as refused:
        subjects._admit(module, offered)
    assert all(reason in str(refused.value) for reason in reasons)


def _of_lane(lane: object) -> ModuleType:
    module = ModuleType("harbour")
    module.LANES = (lane,)  # type: ignore[attr-defined]
    module.KINDS = (Kind("pump.stopped", "cooling", "Stopped.", NoAttrs),)  # type: ignore[attr-defined]
    module.DETECTORS = ()  # type: ignore[attr-defined]
    return module


def test_a_packages_lane_stands_behind_the_one_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = Extension("faultline.facts", "harbour", "harbour", "harbour-site")
    module = _of_lane(Lane("cooling", "Cooling", after="storage"))
    assert subjects._admit(module, offered) == (offered.called, module)
    monkeypatch.setattr(subjects, "installed", lambda: (module,))
    layers.cache_clear()
    try:
        found = list(layers().items())
    finally:
        layers.cache_clear()
    at = found.index(("cooling", "Cooling"))
    assert found[at - 1][0] == "storage" and [item for item in found if item[0] != "cooling"] == list(LAYERS.items())


@pytest.mark.parametrize(
    ("lane", "reason"),
    [
        (
            Lane("cooling", "Cooling", after="racks"),
            "lane cooling: there is no lane 'racks' to follow, but switch, link,",
        ),
        (Lane("pumps", "Pumps", after="gpu"), "kind pump.stopped: there is no lane 'cooling', but switch, "),
        ("cooling", "is of type str, not Lane"),
    ],
)
def test_a_lane_that_cannot_be_drawn_is_refused(lane: object, reason: str) -> None:
    with pytest.raises((ValueError, TypeError), match=reason):
        subjects._admit(_of_lane(lane), Extension("faultline.facts", "harbour", "harbour", "harbour-site"))
