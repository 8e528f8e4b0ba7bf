"""The odds that a node's environment is broken, from what became of several users' jobs there and elsewhere.

Each user is one witness, however many jobs they sent: jobs of one user share their mistakes. The likelihood ratio of a
witness compares two explanations of "all of their jobs here failed alike". If the node is broken, nearly all do. If
not, the user's own rate decides: how often their jobs elsewhere failed so, as a Beta distribution whose prior is worth
``PRIOR_RUNS`` jobs with the rate of the symptom or of all jobs elsewhere, and at least the latter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: The odds that the environment of a node breaks within half an hour: twice in a year. With more, the coincidences of a
#: day on a hundred nodes outnumber the faults.
PRIOR_ODDS = 1e-4

#: The probability that a job on a broken node fails by it, and that a job there ends well all the same: not every
#: program needs what is broken.
HIT, WELL = 0.95, 0.3

#: The number of jobs that the own rate of a symptom is worth.
PRIOR_RUNS = 10.0

#: No witness counts more than this, and no more jobs that ended well than these.
MOST_OF_ONE, MOST_WELL = 500.0, 4

#: Without any one of the users, the odds must still be this: a user alone, who can print what they like, must not make
#: them.
WITHOUT_ONE = 0.005


#: Several users who miss one and the same file made no mistake of their own each: the share of all runs that miss that very
#: file, in place of any file of the file system.
VERY_FILE = 0.1
#: The odds that the file, or the server, is missing for all nodes, and the probability that a run of the same name and user finds it all
#: the same: it may be another program.
EVERYWHERE_ODDS, FOUND = 1e-3, 0.05


@dataclass(frozen=True)
class Witness:
    """One user's jobs: ``alike`` failed so on the node, ``well`` ended well there after the first of all failures.

    ``alike_elsewhere`` of ``elsewhere`` jobs on other nodes failed so.
    """

    alike: int
    well: int
    elsewhere: int
    alike_elsewhere: int


def ratio_of(witness: Witness, own: float, site: float) -> float:
    """How much more probable a broken node makes what a witness shows. ``site``: the rate of all other jobs elsewhere."""
    by_well = WELL ** min(witness.well, MOST_WELL)
    if not witness.alike:
        return by_well
    rate = (witness.alike_elsewhere + PRIOR_RUNS * max(own, site)) / (witness.elsewhere + PRIOR_RUNS)
    return min(MOST_OF_ONE, HIT * by_well / max(rate, site))


def odds_of(witnesses: Sequence[Witness], own: float, site: float) -> float:
    """The odds that the node is broken; 0 if they rest on one user alone."""
    ratios = [ratio_of(witness, own, site) for witness in witnesses]
    odds = PRIOR_ODDS * math.prod(ratios)
    if sum(witness.alike > 0 for witness in witnesses) < 2 or odds / max(ratios) < WITHOUT_ONE:
        return 0.0
    return odds


def odds_of_one_thing(witnesses: Sequence[Witness], own: float, site: float, found: int) -> float:
    """The same if all missed one and the same file or server, which ``found`` runs of theirs elsewhere found meanwhile. It may
    be missing for all nodes, so that one of those is needed."""
    if not found:
        return 0.0
    everywhere = EVERYWHERE_ODDS * FOUND**found
    both = math.prod(ratio_of(witness, own, site) for witness in witnesses if witness.alike)
    return odds_of(witnesses, own, site) / (1.0 + everywhere * both)
