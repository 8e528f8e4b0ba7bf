"""What nodes on which programs fail run otherwise than those on which they are well: driver, kernel, image, firmware.

A difference alone shows nothing: it supports what became of the jobs there and elsewhere, and no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from correlator.facts.world import World
from correlator.gather.software import Held
from correlator.model.software_names import called
from parsers.hostlist import fold

#: So many nodes without a difference must be known: with fewer, any two nodes differ in something.
LEAST_PEERS = 3
#: No more differences are named; an image differs in all that it holds.
MOST_NAMED = 2
#: These say most of what programs meet.
_FIRST = ("nvidia_driver", "kernel", "nic_firmware", "image")


@dataclass(frozen=True)
class Difference:
    """A ``version`` that all of some nodes have and none of their ``peers``, which have ``others``, the most frequent first."""

    name: str
    version: str
    others: tuple[str, ...]
    peers: int


def differences(world: World, hosts: Collection[str], peers: Collection[str], moment: float) -> list[Difference]:
    """What all ``hosts`` have and none of ``peers`` had at a moment (epoch seconds), as far as agents report it. Asks the store."""
    others = set(peers) - set(hosts)
    if not hosts or len(others) < LEAST_PEERS:
        return []
    by_name: defaultdict[str, list[Held]] = defaultdict(list)
    for held in world.software(sorted(hosts), sorted(others), moment):
        by_name[held.name].append(held)
    found = []
    for name, versions in by_name.items():
        own = [one.version for one in versions if one.hosts == len(hosts) and not one.peers]
        theirs = [one.version for one in sorted(versions, key=lambda one: (-one.peers, one.version)) if one.peers]
        if own and theirs and versions[0].known >= LEAST_PEERS:
            found.append(Difference(name, ", ".join(sorted(own)), tuple(theirs), versions[0].known))
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
