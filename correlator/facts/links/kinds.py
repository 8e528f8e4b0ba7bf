"""The attributes and kinds of facts about links and switches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NotRequired, TypedDict

from correlator.model.attributes import FAR_END_ONLY, NAMELESS, PORT, SWITCH
from correlator.model.attrs import Attr, attr
from correlator.model.kinds import Band, Cause, Instead, Kind, Trace
from correlator.model.nouns import Fact


class LinkOutage(TypedDict):
    """An outage of a link.

    ``ends`` are those that logged it (nic, switch, subnet manager); ``far_end_only``: the node itself did not.
    ``end_unseen``: it came back unseen. ``role``: what the link carries. ``legs`` and ``stand_in``: the other legs of
    its bond, and the one that took over. ``promoted``: the switch or plane that it was lost with. ``clock_off``: how
    many seconds it was moved, because its host's clock is off.
    """

    switch: str | None
    port: str | None
    ends: list[str]
    role: NotRequired[str]
    end_unseen: NotRequired[bool]
    far_end_only: NotRequired[bool]
    legs: NotRequired[list[str]]
    stand_in: NotRequired[str]
    promoted: NotRequired[str]
    clock_off: NotRequired[float]


class SwitchOutage(TypedDict):
    """An outage of a switch.

    ``hosts`` lost ``links``, a ``share`` of all that are ``under`` the switch. ``tree_only``: only the topology names
    it. ``bonded``: some of the links are legs of bonds. ``promoted``: the switch above that took it down. If no source
    names the switch it is ``nameless``: ``behind`` are the devices, ``token`` is the name by which its links refer to
    it.
    """

    hosts: list[str]
    under: list[str]
    share: float
    switch: str | None
    links: list[tuple[str | None, str | None]]
    plane: str | None
    tree_only: NotRequired[bool]
    bonded: NotRequired[bool]
    promoted: NotRequired[str]
    nameless: NotRequired[bool]
    token: NotRequired[str]
    behind: NotRequired[str]


class PlaneOutage(TypedDict):
    """``hosts`` lost ``links`` with the switches below ``switch``."""

    hosts: list[str]
    links: list[tuple[str | None, str | None]]
    switch: str
    plane: str | None
    share: float


class LinkErrors(TypedDict):
    """``count`` warnings of a link that carries ``role``."""

    count: int
    role: str


#: Attributes that are read in this folder only.
CLOCK_OFF: Attr[float] = attr("clock_off")
PLANE: Attr[str | None] = attr("plane")


def no_cable(world: Any, fact: Fact) -> bool:
    """Is it a port that the inventory of its host does not list?"""
    return not world.site.cabled(fact.host, fact.device, fact.attrs.get(SWITCH))


def _bands(fact: Fact) -> list[Band]:
    found = [Band(f"{fact.host} {fact.device}", "link", fact.host, fact.device, "no_carrier", "no carrier")]
    switch, port = fact.attrs.get(SWITCH), fact.attrs.get(PORT)
    if port and switch:
        found.append(Band(f"{switch} {port}", "switch", switch, port, "disabled", "port down"))
    return found


def _may_be_its_machine(fact: Fact) -> bool:
    """Did only the switch see the link go and come? A machine that boots takes its link down."""
    return fact.end is None or bool(fact.attrs.get(FAR_END_ONLY))


def _behind(fact: Fact) -> str:
    return f"behind {fact.host or 'what these nodes share'}"


#: What of a node's software can have to do with a link.
SOFTWARE = ("nic_", "kernel", "image")

LINK_OUTAGE = Kind(
    "link.outage", "link", "A NIC or the switch port at its other end was without carrier.", LinkOutage,
    witnesses=("kernel", "switch"),
    brief="link lost", timed=True, flaps=True, component="network", sets_down=True, bands=_bands, awaits=_may_be_its_machine,
    signs={
        "nic.link_down": "down", "nic.link_up": "up", "switch.port_down": "down", "switch.port_up": "up", "fabric.sm_event": "state",
        "nic.error": "trouble", "nic.failover": "spared",
    },
    trace=Trace("lost link", "no carrier loss of it was logged, by the node or by a switch"),
    cause=Cause(
        "nic.link_down", "infra.network", "{device} of {host} lost its link{for_time}", "a node lost its network",
        (("Drain {host} when it is idle and check cable, transceiver and switch port of {device}.",
          "scontrol update nodename={host} state=drain reason='link {device} down'"),),
        repeated="nic.link_flap", software=SOFTWARE, unharmed="benign", trivial=no_cable, words="peers", family="link",
        disproof="The link's own counters or the far end showing it up during the wait, or another node of the run failing first.",
        instead=Instead(
            once=(("Check cable, transceiver and switch port of {device} of {host} in the next window.", None),),
            unhurt=(("Nothing now: no job was hurt. The repair list says whether {device} of {host} flaps more than others.", None),),
            switch=(("Check cable and transceiver at {device} of switch {host}, and the other end.", None),),
        ),
    ),
)  # fmt: skip

_SWITCH = Cause(
    "switch.failure", "infra.network", "switch {host} lost the links of {count} nodes{for_time}", "a network switch failed",
    (("Check power, supervisor and uplinks of {what}.", None),),
    short="{what} lost {count} nodes", unharmed="degraded", words="peers", placed=True,
    nameless="What these links end at is not named: an inventory of the links (links.csv), a topology.conf or the switches' own syslog would",
    disproof="Links of other switches going at the same moment (power, a maintenance), or these links going one by one.",
)  # fmt: skip

_NAMELESS_SWITCH = replace(
    _SWITCH,
    title="{count} nodes ({nodes}) lost {behind} together{for_time}: what lies behind it failed, and no source names it",
    short="{count} nodes lost {behind} together",
)

SWITCH_OUTAGE = Kind(
    "switch.outage", "switch", "Many links of one switch went down together, or the switch reported its own failure.", SwitchOutage,
    witnesses=("switch", "kernel"),
    brief="switch lost its links", timed=True, reach=_behind, cause=_SWITCH, variant=lambda fact: _NAMELESS_SWITCH if fact.attrs.get(NAMELESS) else None,
)  # fmt: skip

PLANE_OUTAGE = Kind(
    "plane.outage", "switch", "A switch without nodes of its own failed, and the switches below it lost their links.", PlaneOutage,
    witnesses=("switch", "kernel"),
    brief="spine failed", timed=True, reach=_behind,
    cause=Cause(
        "switch.plane_failure", "infra.network", "switch {host} failed and took {device} from {count} nodes{for_time}", "a fabric plane failed",
        (("Check power, modules and supervisor of switch {host}.", None),),
        short="switch {host} failed ({count} nodes)", unharmed="degraded",
        disproof="The spine being healthy in its own log, or leaf links of other planes going too.",
    ),
)  # fmt: skip

LINK_ERRORS = Kind(
    "link.errors", "link", "A port kept its link but corrupted data.", LinkErrors,
    witnesses=("switch",),
    brief="link corrupted data", component="network", gauges=("symbol_errors", "receive_errors"),
    signs={"fabric.link_errors": "errors", "switch.optic_warning": "optics", "nic.module_event": "optics"},
    cause=Cause(
        "nic.link_errors", "infra.network", "{device} of {host} kept its link and corrupted data", "a bad link slowed it",
        (("Take {device} of {host} out of the fabric; clean or replace cable and transceiver, then watch its error counters.", None),),
        short="{device} of {host} corrupts data", unharmed="benign", family="link", software=SOFTWARE,
        disproof="Error counters of the port standing still while the steps stay slow, or steps slow before the first error.",
    ),
)  # fmt: skip
