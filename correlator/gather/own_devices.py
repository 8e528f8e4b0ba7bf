"""Lines of the kernel about network devices that any user can make it write.

In a user namespace of her own (``unshare -Urn``, which most distributions allow everybody) a user makes bonds, bridges and pairs
of virtual Ethernet devices under any names, the real ones' too, and takes them down and up. What the kernel logs of
them is in its ring, with an uptime that fits, and names no namespace::

    bond0: (slave eth0): link status definitely down, disabling slave     drivers/net/bonding/bond_main.c
    sw0: port 4(eth0) entered disabled state                              net/bridge/br_stp.c

A driver of hardware names itself and the device's address on its bus before the interface (``mlx5_core 0000:17:00.0 eth0: Link
down``), which no name of an interface can hold: it has at most 15 characters, none of them a blank or a colon (dev_valid_name in
net/core/dev.c). These lines count as before, and where a leg of a real bond is lost, its driver writes one as well. No device that a
user can make is known to write ``eth0: Link is Down`` by itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from correlator.model.nouns import Event
from store.questions.kernel_lines import OF_AGENT

#: What stands for the objection to such a line (gather/kernel_lines.py has the others).
OWN_DEVICE = "own device"
#: That another leg of a bond took over (``nic.failover``) accuses nothing.
_KINDS = frozenset({"nic.link_down", "nic.link_up", "switch.port_down", "switch.port_up"})
_WORDS = re.compile(
    r"(?:bonding: )?[^\s:]+: (?:\(slave \S+\): )?link status |[^\s:]+: port \d+\(\S+\) entered ", re.IGNORECASE
)
_OF_AGENT = re.compile(OF_AGENT)


def is_about_own_device(kind: str, source: str | None, message: str) -> bool:
    """Can a user of its host have made the kernel write this line?"""
    return kind in _KINDS and source == "kernel" and _WORDS.match(message) is not None


def is_of_own_device(event: Event) -> bool:
    """The same of an event; of several copies, of all of them (gather/events.py). An agent looks at the node's own devices."""
    if not is_about_own_device(event.kind, event.source, event.message):
        return False
    return not any(_OF_AGENT.search(file) for file, _ in event.also)


def standing(of_kernel: Iterable[Event], doubted: Collection[str]) -> dict[str, str]:
    """``OWN_DEVICE`` by the ids of such events, but for those that are ``doubted`` for another reason."""
    return {e.id: OWN_DEVICE for e in of_kernel if is_of_own_device(e) and e.id not in doubted}
