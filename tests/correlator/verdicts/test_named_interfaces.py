"""NCCL finds no interface of the name that a program gives: the program's mistake if its nodes have that network by another name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from correlator.model.nouns import Event
from correlator.verdicts.verdict import Verdict
from tests.correlator.making import event, run, world
from tests.correlator.situations import judged

WARN = "{host}:11:12 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found"
INFO = "{host}:11:12 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to {name}"


def ranks(name: str | None = "ib7", hosts: Iterable[str] = ("n1", "n2")) -> list[Event]:
    """What a rank on each host prints."""
    found = []
    for host in hosts:
        if name:
            found.append(event("job.nccl_interface", -1.0, host, INFO.format(host=host, name=name), source="job_stdout", job_id=1, reason=name))  # fmt: skip
        found.append(event("job.nccl_error", -0.9, host, WARN.format(host=host), source="job_stdout", job_id=1))
    return found


def flap(device: str = "hsn0", host: str = "n1", at: float = -60.0, **more: Any) -> list[Event]:
    return [event("nic.link_down", at, host, f"mlx5_core 0000:17:00.0 {device}: Link down", port=device, **more),
            event("nic.link_up", at + 2.0, host, f"mlx5_core 0000:17:00.0 {device}: Link up", port=device, **more)]  # fmt: skip


def found(*lines: list[Event], **more: Any) -> Verdict:
    return judged(world([e for some in lines for e in some], [run(1, ["n1", "n2"], -600.0, 0.0, exit_code=1)], **more))["1"]  # fmt: skip


def test_its_nodes_have_the_network_by_another_name() -> None:
    verdict = found(ranks(), flap())
    assert verdict.category == "app.error" and verdict.confidence < 0.9
    assert "names the network interface ib7" in verdict.reason and "theirs is hsn0" in verdict.reason


def test_the_inventory_names_the_interfaces_as_well() -> None:
    links = [{"host": h, "device": "hsn0", "switch": "leaf", "switch_port": f"p{h}"} for h in ("n1", "n2")]
    assert found(ranks(), links=links).category == "app.error"


#: The interface may be there, or have been: nothing shows that the name is wrong.
OPEN = {
    "no interface is known": [ranks()],
    "another port of the same network": [ranks(), flap("ib0")],
    "that very interface": [ranks(), flap("ib7"), flap("hsn0")],
    "another network": [ranks(), flap("eth0")],
    "an RDMA device": [ranks(), flap("mlx5_0")],
    "long before": [ranks(), flap(at=-3600.0)],
    "another node's": [ranks(), flap(host="n9")],
    "one of its nodes finds it": [ranks(hosts=["n1"]), flap()],
    "it names none": [ranks(None), flap()],
    "it names several": [ranks("ib7,ib8"), flap()],
    "it excludes some": [ranks("^lo"), flap()],
    "its ranks name different ones": [ranks("ib7", ["n1"]), ranks("ib8", ["n2"]), flap()],
    "only the program's own output names another": [ranks(), flap(source="job_stdout", job_id=1)],
}


@pytest.mark.parametrize("lines", OPEN.values(), ids=OPEN)
def test_nothing_shows_that_the_name_is_wrong(lines: list[list[Event]]) -> None:
    assert found(*lines).category == "unknown"
