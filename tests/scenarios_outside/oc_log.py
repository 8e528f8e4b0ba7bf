"""Where lines go: kept with true times, written in the site's formats with skew, doubles and late ones."""

import random
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from oc_site import Node, Site

SEVERITY = {"emerg": 0, "alert": 1, "crit": 2, "err": 3, "warning": 4, "notice": 5, "info": 6, "debug": 7}


class Line(NamedTuple):
    """One record before it is dressed."""

    t: float
    prog: str
    pid: int
    severity: str
    text: str


class Log:
    """All logs of the cluster."""

    def __init__(self, site: Site, rng: random.Random) -> None:
        self.site = site
        self.rng = rng
        self.sys: dict[str, list[Line]] = defaultdict(list)
        self.slurmd: dict[str, list[Line]] = defaultdict(list)
        self.ctld: list[Line] = []
        self.switches: dict[str, list[Line]] = defaultdict(list)
        self.servers: dict[str, list[Line]] = defaultdict(list)
        self.sm: list[Line] = []
        self.quiet: list[tuple[str, float, float]] = []

    def kern(self, node: Node, t: float, text: str, severity: str = "warning") -> None:
        """A kernel line of a node."""
        self.sys[node.name].append(Line(t, "kernel", 0, severity, text))

    def daemon(self, node: Node, t: float, prog: str, text: str, severity: str = "info", pid: int = 0) -> None:
        """A daemon's line in a node's syslog; pid 0 draws one."""
        self.sys[node.name].append(Line(t, prog, pid or self.rng.randint(900, 90000), severity, text))

    def slurm(self, node: Node, t: float, text: str) -> None:
        """A line of slurmd.log."""
        self.slurmd[node.name].append(Line(t, "slurmd", 0, "info", text))

    def ctl(self, t: float, text: str) -> None:
        """A line of slurmctld.log."""
        self.ctld.append(Line(t, "slurmctld", 0, "info", text))

    def switch(self, name: str, t: float, prog: str, severity: str, text: str) -> None:
        """A switch's line."""
        self.switches[name].append(Line(t, prog, self.rng.randint(300, 9000), severity, text))

    def server(self, name: str, t: float, text: str, severity: str = "warning") -> None:
        """A storage server's kernel line."""
        self.servers[name].append(Line(t, "kernel", 0, severity, text))

    def opensm(self, t: float, text: str) -> None:
        """A line of the subnet manager."""
        self.sm.append(Line(t, "opensm", 0, "info", text))


def slurm_stamp(site: Site, t: float) -> str:
    """The bracket that starts a line of Slurm's own log files."""
    d = site.stamp(t)
    ms = f"{d.microsecond // 1000:03d}"
    zone = d.strftime("%z")
    zone = zone[:3] + ":" + zone[3:]
    form = site.slurm_format
    if form == "iso8601":
        return d.strftime("[%Y-%m-%dT%H:%M:%S]")
    if form == "rfc5424_ms":
        return d.strftime("[%Y-%m-%dT%H:%M:%S.") + ms + zone + "]"
    if form == "short":
        return d.strftime("[%b %d %H:%M:%S]")
    if form == "thread_id":
        return d.strftime("[%b %d %H:%M:%S.%f") + " 4021 slurm        0x7f3c11ffb700]"
    return d.strftime("[%Y-%m-%dT%H:%M:%S.") + ms + "]"


def dressed(site: Site, host: str, line: Line, skew: float, form: str, uptime: float = 0.0) -> str:
    """A syslog record in a file."""
    d = site.stamp(line.t + skew)
    text = f"[{uptime:12.6f}] {line.text}" if line.prog == "kernel" and site.kstamp else line.text
    if form == "rfc5424":
        facility = 0 if line.prog == "kernel" else 3
        zone = d.strftime("%z")
        pid = "-" if line.prog == "kernel" else str(line.pid)
        return f"<{facility * 8 + SEVERITY[line.severity]}>1 {d.strftime('%Y-%m-%dT%H:%M:%S.%f')}{zone[:3]}:{zone[3:]} {host} {line.prog} {pid} - - {text}"
    tag = "kernel" if line.prog == "kernel" else f"{line.prog}[{line.pid}]"
    if form == "iso":
        zone = d.strftime("%z")
        return f"{d.strftime('%Y-%m-%dT%H:%M:%S.%f')}{zone[:3]}:{zone[3:]} {host} {tag}: {text}"
    return f"{d.strftime('%b')} {d.day:2d} {d.strftime('%H:%M:%S')} {host} {tag}: {text}"


