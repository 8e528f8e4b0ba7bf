#!/usr/bin/env python3
"""A simulated cluster that shares nothing with benchmarks/simulators: truth first, then the logs.

  python tests/scenarios_outside/outside_cluster.py --seed 1 --out /tmp/outside-1

writes /tmp/outside-1/logs (a tree as on a log host) and /tmp/outside-1/truth.json (the schema of the scenarios' truth).
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import oc_daemons
import oc_gpu
import oc_host
import oc_net
import oc_noise
import oc_own
import oc_site
import oc_store
import oc_write
from oc_core import Sim

KINDS: dict[str, tuple[Callable[[Sim], bool], int]] = {
    **oc_gpu.KINDS,
    **oc_net.KINDS,
    **oc_host.KINDS,
    **oc_daemons.KINDS,
    **oc_store.KINDS,
}


def chance(sim: Sim, name: str, tries: int = 6) -> None:
    """Lets a root event happen now, or some minutes later when nobody suits it."""
    if not KINDS[name][0](sim) and tries:
        sim.at(sim.now + sim.rng.uniform(120, 600), lambda: chance(sim, name, tries - 1))


def root_events(sim: Sim) -> None:
    """Draws 20 to 40 root events and their times, some of them on top of each other."""
    rng, site = sim.rng, sim.site
    names = list(KINDS)
    first = rng.sample(names, rng.randint(18, min(28, len(names))))
    more = rng.choices(names, [KINDS[n][1] for n in names], k=rng.randint(2, 12))
    t = 0.0
    for name in first + more:
        if not t or rng.random() > 0.25:
            t = rng.uniform(site.start + 1500, site.end - 1500)
        else:
            t = min(t + rng.uniform(0, 90), site.end - 1400)
        sim.at(t, partial(chance, sim, name))


def simulate(seed: int) -> Sim:
    """A cluster's hours."""
    sim = Sim(oc_site.build(seed))
    oc_noise.everything(sim)
    oc_own.workload(sim)
    root_events(sim)
    sim.go()
    return sim


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    oc_write.write(simulate(args.seed), args.out)


if __name__ == "__main__":
    main()
