"""Root events of networks."""

from oc_collective import abort
from oc_core import Incident, Sim
from oc_ends import lose_nodes, returned
from oc_gpu import drain
from oc_site import NIC_BDFS, Node
from oc_switch import crash, optic_words, port_line

FLAP = ("nic_link_flap", "nic_link_down")


def node_link(sim: Sim, node: Node, rail: int, t: float, up: bool) -> None:
    """The node's own word about a rail's port; at some InfiniBand sites it has none."""
    if sim.site.mute_hca:
        return
    word = "up" if up else "down"
    if sim.site.fabric == "ib":
        state = "ACTIVE" if up else "DOWN"
        if sim.site.kernel.startswith("6.8"):
            sim.log.kern(node, t, f"mlx5_core {NIC_BDFS[rail]} mlx5_{rail}: Port: 1 Link {state}", "info")
        else:
            sim.log.kern(node, t, f"mlx5_core {NIC_BDFS[rail]} {sim.site.rail_nic(rail)}: Link {word}", "info")
    else:
        sim.log.kern(node, t, f"mlx5_core {NIC_BDFS[rail]} {sim.site.rail_nic(rail)}: Link {word}", "info")
    if up and sim.site.fabric != "ib":
        sim.log.kern(
            node, t + 0.01, f"IPv6: ADDRCONF(NETDEV_CHANGE): {sim.site.rail_nic(rail)}: link becomes ready", "info"
        )


def mgmt_link(sim: Sim, node: Node, t: float, up: bool) -> None:
    """The node's own word about its management port."""
    nic, bdf = sim.site.mgmt_nic, "0000:61:00.0"
    words = {
        "ice": (
            f"ice {bdf} {nic}: NIC Link is Down",
            f"ice {bdf} {nic}: NIC Link is up 25 Gbps Full Duplex, Requested FEC: RS-FEC, Negotiated FEC: RS-FEC, Autoneg Advertised: Off, Autoneg Negotiated: False, Flow Control: None",
        ),
        "bnxt_en": (
            f"bnxt_en {bdf} {nic}: NIC Link is Down",
            f"bnxt_en {bdf} {nic}: NIC Link is Up, 25000 Mbps full duplex, Flow control: none",
        ),
        "i40e": (
            f"i40e {bdf} {nic}: NIC Link is Down",
            f"i40e {bdf} {nic}: NIC Link is Up, 10 Gbps Full Duplex, Flow Control: None",
        ),
        "tg3": (f"tg3 {bdf} {nic}: Link is down", f"tg3 {bdf} {nic}: Link is up at 1000 Mbps, full duplex"),
        "igb": (
            f"igb {bdf} {nic}: igb: {nic} NIC Link is Down",
            f"igb {bdf} {nic}: igb: {nic} NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX",
        ),
    }
    sim.log.kern(node, t, words[sim.site.mgmt_driver][up], "info")


def removed_port(sim: Sim, node: Node, rail: int, t: float) -> None:
    """opensm drops an adapter's port after a sweep."""
    index = sim.site.index(node)
    guid = 0xB8CEF600_00000000 + index * 16 + rail
    text = f"0x02 -> drop_mgr_remove_port: Removed port with GUID:0x{guid:016x} LID range {100 + index}, {100 + index} of node:{node.name} HCA-{rail + 1}"
    sim.log.opensm(t, text)


def flap(sim: Sim, node: Node, rail: int, t: float, seconds: float) -> None:
    """One loss and return of a port, as both ends tell it; rail -1 is management."""
    site = sim.site
    index = site.index(node)
    switch = site.leaf(node.group, rail) if rail >= 0 else site.mgmt_switch(node.group)
    port = site.port(index, rail)
    for moment, up in ((t, False), (t + seconds, True)):
        port_line(sim, switch, port, moment + 0.05, up)
        if rail >= 0:
            node_link(sim, node, rail, moment, up)
        else:
            mgmt_link(sim, node, moment, up)
    if rail >= 0 and site.fabric == "ib":
        sim.log.opensm(
            t + 1.2,
            f"0x02 -> osm_ucast_mgr_process: ucast sweep; Reporting Generic Notice type:1 num:128 (Link state change) from LID:{30 + node.group}",
        )
        if seconds > 5:
            removed_port(sim, node, rail, t + 3.4)


