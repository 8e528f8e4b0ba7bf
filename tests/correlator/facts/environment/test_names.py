"""Programs that find no address for a name: the node's resolver, what all nodes share, or a name that no host has."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.evidence.weigh import Weigher
from correlator.facts.host_names import HostNames
from correlator.site.site import Inventory
from correlator.verdicts.judge import judge
from correlator.verdicts.verdict import Verdict
from tests.correlator.field import APP, UNKNOWN, Situation, concluded, ended, heard, wrong
from tests.correlator.making import event, run, world
from tests.correlator.situations import EDGES

CONFIGURED = Inventory([{"name": "NodeName:gpu[01-20]", "value": "CPUs=8", "scope": ""}], [], [])
FAILED = "[Errno -3] Temporary failure in name resolution"


def judged(
    *failed: tuple[str, str, str], label: str = "", well: tuple[tuple[str, str], ...] = (), **more: Any
) -> list[Verdict]:
    """Verdicts on jobs that failed in the same seconds: user, node and the name that each did not find; and others
    (user, node) that ended well meanwhile."""
    hosts = [node for _, node, _ in failed] + [node for _, node in well]
    lines = [event("kernel.mce", t, host, "EDAC MC: Ver: 3.0.0") for host in sorted(set(hosts)) for t in (-800, 800)]
    runs = []
    for number, (user, node, name) in enumerate(failed, 1):
        message = f"{label.format(node)}ConnectionError: no features from {name}:24567 at step 0: {FAILED}"
        lines.append(event("job.exit_error", 99, None, message, source="job_stderr", job_id=number))
        runs.append(run(number, [node], 0, 100 + number / 10, user=user, name="train", exit_code=1))
    for number, (user, node) in enumerate(well, 100):
        runs.append(run(number, [node], 0, 110, "COMPLETED", user=user, name="train"))
    where = world(lines, runs, **{"inventory": CONFIGURED, **more})
    return judge(where, Weigher(where, EDGES))


def test_a_name_that_no_node_has_is_a_mistake_and_no_doubt_about_another_users_node() -> None:
    right, wrong = judged(("ada", "gpu03", "gpu01-hsn"), ("eve", "gpu02", "gpu1-hsn"), well=(("ada", "gpu02"),))
    assert (right.category, wrong.category) == ("unknown", "app.error")
    assert "gpu03 resolves no names (1 of 1 jobs of its user on gpu03 failed so, 0 of 1 elsewhere)" in right.reason
    assert wrong.reason.endswith("gpu1-hsn, which it names, is no node of slurm.conf")
    assert wrong.at_most == 0.7


@pytest.mark.parametrize("label", ["[{}] ", "{}: ", "{}: rank 0: "])
def test_the_label_of_a_line_is_no_name_that_it_asked_for(label: str) -> None:
    for name in ("gpu1-hsn", "my-typo"):
        (alone,) = judged(("eve", "gpu03", name), label=label)
        assert alone.category == "app.error"
    (right,) = judged(("eve", "gpu03", "gpu01-hsn"), label=label)
    assert (right.category, "gpu03 resolves no names" in right.reason) == ("unknown", True)


def test_a_rank_that_is_called_like_a_node_is_none() -> None:
    (verdict,) = judged(("eve", "gpu03", "data.example.org"), label="[gpu0] ")
    assert (verdict.category, "slurm.conf" in verdict.reason) == ("app.error", False)
    assert verdict.at_most > 0.7


def test_names_like_the_nodes_that_two_users_do_not_find_on_one_node_are_no_mistakes() -> None:
    """They may be nodes of another cluster, or dynamic ones: the node's resolver is in question all the same."""
    well = tuple((user, node) for user in ("ada", "ben") for node in ("gpu05", "gpu06", "gpu07"))
    verdicts = judged(("ada", "gpu03", "gpu150"), ("ben", "gpu03", "gpu01-hsn"), well=well)
    assert {(v.category, v.root and v.root.host) for v in verdicts} == {("infra.node", "gpu03")}


def test_names_that_exist_fail_on_several_nodes_for_what_they_share() -> None:
    for name in ("gpu01-hsn", "data.example.org"):
        verdicts = judged(("ada", "gpu03", name), ("eve", "gpu02", "gpu04"))
        assert [v.category for v in verdicts] == ["unknown", "unknown"]
        assert "several nodes resolve no names (the same error on 2 nodes for 2 users)" in verdicts[0].reason


def test_two_users_names_on_one_node_are_its_resolvers() -> None:
    users = ("ada", "ben", "eve")
    well = tuple((user, node) for user in users for node in ("gpu05", "gpu06", "gpu07"))
    verdicts = judged(*((user, "gpu03", "gpu01-hsn") for user in users), well=well)
    assert {(v.category, v.root and v.root.host) for v in verdicts} == {("infra.node", "gpu03")}
    unlisted = judged(*((user, "gpu03", "gpu1-hsn") for user in users), well=well)
    assert {(v.category, v.root and v.root.host) for v in unlisted} == {("infra.node", "gpu03")}


def test_one_users_name_is_no_nodes_fault_if_it_fails_elsewhere_too() -> None:
    verdicts = judged(("ada", "gpu03", "gpu01-hns"), ("ada", "gpu02", "gpu01-hns"))
    assert {v.category for v in verdicts} == {"app.error"}


