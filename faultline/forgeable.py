"""Which channels of a site users can forge: the lines that mean something, by who can have written them and by source."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from parsers.writers import AUTHORITIES, LOCAL, NETWORK, UNVERIFIED
from store.questions import writers

if TYPE_CHECKING:
    from store.door import Asks

#: Most sources of an authority that are named.
NAMED = 6


def counts(store: Asks) -> dict[str, dict[str, int]]:
    """The number of lines with an event by authority, hardest to forge first, and by source, largest first."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in store.ask(writers.counted()):
        found[row["authority"]][row["source"]] = row["lines"]
    return {name: found[name] for name in AUTHORITIES if name in found}


def forgeable(found: dict[str, dict[str, int]], users_write_syslog: bool = True) -> list[str]:
    """What users can forge and how to close it, a line of text for each authority; ``found``: see ``counts``.
    ``users_write_syslog``: the setting ``users_can_write_syslog``."""
    reported = []
    if LOCAL in found and users_write_syslog:
        reported.append(
            f"authority local: {_some(found[LOCAL])}: any user of their hosts can write such lines (logger -t NAME -p FACILITY), so they "
            "count for nothing while a job is there, unless others confirm them: collect the kernel's ring (the agent's kmsg), the daemons' own files, and the "
            "journal in place of syslog's files; or, if no user can write there, say users_can_write_syslog = false, and users_can_send_syslog = false if no user can send packets"
        )
    if NETWORK in found:
        reported.append(
            f"authority network: {_some(found[NETWORK])}: whoever reaches the log host can send such lines in any host's name, so they count for "
            "nothing, unless telemetry confirms them: collect them where they are written (the agent); or admit only root's (a firewall; transport "
            "tls with client_ca) and say users_can_send_syslog = false. Lines of an address that is in neither slurm.conf nor relays count for "
            "nothing: name those of switches in relays"
        )
    if UNVERIFIED in found:
        reported.append(
            f"authority unverified: {_some(found[UNVERIFIED])}: their senders name no file, and nothing shows who wrote them: let the shipper send the "
            "path of the file, or use the agent"
        )
    return reported


def _some(of_sources: dict[str, int]) -> str:
    named = [f"{source} {count:,}" for source, count in of_sources.items()]
    more = f" and {len(named) - NAMED} more sources" if len(named) > NAMED else ""
    return f"{sum(of_sources.values()):,} event lines ({', '.join(named[:NAMED])}{more})"
