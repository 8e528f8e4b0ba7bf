"""What an interface carries, by its name, its driver and the site's configuration; an undecided role stays unknown."""

from __future__ import annotations

import pytest

from correlator.site.interfaces import FABRIC_SETTING, MANAGEMENT_SETTING, has_no_cable, interfaces
from faultline.config import validate
from tests.correlator.field import concluded, ended, heard, wrong

TABLE = [
    # names that decide
    ("ib0", None, "fabric"), ("hsn3", None, "fabric"), ("mlx5_2", None, "fabric"), ("rdma7", None, "fabric"), ("ibp65s0", None, "fabric"),
    ("eth0", None, "management"), ("eth0.100", None, "management"), ("eno8303", None, "management"), ("em1", None, "management"),
    ("bond0", None, "management"), ("mgmt0", None, "management"),
    # names by position: a card of one slow port, or one of a fast adapter
    ("enp1s0", None, "management"), ("ens3", None, "management"), ("enp65s0f1", None, "management"),
    ("enp157s0np0", None, "unknown"), ("ens2f1np1", None, "unknown"), ("enp65s0f0", "mlx5_core", "unknown"),
    ("ens2f0np0", "igb", "management"), ("p1p1", None, "unknown"), ("p1p1", "tg3", "management"),
    # clouds and RoCE continue the numbering
    ("eth1", None, "unknown"), ("eth12", None, "unknown"), ("bond3", None, "unknown"), ("eth1", "virtio_net", "management"),
    # a driver does not contradict a name
    ("hsn0", "igb", "fabric"), ("eno1np0", "mlx5_core", "management"),
]  # fmt: skip


@pytest.mark.parametrize(("device", "driver", "role"), TABLE)
def test_roles(device: str, driver: str | None, role: str) -> None:
    assert interfaces(None).role(device, driver) == role


def test_a_sites_word_settles_it() -> None:
    text = {"interfaces": {"fabric": ["ens*np*", "eth[1-8]"], "management": ["ib0"]}, "slurm": {"SlurmdTimeout": 300}}
    reported = validate(text, "test").site
    assert reported["SlurmdTimeout"] == 300 and reported[FABRIC_SETTING] and reported[MANAGEMENT_SETTING]
    known = interfaces(reported)
    names = ("ens2f1np1", "eth8", "eth9", "eth0", "ib0", "ib1")
    assert [known.role(name) for name in names] == [
        "fabric", "fabric", "unknown", "management", "management", "fabric"
    ]  # fmt: skip


@pytest.mark.parametrize(("device", "expected"), [
    ("docker0", True), ("br-0123456789ab", True), ("veth4f2a1c9", True), ("virbr0", True), ("cni0", True), ("cni-podman0", True),
    ("flannel.1", True), ("cali12ab34cd56e", True), ("tun0", True), ("lo", True), ("wg0", True),
    ("wg-mgmt", True), ("tunl0", True), ("vxlan-v6.calico", True), ("genev_sys_6081", True), ("br-int", True), ("antrea-gw0", True), ("macvlan0", True),
    ("eth0", False), ("br0", False), ("bond0", False), ("ib0", False), ("hsn0", False), ("enp1s0", False), ("team0", False),
    ("lan1", False), ("vlan10", False), ("bond0.100", False), ("lo1", False), ("mlx5_0", False), ("eno1np0", False),
])  # fmt: skip
def test_what_has_no_cable(device: str, expected: bool) -> None:
    assert has_no_cable(device) is expected


LOST_PEERS = "0s {0} stderr: [rank1]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
NO_CABLES = [
    heard(f"{name} goes while a run loses its peers", [f"-2s gpu01 systemd-networkd: {name}: Lost carrier", LOST_PEERS], (ended(),), (("unknown", None, None),),
          not_told=("nic.link_down", "nic.link_flap"))
    for name in ("docker0", "veth4f2a1c9", "virbr0")
]  # fmt: skip


def test_no_run_ends_by_an_interface_without_a_cable() -> None:
    found = concluded(NO_CABLES)
    assert [wrong(situation, *found[situation.name]) for situation in NO_CABLES] == [[]] * len(NO_CABLES)
