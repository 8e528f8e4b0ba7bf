"""The site of a seed: machines, fabric, versions and habits of logging."""

import random
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

USERS = ("amara", "bjorn", "chiara", "deniz", "emeka", "fumiko", "gustav", "hana", "ivan", "joana", "kwame", "leila")
ACCOUNTS = ("genomics", "climate", "lm-core", "vision", "chem")
GPU_BDFS = {
    "h100": (
        "0000:19:00",
        "0000:3b:00",
        "0000:4c:00",
        "0000:5d:00",
        "0000:9b:00",
        "0000:bb:00",
        "0000:cb:00",
        "0000:db:00",
    ),
    "a100": (
        "0000:07:00",
        "0000:0b:00",
        "0000:48:00",
        "0000:4c:00",
        "0000:88:00",
        "0000:8b:00",
        "0000:c8:00",
        "0000:cb:00",
    ),
}
NIC_BDFS = ("0000:18:00.0", "0000:2a:00.0", "0000:9a:00.0", "0000:ab:00.0")
DRIVERS = ("535.183.06", "550.90.07", "560.35.03", "570.124.06", "575.57.08")
KERNELS = ("4.18.0-553.16.1.el8_10.x86_64", "5.14.0-427.13.1.el9_4.x86_64", "5.15.0-113-generic", "6.8.0-51-generic")


@dataclass
class Node:
    """One compute host."""

    name: str
    kind: str
    group: int
    ip: str
    skew: float
    boot: float
    lost: bool
    free: list[int] = field(default_factory=lambda: list(range(8)))
    up: bool = True
    drained: bool = False
    bad_until: float = 0.0
    cut: bool = False
    boots: list[float] = field(default_factory=list)

    def uptime(self, t: float) -> float:
        """Seconds since the last boot at a time."""
        return t - max([self.boot, *(b for b in self.boots if b <= t)])

    def bdf(self, gpu: int) -> str:
        """PCI address of a GPU, without function."""
        return GPU_BDFS[self.kind][gpu]


@dataclass
class Site:
    """What a seed decides once."""

    seed: int
    tz: ZoneInfo
    start: float
    hours: int
    nodes: list[Node]
    fabric: str
    vendor: str
    storage: str
    fsname: str
    servers: list[str]
    slurm_format: str
    sys_format: str
    sys_name: str
    kern_log: bool
    dmesg: str
    kstamp: bool
    driver: str
    kernel: str
    slurm: str
    mgmt_driver: str
    mgmt_nic: str
    timeout: int
    group_size: int
    mute_switch: str
    nccl: str
    torch_timeout: int
    domain: str
    controller: str
    mute_hca: bool

    @property
    def end(self) -> float:
        """End of the watched window."""
        return self.start + self.hours * 3600

    def rail_nic(self, rail: int) -> str:
        """Network device of a rail."""
        if self.fabric == "ib":
            return ("ibp24s0", "ibp42s0", "ibp154s0", "ibp171s0")[rail]
        return ("enp24s0np0", "enp42s0np0", "enp154s0np0", "enp171s0np0")[rail]

    def leaf(self, group: int, rail: int) -> str:
        """Leaf switch of a group for a rail; two planes."""
        kind = "ibl" if self.fabric == "ib" else "leaf"
        return f"{kind}{group + 1:02d}{'ab'[rail % 2]}"

    def mgmt_switch(self, group: int) -> str:
        """Management switch of a group."""
        return f"oob{group + 1:02d}"

    def port(self, index: int, rail: int = -1) -> str:
        """A switch's name for the port of the index-th node of its group."""
        number = index + 1 if rail < 0 else index * 2 + rail // 2 + 1
        vendor = self.vendor
        if rail >= 0 and self.fabric == "ib":
            return f"IB1/{number}"
        return {
            "sonic": f"Ethernet{(number - 1) * 4}",
            "cumulus": f"swp{number}",
            "arista": f"Ethernet{number}/1",
            "onyx": f"Eth1/{number}",
        }[vendor]

    def index(self, node: Node) -> int:
        """Place of a node in its group."""
        return self.nodes.index(node) % self.group_size

    @property
    def spines(self) -> list[str]:
        """Spine switches, one pair a plane."""
        stem = "ibs" if self.fabric == "ib" else "spine"
        return [f"{stem}{n}{p}" for p in "ab" for n in (1, 2)]

    @property
    def groups(self) -> int:
        """How many leaf groups there are."""
        return max(n.group for n in self.nodes) + 1

    def stamp(self, t: float) -> datetime:
        """Local time of an epoch."""
        return datetime.fromtimestamp(t, self.tz)


