"""Lines that look like the cause of a user's own mistake, because they stand just before it on the same host."""

from oc_core import Incident, Run, Sim
from oc_gpu import xid
from oc_net import FLAP, flap
from oc_site import Node


def silicon(sim: Sim, run: Run, node: Node, t: float, what: str) -> Incident:
    """A corrected bus error, or a row that was remapped."""
    rng, where = sim.rng, f"nodes/{node.name}"
    if what == "aer":
        gpu = rng.randrange(8)
        needle = "AER: Corrected error received"
        inc = sim.incident(
            "decoy_aer", "infra.node", ("pcie_aer",), node.name, node.bdf(gpu), "benign", needle=needle, where=where
        )
        port = f"pcieport {node.bdf(gpu)[:7]}:01.0"
        sim.log.kern(node, t, f"{port}: {needle}: {node.bdf(gpu)}.0")
        sim.log.kern(
            node,
            t + 0.01,
            f"nvidia {node.bdf(gpu)}.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
        )
    else:
        gpu = rng.choice(run.held[node.name])
        bus = node.bdf(gpu).split(":")[1]
        inc = sim.incident(
            "decoy_remap",
            "infra.gpu",
            ("gpu_xid_63", "gpu_ecc"),
            node.name,
            bus,
            "benign",
            needle=": 63, ",
            where=where,
        )
        text = (
            f"Row Remapper: New row (0x{rng.randint(0, 0xFFFFFFFF):016x}) marked for remapping, reset gpu to activate."
        )
        xid(sim, node, gpu, t, 63, text, False)
    return inc


def decoy(sim: Sim, run: Run) -> None:
    """Something benign on a host of the run, some time before its own end."""
    rng, site = sim.rng, sim.site
    node = rng.choice(run.nodes)
    now = sim.now
    ago = rng.uniform(4, 240)
    if now - ago < run.start:
        return
    what = rng.choice(("rail", "mgmt", "aer", "remap", "clock", "filer"))
    rail = rng.randrange(4) if what == "rail" else -1
    needle, where, t = "", f"nodes/{node.name}", now - ago
    if what in ("rail", "mgmt"):
        switch = site.leaf(node.group, rail) if rail >= 0 else site.mgmt_switch(node.group)
        device = site.rail_nic(rail) if rail >= 0 else site.mgmt_nic
        inc = sim.incident("decoy_flap", "infra.network", FLAP, node.name, device, "benign", needle="ink", where=where)
        if rail >= 0 and site.mute_hca:
            port = site.port(site.index(node), rail)
            inc["extra"].update(needle=port, where=f"switches/{switch}", lost=switch == site.mute_switch)
        flap(sim, node, rail, t, rng.uniform(0.4, 2.5))
    elif what in ("aer", "remap"):
        inc = silicon(sim, run, node, t, what)
    elif what == "clock":
        sim.log.daemon(
            node, t, "chronyd", f"System clock was stepped by {rng.uniform(-3, 3):.6f} seconds", "warning", 1010
        )
        return
    else:
        if site.storage != "nfs":
            return
        server = site.servers[0]
        needle = f"nfs: server {server} not responding, still trying"
        inc = sim.incident(
            "decoy_filer",
            "infra.storage",
            ("storage_nfs_error", "lustre_ost_outage", "storage_outage"),
            node.name,
            server,
            "benign",
            needle=needle,
            where=where,
        )
        sim.log.kern(node, t, needle, "err")
        sim.log.kern(node, t + rng.uniform(1, 3), f"nfs: server {server} OK", "notice")
    inc["start"], inc["end"] = t, t + 3
    inc["start_iso"] = site.stamp(t).isoformat()
    inc["jobs_not_affected"] = [run.key]
