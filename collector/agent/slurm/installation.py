"""The Slurm installation of a host: which slurm.conf counts here and why, and the users that its hooks run as."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collector.agent.failure import Missing
from collector.agent.slurm import conf as slurm_conf
from collector.agent.slurm.conf import SlurmConf
from collector.agent.slurm.daemons import Daemon, running, units
from collector.agent.slurm.host import ROOT, Account, Host

DEFAULT_PLACES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/usr/local/etc/slurm.conf", "/opt/slurm/etc/slurm.conf",
         "/sched/slurm.conf")  # fmt: skip
#: Where slurmd and sackd keep what they got from the controller.
CACHES = ("/run/slurm/conf/slurm.conf", "/var/spool/slurmd/conf-cache/slurm.conf", "/run/slurm-sackd/conf/slurm.conf")
CONTROLLER, NODE = "controller", "node"


@dataclass(frozen=True)
class Installation:
    """``why``: how the file was found. ``others``: other configurations on this host, which do not count.
    ``roles``: what this host is; empty where nothing tells."""

    host: Host
    conf: SlurmConf
    why: str
    others: tuple[str, ...]
    roles: frozenset[str]
    daemons: tuple[Daemon, ...]
    configless: bool

    @property
    def cluster(self) -> str:
        return self.conf.get("ClusterName")

    def user(self, setting: str) -> Account:
        """SlurmUser or SlurmdUser. Raises ``Missing`` for a name that this host does not know."""
        name = self.conf.get(setting, "root")
        found = self.host.account(name)
        if found is None:
            raise Missing(f"{setting}={name} ({self.conf.at(setting)}) is no account of this host")
        return found

    def runs(self, name: str) -> Daemon | None:
        return next((daemon for daemon in self.daemons if daemon.name == name), None)


def find(host: Host, given: str = "", roles: frozenset[str] = frozenset()) -> Installation:
    """Finds the installation; ``given`` names its slurm.conf. Raises ``Missing`` with the places where it looked."""
    daemons, planned = running(host), units(host)
    tried: list[str] = []
    chosen: tuple[SlurmConf, str] | None = None
    configless = any(d.configless for d in daemons) or (not daemons and any(d.configless for d in planned))
    others = []
    for path, why in _candidates(host, given, [*daemons, *planned], configless):
        if path in tried:
            continue
        tried.append(path)
        conf = slurm_conf.read(host, path)
        if conf is None:
            if given:
                raise Missing(f"{given} cannot be read")
            continue
        if chosen is None:
            chosen = conf, why
        elif host.bytes(path) != host.bytes(chosen[0].path):
            others.append(path)
    if chosen is None:
        raise Missing(f"no slurm.conf found: looked at {', '.join(tried)}; --conf FILE names it")
    conf, why = chosen
    return Installation(
        host, conf, why, tuple(others), roles or _roles(host, conf, daemons), tuple(daemons),
        conf.path in _caches(conf),
    )  # fmt: skip


def _candidates(host: Host, given: str, daemons: list[Daemon], configless: bool) -> Iterator[tuple[str, str]]:
    """Paths in the order in which they count, with the reason."""
    if given:
        yield given, "--conf"
    for daemon in daemons:
        if daemon.conf:
            yield daemon.conf, f"told to {daemon}"
    if host.environ.get("SLURM_CONF"):
        yield host.environ["SLURM_CONF"], "SLURM_CONF"
    cached = [(path, "cache of a slurmd that is configured by its controller") for path in CACHES]
    if configless:
        yield from cached
    for path in DEFAULT_PLACES:
        yield path, "default place"
    if not configless:
        yield from cached


def _caches(conf: SlurmConf) -> tuple[str, ...]:
    return (*CACHES, f"{conf.get('SlurmdSpoolDir', '/var/spool/slurmd')}/conf-cache/slurm.conf")


def _roles(host: Host, conf: SlurmConf, daemons: list[Daemon]) -> frozenset[str]:
    """What runs here says it; before the daemons were ever started, what is installed."""
    names = {daemon.name for daemon in daemons}
    if not names:
        places = ("/usr/sbin", "/usr/local/sbin", "/opt/slurm/sbin")
        names = {n for n in ("slurmctld", "slurmd") if any(host.path(f"{place}/{n}").exists() for place in places)}
    return frozenset({CONTROLLER} if "slurmctld" in names else ()) | frozenset({NODE} if "slurmd" in names else ())


__all__ = ["CONTROLLER", "NODE", "ROOT", "Installation", "find"]