def switch_line(site: Site, host: str, line: Line) -> str:
    """A switch's record in its vendor's manner."""
    d = site.stamp(line.t)
    day = f"{d.strftime('%b')} {d.day:2d} {d.strftime('%H:%M:%S')}"
    if host.startswith("ib") or site.vendor == "onyx":
        return f"{day} {host} {line.prog}[{line.pid}]: [{line.prog}.{line.severity.upper()}]: {line.text}"
    if site.vendor == "sonic":
        return f"{day}.{d.microsecond:06d} {host} {line.severity.upper()} {line.prog}: {line.text}"
    if site.vendor == "cumulus":
        zone = d.strftime("%z")
        return (
            f"{d.strftime('%Y-%m-%dT%H:%M:%S.%f')}{zone[:3]}:{zone[3:]} {host} {line.prog}[{line.pid}]: {line.text}"
            if line.prog != "kernel"
            else (
                f"{d.strftime('%Y-%m-%dT%H:%M:%S.%f')}{zone[:3]}:{zone[3:]} {host} kernel: [{line.t - site.start + 912345.5:12.6f}] {line.text}"
            )
        )
    return f"{day} {host} {line.prog}: {line.text}"


def disordered(rng: random.Random, lines: list[Line]) -> list[Line]:
    """Sorted by time, but for a few that arrive late or twice."""
    keyed = []
    for line in lines:
        late = rng.uniform(2, 40) if rng.random() < 0.004 else 0.0
        keyed.append((line.t + late, line))
        if rng.random() < 0.003:
            keyed.append((line.t + late + 0.001, line))
    return [line for _, line in sorted(keyed, key=lambda k: (k[0], k[1].text))]


def put(path: Path, lines: list[str]) -> None:
    """A text file with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def write_node(log: Log, node: Node, root: Path) -> None:
    """Files of one host; a lost one kept only slurmd.log."""
    site, rng = log.site, log.rng
    place = root / "nodes" / node.name
    put(
        place / "slurmd.log",
        [f"{slurm_stamp(site, x.t + node.skew)} {x.text}" for x in disordered(rng, log.slurmd[node.name])],
    )
    if node.lost:
        return
    lines = disordered(rng, log.sys[node.name])
    put(
        place / site.sys_name,
        [dressed(site, node.name, x, node.skew, site.sys_format, node.uptime(x.t)) for x in lines],
    )
    kernel = sorted(x for x in log.sys[node.name] if x.prog == "kernel")
    if site.kern_log:
        put(
            place / "kern.log",
            [dressed(site, node.name, x, node.skew, site.sys_format, node.uptime(x.t)) for x in kernel],
        )
    if site.dmesg == "relative":
        last = max([node.boot, *(b for b in node.boots if b <= site.end)])
        put(place / "dmesg", [f"[{node.uptime(x.t):12.6f}] {x.text}" for x in kernel if x.t >= last])
    elif site.dmesg == "human":
        put(
            place / "dmesg",
            [f"[{site.stamp(x.t + node.skew).strftime('%a %b %e %H:%M:%S %Y')}] {x.text}" for x in kernel],
        )


def write_all(log: Log, root: Path) -> None:
    """Every log file but those of jobs; what comes after the window was never collected."""
    site = log.site
    log.ctld = [x for x in log.ctld if x.t <= site.end]
    log.sm = [x for x in log.sm if x.t <= site.end]
    for host, begin, end in log.quiet:
        for book in (log.sys, log.slurmd):
            book[host] = [x for x in book[host] if not begin < x.t < end]
    for book in (log.sys, log.slurmd, log.switches, log.servers):
        for name, lines in book.items():
            book[name] = [x for x in lines if x.t <= site.end]
    put(
        root / "controller" / "slurmctld.log",
        [f"{slurm_stamp(site, x.t)} {x.text}" for x in disordered(log.rng, log.ctld)],
    )
    if site.fabric == "ib":
        days = [(site.stamp(x.t), x.text) for x in sorted(log.sm)]
        put(
            root / "controller" / "opensm.log",
            [f"{d.strftime('%b %d %H:%M:%S')} {d.microsecond:06d} [A13F6640] {text}" for d, text in days],
        )
    for node in site.nodes:
        write_node(log, node, root)
    for name in sorted(log.switches):
        if name != site.mute_switch:
            put(
                root / "switches" / name / "syslog",
                [switch_line(site, name, x) for x in disordered(log.rng, log.switches[name])],
            )
    if site.storage == "lustre":
        for name in sorted(log.servers):
            put(
                root / "nodes" / name / site.sys_name,
                [
                    dressed(site, name, x, 0.0, site.sys_format, x.t - site.start + 4000000)
                    for x in sorted(log.servers[name])
                ],
            )
