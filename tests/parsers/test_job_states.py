"""Slurm's job states: the meaning of each for a run, and that no other code lists them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from parsers.documents import slurm_json
from parsers.job_states import (
    HELD,
    JOB_STATES,
    MAY_RUN_AGAIN,
    NOT_ENDED,
    NOT_FAILED,
    NOT_STARTED,
    OPEN,
    base_state,
    phase_of,
    same_end,
)
from parsers.node_states import WORDS as NODE_WORDS
from queries import saved
from queries.dashboards import all_dashboards
from queries.kql import run
from store import open_store

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("parsers", "store", "collector", "correlator", "queries", "web", "faultline")
HOME = ROOT / "parsers" / "job_states.py"
#: The output of `job_state_string_compact` in slurm's src/common/slurm_protocol_defs.c.
COMPACT = {
    "PD": "PENDING", "R": "RUNNING", "S": "SUSPENDED", "CD": "COMPLETED", "CA": "CANCELLED", "F": "FAILED", "TO": "TIMEOUT",
    "NF": "NODE_FAIL", "PR": "PREEMPTED", "BF": "BOOT_FAIL", "DL": "DEADLINE", "OOM": "OUT_OF_MEMORY", "CG": "COMPLETING",
    "SO": "STAGE_OUT", "CF": "CONFIGURING", "RS": "RESIZING", "RQ": "REQUEUED", "RF": "REQUEUE_FED", "RH": "REQUEUE_HOLD",
    "SE": "SPECIAL_EXIT", "ST": "STOPPED", "RV": "REVOKED", "RD": "RESV_DEL_HOLD", "SI": "SIGNALING",
}  # fmt: skip


def test_every_state_has_slurms_compact_form() -> None:
    assert {state.compact: state.name for state in JOB_STATES.values() if state.compact} == COMPACT


@pytest.mark.parametrize(("state", "is_open", "is_failed"), [
    ("PENDING", True, False), ("RUNNING", True, False), ("SUSPENDED", True, False), ("RESIZING", True, False),
    ("CONFIGURING", True, False), ("COMPLETING", True, False), ("STOPPED", True, False), ("SIGNALING", True, False),
    ("", True, False), ("COMPLETED", False, False), ("CANCELLED", False, True), ("FAILED", False, True),
    ("TIMEOUT", False, True), ("NODE_FAIL", False, True), ("PREEMPTED", False, True), ("BOOT_FAIL", False, True),
    ("DEADLINE", False, True), ("OUT_OF_MEMORY", False, True), ("REQUEUED", False, True), ("A_STATE_OF_TOMORROW", False, True),
])  # fmt: skip
def test_what_a_state_says_of_the_end_of_a_run(state: str, is_open: bool, is_failed: bool) -> None:
    assert (state in OPEN, state not in NOT_FAILED) == (is_open, is_failed)


@pytest.mark.parametrize(("state", "has_start", "has_end"), [
    ("PENDING", False, False), ("REQUEUED", False, False), ("RUNNING", True, False), ("SUSPENDED", True, False),
    ("CONFIGURING", True, False), ("RESIZING", True, False), ("COMPLETING", True, True), ("COMPLETED", True, True),
    ("FAILED", True, True),
])  # fmt: skip
def test_which_times_of_a_job_are_more_than_an_estimate(state: str, has_start: bool, has_end: bool) -> None:
    assert (state not in NOT_STARTED, state not in NOT_ENDED) == (has_start, has_end)


def test_in_which_states_a_job_waits_until_somebody_releases_it() -> None:
    assert {"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "LAUNCH_FAILED"} == HELD


def test_which_ends_another_run_may_follow() -> None:
    assert {state for state in MAY_RUN_AGAIN if state not in {"REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "LAUNCH_FAILED"}} == {
        "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
    }  # fmt: skip


@pytest.mark.parametrize(("listed", "base"), [
    (["RUNNING"], "RUNNING"), (["NODE_FAIL", "COMPLETING"], "NODE_FAIL"), (["RESIZING", "RUNNING"], "RUNNING"),
    (["PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"], "PENDING"), (["COMPLETED", "STAGE_OUT"], "COMPLETED"),
    (["REVOKED"], "REVOKED"), (["COMPLETING", "REQUEUED"], "COMPLETING"), ([], None),
])  # fmt: skip
def test_the_base_state_among_flags(listed: list[str], base: str | None) -> None:
    assert base_state(listed) == base == slurm_json._state(listed)


@pytest.mark.parametrize(("state", "like"), [
    ("BOOT_FAIL", "NODE_FAIL"), ("DEADLINE", "TIMEOUT"), ("REVOKED", "CANCELLED"), ("REQUEUE_HOLD", "REQUEUED"),
    ("LAUNCH_FAILED", "REQUEUED"), ("FAILED", "FAILED"), ("A_STATE_OF_TOMORROW", "A_STATE_OF_TOMORROW"),
])  # fmt: skip
def test_states_of_one_kind_of_end(state: str, like: str) -> None:
    assert same_end(state) == like


def lists_of_states(text: str) -> list[int]:
    """Lines on which a source text lists states: elements of a tuple, list or set, or words of one string."""
    found: list[int] = []
    if len(JOB_STATES.keys() & set(re.findall(r"\w+", text))) < 2:
        return found  # most files: they need not be parsed
    nodes = list(ast.walk(ast.parse(text)))
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            names = [item.value for item in node.elts if isinstance(item, ast.Constant) and item.value in JOB_STATES]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            names = [word for word in re.findall(r"\w+", node.value) if word in JOB_STATES]
        else:
            continue
        if len(set(names)) > 1:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(("text", "is_list"), [
    ('X = ("RUNNING", "PENDING")', True), ('X = frozenset({"FAILED", "TIMEOUT", ""})', True), ('X = "FAILED TIMEOUT".split()', True),
    ('ok = state in ["COMPLETED", "CANCELLED"]', True), ('KIND = {"FAILED": 1, "TIMEOUT": 2}', False), ('"""RUNNING or PENDING."""', False),
    ('X = (("FAILED", 1), ("TIMEOUT", 2))', False), ('X = ("RUNNING", "other")', False),
])  # fmt: skip
def test_what_counts_as_a_list_of_states(text: str, is_list: bool) -> None:
    """A mapping from states to something else is no list of them."""
    assert bool(lists_of_states(text)) == is_list


def test_nothing_else_lists_states() -> None:
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path != HOME]
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in sources for line in lists_of_states(path.read_text("utf-8"))
    ]
    pages = list((ROOT / "web" / "templates").rglob("*.html"))
    assert len(sources) > 300 and len(pages) > 10
    for path in pages:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if len(JOB_STATES.keys() & set(re.findall(r'["\'](\w+)["\']', line))) > 1:
                found.append(f"{path.relative_to(ROOT)}:{number}")
    assert not found, "read them from parsers.job_states"


def test_a_query_reads_a_state_as_the_program_does() -> None:
    states = [*JOB_STATES, "A_STATE_OF_TOMORROW", "CANCELLED by 1000", ""]
    found = run(
        open_store(None).cursor(),
        "declare query_parameters(t:dynamic); print t | mv-expand t to typeof(string) | project job_phase(t), job_end_state(t)",
        parameters={"t": states},
    )
    plain = [state.split(" ")[0] for state in states]
    assert [tuple(row) for row in found.rows] == [
        (phase_of(state).value if state else "", same_end(state)) for state in plain
    ]


#: Every word for a state of a job or a node, in upper case; what a table of ours or a query calls its own columns is none.
WORDS = JOB_STATES.keys() | {word for word in NODE_WORDS if word not in ("UP", "UNKNOWN")}
COMPARED = re.compile(r"State\s*(?:!?in~?|!?has_any|has_all)\s*\(([^)]*)\)|State\s*\S+\s*(\"[^\"]*\")")


def states_by_hand(text: str) -> list[str]:
    """States that a query lists, in one comparison or in several with the same sense."""
    return [
        word
        for group, one in COMPARED.findall(text)
        for word in re.findall(r"\w+", (group or one).upper())
        if word in WORDS
    ]


@pytest.mark.parametrize(("text", "listed"), [
    ('| where State in ("FAILED", "TIMEOUT")', 2), ('| where State !in ("COMPLETED", "")', 1), ('State has_any ("down", "drain")', 2),
    ('State == "FAILED" or State == "TIMEOUT"', 2), ('State startswith "down" or State endswith "*"', 1), ('job_phase(State) in ("failed", "stopped")', 0),
    ('node_state_kind(State) in ("down", "drain")', 0), ('Severity in ("error", "crit")', 0), ('State == ""', 0),
])  # fmt: skip
def test_what_counts_as_states_by_hand(text: str, listed: int) -> None:
    assert len(states_by_hand(text)) == listed


#: Shipped queries that compare the state itself with one word, and why no phase would do.
OWN = {
    "job_exit_codes": "FAILED: the exit code is that of the job's own program", "jobs_cancelled": "CANCELLED: by a person",
    "drain_history": "drained: a word of the table Drains",
}  # fmt: skip


def test_no_shipped_query_lists_states() -> None:
    """Saved queries and panels of dashboards; ``job_phase`` and ``node_state_kind`` tell more."""
    texts = {name: saved.load(name).text for name in saved.names()}
    dashboards, problems = all_dashboards((), saved.library()[0])
    texts |= {
        f"{one.name}: {panel.title}": panel.query
        for one in dashboards.values()
        for panel in one.panels
        if not panel.saved
    }
    assert len(texts) > 85 and not problems
    found = {name: words for name, text in texts.items() if (words := states_by_hand(text))}
    assert {name for name in found if ":" not in name} == OWN.keys() and all(
        len(words) == 1 for words in found.values()
    ), found
    assert not [name for name in found if ":" in name], found
