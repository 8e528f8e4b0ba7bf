"""Which device, interface or rank a message is about, whether a pattern knows it or not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parsers import subjects
from parsers.engine import LineParser
from parsers.record import Origin


@pytest.mark.parametrize(
    ("source", "message", "expected"),
    [
        ("kernel", "ice 0000:31:00.1 ens8: mode set", {"driver": "ice", "pci": "0000:31:00.1", "port": "ens8"}),
        ("kernel", "mvneta d0070000.ethernet eth2: configuring", {"driver": "mvneta", "port": "eth2"}),
        ("kernel", "virtio_net virtio3 ens4: x", {"driver": "virtio_net", "port": "ens4"}),
        ("kernel", "infiniband mlx5_4: set up", {"ibdev": "mlx5_4"}),
        ("kernel", "LDISKFS-fs (sdc): mounted filesystem", {"device": "sdc"}),
        ("kernel", "BTRFS info (device sdb1): using", {"device": "sdb1"}),
        ("kernel", "nvme nvme7: 64/0/0 default/read/poll queues", {"device": "nvme7"}),
        ("kernel", "sd 2:0:5:0: [sdf] Attached SCSI disk", {"device": "sdf"}),
        ("kernel", "bond0: (slave eth1): Enslaving", {"bond": "bond0", "port": "eth1"}),
        ("kernel", "mlx4_en: ens803: Steering Mode 1", {"driver": "mlx4_en", "port": "ens803"}),
        ("kernel", "task kworker/3:1: x", {}),
        ("kernel", "docker0: port 1(veth1) entered blocking state", {}),
        ("syslog", "Device: /dev/sdh [SAT], opened", {"device": "/dev/sdh"}),
        ("syslog", "<info>  [177.1] device (ibp12s0): config", {"port": "ibp12s0"}),
        ("syslog", "mlx5_core 0000:31:00.1: x", {}),
        ("job_stdout", "[PG 0 Rank 7] watching", {"rank": 7}),
        ("job_stdout", "closed by remote peer n2.hpc<5123>", {"peer": "n2.hpc"}),
        ("job_stdout", "UCX  ERROR ibv_query_gid(dev=mlx5_an0 port=1 index=0) failed", {"ibdev": "mlx5_an0"}),
        ("slurmctld", "Rank 3] x", {}),
        ("kernel", None, {}),
    ],
)
def test_subjects(source: str, message: str | None, expected: dict[str, Any]) -> None:
    assert subjects.of(message, source) == expected


def test_a_pattern_knows_better() -> None:
    line = b"Feb 28 16:29:24 gx7 kernel: bonding: bond0: making interface eth2 the new active one."
    row = LineParser().parse([line], Origin())
    assert json.loads(row["entities"][0]) == {"bond": "bond0", "port": "eth2"}
