"""Ports whose driver complains of their cable or transceiver while they keep their carrier, and what only looks like that."""

from __future__ import annotations

import pytest

from correlator.facts.link_modules import MODULE_FAULT
from correlator.facts.registry import cause_of
from tests.correlator.field import ALIVE, BOOT, RETRY, InOneStore, Situation, ended, heard, wrong
from tests.correlator.making import T0, event, facts, world

MODULE = ("infra.network", "nic.link_errors", "gpu01")
UNKNOWN = ("unknown", None, None)
HOT = "Port module event[error]: module 0, Cable error, High Temperature"
UNPLUGGED = "Port module event: module 0, Cable unplugged"
DARK = "-12s gpu01 kernel: hfi1 0000:18:00.0: hfi1_0: Cable RX channel 1/2 power too low"
TIMED_OUT = "{} {{{}}} stdout: rank0 ERROR: collective timed out: nothing from 10.78.0.12 for 8 s"
TWO = (ended(user="ada"), ended(user="ben", nodes="gpu[01,03]"))
THREE = (*TWO, ended(user="cara", nodes="gpu[01,04]"))
SAME_USER = (ended(user="ada"), ended(user="ada", nodes="gpu[01,03]"))
SHARED = (ended(user="ada", nodes="gpu[01-03]"), ended(user="ben", nodes="gpu[01-02]"))


def line(at: str, text: str, host: str = "gpu01", port: str = "") -> str:
    return f"{at} {host} kernel: mlx5_core 0000:17:00.0{port}: {text}"


def lost(at: str, job: int = 0) -> str:
    return TIMED_OUT.format(at, job)


