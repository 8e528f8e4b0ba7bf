"""Which events lines made that others than the program that they name can have written."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from parsers.host_names import is_loopback, short_key
from parsers.writers import JOB, LOCAL, NETWORK, UNVERIFIED, USERS
from store.questions.authority import RELAYED
from store.questions.writers import names_no_file

if TYPE_CHECKING:
    from collections.abc import Collection

    from correlator.model.nouns import Event
    from correlator.site.senders import Senders

#: Files that a syslog daemon fills with the lines of its own host.
_LOCAL = re.compile(
    r"(?:syslog|messages|kern(?:el)?|kmsg|dmesg|journal|daemon|user|auth|secure|cron|boot|debug|warn|local\d|switch)(?:$|[._-])"
)
#: The folders of a tree that are named after hosts (parsers/recognise.py).
_HOST_FOLDERS = frozenset({"hosts", "nodes"})


def is_sent(event: Event, relays: Collection[str]) -> bool:
    """Does nothing show who sent it, of an event of ``USERS``? ``relays``: addresses that forward lines of others."""
    if event.authority == UNVERIFIED:
        return names_no_file(event.file)
    return event.authority == NETWORK and "sender" in event.entities and not _forwards(event, relays)


def is_own_packet(event: Event) -> bool:
    """Did only packets bring it, from an address of the host that it names? Any program of that host can send one. If a file
    has it as well, its authority is that of the file."""
    return event.authority == LOCAL and "sender" in event.entities and (event.file or "").startswith(RELAYED)


def is_closed(event: Event, senders: Senders) -> bool:
    """Does the site say that no user can have written where it stands?"""
    if is_own_packet(event):
        return not senders.users_send_syslog
    if is_of_another(
        event, senders
    ):  # a log host keeps what the syslog daemons of other hosts sent, and what anybody sent
        return not (senders.users_write_syslog or senders.users_send_syslog)
    return not senders.users_write_syslog


def is_remote(event: Event, senders: Senders) -> bool:
    """Can users of other hosts have sent it in the name of its host?"""
    return senders.users_send_syslog and is_of_another(event, senders)


def is_open(event: Event, senders: Senders) -> bool:
    """Can anybody, or any user of its host, have written it? A job's output is the job's own."""
    if event.authority not in USERS or event.authority == JOB:
        return False
    if event.authority == LOCAL and is_closed(event, senders):
        return False
    # A file in a format of its own is its program's.
    return event.authority != UNVERIFIED or bool(event.known_by) or is_sent(event, senders.relays)


def is_of_another(event: Event, senders: Senders) -> bool:
    """Is it only in files of other hosts or in those of a log host, or brought by others than relays? Anybody can send to a
    log host, in any host's name and in the log host's own."""
    if event.entities.get("sender") in senders.relays:
        return False
    host, folders = event.host or "", senders.log_host_folders
    if not _is_of_another(event.file or "", host, folders):  # most lines are in their host's own file
        return False
    return all(_is_of_another(file, host, folders) for file, _ in event.also) and not is_own_packet(event)


@lru_cache(maxsize=65_536)  # many lines are of one file
def _is_of_another(file: str, host: str, log_host_folders: frozenset[str]) -> bool:
    owner = owner_of(file)
    if owner is None:
        return file.startswith(RELAYED)
    folder, _, name = file.rpartition("/")
    # A file of another name may be the one where a log host keeps what is sent to it, in its own name too.
    return owner not in (host, short_key(host)) or _LOCAL.match(name) is None or folder in log_host_folders


def is_log_hosts_own(event: Event) -> bool:
    """Of an event that is of another host (``is_of_another``): is it in the name of the host that keeps the file?"""
    return owner_of(event.file or "") == short_key(event.host or "")


def log_host_folder(file: str, host: str) -> str | None:
    """The folder of a syslog daemon's own file, if a line of it names another host: it keeps what is sent to it there."""
    owner = owner_of(file)
    folder, _, name = file.rpartition("/")
    # A machine that is being installed has no name of its own yet.
    if owner is None or short_key(host) in (owner, "localhost") or _LOCAL.match(name) is None:
        return None
    return folder


@lru_cache(maxsize=65_536)
def owner_of(file: str) -> str | None:
    """The host that a file was collected from, in short: by its agent, or in the host's folder of a tree; None if its name
    does not tell, and for what came over the network."""
    if file.startswith(RELAYED):
        return None
    sender, colon, _ = file.partition(":/")
    if colon:
        return short_key(sender)
    owner = None
    for folder, below in pairwise(file.split("/")[:-1]):
        owner = below if folder in _HOST_FOLDERS else owner
    return None if owner is None else short_key(owner)


def _forwards(event: Event, relays: Collection[str]) -> bool:
    """Did a relay forward it, or the log daemon of the machine that Faultline runs on?"""
    sender = str(event.entities.get("sender", ""))
    return sender in relays or is_loopback(sender)
