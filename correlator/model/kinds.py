"""Root causes as the world sees them: from a fact's kind to the contract's name, category, sentence and advice."""

from __future__ import annotations

from dataclasses import dataclass

from correlator.model.nouns import Fact
from parsers.hostlist import fold


@dataclass(frozen=True)
class Cause:
    """``event``: the contract's root cause name. ``lost`` is the clause of the title, ``advice`` what to do."""

    event: str
    category: str
    lost: str
    plain: str
    advice: tuple[tuple[str, str | None], ...] = ()


_RESUME = ("When it is mended, put the node back into service.", "scontrol update nodename={host} state=resume")

CAUSES: dict[str, Cause] = {
    "link.outage": Cause(
        "nic.link_down", "infra.network", "{device} of {host} lost its link{for_time}", "a node lost its network",
        (("Drain {host} when it is idle and check cable, transceiver and switch port of {device}.",
          "scontrol update nodename={host} state=drain reason='link {device} down'"),),
    ),
    "switch.outage": Cause(
        "switch.failure", "infra.network", "switch {host} lost the links of {count} nodes{for_time}", "a network switch failed",
        (("Check power, supervisor and uplinks of {what}.", None),),
    ),
    "plane.outage": Cause(
        "switch.plane_failure", "infra.network", "switch {host} failed and took {device} from {count} nodes{for_time}", "a fabric plane failed",
        (("Check power, modules and supervisor of switch {host}.", None),),
    ),
    "node.reboot": Cause(
        "node.reboot", "infra.node", "{host} rebooted without being asked to", "a node rebooted under it",
        (("Look for a power or hardware cause: BMC event log, pstore, last kernel lines of {host}.", None), _RESUME),
    ),
    "node.panic": Cause(
        "node.panic", "infra.node", "the kernel of {host} panicked", "the operating system of a node crashed",
        (("Save the crash dump and kernel log of {host} before it is used again.", None), _RESUME),
    ),
    "slurmd.crash": Cause(
        "slurm.slurmd_crash", "infra.scheduler", "slurmd of {host} died", "Slurm's daemon on a node died",
        (("See why slurmd of {host} ended: journal, core file, memory. The node's network and machine were fine.", None),),
    ),
    "batch.lost": Cause(
        "slurm.slurmd_crash", "infra.scheduler", "the batch script was gone from {host}, which answered: its slurmstepd died or never began", "its batch script was lost on its node",
        (("See what ended slurmstepd on {host}: kernel log (OOM killer), core files in slurmd's log folder, an administrator's kill.", None),),
    ),
    "slurmd.stop": Cause(
        "slurm.admin_action", "infra.scheduler", "slurmd of {host} was stopped and not started again{for_time}", "Slurm's daemon on a node was stopped",
        (("Ask who stopped slurmd of {host} (systemctl, a package upgrade, a configuration tool), and start it.", "systemctl start slurmd"),),
    ),
    "munge.failure": Cause(
        "node.munge_failure", "infra.node", "munge of {host} failed", "authentication broke on a node",
        (("Restart munge on {host}; check its clock and its key (/etc/munge/munge.key).", "systemctl restart munge"),),
    ),
    "node.deaf": Cause(
        "node.unresponsive", "infra.node", "{host} accepted connections and did not answer", "a node stopped answering",
        (("On {host}, see whether slurmd hangs or munged is dead, and whether its network loses packets: all look like this from outside.", None),),
    ),
    "node.down": Cause(
        "node.unresponsive", "infra.node", "{host} stopped answering, for a reason no log tells", "a node stopped answering",
        (("Nothing that was collected tells why {host} fell silent. Look at its console and BMC event log.", None), _RESUME),
    ),
    "admin.down": Cause(
        "slurm.admin_action", "infra.scheduler", "somebody set {host} DOWN", "an administrator took a node out",
        (("Ask who set {host} DOWN; drain instead of down spares running jobs.", None),),
    ),
    "prolog.failure": Cause(
        "slurm.prolog_failure", "infra.scheduler", "the prolog failed on {host}", "a node failed its check before the job began",
        (("Run the prolog by hand on {host}.", None), _RESUME),
    ),
    "epilog.failure": Cause(
        "slurm.epilog_failure", "infra.scheduler", "the epilog failed on {host}", "a node failed its check after the job",
        (("Run the epilog by hand on {host}.", None), _RESUME),
    ),
    "gpu.xid": Cause(
        "gpu.xid", "infra.gpu", "GPU {device} of {host} reported Xid {code}", "a GPU failed",
        (("Drain {host}, reset or reboot it, and run the GPU's diagnostics.",
          "scontrol update nodename={host} state=drain reason='Xid {code}'"),),
    ),
    "pcie.aer": Cause(
        "pcie.aer", "infra.gpu", "the bus of {device} in {host} reported errors", "a GPU's bus failed",
        (("Reseat or replace the device at {device} of {host}.", None),),
    ),
    "node.dead": Cause(
        "node.unresponsive", "infra.node", "{host} died without a word", "a node died under it",
        (("Look for a power or hardware cause: BMC event log and console of {host}.", None), _RESUME),
    ),
    "memory.error": Cause(
        "node.memory_error", "infra.node", "memory of {host} lost data", "a node's memory failed",
        (("Drain {host} and replace the module that its log names.", "scontrol update nodename={host} state=drain reason='memory error'"),),
    ),
    "node.overheated": Cause(
        "node.overheated", "infra.node", "{host} shut itself down because of heat", "a node was too hot",
        (("Check fans, coolant and inlet temperature of {host} and of its rack before it is started again.", None), _RESUME),
    ),
    "link.errors": Cause(
        "nic.link_errors", "infra.network", "{device} of {host} kept its link and corrupted data", "a bad link slowed it",
        (("Take {device} of {host} out of the fabric; clean or replace cable and transceiver, then watch its error counters.", None),),
    ),
    "gpu.thermal": Cause("gpu.thermal", "infra.gpu", "GPUs of {host} were throttled by heat", "a GPU was slowed by heat",
                         (("Check fans, coolant and inlet temperature of {host}.", None),)),
    "disk.error": Cause("node.disk_error", "infra.node", "disk {device} of {host} failed", "a node's disk failed",
                        (("Replace {device} of {host}.", None),)),
    "disk.full": Cause("node.disk_full", "infra.node", "a disk of {host} was full", "a node's disk was full",
                       (("Free the disk of {host}; keep Slurm's spool apart from what jobs can fill.", None), _RESUME)),
    "storage.outage": Cause("storage.outage", "infra.storage", "storage target {device} was lost", "the shared storage failed",
                            (("Check the server of {device}.", None),)),
    "switch.silent": Cause("switch.failure", "infra.network", "{count} nodes ({nodes}) fell silent together, for a reason no log tells", "many nodes were cut off at once",
                           (("Check what {nodes} share: switch, uplink and power.", None),)),
    "gpu.told": Cause("gpu.xid", "infra.gpu", "a GPU of {host} failed, as the run's own output says", "a GPU failed",
                      (("Collect the kernel log of {host}; look there for an Xid, and run the GPU's diagnostics.", None),)),
    "disk.told": Cause("node.disk_error", "infra.node", "a local file system of {host} failed, as the run's own output says", "a node's disk failed",
                       (("Look at the kernel log and the disks of {host}.", None),)),
    "storage.told": Cause("storage.outage", "infra.storage", "{device} failed or timed out, as the output of {runs} says", "the shared storage failed",
                          (("Check the servers of {device}, and the clients' kernel logs.", None),)),
    "power.outage": Cause("node.power", "infra.node", "{count} nodes ({nodes}) went down together without a word", "many nodes lost power or were reset at once",
                          (("Check what {nodes} share: power feed, PDU, chassis, coolant trip; see their BMC event logs.", None),
                           ("When it is mended, put them back into service.", "scontrol update nodename={nodes} state=resume"))),
    "cooling.outage": Cause("gpu.thermal", "infra.gpu", "GPUs of {count} nodes ({nodes}) were throttled by heat that began together", "many nodes were slowed by heat",
                            (("Check the cooling that {nodes} share: coolant unit, pump, rack doors, air of the row.", None),)),
    "cooling.shutdown": Cause("node.overheated", "infra.node", "{count} nodes ({nodes}) shut themselves down because of heat, one after the other", "many nodes were too hot",
                              (("Check the cooling that {nodes} share before they are started again.", None),
                               ("When it is mended, put them back into service.", "scontrol update nodename={nodes} state=resume"))),
    "controller.restart": Cause("slurm.controller_restart", "infra.scheduler", "slurmctld restarted", "the controller restarted"),
    "node.drain": Cause("slurm.admin_action", "infra.scheduler", "{host} was drained", "a node was drained"),
}  # fmt: skip


