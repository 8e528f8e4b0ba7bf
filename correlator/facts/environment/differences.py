"""What nodes on which programs fail run otherwise than those on which they are well: driver, kernel, image, firmware.

A difference alone shows nothing: it supports what became of the jobs there and elsewhere, and no more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from correlator.facts.world import World
from correlator.model.software_names import called
from parsers.hostlist import fold

#: So many nodes without a difference must be known: with fewer, any two nodes differ in something.
LEAST_PEERS = 3
#: No more nodes are asked about.
MOST_PEERS = 64
#: No more differences are named; an image differs in all that it holds.
MOST_NAMED = 2
#: These say most of what programs meet.
_FIRST = ("nvidia_driver", "kernel", "nic_firmware", "image")


@dataclass(frozen=True)
class Difference:
    """A ``version`` that all of some nodes have and none of their ``peers``, which have ``others``."""

    name: str
    version: str
    others: tuple[str, ...]
    peers: int


def differences(world: World, hosts: Collection[str], peers: Collection[str], moment: float) -> list[Difference]:
    """What all ``hosts`` have and none of ``peers`` had at a moment (epoch seconds), as far as agents report it. Asks the store."""
    asked = sorted(set(peers) - set(hosts))[:MOST_PEERS]
    if not hosts or len(asked) < LEAST_PEERS:
        return []
    versions = world.software([*sorted(hosts), *asked], moment)
    found = []
    for name in sorted({name for host in hosts for name in versions.get(host, ())}):
        own = {versions.get(host, {}).get(name) for host in hosts}
        theirs = [known for host in asked if (known := versions.get(host, {}).get(name))]
        version = next(iter(own))
        if len(own) == 1 and version and len(theirs) >= LEAST_PEERS and version not in theirs:
            found.append(Difference(name, version, tuple(sorted(set(theirs))), len(theirs)))
    return sorted(found, key=lambda one: (_FIRST.index(one.name) if one.name in _FIRST else len(_FIRST), one.name))


def sentence(hosts: Collection[str], found: Sequence[Difference]) -> str:
    """ "gpu07 runs NVIDIA driver 550.54.14, its 31 peers 550.90.07"."""
    one = len(hosts) == 1
    parts = [
        f"{called(other.name)} {other.version}, {'its' if one else 'their'} {other.peers} peers {' or '.join(other.others[:3])}"
        for other in found[:MOST_NAMED]
    ]
    more = f", and {len(found) - MOST_NAMED} more differ" if len(found) > MOST_NAMED else ""
    return f"{fold(sorted(hosts))} {'runs' if one else 'run'} {'; '.join(parts)}{more}"