def hosts(rng: random.Random, count: int, size: int, start: float) -> list[Node]:
    """The compute nodes."""
    style = rng.choice(("gn%03d", "node-%04d", "hpc-g%02d", "dgx%03d"))
    nodes = []
    for i in range(count):
        kind = "h100" if i < count * 5 // 8 else "a100"
        skew = rng.choice((0.0, 0.0, 0.0, 0.0, rng.uniform(-4, 4)))
        nodes.append(
            Node(
                style % (i + 1),
                kind,
                i // size,
                f"10.{20 + i // 200}.{i // size}.{i % size + 11}",
                skew,
                start - rng.uniform(1, 60) * 86400,
                rng.random() < 0.04,
            )
        )
    return nodes


def build(seed: int) -> Site:
    """The site of a seed."""
    rng = random.Random(f"site{seed}")
    count = rng.choice((64, 80, 96, 112, 128, 160))
    size = 16
    tz = ZoneInfo(("UTC", "Europe/Berlin", "America/Chicago", "Asia/Tokyo")[seed % 4])
    start = datetime(
        2026, rng.choice((1, 2, 11)), rng.randint(3, 25), rng.randint(2, 14), rng.randint(0, 59), tzinfo=tz
    ).timestamp()
    nodes = hosts(rng, count, size, start)
    fabric = ("roce", "ib")[seed % 2]
    storage = ("lustre", "nfs")[(seed // 2) % 2]
    fsname = (
        rng.choice(("scratch", "lfs1", "work")) if storage == "lustre" else rng.choice(("/home", "/projects", "/data"))
    )
    servers = [f"{'oss' if storage == 'lustre' else 'nas'}{k:02d}" for k in range(1, 5)]
    rhel = seed % 3 == 0
    return Site(
        seed=seed,
        tz=tz,
        start=start,
        hours=rng.randint(4, 8),
        nodes=nodes,
        fabric=fabric,
        vendor=("sonic", "cumulus", "arista", "onyx")[seed // 2 % 4],
        storage=storage,
        fsname=fsname,
        servers=servers,
        slurm_format=("iso8601_ms", "rfc5424_ms", "short", "iso8601", "thread_id")[seed % 5],
        sys_format=("rfc3164", "iso", "rfc5424")[seed % 3],
        sys_name="messages" if rhel else "syslog",
        kern_log=not rhel and rng.random() < 0.5,
        dmesg=rng.choice(("none", "relative", "human")),
        kstamp=not rhel,
        driver=rng.choice(DRIVERS),
        kernel=rng.choice(KERNELS[:2] if rhel else KERNELS[2:]),
        slurm=rng.choice(("22.05.11", "23.02.7", "23.11.10", "24.05.4")),
        mgmt_driver=rng.choice(("ice", "bnxt_en", "i40e", "tg3", "igb")),
        mgmt_nic=rng.choice(("eno1", "ens1f0", "eno8303")),
        timeout=rng.choice((180, 300, 300, 600)),
        group_size=size,
        mute_switch=f"{'ibl' if fabric == 'ib' else 'leaf'}02{rng.choice('ab')}",
        nccl=rng.choice(("2.18.5+cuda12.2", "2.21.5+cuda12.4", "2.24.3+cuda12.6")),
        torch_timeout=rng.choice((600, 600, 1800)),
        domain=rng.choice(("cluster", "hpc.example.org", "local")),
        controller=rng.choice(("slurm01", "mgmt1", "ctl")),
        mute_hca=fabric == "ib" and seed % 4 == 3,
    )


def hostlist(names: list[str]) -> str:
    """Slurm's bracketed form of names that share a prefix."""
    if len(names) == 1:
        return names[0]
    cut = len(names[0].rstrip("0123456789"))
    prefix, width = names[0][:cut], len(names[0]) - cut
    numbers = sorted(int(n[cut:]) for n in names)
    parts: list[list[int]] = []
    for n in numbers:
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return (
        prefix + "[" + ",".join(f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in parts) + "]"
    )