def told_by_switch(sim: Sim, inc: Incident, node: Node, rail: int) -> None:
    """Where nodes are mute, the evidence is the leaf's."""
    if sim.site.mute_hca:
        switch = sim.site.leaf(node.group, rail)
        inc["extra"].update(
            needle=sim.site.port(sim.site.index(node), rail),
            where=f"switches/{switch}",
            lost=switch == sim.site.mute_switch,
        )


def rail_down(sim: Sim) -> bool:
    """A rail's port goes away for longer than retries last: peers scream first."""
    runs = sim.running(("train", "mpi"), 2)
    if not runs:
        return False
    rng, site = sim.rng, sim.site
    run = rng.choice(runs)
    place = rng.randrange(len(run.nodes))
    node, rail = run.nodes[place], rng.randrange(4)
    seconds = rng.choice((rng.uniform(25, 80), rng.uniform(200, 1500)))
    inc = sim.incident(
        "rail_port_down",
        "infra.network",
        (*FLAP, "link_errors"),
        node.name,
        site.rail_nic(rail),
        needle=": Link down" if site.fabric != "ib" or not site.kernel.startswith("6.8") else "Link DOWN",
        where=f"nodes/{node.name}",
        switch=site.leaf(node.group, rail),
    )
    inc["extra"]["also"] = f"mlx5_{rail}"
    inc["root_cause"]["device"] = (
        f"mlx5_{rail}" if site.fabric == "ib" and site.kernel.startswith("6.8") else site.rail_nic(rail)
    )
    told_by_switch(sim, inc, node, rail)
    flap(sim, node, rail, sim.now, seconds)
    for _ in range(rng.choice((0, 0, 2))):
        flap(sim, node, rail, sim.now + seconds + rng.uniform(5, 40), rng.uniform(1, 4))
    first = rng.uniform(12, 24)
    abort(sim, run, inc, place, first, first + rng.uniform(4, 90), "ib", rail)
    inc["end"] = sim.now + seconds
    return True


def flap_tolerated(sim: Sim) -> bool:
    """A rail's port blinks; retransmission bridges it."""
    runs = sim.running(("train", "mpi"), 2) or sim.running()
    if not runs:
        return False
    run = sim.rng.choice(runs)
    node, rail = sim.rng.choice(run.nodes), sim.rng.randrange(4)
    site = sim.site
    inc = sim.incident(
        "rail_flap_tolerated",
        "infra.network",
        FLAP,
        node.name,
        site.rail_nic(rail),
        "benign",
        needle="down",
        where=f"nodes/{node.name}",
    )
    seconds = sim.rng.uniform(0.6, 3.5)
    told_by_switch(sim, inc, node, rail)
    flap(sim, node, rail, sim.now, seconds)
    inc["end"] = sim.now + seconds
    return True


def mgmt_flap(sim: Sim) -> bool:
    """The management port blinks, Slurm hardly notices."""
    nodes = [n for n in sim.site.nodes if n.up and not n.cut and sim.on(n)]
    if not nodes:
        return False
    node = sim.rng.choice(nodes)
    seconds = sim.rng.uniform(2, 40)
    inc = sim.incident(
        "mgmt_flap_tolerated",
        "infra.network",
        FLAP,
        node.name,
        sim.site.mgmt_nic,
        "benign",
        needle="ink is",
        where=f"nodes/{node.name}",
    )
    flap(sim, node, -1, sim.now, seconds)
    if seconds > 20 and sim.rng.random() < 0.6:
        sim.log.ctl(sim.now + seconds + 5, f"Node {node.name} now responding")
    inc["end"] = sim.now + seconds
    return True


def mgmt_down(sim: Sim) -> bool:
    """The management port is gone past SlurmdTimeout: NODE_FAIL minutes later."""
    nodes = [n for n in sim.site.nodes if n.up and not n.cut and sim.on(n)]
    if not nodes:
        return False
    node = sim.rng.choice(nodes)
    site, rng = sim.site, sim.rng
    seconds = site.timeout * rng.uniform(1.7, 4)
    inc = sim.incident(
        "mgmt_port_down",
        "infra.network",
        FLAP,
        node.name,
        site.mgmt_nic,
        needle="ink is",
        where=f"nodes/{node.name}",
        switch=site.mgmt_switch(node.group),
    )
    flap(sim, node, -1, sim.now, seconds)
    lose_nodes(sim, [node.name], inc, back=seconds + 900)
    returned(sim, node.name, sim.now + seconds + rng.uniform(100, 900))
    inc["end"] = sim.now + seconds
    return True


