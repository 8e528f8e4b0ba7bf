"""slurmctld's answer from a node that it had given up confirms the node's line that its link is back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from correlator.facts.world import hosts_of
from correlator.gather.confirmed import ANSWERS_S, Confirmed
from tests.correlator.making import event

AGAIN, RESUMED = "Node n1 now responding", "update_node: node n1 state set to IDLE"


@pytest.mark.parametrize(
    ("kind", "after", "said", "source", "confirmed"),
    [
        ("nic.link_up", 30.0, AGAIN, "slurmctld", True),
        ("nic.link_up", ANSWERS_S + 1, AGAIN, "slurmctld", False),
        ("nic.link_up", -30.0, AGAIN, "slurmctld", False),
        ("nic.link_up", 30.0, RESUMED, "slurmctld", False),
        ("nic.link_up", 30.0, AGAIN, "slurmd", False),
        ("nic.link_down", 30.0, AGAIN, "slurmctld", False),
    ],
)
def test_an_answer_confirms_that_a_link_is_back(
    kind: str, after: float, said: str, source: str, confirmed: bool
) -> None:
    answer = event("slurm.node_up", after, "ctl", said, source=source, nodes=["n1"])
    lost = event("slurm.node_not_responding", -40, "ctl", "Nodes n1 not responding", source="slurmctld", nodes=["n1"])
    line = replace(event(kind, 0, "n1", "mlx5_core 0000:17:00.0 eth0: Link", port="eth0"), layer="link")
    assert Confirmed([lost, answer], [], str, hosts_of, lambda *_: None).followed(line) == confirmed
    if kind == "nic.link_up":
        assert not Confirmed([answer], [], str, hosts_of, lambda *_: None).followed(line), "nobody missed the node"
