"""The attributes and kinds of facts about machines."""

from __future__ import annotations

from dataclasses import replace
from typing import NotRequired, TypedDict

from correlator.model.attributes import ASKED, PLANNED, REASON, SILENT, UNRESUMED
from correlator.model.attrs import Attr, attr
from correlator.model.kinds import Band, Cause, Kind, NoAttrs, Trace, literal
from correlator.model.nouns import Fact


class NodeDown(TypedDict):
    """A node that Slurm gave up.

    ``said_by``: slurmctld, or accounting. ``unresumed``: the ResumeTimeout in seconds of a node that was powered up and
    did not come, or ``REBOOTED`` for one that did not come back from a reboot. ``silent``: its state says that it did not answer. ``reason`` is Slurm's. ``polled``: how many seconds
    after the run's end it was first seen.
    """

    said_by: str | None
    unresumed: NotRequired[str | None]
    silent: NotRequired[bool]
    reason: NotRequired[str]
    polled: NotRequired[float]


class AdminDown(TypedDict):
    """A node that was set DOWN; ``component`` and ``owner`` are what the reason names, ``who`` gave it.

    ``powered``: somebody had it powered down.
    """

    said_by: str | None
    unresumed: NotRequired[str | None]
    reason: NotRequired[str]
    component: NotRequired[str]
    owner: NotRequired[str]
    who: NotRequired[str]
    polled: NotRequired[float]
    powered: NotRequired[bool]


class NodeReboot(TypedDict):
    """A reboot of a machine.

    ``boot`` and ``last_response`` are those in slurmctld's line, ``noticed`` is when it noticed. ``inferred``: the
    machine went some time between ``start`` and ``end``. ``planned`` with its ``reason``, or what was ``asked`` of
    Slurm; ``passing``: a node that is switched on and off every day.
    """

    boot: NotRequired[float | None]
    last_response: NotRequired[float | None]
    noticed: NotRequired[float]
    inferred: NotRequired[bool]
    planned: NotRequired[bool]
    passing: NotRequired[bool]
    reason: NotRequired[str | None]
    asked: NotRequired[str]


class NodeDead(TypedDict):
    """``last_word``: when it wrote its last line; ``booted``: when its kernel started again."""

    last_word: float
    booted: float | None


#: Attributes that are read in this folder only.
OWNER: Attr[str] = attr("owner")
SAID_BY: Attr[str | None] = attr("said_by")
WHO: Attr[str] = attr("who")
POWERED: Attr[bool] = attr("powered")

#: The value of ``unresumed`` for a node that Slurm had rebooted.
REBOOTED = "rebooted"


RESUME = ("When it is mended, put the node back into service.", "scontrol update nodename={host} state=resume")


def is_resume(command: str | None) -> bool:
    """Does a command of an advice put nodes back into service?"""
    return command is not None and command.endswith(" state=resume")


_SILENT = Cause(
    "node.unresponsive", "infra.node", "{host} stopped answering, for a reason no log tells", "a node stopped answering",
    (("Nothing that was collected tells why {host} fell silent. Look at its console and BMC event log.", None), RESUME),
    short="{host} fell silent", unharmed="degraded", surest=0.75, family="machine",
    doubt="Nothing that was collected tells why the node fell silent",
    disproof="Any line of the node, its switch or its BMC from the time before it fell silent.",
)  # fmt: skip

#: No line says that it fell silent: it may have been set DOWN.
_UNREPORTED = replace(
    _SILENT, title="{host} was lost to Slurm, for a reason no log tells", short="{host} was lost to Slurm"
)

#: A cloud node, or one that is suspended while idle, that never came up: it did not fall silent.
_UNRESUMED = Cause(
    "node.unresponsive", "infra.node", "{host} did not resume: it was not up within ResumeTimeout", "a node that was to be powered up for it did not come up",
    (("See why {host} did not come up: ResumeProgram's log, the provider's quota and capacity, its boot (cloud-init), its way to slurmctld.", None),
     ("When it can start, clear its state.", "scontrol update nodename={host} state=power_down_force")),
    short="{host} did not resume", unharmed="degraded", family="machine",
    doubt="Why it did not come up, the cloud's own log tells (ResumeProgram, its provider's quota and capacity)", disproof=_SILENT.disproof,
)  # fmt: skip


#: The same after a reboot that Slurm was asked for: by a job (--reboot) or by ``scontrol reboot``.
_UNBOOTED = replace(
    _UNRESUMED, title="{host} did not come back from a reboot within ResumeTimeout", plain="a node that Slurm had rebooted did not come back in time",
    short="{host} did not come back from a reboot", doubt="Why it did not come back, its console tells (RebootProgram, its boot)",
    advice=(("See why {host} did not come back: RebootProgram's log, its console, its boot, its way to slurmctld.", None), RESUME),
)  # fmt: skip


