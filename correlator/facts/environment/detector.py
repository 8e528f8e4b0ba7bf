"""Nodes on which programs fail for want of what every node gives to programs: users, mounts, names, devices, processes.

Often no log of the node reports it. If jobs of several users fail alike on one node, and their jobs elsewhere do not,
the node's environment is the cause, with the odds of ``odds.py``. What one user's jobs alone show is only a doubt: they
may have made a mistake, and they write their own output. What jobs of several users show on several nodes alike is no
node's fault, unless programs hardly ever cause it, and these run something else than the nodes of their partition where jobs of the same
users and names go on and end well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from correlator.facts.environment.differences import differences, sentence
from correlator.facts.environment.ended import CONCLUSIVE, Ended, Failure, Numbers, partition_of
from correlator.facts.environment.kinds import (
    ENVIRONMENT_IN_OUTPUT,
    FABRIC,
    NAMES,
    NODE_ENVIRONMENT,
    SYMPTOM,
    EnvironmentInOutput,
    NodeEnvironment,
)
from correlator.facts.environment.odds import VERY_FILE, Witness, odds_of, odds_of_one_thing
from correlator.facts.environment.symptoms import signature_of
from correlator.facts.fabric_managers import FABRIC_MANAGER
from correlator.facts.gpu_holders import none_counted
from correlator.facts.host_names import HostNames, host_names
from correlator.facts.jobs.kinds import RUN_FAILED
from correlator.facts.output_hardware import DISK_IN_OUTPUT, GPU_IN_OUTPUT, STORAGE_IN_OUTPUT, node_of_first
from correlator.facts.world import World
from correlator.model.attributes import OUTPUT, RUNS
from correlator.model.nouns import Fact, Run, in_order
from parsers.hostlist import fold

#: Jobs elsewhere count if they ended within a day before the first failure.
DAY_S = 86_400.0

#: Failures on the node within an hour before count, and failures elsewhere since then show that it is no single node.
NEAR_S = 3600.0

#: What comes later than this after a failure changes nothing about it; a tick looks 900 s back.
AHEAD_S = 600.0

#: Failures that are at most ``AHEAD_S`` apart are one fact, but not for longer than half an hour: a node that fails
#: for days must not make one incident that every tick concludes anew.
SLOT_S = 1800.0

#: A group lasts at most a slot and ``AHEAD_S``, and what is near it ended at most ``NEAR_S`` before it.
_BEFORE_S = NEAR_S + SLOT_S + AHEAD_S

#: What became of others is asked for an hour more, by whole slots.
_RECENT_S = NEAR_S + 2 * SLOT_S
_BESIDE_S = NEAR_S + _RECENT_S

#: Jobs that began this much before the first job that failed count as begun with it.
BEGAN_S = 60.0

#: Of the jobs on the node that ended since, nearly all must have failed alike.
NEARLY_ALL = 0.75

#: A job that failed without an error in its output must have ended in less than this share of what its user's jobs
#: last, of which so many must be known.
EARLY, KNOWN = 0.5, 3

#: A fabric manager that ended at most so long before is why (edge E19F).
MANAGER_S = 1800.0

#: One user's jobs suggest that a node is broken if at least so many failed there, all of them, and so many elsewhere
#: did not.
TWICE, OFTEN = 2, 3

#: The highest confidence for nodes that share a difference: what else they share is not known. And how much of the doubt a
#: difference takes from one node's, up to the symptom's highest confidence.
TOGETHER_SUREST, SUPPORT = 0.75, 0.2

#: So many users must have failed with an error of which only the text is known, and each must have been well elsewhere.
UNLISTED_USERS = 3
_NOWHERE: Numbers = np.zeros(0, np.int64)


def environments(world: World) -> list[Fact]:
    """``node.environment`` per node and half hour, ``environment.told`` per run."""
    names = cache(lambda: host_names(world))  # of few runs are names not found
    fresh = _failures(world.facts_of(RUN_FAILED.name), world.run)
    if not fresh:
        return []
    failures = [*fresh, *_just_before(world, fresh)]
    ended = cache(lambda: _ended(world, fresh))  # a day of runs, which few failures ask about
    alike: defaultdict[tuple[str, str], list[Failure]] = defaultdict(list)
    of_fresh = {f.signature.key for f in fresh}
    for failure in sorted((f for f in failures if f.signature.key in of_fresh), key=lambda f: (f.end, f.run.key)):
        if failure.user:
            alike[failure.signature.key].append(failure)
    concluded, facts = {f.run.key for f in fresh}, list[Fact]()
    for same in alike.values():
        on_one = _of_nodes(world, ended, _groups(same, concluded))
        # Only where no node alone explains them: nodes that share a difference.
        if not on_one and same[0].signature.symptom.strong:
            on_one = _of_nodes(world, ended, (g for g in _groups(same, concluded, together=True) if len(g.hosts) > 1))
        facts += on_one
    reported = _reported(world).union(*(fact.attrs[RUNS] for fact in facts))
    facts = [fact for fact in facts if not _explained(world, fact)]
    mistaken = _mistaken(failures, names)
    in_output = (
        _in_output(ended, alike[f.signature.key], f, names, mistaken) for f in fresh if f.run.key not in reported
    )
    return [*facts, *(fact for fact in in_output if fact is not None)]


def _of_nodes(world: World, ended: Callable[[], Ended], groups: Iterable[_Group]) -> list[Fact]:
    return [fact for group in groups if (fact := _of_node(world, ended, group)) is not None]


def _failures(ends: Iterable[Fact], runs: Mapping[str, Run]) -> list[Failure]:
    """The failed runs among ``runs`` that have a signature."""
    found = []
    for end in ends:
        run = runs.get(end.run or "")
        if run is None or run.end is None or run.state not in CONCLUSIVE:
            continue
        if (signature := signature_of(end)) is not None:
            found.append(Failure(run, signature, _where(run, end)))
    return found


def _mistaken(failures: Iterable[Failure], names: Callable[[], HostNames]) -> frozenset[str]:
    """The runs that asked for a name like those of the nodes that no node has, where no other user's run on their node failed for
    a name within about half an hour: they raise no doubt about the node."""
    of_names = [f for f in failures if f.signature.symptom.name == NAMES and f.signature.event]
    users: defaultdict[tuple[str | None, int], set[str]] = defaultdict(set)
    for failure in of_names:
        users[failure.host, int(failure.end // SLOT_S)].add(failure.user)
    found = set()
    for failure in of_names:
        slot = int(failure.end // SLOT_S)
        near = set().union(*(users.get((failure.host, at), ()) for at in (slot - 1, slot, slot + 1)))
        if near <= {failure.user} and names().misspelt_in(_text(failure), failure.run.nodes) is not None:
            found.add(failure.run.key)
    return frozenset(found)


def _text(failure: Failure) -> str:
    return failure.signature.event.message if failure.signature.event else ""


def _where(run: Run, end: Fact) -> str | None:
    """The only node of a run; of several, the one whose task ended first by srun's output."""
    if len(run.nodes) == 1:
        return run.nodes[0]
    tasks = [e for e in end.attrs[OUTPUT] if "task" in e.entities and e.entities.get("nodes")]
    return node_of_first(run, tasks)


