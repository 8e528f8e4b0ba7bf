"""Ports whose driver complains of their cable or transceiver while they keep their carrier, and what only looks like that."""

from __future__ import annotations

import pytest

from correlator.facts.link_modules import MODULE_FAULT
from tests.correlator.field import ALIVE, BOOT, RETRY, InOneStore, Situation, ended, heard, wrong
from tests.correlator.making import T0, event, facts, world

MODULE = ("infra.network", "nic.link_errors", "gpu01")
UNKNOWN = ("unknown", None, None)
HOT = "Port module event[error]: module 0, Cable error, High Temperature"
TIMED_OUT = "{} {{{}}} stdout: rank0 ERROR: collective timed out: nothing from 10.78.0.12 for 8 s"
TWO = (ended(user="ada"), ended(user="ben", nodes="gpu[01,03]"))


def line(at: str, text: str, host: str = "gpu01", port: str = "") -> str:
    return f"{at} {host} kernel: mlx5_core 0000:17:00.0{port}: {text}"


def lost(at: str, job: int = 0) -> str:
    return TIMED_OUT.format(at, job)


SITUATIONS = [
    heard(
        "two users lose what they share, a hot module",
        [line("-14s", HOT), lost("-2s"), lost("-1s", 1)],
        TWO,
        (MODULE, MODULE),
        at_most=0.85,
    ),
    heard("retries run out", [line("-50s", HOT), f"-1s {{0}} stderr: {RETRY}"], (ended(),), (MODULE,)),
    heard(
        "without its power",
        [line("-12s", "Port module event[error]: module 0, Cable error, Power budget exceeded"), lost("-1s")],
        (ended(),),
        (MODULE,),
    ),
    heard(
        "unplugged, of which an InfiniBand port logs no more",
        [line("-12s", "Port module event: module 0, Cable unplugged"), lost("-1s")],
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
        ["-12s gpu01 kernel: hfi1 0000:18:00.0: hfi1_0: Cable RX channel 1/2 power too low", lost("-1s")],
        (ended(),),
        (MODULE,),
    ),
    # what only looks like it
    heard("the module of Slurm's port", [line("-12s", HOT, port=" eth0"), lost("-1s")], (ended(),), (UNKNOWN,)),
    heard("of a node of nobody", [line("-12s", HOT, "gpu05"), lost("-1s")], (ended(),), (UNKNOWN,)),
    heard("long before", [line("-30min", HOT), lost("-1s")], (ended(),), (UNKNOWN,)),
    heard("after the loss", [line("0.5s", HOT), lost("-1s")], (ended(),), (UNKNOWN,)),
    heard(
        "plugged in again in time",
        [
            line("-60s", "Port module event: module 0, Cable unplugged"),
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


def test_a_lost_carrier_is_the_fact_and_the_module_no_second_one() -> None:
    unplugged = event(
        "nic.module_event", 0, "n1", pci="0000:17:00.0", driver="mlx5_core", module_event="Cable unplugged"
    )
    down = event("nic.link_down", 1, "n1", pci="0000:17:00.0", port="ib0", driver="mlx5_core")
    assert [f.device for f in facts(world([unplugged, down]), MODULE_FAULT.name)] == []
    assert [f.device for f in facts(world([unplugged]), MODULE_FAULT.name)] == ["0000:17:00.0"]


def test_complaints_of_one_port_are_one_fault_until_a_module_is_plugged_in() -> None:
    def complaint(at: float, words: str, kind: str = "nic.error") -> object:
        return event(kind, at, "n1", pci="0000:17:00.0", driver="mlx5_core", module_event=words)

    hot, plugged = "Cable error, High Temperature", "Cable plugged"
    listed = [complaint(0, hot), complaint(60, hot), complaint(900, plugged, "nic.module_event"), complaint(9000, hot)]
    found = facts(world(listed), MODULE_FAULT.name)  # type: ignore[arg-type]
    assert [(f.start - T0, None if f.end is None else f.end - T0) for f in found] == [(0, 900), (9000, None)]