def is_unreported(fact: Fact) -> bool:
    """Was the node lost to Slurm without a line that it fell silent? It may have been set DOWN."""
    reported = fact.events or fact.attrs.get(SAID_BY) != "accounting" or fact.attrs.get(SILENT)
    return fact.kind == NODE_DOWN.name and not reported and not fact.attrs.get(UNRESUMED)


def _down_as(fact: Fact) -> Cause | None:
    if timeout := fact.attrs.get(UNRESUMED):
        if timeout == REBOOTED:
            return _UNBOOTED
        return replace(_UNRESUMED, title=_UNRESUMED.title + f" ({timeout} s)") if str(timeout).isdigit() else _UNRESUMED
    return _UNREPORTED if is_unreported(fact) else None


def _down_band(fact: Fact) -> list[Band]:
    return [Band(str(fact.host), "node", fact.host, fact.device, "down", "DOWN")]


NODE_DOWN = Kind(
    "node.down", "node", "slurmctld gave up the node and set it DOWN.", NodeDown,
    witnesses=("slurmctld", "kernel", "slurmd"),
    brief="node set DOWN", role="effect", bands=_down_band, awaits=lambda fact: True, cause=_SILENT, variant=_down_as,
)  # fmt: skip

_ADMIN = Cause(
    "slurm.admin_action", "infra.scheduler", "somebody set {host} DOWN", "an administrator took a node out",
    (("Ask who set {host} DOWN; drain instead of down spares running jobs.", None),), unharmed="benign",
)  # fmt: skip


_POWERED_ADVICE = (
    ("Ask who had {host} powered down; state=power_down_asap waits until its jobs are over.", None),
)  # fmt: skip


def _set_down_by(fact: Fact) -> Cause | None:
    reason = " ({reason})" if fact.attrs.get(REASON) else ""
    checked = fact.attrs.get(OWNER) not in (None, "admin")
    who = "a health check" if checked else fact.attrs.get(WHO) or "somebody"
    if fact.attrs.get(POWERED):
        return replace(
            _ADMIN, title=f"{literal(who)} had {{host}} powered down under its jobs{reason}", advice=_POWERED_ADVICE
        )
    return replace(_ADMIN, title=f"{literal(who)} set {{host}} DOWN{reason}") if reason else None


ADMIN_DOWN = Kind(
    "admin.down", "node", "Somebody set the node DOWN.", AdminDown,
    witnesses=("slurmctld",),
    brief="set DOWN by an administrator", bands=_down_band, cause=_ADMIN, variant=_set_down_by,
    trace=Trace("administrator", "no update_node line: slurm set the state, not a person"),
)  # fmt: skip

_REBOOT = Cause(
    "node.reboot", "infra.node", "{host} rebooted without being asked to", "a node rebooted under it",
    (("Look for a power or hardware cause: BMC event log, pstore, last kernel lines of {host}.", None), RESUME),
    unharmed="degraded", words="peers", family="machine", software=("kernel", "bios", "os", "image"), restarts=True,
    disproof="Somebody who asked for the reboot, or a panic, power or thermal entry in the BMC's event log.",
)  # fmt: skip


#: No fault: there is nothing to look for, it does not restart by itself, and no software is to be suspected. Whoever planned the
#: work ends it.
_PLANNED = replace(
    _REBOOT,
    event="node.maintenance",
    title="{host} was rebooted in planned work",
    advice=(),
    family="",
    software=(),
    restarts=False,
)


def _in_planned_work(fact: Fact) -> Cause | None:
    if not fact.attrs.get(PLANNED):
        return None
    reason = fact.attrs.get(REASON) or fact.attrs.get(ASKED)
    return replace(_PLANNED, title=_PLANNED.title + f" ({literal(reason)})") if reason else _PLANNED


