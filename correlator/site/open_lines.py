"""Which events lines made that others than the program that they name can have written."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from parsers.writers import JOB, LOCAL, NETWORK, UNVERIFIED, USERS
from store.questions.authority import RELAYED
from store.questions.writers import names_no_file

if TYPE_CHECKING:
    from collections.abc import Collection

    from correlator.model.nouns import Event
    from correlator.site.senders import Senders

#: ``known_by`` of an event of which only its name says that it is the kernel's (gather/kernel_lines.py).
NAME = "name"


def is_sent(event: Event, relays: Collection[str]) -> bool:
    """Does nothing show who sent it, of an event of ``USERS``? ``relays``: addresses that forward lines of others."""
    if event.authority == UNVERIFIED:
        return names_no_file(event.file)
    return event.authority == NETWORK and "sender" in event.entities and not _forwards(event, relays)


def is_own_packet(event: Event) -> bool:
    """Did a packet bring it from an address of the host that it names? Any program of that host can send one."""
    return event.authority == LOCAL and "sender" in event.entities


def is_closed(event: Event, senders: Senders) -> bool:
    """Does the site say that no user can have written where it stands?"""
    if "sender" in event.entities or (event.file or "").startswith(RELAYED):
        return not senders.users_send_syslog and is_own_packet(event)
    return not senders.users_write_syslog


def is_open(event: Event, senders: Senders) -> bool:
    """Can anybody, or any user of its host, have written it? A job's output is the job's own."""
    if event.authority not in USERS or event.authority == JOB:
        return False
    if event.authority == LOCAL and is_closed(event, senders):
        return False
    if event.source == "kernel" and event.known_by != NAME:  # by its facility, which the sender of a packet chooses
        return is_own_packet(event) or is_sent(event, senders.relays)
    # A file in a format of its own is its program's.
    return event.authority != UNVERIFIED or event.known_by == NAME or is_sent(event, senders.relays)


def _forwards(event: Event, relays: Collection[str]) -> bool:
    """Did a relay forward it, or the log daemon of the machine that Faultline runs on?"""
    sender = str(event.entities["sender"])
    return sender in relays or _is_loopback(sender)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
