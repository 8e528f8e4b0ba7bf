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


def forgeable(found: dict[str, dict[str, int]]) -> list[str]:
    """What users can forge and how to close it, a line of text for each authority; ``found``: see ``counts``."""
    reported = []
    if LOCAL in found:
        reported.append(
            f"authority local: {_some(found[LOCAL])}: any user of their hosts can write such lines (logger -t NAME -p FACILITY): collect "
            "the kernel's ring (the agent's kmsg), the daemons' own files, and the journal in place of syslog's files"
        )
    if NETWORK in found:
        reported.append(
            f"authority network: {_some(found[NETWORK])}: whoever reaches the log host can send such lines in any host's name: collect them "
            "where they are written (the agent), or admit only known senders (a firewall; transport tls with client_ca)"
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