def leaf_crash(sim: Sim) -> bool:
    """A leaf of one plane restarts by itself: its rails vanish for minutes, jobs over them die."""
    runs = sim.running(("train", "mpi"), 2)
    if not runs:
        return False
    rng, site, log = sim.rng, sim.site, sim.log
    group, plane = rng.choice(rng.choice(runs).nodes).group, rng.randrange(2)
    switch, t, seconds = site.leaf(group, plane), sim.now, rng.uniform(150, 420)
    members = [n for n in site.nodes if n.group == group and n.up]
    inc = sim.incident(
        "leaf_crash",
        "infra.network",
        ("switch_failure", "plane_failure"),
        switch,
        None,
        hosts=[n.name for n in members],
        needle="",
        where=f"switches/{switch}",
        switch=switch,
    )
    inc["extra"].update(
        lost=False, needle="ink ", where=f"nodes/{next((n.name for n in members if not n.lost), members[0].name)}"
    )
    if site.mute_hca:
        inc["extra"].update(lost=False, needle=f"Removed switch {switch}", where="controller/opensm.log")
    for node in members:
        for rail in (plane, plane + 2):
            lag = rng.uniform(0, 0.8)
            node_link(sim, node, rail, t + lag, False)
            node_link(sim, node, rail, t + seconds + lag, True)
    crash(sim, switch, t, seconds)
    if site.fabric == "ib":
        log.opensm(t + 2, f"0x01 -> osm_drop_mgr: Removed switch {switch} GUID:0xb8cef6030000{group:02x}{plane:02x}")
        for node in members:
            for rail in (plane, plane + 2):
                removed_port(sim, node, rail, t + 2.1)
        log.opensm(
            t + seconds + 4,
            f"0x02 -> Discovered new port with GUID:0xb8cef6030000{group:02x}{plane:02x} LID range [{30 + group},{30 + group}] of node:{switch}",
        )
    for spine in (s for s in site.spines if s[-1] == "ab"[plane]):
        port = f"IB1/{group + 1}" if site.fabric == "ib" else site.port(group)
        port_line(sim, spine, port, t + 0.1, False)
        port_line(sim, spine, port, t + seconds + 8, True)
    for run in runs:
        mine = [i for i, n in enumerate(run.nodes) if n.group == group]
        if mine and run.live:
            first = rng.uniform(13, 26)
            abort(sim, run, inc, rng.choice(mine), first, first + rng.uniform(5, 60), "ib", plane)
    inc["end"] = sim.now + seconds
    return True


def oob_switch_down(sim: Sim) -> bool:
    """The management switch of a group loses power: sixteen nodes stop to answer, their fabric is fine."""
    groups = [g for g in range(sim.site.groups) if sum(bool(sim.on(n)) for n in sim.site.nodes if n.group == g) >= 3]
    if not groups:
        return False
    rng, site = sim.rng, sim.site
    group = rng.choice(groups)
    members = [n for n in site.nodes if n.group == group and n.up]
    switch, t = site.mgmt_switch(group), sim.now
    seconds = site.timeout * rng.uniform(1.8, 3)
    inc = sim.incident(
        "oob_switch_down",
        "infra.network",
        ("switch_failure",),
        switch,
        None,
        hosts=[n.name for n in members],
        needle="ink is",
        where=f"nodes/{next((n.name for n in members if not n.lost), members[0].name)}",
        switch=switch,
    )
    for node in members:
        mgmt_link(sim, node, t + rng.uniform(0, 0.3), False)
        mgmt_link(sim, node, t + seconds + rng.uniform(0, 3), True)
        returned(sim, node.name, t + seconds + rng.uniform(60, 900))
    crash(sim, switch, t + 1, seconds)
    lose_nodes(sim, [n.name for n in members], inc, back=seconds + 1000)
    inc["end"] = sim.now + seconds
    return True