#: A node of a cloud, or one that sleeps while nobody needs it, that was never there: nothing fell silent.
UNRESUMED = Cause(
    "node.unresponsive", "infra.node", "{host} did not resume: it was not up within ResumeTimeout", "a node that was to be powered up for it did not come up",
    (("See why {host} did not come up: ResumeProgram's log, the provider's quota and capacity, its boot (cloud-init), its way to slurmctld.", None),
     ("When it can start, clear its state.", "scontrol update nodename={host} state=power_down_force")),
)  # fmt: skip


#: Kinds of facts that may stand at the root: the rest are ways of showing it.
ROOTS = frozenset({
    "link.outage", "switch.outage", "node.reboot", "node.panic", "slurmd.crash", "munge.failure", "node.deaf", "node.down",
    "admin.down", "prolog.failure", "gpu.xid", "pcie.aer", "gpu.thermal", "disk.error", "disk.full", "storage.outage",
    "node.dead", "link.errors", "plane.outage", "gpu.told", "disk.told", "storage.told", "switch.silent",
    "power.outage", "cooling.outage", "cooling.shutdown", "slurmd.stop", "batch.lost", "memory.error", "node.overheated",
})  # fmt: skip


def cause_of(fact: Fact) -> Cause:
    if fact.kind == "node.down" and fact.attrs.get("unresumed"):
        return UNRESUMED
    return CAUSES.get(fact.kind, Cause(fact.kind, "unknown", f"{fact.kind} on {{host}}", fact.kind))