_PANIC = Cause(
    "node.panic", "infra.node", "the kernel of {host} panicked", "the operating system of a node crashed",
    (("Save the crash dump and kernel log of {host} before it is used again.", None), RESUME),
    unharmed="degraded", words="peers", family="machine", software=("kernel", "nvidia_driver", "nic_", "os", "image"), restarts=True,
    disproof="A panic that came after the run had ended.",
)  # fmt: skip
#: Its kernel went on, or may have: a processor did not.
_LOCKUP = replace(
    _PANIC, title="a processor of {host} stood still, as its kernel reported", plain="the operating system of a node stood still",
    advice=(("See in the kernel log of {host} what its processors did (the traces after that line).", None), RESUME),
    disproof="A lockup that came after the run had ended, or a line that the node wrote while it is said to have stood still.",
)  # fmt: skip
#: What the kernel's lines say, the gravest first (linux kernel/watchdog.c, kernel/rcu/tree_stall.h, kernel/workqueue.c).
_LOCKUPS = (
    ("hard lockup", replace(_LOCKUP, title="a processor of {host} locked up (hard lockup)")),
    ("soft lockup", replace(_LOCKUP, title="a processor of {host} was stuck in the kernel (soft lockup)")),
    ("workqueue lockup", replace(_LOCKUP, title="a work queue of the kernel of {host} was stuck (workqueue lockup)")),
    ("rcu", replace(_LOCKUP, title="a processor of {host} was stuck in the kernel (RCU stall)")),
)  # fmt: skip


def is_lockup(fact: Fact) -> bool:
    """Did the kernel only report a processor, or a work queue, that was stuck?"""
    return fact.kind == NODE_PANIC.name and bool(fact.events) and all(e.kind == "kernel.lockup" for e in fact.events)


def _as_logged(fact: Fact) -> Cause | None:
    if not is_lockup(fact):
        return None
    texts = [e.message.lower() for e in fact.events]
    return next((cause for word, cause in _LOCKUPS if any(word in text for text in texts)), _LOCKUP)


NODE_PANIC = Kind(
    "node.panic", "kernel", "The kernel panicked, or a processor locked up.", NoAttrs,
    witnesses=("kernel",),
    brief="kernel panic or lockup", sets_down=True, role="effect", cause=_PANIC, variant=_as_logged,
)  # fmt: skip

NODE_REBOOT = Kind(
    "node.reboot", "kernel", "A machine booted.", NodeReboot,
    witnesses=("kernel", "slurmctld"),
    brief="machine rebooted", sets_down=True, role="effect", cause=_REBOOT, variant=_in_planned_work,
    variants=(_PLANNED,),
    trace=Trace("reboot or panic", "no boot line and no panic of it was logged, and slurmctld saw no new boot time", also=(NODE_PANIC.name,)),
)  # fmt: skip

NODE_DEAD = Kind(
    "node.dead", "node", "The far end lost the node's link, and the node wrote no further line until it booted, if it did.", NodeDead,
    witnesses=("kernel",),
    brief="node died", sets_down=True, role="effect",
    cause=Cause(
        "node.unresponsive", "infra.node", "{host} died without a word", "a node died under it",
        (("Look for a power or hardware cause: BMC event log and console of {host}.", None), RESUME),
        unharmed="degraded", words="peers", family="machine",
        disproof="A line that the node wrote after its link was lost: then it lived, and the link is the cause.",
    ),
)  # fmt: skip

MEMORY_ERROR = Kind(
    "memory.error", "kernel", "A machine's memory lost data.", NoAttrs,
    witnesses=("kernel",),
    brief="memory lost data", component="memory",
    cause=Cause(
        "node.memory_error", "infra.node", "memory of {host} lost data", "a node's memory failed",
        (("Drain {host} and replace the module that its log names.", "scontrol update nodename={host} state=drain reason='memory error'"),),
        unharmed="degraded",
        disproof="The page being healthy in a memory test, or the same bus error on other nodes (a file that was cut short under a mapping).",
    ),
)  # fmt: skip

NODE_OVERHEATED = Kind(
    "node.overheated", "kernel", "A kernel shut its machine down because of heat.", NoAttrs,
    witnesses=("kernel",),
    brief="shut down by heat", role="effect",
    cause=Cause(
        "node.overheated", "infra.node", "{host} shut itself down because of heat", "a node was too hot",
        (("Check fans, coolant and inlet temperature of {host} and of its rack before it is started again.", None), RESUME),
        unharmed="degraded", words="peers", disproof="Its BMC showing no heat at that time: then a sensor is at fault.",
    ),
)  # fmt: skip


#: Two lines about one node going down (log line, accounting's whole second) are one within this.
SAME_DOWN_S = 3.0


#: slurmd logs the machine's uptime when it starts; shorter than this means that the machine just booted.
FRESH_BOOT_S = 300.0


#: A dying kernel writes its panic in many lines (lockup, oops, panic, end trace) within minutes.
SAME_PANIC_S = 120.0


#: How long before the loss the host must have logged last, for its silence to mean something.
SPEAKS_WITHIN_S = 1800.0
