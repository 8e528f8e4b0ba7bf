"""Slurm's node states: the meaning of each spelling, and that no other code lists them."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from pathlib import Path

import duckdb
import pytest

from parsers.node_states import BASE_STATES, FLAGS, POWER_FLAGS, SUFFIXES, WORDS, kind_of_state, node_state, pattern_of
from queries.kql import run
from store import open_store
from web.shaping import state_kind

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("parsers", "store", "collector", "correlator", "queries", "web", "faultline")
HOME = ROOT / "parsers" / "node_states.py"


@pytest.mark.parametrize(("text", "base", "flags"), [
    ("IDLE", "IDLE", set()), ("idle+drain", "IDLE", {"DRAIN"}), ("IDLE+CLOUD+POWERED_DOWN", "IDLE", {"CLOUD", "POWERED_DOWN"}),
    ("DOWN*+DRAIN", "DOWN", {"DRAIN", "NOT_RESPONDING"}), ("DOWN+DRAIN+NOT_RESPONDING", "DOWN", {"DRAIN", "NOT_RESPONDING"}),
    ("drained*", None, {"DRAIN", "NOT_RESPONDING"}), ("drng", None, {"DRAIN"}), ("draining@", None, {"DRAIN", "REBOOT_REQUESTED"}),
    ("mix-", "MIXED", {"PLANNED"}), ("alloc+", "ALLOCATED", {"COMPLETING"}), ("idle~", "IDLE", {"POWERED_DOWN"}),
    ("mixed#", "MIXED", {"POWERING_UP"}), ("idle!", "IDLE", {"POWER_DOWN"}), ("idle%", "IDLE", {"POWERING_DOWN"}),
    ("down$", "DOWN", {"MAINTENANCE"}), ("down^", "DOWN", {"REBOOT_ISSUED"}), ("maint", None, {"MAINTENANCE"}),
    ("failg", None, {"FAIL"}), ("DOWN and POWERED_DOWN", "DOWN", {"POWERED_DOWN"}), ("inval", None, {"INVALID_REG"}),
    ("", None, set()), ("A_STATE_OF_TOMORROW", None, set()), ("A_STATE_OF_TOMORROW*", None, {"NOT_RESPONDING"}),
])  # fmt: skip
def test_what_a_text_says(text: str, base: str | None, flags: set[str]) -> None:
    state = node_state(text)
    assert (state.base, state.flags) == (base, flags)


@pytest.mark.parametrize(("listed", "short"), [
    ("DOWN+NOT_RESPONDING", "down*"), ("IDLE+NOT_RESPONDING", "idle*"), ("IDLE+DRAIN", "drained"), ("ALLOCATED+DRAIN", "drng"),
    ("IDLE+MAINTENANCE", "maint"), ("IDLE+FAIL", "fail"), ("ALLOCATED+FAIL", "failing"), ("MIXED", "mix"), ("IDLE+POWERED_DOWN", "idle~"),
    ("DOWN+DRAIN+NOT_RESPONDING", "down*"), ("UNKNOWN+INVALID_REG", "inval"),
])  # fmt: skip
def test_a_page_shows_what_scontrol_lists_as_what_sinfo_prints(listed: str, short: str) -> None:
    assert state_kind(listed) == state_kind(short)


@pytest.mark.parametrize(("text", "kind"), [
    ("down*", "down"), ("DOWN", "down"), ("error", "down"), ("idle*", "silent"), ("drained*", "silent"), ("mixed", "busy"),
    ("idle", "idle"), ("IDLE+CLOUD+POWERED_DOWN", "off"), ("draining", "drain"), ("maint", "drain"), ("", "unknown"), ("UP", "up"),
    ("UNKNOWN", "unknown"), ("unk", "unknown"), ("FUTURE", "unknown"), ("ALLOCATED", "busy"), ("reboot^", "drain"),
])  # fmt: skip
def test_how_a_page_draws_a_state(text: str, kind: str) -> None:
    assert state_kind(text) == kind


@pytest.mark.parametrize(("text", "kind"), [
    ("failg", "failed"), ("IDLE+FAIL", "failed"), ("UNKNOWN+INVALID_REG", "failed"), ("DOWN+FAIL", "down"), ("alloc+", "busy"),
    ("UNKNOWN+COMPLETING", "unknown"), ("comp", "busy"), ("resv", "up"), ("UNKNOWN+RESERVED", "up"), (" up ", "up"), ("upper", "unknown"),
    ("A_STATE_OF_TOMORROW*", "silent"), ("MIXED+PLANNED", "busy"), ("IDLE+COMPLETING", "idle"),
])  # fmt: skip
def test_what_a_state_says_of_the_service_of_a_node(text: str, kind: str) -> None:
    assert kind_of_state(text) == kind


def test_a_node_that_saves_power_is_not_down() -> None:
    assert not any(node_state(f"IDLE+{flag}").is_down for flag in POWER_FLAGS)
    assert node_state("DOWN+POWERED_DOWN").is_down


@pytest.mark.parametrize(("text", "is_up"), [
    ("IDLE", True), ("alloc", True), ("mixed-", True), ("IDLE+PLANNED", True), ("IDLE+MAINTENANCE", True), ("powering_up", True),
    ("idle*", False), ("IDLE+DRAIN", False), ("drng", False), ("failing", False), ("IDLE+CLOUD+POWERED_DOWN", False), ("idle~", False),
    ("FUTURE", False), ("unk", False), ("idle@", False), ("DOWN", False),
])  # fmt: skip
def test_which_nodes_are_expected_to_speak(text: str, is_up: bool) -> None:
    assert node_state(text).is_up == is_up


def test_every_word_names_a_state() -> None:
    assert set(WORDS.values()) == BASE_STATES | FLAGS and set(SUFFIXES.values()) <= FLAGS and not BASE_STATES & FLAGS


@pytest.mark.parametrize("name", sorted({"DOWN", "DRAIN", "FAIL", "MAINTENANCE"} | POWER_FLAGS))
def test_the_pattern_finds_the_words_that_the_reader_finds(name: str) -> None:
    """In DuckDB, over each word alone, with a suffix, after a base state and before a flag, in both cases."""
    texts = [
        made for word in WORDS for spelled in (word, word.lower())
        for made in (spelled, f"{spelled}*", f"idle+{spelled}", f"{spelled}+CLOUD")
    ]  # fmt: skip
    found = duckdb.execute(
        "SELECT text FROM (SELECT unnest(?) AS text) WHERE regexp_matches(text, ?)", [texts, pattern_of([name])]
    )
    expected = [t for t in texts if name in node_state(t).flags or node_state(t.removeprefix("idle+")).base == name]
    assert sorted(text for (text,) in found.fetchall()) == sorted(expected) and expected


def every_notation() -> list[str]:
    """Each word alone, with each suffix, and each base state with one or two flags."""
    texts = [f"{word}{mark}" for word in (*WORDS, "UP", "TOMORROW", "") for mark in ("", *SUFFIXES)]
    for base in BASE_STATES:
        texts += [f"{base}+{flag}" for flag in FLAGS] + [
            f"{base}+{one}+{two}" for one, two in combinations(sorted(FLAGS), 2)
        ]
    return [spelled for text in texts for spelled in (text, text.lower())]


def test_a_query_reads_a_state_as_the_pages_do() -> None:
    texts = every_notation()
    store = open_store(None)
    found = run(
        store.cursor(), "declare query_parameters(t:dynamic); print t | mv-expand t to typeof(string) | project node_state_kind(t)",
        parameters={"t": texts}, max_rows=len(texts),
    )  # fmt: skip
    assert [kind for (kind,) in found.rows] == [kind_of_state(text) for text in texts] and len(texts) > 3000


#: Words that also mean something other than a node's state, with that meaning. A set of these alone is no list of node
#: states.
AMBIGUOUS = {"UP", "UNKNOWN", "DOWN"}
TESTS = {"startswith", "endswith", "contains", "like", "ilike"}


#: The beginning of a string of such words. A file without one need not be parsed.
BEGINNING = re.compile(rf"[\"'][\s|%]*(?:{'|'.join(map(re.escape, WORDS))})\b", re.IGNORECASE)


def lists_of_states(text: str) -> list[int]:
    """Lines on which a source text lists node states, or compares one with a text.

    A list is a tuple, list or set, or a string of such words only.
    """
    found: list[int] = []
    if not BEGINNING.search(text):
        return found
    nodes = list(ast.walk(ast.parse(text)))
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            names = {i.value.upper() for i in node.elts if isinstance(i, ast.Constant) and isinstance(i.value, str)}
            hit = len(names & WORDS.keys()) > 1 and names & WORDS.keys() - AMBIGUOUS
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            words = set(node.value.upper().replace("|", " ").split())
            hit = len(words) > 1 and words <= WORDS.keys()
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            hit = isinstance(node.left, ast.Constant) and str(node.left.value).upper() in WORDS
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TESTS:
            hit = any(isinstance(a, ast.Constant) and str(a.value).strip("%").upper() in WORDS for a in node.args)
        else:
            continue
        if hit:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(("text", "is_list"), [
    ('X = ("down", "drained")', True), ('X = {"DRAIN", "FAIL"}', True), ('bad = "drain" in state', True), ('ok = "down" not in state', True),
    ('s.startswith("idle")', True), ('s.like("%drain%")', True), ('X = "drain|fail|maint"', True), ('X = ("UP", "DOWN")', False),
    ('"""DOWN or DRAIN."""', False), ('X = "the node is down"', False), ('X = ("down", "other")', False), ('X = {"down": 1, "drain": 2}', False),
])  # fmt: skip
def test_what_counts_as_a_list_of_states(text: str, is_list: bool) -> None:
    """A mapping from states to something else is no list of them."""
    assert bool(lists_of_states(text)) == is_list


#: What looks like a list of node states, and what it is.
OTHERS = {
    "collector/agent/slurm_setup/conf_side.py": "what scontrol says of a node that slurmctld does not take; the agent imports no parser",
    "correlator/facts/power_saving.py": "what slurmctld's lines about power call the order",
    "store/duckdb/drains.py": "the words of the table Drains, by precedence",
    "web/shaping.py": "the kinds of bands on a page",
}


def test_nothing_else_lists_states() -> None:
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path != HOME]
    found: dict[str, list[int]] = {}
    for path in sources:
        if lines := lists_of_states(path.read_text("utf-8")):
            found[path.relative_to(ROOT).as_posix()] = lines
    assert len(sources) > 300
    assert found.keys() == OTHERS.keys(), (found, "ask parsers.node_states")
    assert all(len(lines) <= 2 for lines in found.values()), found
