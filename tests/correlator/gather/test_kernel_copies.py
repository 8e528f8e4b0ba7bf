"""What other files show about a line in the kernel's name: a copy with the facility of a program, or the silence of the
node's own files."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from correlator.gather.kernel_copies import is_own
from tests.correlator.attacked import _TREE
from tests.correlator.erins_job import (
    BARE,
    CONFIRMED,
    FITTING,
    HERS,
    QUIET,
    RING,
    RING_ALIVE,
    SACCT,
    SYSLOG,
    WITHOUT,
    XID,
    bsd,
    concluded,
    in_both_ways,
    of_erin,
)

CENTRAL = "nodes/ctl/central.log"
#: gx02's own syslog goes on around 10:19:55.
ALIVE = bsd("10:15:00", "systemd[1]: Started Session 3 of user root.") + bsd(
    "10:22:00", "systemd[1]: Started Session 4 of user root."
)
DENIED, OF_USER = "gx02's own syslog was collected over that minute and does not have the line", "a user wrote it"


def central(clock: str, text: str, priority: str = "kern.err", program: str = "kernel") -> str:
    """A line of gx02 in the file of a log host that keeps facilities."""
    stamp = f"2026-02-28T{clock}+00:00"
    return f"{stamp} {stamp} gx02 {priority} {program} {text}\n"


SENT = central("10:19:55", XID)
#: A line of this kernel that passed through both.
PASSED = {CENTRAL: central("09:59:00", QUIET), SYSLOG: bsd("09:59:00", f"kernel: {QUIET}")}


def both(*some: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for files in some:
        for name, text in files.items():
            found[name] = found.get(name, "") + text
    return found


class Case(NamedTuple):
    """``kind``: what the other files show; ``blamed``: the lowest and the highest confidence with which the GPU is blamed,
    None if it is not; ``why``: what the verdict says of the line."""

    kind: str
    files: dict[str, str]
    blamed: tuple[float, float] | None
    why: str = ""


CASES = {
    "only the log host's file was collected then": Case("no file of its own", {CENTRAL: SENT}, (0.9, 1.0)),
    "the node's own file goes on without it": Case("its own file goes on", {SYSLOG: ALIVE, CENTRAL: SENT}, None, DENIED),
    "others of this kernel passed through both": Case("its own file goes on", both(PASSED, {SYSLOG: ALIVE, CENTRAL: SENT}), None, DENIED),
    "the node's own file has it": Case("its own file has it", {SYSLOG: ALIVE + bsd("10:19:55", f"kernel: {XID}"), CENTRAL: SENT}, (0.9, 1.0)),
    "the node's own file has it by a clock that was set": Case(
        "its own file has it by another clock", {SYSLOG: ALIVE + bsd("10:16:30", f"kernel: {XID}"), CENTRAL: SENT}, (0.9, 1.0)
    ),
    "the node's own file got no other line of this kernel either": Case(
        "its own file gets no such lines", {SYSLOG: ALIVE, CENTRAL: central("09:59:00", QUIET) + SENT}, (0.5, 0.5), "nor earlier"
    ),
    "only a less important one that it did not get": Case(
        "its own file gets no less important ones", {SYSLOG: ALIVE, CENTRAL: central("09:58:00", "audit: x", "kern.debug") + SENT}, None, DENIED
    ),
    "a less important one that it did not get": Case(
        "its own file gets no less important ones", both(PASSED, {SYSLOG: ALIVE, CENTRAL: central("09:58:00", "audit: x", "kern.debug") + SENT}), None, DENIED
    ),
    "the node's own file begins long before": Case(
        "its own file lacks that minute", {SYSLOG: bsd("10:22:00", "systemd[1]: Started Session 4."), CENTRAL: SENT}, (0.9, 1.0)
    ),
    "the node booted before its own file went on": Case(
        "a boot", {SYSLOG: ALIVE + bsd("10:21:30", "kernel: Linux version 6.1.0-18-amd64 (builder@host) (gcc-12) #1 SMP"), CENTRAL: SENT},
        (0.5, 1.0),
    ),
    "an own file that holds no lines of the kernel": Case(
        "its own file has other lines", {"nodes/gx02/cron.log": ALIVE, CENTRAL: SENT}, (0.9, 1.0)
    ),
    "the kernel's ring was collected": Case("the ring", {RING: RING_ALIVE, CENTRAL: SENT}, (0.5, 0.5), "does not hold"),
    "another node's file": Case("another host's file", {"nodes/gx04/syslog": ALIVE.replace("gx02", "gx04"), CENTRAL: SENT}, (0.9, 1.0)),
    "a copy of a log host in a folder named after the node": Case(
        "another host's file", {"nodes/ctl/remote/gx02/syslog": ALIVE, CENTRAL: SENT}, (0.9, 1.0)
    ),
    "a copy that names a user": Case(
        "a copy by another", {SYSLOG: WITHOUT + BARE, CENTRAL: central("10:19:55", XID, "user.err")}, None, OF_USER
    ),
    "a copy that names a daemon": Case(
        "a copy by another", {SYSLOG: WITHOUT + BARE, CENTRAL: central("10:19:55", XID, "local3.err")}, None, OF_USER
    ),
    "a user who repeats the kernel's line": Case(
        "a copy of one of two lines", {SYSLOG: WITHOUT + BARE + BARE, CENTRAL: central("10:19:55", XID, "user.err")}, (0.7, 0.7)
    ),
    "a user who said it before": Case(
        "a copy of an earlier line", {SYSLOG: WITHOUT + BARE, CENTRAL: central("10:18:55", XID, "user.err")}, (0.7, 0.7)
    ),
    "a copy by a user and one by the kernel": Case(
        "copies by both", {SYSLOG: WITHOUT + BARE, CENTRAL: central("10:19:55", XID, "user.err") + SENT}, (0.9, 1.0)
    ),
    "a copy that names another device": Case(
        "a copy of a line about another device", {SYSLOG: WITHOUT + BARE, CENTRAL: central("10:19:55", XID.replace("3b", "4c"), "user.err")}, (0.7, 0.7)
    ),
}  # fmt: skip


#: By ticks in ``make test``: one that counts here, and those that do not in test_forged_evidence.py.
@pytest.mark.one_of_each(kind=lambda name, live: (CASES[name].kind.split()[:2][-1], CASES[name].blamed, live))
@pytest.mark.parametrize(("name", "live"), in_both_ways(CASES, {"the node's own file has it"}))
def test_what_other_files_show_of_a_kernels_line(name: str, live: bool) -> None:
    """No user can send to the log host: otherwise what only that has counts for nothing."""
    case = CASES[name]
    found = concluded(case.files, live, CONFIRMED, sending=False)
    verdict = of_erin(found)
    stated = " ".join(verdict["doubts"])
    if case.blamed is None:
        assert not verdict["category"].startswith("infra."), verdict
        assert not any("gx02" in i["hosts"] for i in found["incidents"])
        assert case.why in stated
        (rival,) = (r for r in verdict["rivals"] if case.why in r["rejected"])
        assert rival["host"] == "gx02" and rival["cause"].startswith("gpu.xid (0000:3b:00 of gx02, 10:19:55")
        return
    low, high = case.blamed
    assert verdict["category"] == "infra.gpu" and low <= verdict["confidence"] <= high, verdict
    assert case.why in stated and DENIED not in stated and OF_USER not in stated


def test_a_file_that_ends_before_shows_no_silence() -> None:
    tree = {**CONFIRMED, SYSLOG: bsd("10:15:00", "systemd[1]: Started Session 3 of user root.")}
    verdict = of_erin(concluded({CENTRAL: SENT}, tree=tree, sending=False))
    assert verdict["category"] == "infra.gpu" and verdict["confidence"] > 0.9
    tree[SYSLOG] += bsd("10:29:00", "systemd[1]: Started Session 4 of user root.")
    assert not of_erin(concluded({CENTRAL: SENT}, tree=tree, sending=False))["category"].startswith("infra.")


#: Nobody's job was on gx02.
IDLE = {SACCT: re.sub(r"(?m)^.*\|gx02\|.*\n", "", _TREE[SACCT]),
        "controller/slurmctld.log": re.sub(r"(?m)^.*(?:gx02|JobId=4[25]).*\n", "", _TREE["controller/slurmctld.log"])}  # fmt: skip


@pytest.mark.one_of_each(kind=lambda tree, counts: (tree is IDLE, counts))
@pytest.mark.parametrize("live", [False, pytest.param(True, marks=pytest.mark.long)], ids=["at once", "by ticks"])
@pytest.mark.parametrize(
    ("tree", "own", "sending", "counts"),
    [
        (CONFIRMED, "", True, False),
        (HERS, "", False, False),
        (CONFIRMED, "", False, True),
        (CONFIRMED, FITTING, True, True),
        (IDLE, "", True, False),
        (IDLE, "", False, True),
        (IDLE, FITTING, True, True),
    ],
    ids=[
        "of a node that slurmctld gives up", "where no user can send", "where no user can send, of a node that slurmctld gives up",
        "with the node's own copy", "of an idle node", "of an idle node, where no user can send", "of an idle node, with its own copy",
    ],
)  # fmt: skip
def test_what_only_a_log_host_has_counts_where_no_user_can_send(
    tree: dict[str, str], own: str, sending: bool, counts: bool, live: bool
) -> None:
    found = concluded({SYSLOG: own, CENTRAL: SENT}, live, tree, sending=sending)
    assert any(i["root_cause"]["host"] == "gx02" and i["category"] == "infra.gpu" for i in found["incidents"]) == counts
    if "45" in found["verdicts"]:
        verdict = of_erin(found)
        # Whoever sent it, her program is blamed as without it, unless she alone can have.
        assert verdict["category"] == ("infra.gpu" if counts else "app.error" if sending else "unknown")
        assert ("does not count" in " ".join(verdict["doubts"])) == (not counts)


def test_an_unproven_line_is_not_made_surer_by_other_users_copies() -> None:
    """Whatever was sent in the node's name, alone or with other lines, no run gets a better verdict than without it."""
    forged = "".join(central(f"10:0{n}:00", f"usb 1-{n}: new device") for n in range(5)) + SENT
    found = concluded({SYSLOG: ALIVE, CENTRAL: forged})
    assert of_erin(found)["confidence"] <= 0.5 or not of_erin(found)["category"].startswith("infra.")


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("nodes/gx02/syslog", True),
        ("hosts/gx02/var/log/messages", True),
        ("tree/hosts/GX02.cluster.example/kern.log", True),
        ("gx02:/var/log/syslog", True),
        ("gx02.cluster.example:/var/log/syslog", True),
        ("hosts/ctl/central.log", False),
        ("ctl:/var/log/remote/gx02/syslog", False),
        ("gx02/syslog", False),
        ("hosts/gx020/syslog", False),
        ("syslog:gx02", False),
        ("syslog:gx02:/dev/log", False),
        ("hosts/gx02", False),
        (None, False),
    ],
)
def test_whose_file_it_is(file: str | None, own: bool) -> None:
    assert is_own(file, "gx02") is own
