"""Lines of both generators with a few planted ones among them, for ``benchmarks/queries.py --when``.

A phrase that no other line has, links that go down, and slurmd's error on the host of some of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

from benchmarks.simulators import storm_lines
from benchmarks.simulators.log_lines import HOSTS, Cluster
from parsers.patterns import load

#: One line in so many has the rare phrase; one in so many is a link that goes down, and every third of them has an error.
RARE_EVERY, DOWN_EVERY = 100_000, 10_000
RARE = "kernel: nvrm-lab: the maroon capacitor vented on board {n}"
DOWN = "kernel: mlx5_core 0000:{n}3:00.0 enp{n}s0f0np0: Link down"
DAEMON = 3
ERROR = "slurmd[77]: error: slurm_send_node_msg: unable to contact slurm controller: Connect failure"
XID = "kernel: NVRM: Xid (PCI:0000:{d}3:00): {n}, pid=77, name=python3, channel 0x{n}"
XID_EVERY = 400
#: Lines of the kernel's that are events, for the rest of their share.
STORM = (
    "kernel: Out of memory: Killed process {m} (python3) total-vm:{m}kB, anon-rss:{m}kB, file-rss:0kB, shmem-rss:0kB",
    "kernel: pcieport 0000:{d}0:01.0: AER: Corrected error received: 0000:{d}1:00.0",
    "kernel: nvme nvme{d}: I/O {n} QID {d} timeout, aborting",
    "kernel: EDAC MC{d}: 1 CE memory read error on CPU_SrcID#0_MC#{d}_Chan#0_DIMM#0 (channel:0 slot:0 page:0x{m} offset:0x0)",
    "kernel: mce: [Hardware Error]: Machine check events logged, bank {n}",
)


def made_lines(count: int, events: float) -> Iterator[bytes]:
    """Lines of a cluster, ``events`` (0 to 1) of them events, with the planted ones among them."""
    cluster, failing, chance = Cluster(load(), events=0.0), "", random.Random(7)
    for number, line in enumerate(cluster.lines(count)):
        host = HOSTS[number * 7919 % 900]
        if number % RARE_EVERY == RARE_EVERY // 2:
            line = cluster.stamped(host, RARE.format(n=number % 8))
        elif number % DOWN_EVERY == 77:
            line, failing = cluster.stamped(host, DOWN.format(n=number % 8)), host
        elif number % (3 * DOWN_EVERY) == 1_077:  # about ten seconds after that of its host
            line = cluster.stamped(failing, ERROR, DAEMON)
        elif number % XID_EVERY == 13:
            line = cluster.stamped(host, XID.format(d=number % 8, n=(13, 31, 43, 48, 63, 79, 94, 119)[number // 7 % 8]))
        elif chance.random() < events:
            text = STORM[number % len(STORM)]
            line = cluster.stamped(host, text.format(d=number % 8, n=number % 997, m=number * 7919 % 9_999_991))
        yield line


def storm(count: int, events: float) -> Iterator[bytes]:
    """Lines of the other generator, with the rare phrase among them."""
    for number, line in enumerate(storm_lines.lines(count, events=100 * events)):
        if number % RARE_EVERY == RARE_EVERY // 2:
            at = storm_lines.START + timedelta(seconds=number / storm_lines.RATE)
            line = f"<4>{at:%b} {at.day:2d} {at:%H:%M:%S} node00123 {RARE.format(n=number % 8)}"
        yield line.encode()