def _just_before(world: World, fresh: Sequence[Failure]) -> list[Failure]:
    """The failures before the window of a tick that can be in one group with those of the window, or near one."""
    past_runs, past_ends = world.past(min(f.end for f in fresh) - _BEFORE_S)
    further = _further(world, past_runs)
    if not any(f.signature.symptom.strong or f.signature.symptom.shared for f in fresh):
        # Each of their groups is of one node.
        hosts = {f.host for f in fresh}
        further = {key: run for key, run in further.items() if not hosts.isdisjoint(run.nodes)}
    return _failures(past_ends, further)


def _further(world: World, past_runs: Iterable[Run]) -> dict[str, Run]:
    """Those of the runs whose jobs are not in the window, by their keys."""
    return {run.key: run for run in past_runs if run.job_id not in world.runs_of_job}


def _ended(world: World, fresh: Sequence[Failure]) -> Ended:
    """All runs, with their failures, of the day before the first failure, including those before the window of a tick."""
    first = min(f.end for f in fresh)
    past_runs, past_ends = world.past(first - DAY_S - _RECENT_S)
    further = _further(world, past_runs)
    # Of earlier failures, those of other users on other nodes count only for an hour.
    hosts = {f.host for f in fresh}
    users = {f.user for f in fresh}.union(
        str(run.row.get("user") or "") for run in further.values()
        if (run.end or 0.0) >= first - _RECENT_S and not hosts.isdisjoint(run.nodes)
    )  # fmt: skip
    near = first - _BESIDE_S
    asked = {
        end.run: run for end in past_ends if end.run is not None and (run := further.get(end.run)) is not None
        and ((run.end or 0.0) >= near or run.row.get("user") in users or not hosts.isdisjoint(run.nodes))
    }  # fmt: skip
    failures = [*fresh, *_failures(past_ends, asked)]
    return Ended([*world.runs, *further.values()], {f.run.key: f.signature.key for f in failures})