def root_event(fact: Fact) -> str:
    """A link that came back is a flap in the contract's words; Slurm's effect decides severity, not the name."""
    if fact.kind == "link.outage":
        return "nic.link_flap" if fact.attrs.get("flaps", 1) > 1 else "nic.link_down"
    if fact.attrs.get("planned"):
        return "node.maintenance"
    return str(fact.attrs.get("event") or cause_of(fact).event)


#: What would be seen if the cause were another one, by kind of root fact: "what would change my mind".
DISPROOF = {
    "link.outage": "The link's own counters or the far end showing it up during the wait, or another node of the run failing first.",
    "power.outage": "A line that one of the nodes wrote after the others had gone, or an order to reboot them.",
    "switch.outage": "Links of other switches going at the same moment (power, a maintenance), or these links going one by one.",
    "plane.outage": "The spine being healthy in its own log, or leaf links of other planes going too.",
    "link.errors": "Error counters of the port standing still while the steps stay slow, or steps slow before the first error.",
    "gpu.xid": "An error of the program printed before the Xid, or the same Xid following the run to other GPUs.",
    "cooling.outage": "One of these nodes hot long before the others, or others behind the same cooling that stayed cool.",
    "gpu.thermal": "Steps that stay slow after the GPU has cooled, or other runs on the node that kept their pace.",
    "pcie.aer": "The same errors going on for days without harm on this bus.",
    "disk.error": "The run's files lying on another file system.",
    "storage.outage": "Other clients of the target working on during the outage, or the run's files lying elsewhere.",
    "node.panic": "A panic that came after the run had ended.",
    "node.reboot": "Somebody who asked for the reboot, or a panic, power or thermal entry in the BMC's event log.",
    "node.dead": "A line that the node wrote after its link was lost: then it lived, and the link is the cause.",
    "node.down": "Any line of the node, its switch or its BMC from the time before it fell silent.",
    "memory.error": "The page being healthy in a memory test, or the same bus error on other nodes (a file that was cut short under a mapping).",
    "node.overheated": "Its BMC showing no heat at that time: then a sensor is at fault.",
    "munge.failure": "Other nodes being refused at the same time: then the controller's own munge, key or clock is at fault.",
    "node.deaf": "A munge error, a link loss or a panic of the node that was not collected.",
    "slurmd.stop": "A start of slurmd before the node was given up, or its machine going down with it.",
    "slurmd.crash": "A boot of the machine, or a stop of slurmd by an administrator, at that time.",
}

