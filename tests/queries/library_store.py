"""A store for the saved queries: real captures, each as a cluster of its own, and some additions that they lack."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path

from collector.ingest import Ingest, Options
from correlator.engine import correlate
from store import open_store
from store.door import Door
from tests.line_parser import line_parser

CAPTURES = Path(__file__).parents[1] / "captures"
#: One cluster, one night; its accounting is in each of them.
MAIN = ("mgmt_flap_long", "oom", "epilog_fails", "controller_restart", "mgmt_flap_requeue", "job_faults", "node_reboot")
NOW = datetime(2026, 11, 22)

#: What no capture of a cluster without GPUs and fabric has.
FILES = {
    "nodes/gx01/kern.log": """\
2026-11-21T10:00:00.000000+00:00 gx01 kernel: [ 100.0] NVRM: Xid (PCI:0000:53:00): 79, pid=4242, name=python, GPU has fallen off the bus.
2026-11-21T10:00:05.000000+00:00 gx01 kernel: [ 105.0] mlx5_core 0000:53:00.0 enp83s0f0np0: Link down
2026-11-21T10:00:20.000000+00:00 gx01 kernel: [ 120.0] mlx5_core 0000:53:00.0 enp83s0f0np0: Link up
2026-11-21T10:20:00.000000+00:00 gx01 kernel: [1300.0] mce: [Hardware Error]: Machine check events logged
2026-11-21T10:21:00.000000+00:00 gx01 kernel: [1360.0] nvme nvme0: I/O 12 QID 3 timeout, aborting
2026-11-21T10:21:30.000000+00:00 gx01 kernel: [1390.0] mlx5_core 0000:53:00.0: mlx5_pcie_event:301:(pid 9): PCIe slot advertised sufficient power (27W).
2026-11-21T10:22:00.000000+00:00 gx01 systemd[1]: nvidia-persistenced.service: Failed with result 'exit-code'.
""",
    "nodes/gx02/kern.log": """\
2026-11-21T10:00:00.000000+00:00 gx02 kernel: [ 100.0] NVRM: Xid (PCI:0000:63:00): 79, pid=4243, name=python, GPU has fallen off the bus.
2026-11-21T10:01:00.000000+00:00 gx02 kernel: [ 160.0] NVRM: Xid (PCI:0000:63:00): 31, pid=4243, name=python, Ch 00000003
""",
    "accounting/sacct.txt": "JobID|JobIDRaw|JobName|User|Account|Partition|State|ExitCode|Submit|Start|End|NodeList|NNodes|Cluster\n"
    "900|900|train|carol|ml|gpu|RUNNING|0:0|2026-11-21T09:00:00|2026-11-21T09:30:00|Unknown|gx[01-02]|2|made\n"
    "901|901|train|carol|ml|gpu|PENDING|0:0|2026-11-21T11:00:00|Unknown|Unknown|None assigned|2|made\n",
    "nodes/gx01/slurmd.log": "[2026-11-21T10:30:00.000] error: flux capacitor 7 is out of tune by 12\n",
    "controller/opensm.log": "Nov 21 10:05:00 123456 [7F4B2700] 0x02 -> log_trap_info: Received Generic Notice type:1 num:129 "
    "(Local Link integrity threshold reached) Producer:2 (Switch) from LID:9 Port:4 TID:0x0000000000000051\n",
    "inventory/links.csv": "host,device,switch,switch_port,plane,rail\ngx01,enp83s0f0np0,leaf01,swp7,0,1\n",
    "metrics/gx01/1795255200.prom": (
        'DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="gx01"} 61\nDCGM_FI_DEV_GPU_TEMP{gpu="1",Hostname="gx01"} 88\n'
    ),
}


def build(*names: str) -> Door:
    """A store in memory of these captures, or MAIN and FILES without any, with conclusions."""
    store = open_store(None)
    for name in names or MAIN:
        Ingest(store, parser=line_parser()).run([CAPTURES / name])
    if not names:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in FILES.items():
                path = Path(folder) / "made" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            Ingest(store, Options(cluster="made"), parser=line_parser()).run([Path(folder) / "made"])
    correlate(store)
    return store