@dataclass(frozen=True)
class _Group:
    """Failures with one signature on one node, or on several that share a difference, in order of time, and the users that failed so
    there near them."""

    failures: Sequence[Failure]
    users: set[str]

    @property
    def hosts(self) -> set[str]:
        return {str(failure.host) for failure in self.failures}

    @property
    def partitions(self) -> set[str]:
        return {partition_of(failure.run) for failure in self.failures}

    @property
    def may_be_of_several(self) -> bool:
        """Can what several nodes share be why? What users built (libraries, modules, commands, paths, errors of their own), how much they
        need (memory, disk) and of what (GPUs, devices) fits some kinds of nodes and not others, and in two partitions are two kinds. Then
        that nodes differ shows nothing."""
        return self.first.signature.symptom.strong and len(self.partitions) == 1 and "" not in self.partitions

    @property
    def named(self) -> str:
        return fold(sorted(self.hosts))

    @property
    def first(self) -> Failure:
        return self.failures[0]

    @property
    def last(self) -> Failure:
        return self.failures[-1]


def _groups(alike: Sequence[Failure], fresh: Collection[str], *, together: bool = False) -> Iterable[_Group]:
    """Failures with one signature by node (``together``: of all nodes) and half hour, without gaps, if a run of ``fresh`` (keys) is
    among them."""
    hosts = {failure.host for failure in alike if failure.run.key in fresh}
    by_host: defaultdict[str, list[Failure]] = defaultdict(list)
    for failure in alike if hosts else ():
        if failure.host is not None and (together or failure.host in hosts):
            by_host["" if together else failure.host].append(failure)
    for _, failures in sorted(by_host.items()):
        ends = [f.end for f in failures]
        slots = [_slot(failure.end, ends) for failure in failures]
        begun = 0
        for place in range(1, len(failures) + 1):
            if place < len(failures) and slots[place] == slots[begun] and ends[place] - ends[place - 1] <= AHEAD_S:
                continue
            if any(failure.run.key in fresh for failure in failures[begun:place]):
                near = slice(bisect_left(ends, ends[begun] - NEAR_S), bisect_right(ends, ends[place - 1] + AHEAD_S))
                yield _Group(failures[begun:place], {failure.user for failure in failures[near]})
            begun = place