_ANY_DISPROOF = "A sign that the cause was elsewhere: another node of the same job failing first, or the same error without this event."


def disproof(fact: Fact) -> str:
    """What would speak against this root cause."""
    return DISPROOF.get(fact.kind) or _ANY_DISPROOF


def lost(fact: Fact) -> str:
    """The clause of the title: what broke."""
    if fact.kind == "switch.outage" and fact.attrs.get("nameless"):
        return fill(
            "{count} nodes ({nodes}) lost {behind} together{for_time}: what lies behind it failed, and no source names it",
            fact,
        )
    if fact.kind == "gpu.thermal" and fact.attrs.get("cooling"):
        return fill(cause_of(fact).lost, fact) + ", after its controller warned of the cooling"
    if fact.kind in ("cooling.outage", "cooling.shutdown"):
        near = f", behind {fact.attrs['near']}" if fact.attrs.get("near") else ""
        warned = f" ({fact.attrs['cooling']})" if fact.attrs.get("cooling") else ""
        return fill(cause_of(fact).lost, fact) + near + warned
    if fact.kind == "node.deaf" and fact.attrs.get("mutual"):
        return f"slurmctld and {fact.host} timed out on each other (packets lost between them, or a starved node)"
    if fact.kind == "munge.failure" and fact.attrs.get("clock"):
        return f"the clock of {fact.host} was {fact.attrs['clock']} by more than munge allows"
    if fact.kind == "munge.failure" and fact.attrs.get("refused") == "invalid":
        return f"munge of {fact.host} had another key than the cluster's"
    if fact.kind == "node.down" and str(fact.attrs.get("unresumed") or "").isdigit():
        return fill(cause_of(fact).lost, fact) + f" ({fact.attrs['unresumed']} s)"
    if fact.kind == "switch.silent" and fact.attrs.get("unsaid"):
        return fill("{count} nodes ({nodes}) were lost to Slurm together, for a reason no log tells", fact)
    if unsaid(fact):
        return f"{fact.host} was lost to Slurm, for a reason no log tells"
    if fact.kind == "admin.down" and fact.attrs.get("reason"):
        checked = fact.attrs.get("owner") not in (None, "admin")
        who = "a health check" if checked else fact.attrs.get("who") or "somebody"
        return f"{who} set {fact.host} DOWN ({fact.attrs['reason']})"
    if fact.attrs.get("planned"):
        reason = fact.attrs.get("reason") or fact.attrs.get("asked")
        return f"{fact.host} was rebooted in planned work" + (f" ({reason})" if reason else "")
    return fill(cause_of(fact).lost, fact)


def unsaid(fact: Fact) -> bool:
    """A node that was lost to Slurm, and of which nobody says that it fell silent: somebody may as well have set it DOWN."""
    told = fact.events or fact.attrs.get("said_by") != "accounting" or fact.attrs.get("silent")
    return fact.kind == "node.down" and not told and not fact.attrs.get("unresumed")


def fill(template: str, fact: Fact) -> str:
    if "{" not in template:
        return template
    seconds, hosts = fact.duration, fact.attrs.get("hosts", ())
    return template.format(
        host=fact.host or "an unnamed node", device=fact.device or "the port", code=fact.attrs.get("code"),
        behind=fact.attrs.get("behind"), what=f"switch {fact.host}" if fact.host else "what these nodes share", runs=_runs(fact), nodes=fold(sorted(hosts)) if "{nodes}" in template else "",
        count=len(hosts),
        for_time=f" for {seconds:.1f} s" if seconds is not None else "",
    )  # fmt: skip


def _runs(fact: Fact) -> str:
    runs = fact.attrs.get("runs") or ()
    return f"{len(runs)} runs" if len(runs) > 1 else f"job {runs[0]}" if runs else "the run"