def dirty_optic(sim: Sim) -> bool:
    """Errors on a link kill a job by retries; the switch complains only at its next poll, after the job's end."""
    runs = sim.running(("train", "mpi"), 2)
    if not runs:
        return False
    rng, site = sim.rng, sim.site
    run = rng.choice(runs)
    place = rng.randrange(len(run.nodes))
    node, rail = run.nodes[place], rng.randrange(4)
    switch, port = site.leaf(node.group, rail), site.port(site.index(node), rail)
    inc = sim.incident(
        "dirty_optic",
        "infra.network",
        ("link_errors", "nic_link_degraded", "ib_link_integrity", *FLAP, "switch_optic_warning", "nic_error"),
        node.name,
        site.rail_nic(rail),
        needle=port,
        where=f"switches/{switch}",
        switch=switch,
    )
    inc["extra"]["lost"] = switch == site.mute_switch
    if site.fabric == "ib":
        inc["extra"].update(lost=False, needle=f"connected to {node.name} ", where="controller/opensm.log")
    first = rng.uniform(20, 200)
    late = sim.now + first + rng.choice((-15, 40, 240, 500))
    optic_words(sim, switch, port, late, node.name, rail)
    abort(sim, run, inc, place, first, first + rng.uniform(5, 40), "ib", rail)
    inc["end"] = max(inc["end"], late)
    return True


def nic_firmware(sim: Sim) -> bool:
    """The adapter's firmware dies."""
    runs = sim.running(("train", "mpi"), 2)
    if not runs:
        return False
    rng, site = sim.rng, sim.site
    run = rng.choice(runs)
    place = rng.randrange(len(run.nodes))
    node, rail = run.nodes[place], rng.randrange(4)
    bdf, t = NIC_BDFS[rail], sim.now
    inc = sim.incident(
        "nic_firmware_fatal",
        "infra.network",
        ("nic_error", "nic_link_down", "nic_link_flap", "nic_failure"),
        node.name,
        f"mlx5_{rail}",
        needle="health compromised",
        where=f"nodes/{node.name}",
        switch=site.leaf(node.group, rail),
    )
    inc["root_cause"]["device"] = None
    sim.log.kern(
        node,
        t,
        f"mlx5_core {bdf}: poll_health:{rng.choice((801, 825, 866))}:(pid 0): device's health compromised - reached miss count",
        "err",
    )
    sim.log.kern(
        node,
        t + 0.01,
        f"mlx5_core {bdf}: print_health_info:{rng.choice((431, 490))}:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:",
        "err",
    )
    sim.log.kern(
        node, t + 0.02, f"mlx5_core {bdf}: print_health_info:437:(pid 0): synd 0x1: firmware internal error", "err"
    )
    sim.log.kern(
        node,
        t + 61,
        f"mlx5_core {bdf}: wait_func:1151:(pid {rng.randint(1000, 90000)}): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource",
        "err",
    )
    port_line(sim, site.leaf(node.group, rail), site.port(site.index(node), rail), t + 2, False)
    first = rng.uniform(14, 26)
    abort(sim, run, inc, place, first, first + rng.uniform(4, 60), "ib", rail)
    drain(sim, node, t + 400, "IB/RoCE device mlx5 in error")
    return True


def spine_loss(sim: Sim) -> bool:
    """A spine of one plane is lost; the other carries on."""
    site, rng, t = sim.site, sim.rng, sim.now
    spine = rng.choice(site.spines)
    plane = spine[-1]
    leaves = [site.leaf(g, "ab".index(plane)) for g in range(site.groups)]
    inc = sim.incident(
        "spine_lost",
        "infra.network",
        ("plane_failure", "switch_failure"),
        spine,
        None,
        "degraded",
        hosts=[spine, *leaves],
        switch=spine,
        needle="",
        where=f"switches/{leaves[0]}",
    )
    seconds = rng.uniform(300, 900)
    for leaf in leaves:
        uplink = "IB1/40" if leaf.startswith("ib") else site.port(40 + int(spine[-2]))
        port_line(sim, leaf, uplink, t + rng.uniform(0, 0.4), False)
        port_line(sim, leaf, uplink, t + seconds + rng.uniform(0, 4), True)
    inc["end"] = t + seconds
    return True


KINDS = {
    "rail_port_down": (rail_down, 4),
    "rail_flap_tolerated": (flap_tolerated, 4),
    "mgmt_flap_tolerated": (mgmt_flap, 3),
    "mgmt_port_down": (mgmt_down, 3),
    "leaf_crash": (leaf_crash, 1),
    "oob_switch_down": (oob_switch_down, 1),
    "dirty_optic": (dirty_optic, 2),
    "nic_firmware_fatal": (nic_firmware, 2),
    "spine_lost": (spine_loss, 1),
}