def _slot(end: float, ends: Sequence[float]) -> int:
    """The half hour of a failure among others with these ``ends``, which are in order. Failures soon after a full half hour belong to
    those just before it."""
    slot = int(end // SLOT_S)
    begun = slot * SLOT_S
    follows = end - begun <= AHEAD_S and bisect_left(ends, begun - AHEAD_S) < bisect_left(ends, begun)
    return slot - 1 if follows else slot


def _of_node(world: World, asked: Callable[[], Ended], group: _Group) -> Fact | None:
    """The node's environment as the cause of these failures; None if the odds are against it."""
    first, last = group.first, group.last
    hosts, signature, symptom = group.hosts, first.signature, first.signature.symptom
    if len(group.users) < (UNLISTED_USERS if symptom.unlisted else 2) or (
        len(hosts) > 1 and not group.may_be_of_several
    ):
        return None
    ended, key = asked(), first.signature.key
    if symptom.gpus and world.gpus_are_counted(first.end) and not any(none_counted(f.run) for f in group.failures):
        ended = ended.with_gpus  # what became of the others tells nothing
    if signature.event is None and not _early(ended, group):
        return None
    here = ended.on(hosts, first.end - NEAR_S, last.end + AHEAD_S)
    alike = here[ended.failed_so[here] == ended.numbers[key]]
    onset, began = ended.ends[alike[0]], ended.starts[alike[0]]
    so, later = np.isin(here, alike), (ended.ends[here] >= onset) & (ended.starts[here] >= began - BEGAN_S)
    here = here[so | later]
    if len(alike) < NEARLY_ALL * len(here):
        return None
    if len(hosts) > 1:
        (partition,) = group.partitions
        ended = ended.well_in(partition)
    away = {user: _away(ended, user, hosts, onset, last.end) for user in sorted(ended.users_of(here))}
    near = ended.elsewhere(ended.all(onset - NEAR_S, last.end + AHEAD_S), hosts)
    if not len(near) and not any(len(places) for places in away.values()):
        return None  # nothing shows that it is this node and not all of them
    witnesses = [_witness(ended, here, user, places, key) for user, places in away.items()]
    site = ended.alike(near, key) / (len(near) + 2.0)
    odds = 0.0 if symptom.elsewhere else odds_of(witnesses, symptom.own, site)
    files = {failure.signature.file for failure in group.failures}
    if (one_file := len(files) == 1 and "" not in files) or symptom.elsewhere:
        if symptom.unlisted:
            found = _least_found(ended, group, away, UNLISTED_USERS)
        elif symptom.of_program:
            found, site = _least_found(ended, group, away, 2), 0.0  # other programs elsewhere tell nothing
        else:
            found = sum(
                _found_it(ended, group, user, away[user], began) for user in sorted(group.users) if user in away
            )
        own = symptom.own * (VERY_FILE if one_file else 1.0)
        odds = max(odds, odds_of_one_thing(witnesses, own, site, found))
    sure = odds / (1.0 + odds)
    if sure < 0.5:
        return None
    theirs = np.concatenate([away[user] for user in sorted(group.users) if user in away])
    counts = (
        f"{len(alike)} of {len(here)} jobs of {len(group.users)} users on {group.named} failed with the same "
        f"{'error' if signature.event else 'exit code'} {_within(ended.ends[alike[-1]] - onset)}; {_others(ended, theirs, near, key)}"
    )
    well = (ended.runs[place] for place in np.union1d(theirs, near) if ended.well[place])
    peers = {node for run in well if partition_of(run) in group.partitions - {""} for node in run.nodes}
    differ = differences(world, hosts, peers, first.end)
    if len(hosts) > 1 and not (differ and _well_meanwhile(ended, group, away, onset)):
        return None  # what jobs show on several nodes alike is no fault of these
    return _stated(group, sure, counts, sentence(hosts, differ) if differ else "")


def _stated(group: _Group, sure: float, counts: str, differs: str) -> Fact:
    """The fact. ``differs``: what these nodes run otherwise than those where jobs are well."""
    first, last, symptom = group.first, group.last, group.first.signature.symptom
    several = len(group.hosts) > 1
    if differs and not several:
        sure += SUPPORT * (1.0 - sure)
    sure = min(sure, TOGETHER_SUREST if several else symptom.surest)
    attrs: NodeEnvironment = {
        "symptom": symptom.name, "fault": first.signature.fault(group.named), "look": symptom.look,
        "counts": f"{counts}; {differs}" if differs else counts, "runs": sorted(f.run.key for f in group.failures), "sure": round(sure, 4),
    }  # fmt: skip
    if differs:
        attrs["differs"] = differs
    if several:
        attrs["hosts"] = sorted(group.hosts)
    lines = in_order(f.signature.event for f in group.failures if f.signature.event)
    # Two things may break at once: each is an incident of its own.
    host, device = None if several else first.host, first.signature.device
    return NODE_ENVIRONMENT.fact(first.end, last.end, 0.5, host, device, attrs=attrs, events=lines)


def _well_meanwhile(ended: Ended, group: _Group, away: Mapping[str, Numbers], onset: float) -> bool:
    """Did jobs of at least two of the users, of the same names as those that failed, go on elsewhere meanwhile and end well? A mistake
    that was mended since, or made for all nodes, would not leave them well."""
    users = set()
    for failure in group.failures:
        places = away.get(failure.user, _NOWHERE)
        some = places[ended.well[places] & (ended.ends[places] >= onset) & (ended.starts[places] <= group.last.end)]
        if any(ended.runs[place].row.get("name") == failure.run.row.get("name") is not None for place in some):
            users.add(failure.user)
    return len(users) >= 2


def _away(ended: Ended, user: str, hosts: Collection[str], first: float, last: float) -> Numbers:
    return ended.elsewhere(ended.of(user, first - DAY_S, last + AHEAD_S), hosts)


def _found_it(ended: Ended, group: _Group, user: str, away: Numbers, began: float) -> int:
    """How many runs elsewhere of the same name and user ended well, and had not begun before the first that failed."""
    names = {failure.run.row.get("name") for failure in group.failures if failure.user == user} - {None}
    later = away[ended.well[away] & (ended.starts[away] >= began - BEGAN_S)]
    return sum(ended.runs[place].row.get("name") in names for place in later)


def _least_found(ended: Ended, group: _Group, away: Mapping[str, Numbers], users: int) -> int:
    """For each user that failed so, how many runs elsewhere of the same name and user ran at that moment and ended well: the fewest
    of any user; 0 if these are not so many ``users``.

    One user can copy another's error, and two can have made the same mistake and mended it before their runs elsewhere.
    """
    failed: defaultdict[str, list[Failure]] = defaultdict(list)
    for failure in group.failures:
        failed[failure.user].append(failure)
    if len(failed) < users:
        return 0
    return min(_ran_meanwhile(ended, some, away.get(user, _NOWHERE)) for user, some in failed.items())


def _ran_meanwhile(ended: Ended, failures: Sequence[Failure], away: Numbers) -> int:
    names = {failure.run.row.get("name") for failure in failures} - {None}
    well = away[ended.well[away]]
    return sum(
        ended.runs[place].row.get("name") in names
        and any(ended.starts[place] <= failure.end <= ended.ends[place] for failure in failures)
        for place in well
    )


def _witness(ended: Ended, here: Numbers, user: str, away: Numbers, key: tuple[str, str]) -> Witness:
    mine = np.array([place for place in here if str(ended.runs[place].row["user"]) == user], np.int64)
    alike = ended.alike(mine, key)
    return Witness(alike, int(ended.well[mine].sum()), len(away), ended.alike(away, key))


def _others(ended: Ended, theirs: Numbers, near: Numbers, key: tuple[str, str]) -> str:
    """What became of the same users' jobs elsewhere, or of all jobs elsewhere."""
    places = theirs if len(theirs) else near
    unhurt = len(places) - ended.alike(places, key)
    return f"{unhurt} of {len(places)}{'' if len(theirs) else ' of other users'} elsewhere did not"


def _early(ended: Ended, group: _Group) -> bool:
    """Did all of them end early for jobs of their users?"""
    for failure in group.failures:
        away = _away(ended, failure.user, group.hosts, group.first.end, group.last.end)
        well = away[ended.well[away]]
        lasted = failure.end - (failure.run.start if failure.run.start is not None else failure.end)
        if len(well) < KNOWN or lasted > EARLY * float(np.median(ended.ends[well] - ended.starts[well])):
            return False
    return True


def _within(seconds: float) -> str:
    if seconds < 1.0:
        return "at the same moment"
    return f"within {seconds:.0f} s" if seconds < 120.0 else f"within {seconds / 60.0:.0f} min"


def _reported(world: World) -> set[str]:
    """The runs whose output reports broken hardware: that says more."""
    found = {fact.run for fact in world.facts_of(GPU_IN_OUTPUT.name, DISK_IN_OUTPUT.name) if fact.run}
    return found.union(*(fact.attrs[RUNS] for fact in world.facts_of(STORAGE_IN_OUTPUT.name)))


def _explained(world: World, fact: Fact) -> bool:
    """Does a line of the node itself tell why its GPUs are not initialised? That says more."""
    managers = world.facts_on(FABRIC_MANAGER.name, [fact.host or ""]) if fact.attrs[SYMPTOM] == FABRIC else ()
    return any(0.0 <= fact.start - f.start <= MANAGER_S for f in managers)


def _in_output(
    ended: Callable[[], Ended],
    alike: Sequence[Failure],
    failure: Failure,
    names: Callable[[], HostNames],
    mistaken: Collection[str],
) -> Fact | None:
    """What a run's own output reports about its node, or about all nodes; None if it may as well be its own mistake.

    ``mistaken``: runs that may have asked for a name that no host has.
    """
    signature = failure.signature
    symptom = signature.symptom
    if (
        signature.event is None
        or failure.run.key in mistaken
        or not (symptom.shared or symptom.strong or symptom.of_node)
    ):
        return None
    near = [f for f in alike if abs(f.end - failure.end) <= AHEAD_S and f.run.key not in mistaken]
    hosts, users = {f.host for f in near if f.host}, {f.user for f in near}
    place = str(failure.host)
    if (symptom.shared or symptom.strong) and len(hosts) > 1 and len(users) > 1:
        place = ""
        counts = f"the same error on {len(hosts)} nodes for {len(users)} users"
    elif failure.host is not None and failure.user and (symptom.strong or symptom.of_node):
        exists = symptom.name == NAMES and bool(names().other_not_found_in(_text(failure), failure.run.nodes))
        counts = _of_one(ended(), failure, strong=symptom.strong or exists)
    else:
        return None
    if not counts:
        return None
    attrs: EnvironmentInOutput = {
        "symptom": symptom.name,
        "fault": signature.fault(place),
        "counts": counts,
    }
    return ENVIRONMENT_IN_OUTPUT.fact(
        failure.end, None, 0.5, failure.host, run=failure.run.key, attrs=attrs, events=(signature.event,)
    )


def _of_one(ended: Ended, failure: Failure, *, strong: bool) -> str:
    """What the jobs of one user show; empty if it is not worth a doubt. ``strong``: hardly ever a mistake."""
    symptom, key, host = failure.signature.symptom, failure.signature.key, str(failure.host)
    mine = ended.of(failure.user, failure.end - DAY_S, failure.end + AHEAD_S)
    away = ended.elsewhere(mine, {host})
    here = np.setdiff1d(mine, away, assume_unique=True)
    failed, failed_away = ended.alike(here, key), ended.alike(away, key)
    only_here = symptom.of_node and TWICE <= failed == len(here) and len(away) >= OFTEN
    if failed_away or not (strong or only_here):
        return ""
    text = f"{failed} of {len(here)} jobs of its user on {host} failed so"
    return f"{text}, {failed_away} of {len(away)} elsewhere" if len(away) else text


KINDS = (NODE_ENVIRONMENT, ENVIRONMENT_IN_OUTPUT)
DETECTORS = [environments]