SITUATIONS = [
    heard(
        "three users lose what they share, a hot module",
        [line("-14s", HOT), lost("-2s"), lost("-1s", 1), lost("-0.5s", 2)],
        THREE,
        (MODULE, MODULE, MODULE),
        at_most=0.5,  # one of them can print that to raise it
    ),
    heard("hot, for two users", [line("-14s", HOT), lost("-2s"), lost("-1s", 1)], TWO, (MODULE, MODULE), at_most=0.5),
    heard("retries run out", [line("-50s", HOT), f"-1s {{0}} stderr: {RETRY}"], (ended(),), (MODULE,)),
    heard(
        "without its power",
        [line("-12s", "Port module event[error]: module 0, Cable error, Power budget exceeded"), lost("-1s")],
        (ended(),),
        (MODULE,),
    ),
    heard(
        "unplugged, of which an InfiniBand port logs no more",
        [line("-5min", "Link up", port=" ib0"), line("-12s", UNPLUGGED), lost("-1s")],
        (ended(),),
        (MODULE,),
    ),
    heard(
        "another driver's module",
        ["-12s gpu01 kernel: bnxt_en 0000:c1:00.0 ens1: SFP+ module is shutdown", lost("-1s")],
        (ended(),),
        (MODULE,),
    ),
    heard(
        "a receiver without light",
        [DARK, lost("-1s")],
        (ended(),),
        (MODULE,),
    ),
    # one user's run, and nothing but the complaint
    heard("hot, for one user", [line("-9s", HOT), lost("-1s")], (ended(),), (MODULE,), at_most=0.5),
    heard("hot, for one user twice", [line("-14s", HOT), lost("-2s"), lost("-1s", 1)], SAME_USER, (MODULE, MODULE), at_most=0.5),
    heard("hot, for two users who share more", [line("-14s", HOT), lost("-2s"), lost("-1s", 1)], SHARED, (MODULE, MODULE), at_most=0.5),
    heard("without light, and named by the error", [DARK, f"-1s {{0}} stderr: {RETRY.replace('mlx5_3', 'hfi1_0')}"], (ended(),), (MODULE,)),
    # what only looks like it
    heard("a spare port is unplugged", [line("-12s", UNPLUGGED), lost("-1s")], (ended(),), (UNKNOWN,)),
    heard(
        "a port is unplugged that came up only since",
        [line("-12s", UNPLUGGED), line("-11s", "Link up", port=" ib0"), lost("-1s")],
        (ended(),),
        (UNKNOWN,),
    ),
    heard("the module of Slurm's port", [line("-12s", HOT, port=" eth0"), lost("-1s")], (ended(),), (UNKNOWN,)),
    heard("of a node of nobody", [line("-12s", HOT, "gpu05"), lost("-1s")], (ended(),), (UNKNOWN,)),
    heard("long before", [line("-30min", HOT), lost("-1s")], (ended(),), (UNKNOWN,)),
    heard("after the loss", [line("0.5s", HOT), lost("-1s")], (ended(),), (UNKNOWN,)),
    heard(
        "plugged in again in time",
        [
            line("-60s", UNPLUGGED),
            line("-50s", "Port module event: module 0, Cable plugged"),
            lost("-1s"),
        ],
        (ended(),),
        (UNKNOWN,),
    ),
    heard("only plugged in", [line("-12s", "Port module event: module 0, Cable plugged"), lost("-1s")], (ended(),), (UNKNOWN,)),
    heard(
        "a module that only cannot be read",
        [line("-12s", "Port module event[error]: module 0, Cable error, No EEPROM/retry timeout"), lost("-1s")],
        (ended(),),
        (UNKNOWN,),
    ),
    heard(
        "an administrator's own doing",
        [line("-12s", "Port module event: module 0, Cable disabled"), lost("-1s")],
        (ended(),),
        (UNKNOWN,),
    ),
    heard(
        "the driver of a node that boots",
        [f"-40s gpu01 kernel: {BOOT}", line("-12s", HOT), lost("-1s")],
        (ended(start="-13s"),),
        (UNKNOWN,),
    ),
    heard("a run of one node", [line("-12s", HOT), lost("-1s")], (ended(nodes="gpu01"),), (UNKNOWN,)),
    heard(
        "others over the same port go on",
        [line("-12s", HOT), lost("-1s")],
        (
            ended(),
            *(ended("COMPLETED", end="1h", nodes=f"gpu[01,0{n}]") for n in (3, 4, 5, 6)),
        ),
        (UNKNOWN, None, None, None, None),
    ),
]  # fmt: skip
FOUND = InOneStore(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_runs_beside_a_port_whose_module_is_complained_of(situation: Situation) -> None:
    assert situation.lines[: len(ALIVE)] == ALIVE
    assert wrong(situation, *FOUND[situation.name]) == []


def test_a_complaint_alone_is_only_a_doubt() -> None:
    sure = {name: FOUND[name][1][0]["confidence"] for name in FOUND}
    assert sure["three users lose what they share, a hot module"] <= 0.5
    assert sure["without light, and named by the error"] > 0.5
    assert sure["a receiver without light"] <= 0.5


def test_a_lost_carrier_is_the_fact_and_the_module_no_second_one() -> None:
    unplugged = event(
        "nic.module_event", 0, "n1", pci="0000:17:00.0", driver="mlx5_core", module_event="Cable unplugged"
    )
    down = event("nic.link_down", 1, "n1", pci="0000:17:00.0", port="ib0", driver="mlx5_core")
    hot = event(
        "nic.error", 0, "n1", pci="0000:17:00.0", driver="mlx5_core", module_event="Cable error, High Temperature"
    )
    for complaint in (unplugged, hot):
        assert facts(world([complaint, down]), MODULE_FAULT.name) == []
    assert facts(world([unplugged]), MODULE_FAULT.name) == []
    assert [f.device for f in facts(world([hot]), MODULE_FAULT.name)] == ["0000:17:00.0"]


def test_a_port_without_a_cable_by_the_inventory_makes_no_incident() -> None:
    where = world([])
    fault = MODULE_FAULT.fact(T0, None, 0.5, "n1", "eth9")
    trivial = cause_of(fault).trivial
    assert trivial is not None
    assert not trivial(where, fault)
    where.site.inventoried = frozenset({"n1"})
    assert trivial(where, fault)
    where.site.cables[("n1", "eth9")] = {"switch": "leaf1", "port": "1"}
    assert not trivial(where, fault)


def test_complaints_of_one_port_are_one_fault_until_a_module_is_plugged_in() -> None:
    def complaint(at: float, words: str, kind: str = "nic.error") -> object:
        return event(kind, at, "n1", pci="0000:17:00.0", driver="mlx5_core", module_event=words)

    hot, plugged = "Cable error, High Temperature", "Cable plugged"
    listed = [complaint(0, hot), complaint(60, hot), complaint(900, plugged, "nic.module_event"), complaint(9000, hot)]
    found = facts(world(listed), MODULE_FAULT.name)  # type: ignore[arg-type]
    assert [(f.start - T0, None if f.end is None else f.end - T0) for f in found] == [(0, 900), (9000, None)]