def test_without_the_nodes_of_slurm_conf_no_name_is_called_a_mistake() -> None:
    verdicts = judged(("ada", "gpu03", "gpu1-hsn"), ("eve", "gpu02", "gpu04"), inventory=None)
    assert {v.category for v in verdicts} == {"unknown"}


NAMES = HostNames(["gpu01", "gpu02", "r1n05"], ["ctl", "nas1", "login-a"], {"10.0.0.1": "gpu01"})


@pytest.mark.parametrize(
    ("text", "hosts", "misspelt"),
    [
        ("no answer from gpu01:80", ["gpu01"], None),
        ("no answer from GPU01.our.site", ["gpu01"], None),
        ("no answer from gpu02-ib0 and hsn-gpu01", ["gpu02", "gpu01"], None),
        ("no answer from 10.0.0.1:80", ["gpu01"], None),
        ("no answer from login-a", ["login-a"], None),
        ("http://nas1/x on /srv/gpu01/y", ["nas1"], None),
        ("no answer from gpu1", [], "gpu1"),
        ("no answer from gpu001-hsn:80", [], "gpu001-hsn"),
        ("no answer from r1n06", [], "r1n06"),
        ("no answer from gpu03.example.org", [], None),
        ("no answer from nas2", [], None),
        ("rank0 at step1 on eth0 found no licence-server", [], None),
        ("gpu1 asked gpu01", ["gpu01"], None),
    ],
)
def test_what_a_line_names(text: str, hosts: list[str], misspelt: str | None) -> None:
    assert (NAMES.hosts_in(text), NAMES.misspelt_in(f"{text}: {FAILED}")) == (hosts, misspelt)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"no features from gpu1-hsn:24567 at step 0: {FAILED}", "gpu1-hsn"),
        (f"gpu01: rank 0: gpu1-hsn: {FAILED}", "gpu1-hsn"),
        ("ssh: Could not resolve hostname my-typo: Name or service not known", "my-typo"),
        ("curl: (6) Could not resolve host: data.example.org", "data.example.org"),
        ("Error: getaddrinfo EAI_AGAIN gpu3", "gpu3"),
        (f"urllib3: Failed to resolve 'hub.example.org' ({FAILED})", "hub.example.org"),
        (f"[gpu01] https://data.example.org: {FAILED}", "data.example.org"),
        (f"gpu01: socket.gaierror: {FAILED}", "socket.gaierror"),
        ("gpu7: no route to host", None),
        (FAILED, None),
    ],
)
def test_the_name_that_an_error_of_the_resolver_is_about(text: str, name: str | None) -> None:
    assert NAMES.not_found_in(text) == name


def test_nodes_of_the_run_hide_no_misspelt_name() -> None:
    text = f"[gpu01] no features from gpu1-hsn:24567: {FAILED}"
    assert NAMES.misspelt_in(text) is None
    assert NAMES.misspelt_in(text, ["gpu01"]) == "gpu1-hsn"
    assert NAMES.misspelt_in(f"[gpu01] http://data.example.org:80/x by gpu7:80: {FAILED}", ["gpu01"]) is None


# -- srun itself ---------------------------------------------------------------------------------------------------------
GONE = "srun: error: get_addr_info: getaddrinfo() failed: Temporary failure in name resolution"
NO_ADDRESS = (
    "srun: error: Task launch for StepId={{{0}}}.0 failed on node gpu01: Can't find an address, check slurm.conf"
)
LAUNCH = "srun: error: Application launch failed: Can't find an address, check slurm.conf"
ENVIRONMENT = ("infra.node", "node.environment", "gpu01")


def unresolved(job: int, at: str) -> tuple[str, ...]:
    """What srun prints where it finds no address for the node that it runs on."""
    return tuple(f"{at} {{{job}}} stderr: {text}" for text in (GONE, NO_ADDRESS.format(job), LAUNCH))


def short(user: str, state: str = "FAILED", node: str = "gpu01", **more: Any) -> dict[str, Any]:
    code = {"exit_code": 244} if state == "FAILED" else {}
    return ended(state, nodes=node, start="-13s", user=user, name="mesh", **code, **more)


SITUATIONS = [
    heard(
        "two users' sruns find no address on one node",
        [*unresolved(0, "-1s"), *unresolved(1, "-1s")],
        (short("ada"), short("eve"), short("ada", "COMPLETED", "gpu02")),
        (ENVIRONMENT, ENVIRONMENT, None),
        at_most=0.85,
    ),
    heard("one user's srun finds no address", [*unresolved(0, "-1s")], (short("ada"),), (UNKNOWN,), at_most=0.7),
    heard(
        "two users' sruns find no address, on two nodes",
        [*unresolved(0, "-1s"), *(line.replace("gpu01", "gpu02") for line in unresolved(1, "-1s"))],
        (short("ada"), short("eve", node="gpu02"), short("ada", "COMPLETED", "gpu03")),
        (UNKNOWN, UNKNOWN, None),
        ("node.environment",),
    ),
    heard(
        "one user's program prints srun's words, and fails by an error of its own",
        [*unresolved(0, "-5s"), "-1s {0} stderr: KeyError: 'train_loss'", "-1s {1} stderr: KeyError: 'train_loss'"],
        (short("ada"), short("eve"), short("ada", "COMPLETED", "gpu02")),
        (APP, APP, None),
        ("node.environment",),
    ),
]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation_of_sruns_own_names(situation: Situation) -> None:
    assert wrong(situation, *concluded([situation])[situation.name]) == []
