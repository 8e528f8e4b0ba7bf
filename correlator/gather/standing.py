"""Which lines count, where only several lines together decide: which hosts run slurmctld, on which nodes a job ran and
when.

``parsers/authority.py`` decides what one line alone shows. Here a header's claims are checked against what is known of
the cluster:

* slurmctld's lines count from its own file, or from a host that slurm.conf names or that has such a file. If neither is
known, they count from hosts that run no job and no slurmd. A file of slurmctld's that a compute node sends does not count
where slurm.conf names another controller that also sends lines (``Controllers.impostors``).
* Over syslog, lines in the name of such a host count only from its own addresses and from the site's relays.
* Other Slurm daemons report on their own host, and on jobs that ran there. No program of a compute node reports on the
  state of another.
* A compute node is no switch, and what its address sends over syslog is about no other host.
* A job's output is about that job, on its nodes, while it ran.

A line in the name of slurmctld from a host without one, or sent by a node as another host, makes no event: neither for
conclusions nor among the Events that people see (``ruling``). It remains a log line. Other lines that do not count make
no event for conclusions about the cluster, but do appear among the Events that people see (``admitted``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from correlator.model.nouns import Event, Run
from correlator.site.senders import NOBODY, Senders, configured_nodes
from correlator.site.senders import controllers as named_controllers
from parsers.formats.base import JOB_SOURCES
from store.questions.authority import Speakers

OUTPUT = frozenset(JOB_SOURCES)
_OF_NODES = ("slurmd", "slurmstepd")
#: Sources whose lines are about the runs and the host that wrote them.
_OF_RUNS = OUTPUT.union(_OF_NODES)
#: Sources with lines about a switch's ports, of switches or of nodes.
_OF_SWITCHES = ("switch", "syslog", "kernel")
#: Events about another node that only a controller can report.
_OF_OTHERS = "slurm.node_"
#: Events of a job's output that are about the job; others come from a file that was not recognised as job output.
_OF_JOBS = ("job.", "site.")
#: Timestamps of output and accounting may differ by this much (seconds): as for a run's lines in
#: facts/jobs/lines.py, and a minute after.
_SLACK_S, _BEHIND_S = 10.0, 60.0


class Controllers(NamedTuple):
    """The hosts whose slurmctld is trusted.

    ``sure``: a configuration or a file of slurmctld's own names them. ``senders``: whose network addresses are known.
    ``named``: by slurm.conf; ``seen``: one of these sent an event. ``impostors`` are compute nodes that sent a file of
    slurmctld's although slurm.conf names others, one of which sends lines as well: root of such a node can write the
    file, and the file proves nothing. While no named controller sends anything, its name in slurm.conf may be an alias of
    the node.
    """

    hosts: frozenset[str]
    sure: bool = True
    senders: Senders = NOBODY
    named: frozenset[str] = frozenset()
    seen: bool = False
    impostors: frozenset[str] = frozenset()
    #: Those of ``hosts`` of which a file of slurmctld's was collected.
    files: frozenset[str] = frozenset()


def controllers(
    events: Iterable[Event],
    settings: Iterable[Mapping[str, Any]],
    nodes: Collection[str] = (),
    senders: Senders = NOBODY,
) -> Controllers:
    """The controllers by all events of a cluster and its settings. ``nodes``: where jobs ran."""
    events, settings = list(events), list(settings)
    from_slurmctld = [e for e in events if e.source == "slurmctld"]
    named, with_file = named_controllers(settings), {e.host for e in from_slurmctld if e.own and e.host}
    if named or with_file or any(e.own for e in from_slurmctld):
        unnamed = with_file - named if named else set()
        seen = bool(unnamed) and any(e.host in named for e in events)
        impostors = unnamed & {*nodes, *configured_nodes(settings)} if seen else set()
        return Controllers(
            frozenset((named | with_file) - impostors), True, senders, named, seen, frozenset(impostors),
            frozenset(with_file - impostors),
        )  # fmt: skip
    hosts = {e.host for e in from_slurmctld if e.host}
    if hosts:
        hosts -= {*nodes, *(e.host for e in events if e.source in _OF_NODES and e.host)}
    return Controllers(frozenset(hosts), False, senders)


def speakers_of(believed: Controllers) -> Speakers:
    """The condition of ``ruling`` for queries that read slurmctld's lines without making events of them."""
    known = believed.senders
    return Speakers(
        sorted(believed.hosts - believed.files), sorted(believed.impostors), known.nodes, known.relays,
        sorted(known.allowed(believed.hosts)) if believed.sure else None, remote=not known.users_send_syslog,
        log_host_folders=sorted(known.log_host_folders),
    )  # fmt: skip


def ruling(events: Sequence[Event], believed: Controllers) -> Sequence[Event]:
    """``events`` without those in the name of slurmctld from hosts without one, without those sent as another host, and
    without those in slurmctld's name that its own file, which was collected, does not have: where the log host is the
    controller, anybody can send it such a line."""
    return without(events, unruled(in_doubt(events, believed), believed))


def in_doubt(events: Iterable[Event], believed: Controllers, *, sent: bool = True) -> list[Event]:
    """All events that ``ruling`` may drop, or that may show other controllers. ``sent``: may any name the address that sent
    it?

    They are few, and there are very many events, so one expression tests each.
    """
    files = believed.files  # no impostor's is one of them
    if not sent:
        return [e for e in events if e.source == "slurmctld" and not (e.own and e.host in files)]
    return [
        e for e in events if (e.source == "slurmctld" and not (e.own and e.host in files)) or "sender" in e.entities
    ]


def unruled(doubtful: Iterable[Event], believed: Controllers) -> set[str]:
    """The ids of the events that ``ruling`` drops."""
    if not believed.sure and not believed.senders.nodes:  # no sender can be another host
        doubtful = (e for e in doubtful if e.source == "slurmctld")
    return {e.id for e in doubtful if _is_nobodys(e, believed)}


def without(events: Sequence[Event], dropped: Collection[str]) -> Sequence[Event]:
    return [e for e in events if e.id not in dropped] if dropped else events


def _is_nobodys(event: Event, believed: Controllers) -> bool:
    return _is_foreign(event, believed) if event.source == "slurmctld" else _is_sent(event, believed)


#: Hosts that claim another's name: ("slurmctld", host), ("slurmctld file", host) and ("sender", address, host).
Disowned = frozenset[tuple[str, ...]]


def disowned(events: Iterable[Event], believed: Controllers) -> Disowned:
    """The claims of the events that ``ruling`` drops."""
    found: set[tuple[str, ...]] = set()
    for event in in_doubt(events, believed):
        if event.source == "slurmctld" and event.host in believed.impostors:
            found.update((("slurmctld", event.host), ("slurmctld file", event.host)))
        elif event.source == "slurmctld" and not event.own and event.host and event.host not in believed.hosts:
            found.add(("slurmctld", event.host))
        elif _is_sent(event, believed) and event.host:
            found.add(("sender", str(event.entities.get("sender")), event.host))
    return frozenset(found)


def asks_again(
    events: Iterable[Event],
    doubtful: Iterable[Event],
    believed: Controllers,
    nodes: Callable[[], Collection[str]],
) -> bool:
    """Must the controllers be determined again, given new events?

    ``doubtful``: those of them that are ``in_doubt``. ``nodes`` returns where jobs ran.
    """
    if any(e.source == "slurmctld" and e.own and e.host in believed.hosts for e in doubtful):
        return True  # the first lines of its file
    others = [e for e in doubtful if e.source == "slurmctld" and e.host not in believed.hosts]
    if not believed.sure:
        return bool(others)
    if any(e.own and e.host and e.host not in believed.impostors for e in others):
        return True
    unnamed = believed.hosts - believed.named if believed.named else frozenset()
    if not unnamed:
        return False
    # Is a host with a file of slurmctld's, which slurm.conf does not name, an impostor now?
    if believed.seen:
        return not unnamed.isdisjoint(nodes())
    return any(e.host in believed.named for e in events)


def _is_foreign(event: Event, believed: Controllers) -> bool:
    if event.own:
        return event.host in believed.impostors
    return event.host not in believed.hosts or event.host in believed.files or _is_sent(event, believed)


def _is_sent(event: Event, believed: Controllers) -> bool:
    """Did an address send it in the name of another host?"""
    sender = event.entities.get("sender")
    of_controller = believed.sure and event.host in believed.hosts
    return sender is not None and believed.senders.is_another(str(sender), event.host, of_controller=of_controller)


class Admitted(NamedTuple):
    """The events that count, in order, and the same by source and by kind."""

    events: list[Event]
    by_source: dict[str | None, list[Event]]
    by_kind: dict[str, list[Event]]


def admitted(events: Sequence[Event], of_job: Mapping[int, Sequence[Run]], nodes: Collection[str]) -> Admitted:
    """The events of ``ruling`` that count, each without a host that it must not name. ``of_job``: the runs of each job;
    ``nodes``: where they ran."""
    found = _grouped(events)
    # There are very many events: most count without a look at their run or host, and nearly all of the others as they are.
    instead: dict[int, Event | None] = {}
    for source, some in found.by_source.items():
        for event in some if source in _OF_RUNS else _about_others(source, some):
            if (one := _as_admitted(event, of_job, nodes)) is not event:
                instead[id(event)] = one
    return _with_others(found, instead) if instead else found


def _with_others(found: Admitted, instead: Mapping[int, Event | None]) -> Admitted:
    """``found`` with other events, or none, in place of a few, by their id()."""
    changed = [e for e in found.events if id(e) in instead]
    events = [one for e in found.events if (one := instead.get(id(e), e)) is not None]
    for source in {e.source for e in changed}:
        kept = (instead.get(id(e), e) for e in found.by_source[source])
        found.by_source[source] = [one for one in kept if one is not None]
    kinds = {e.kind for e in chain(changed, instead.values()) if e is not None}
    for kind in kinds:
        found.by_kind[kind] = []
    for event in events:
        if event.kind in kinds:
            found.by_kind[event.kind].append(event)
    return Admitted(events, found.by_source, found.by_kind)


def _grouped(events: Sequence[Event]) -> Admitted:
    by_source: defaultdict[str | None, list[Event]] = defaultdict(list)
    by_kind: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_source[event.source].append(event)
        by_kind[event.kind].append(event)
    return Admitted(list(events), by_source, by_kind)


def _about_others(source: str | None, events: Sequence[Event]) -> Sequence[Event]:
    """The events of one source about another node or a switch, which it may have to be: slurmctld may report on all."""
    if source == "slurmctld":
        return ()
    asked = {kind for kind in {e.kind for e in events} if kind.startswith(("switch.", _OF_OTHERS))}
    return [e for e in events if e.kind in asked] if asked else ()


def _as_admitted(event: Event, of_job: Mapping[int, Sequence[Run]], nodes: Collection[str]) -> Event | None:
    """The event without a host that it must not name; None if it does not count."""
    if event.source in OUTPUT:
        return _of_job(event, of_job)
    if event.source in _OF_NODES:
        return event if _of_own_host(event, of_job, nodes) else None
    if event.kind.startswith(_OF_OTHERS):  # of a cloud's scheduler plugin, or of a health check
        return event if event.host not in nodes or not _names_another(event) else None
    return None if event.source in _OF_SWITCHES and event.host in nodes else event


def _of_job(event: Event, of_job: Mapping[int, Sequence[Run]]) -> Event | None:
    """The event of a job's line if it counts for its job, without the host if that is not one of its nodes; else None.

    That srun did not reach slurmctld counts as what it means for the job: its tasks did not start.
    """
    if event.kind == "slurm.comm_error" and event.message.startswith("srun: error: "):
        event = replace(event, kind="job.launch_error")
    if not event.kind.startswith(_OF_JOBS):
        return None
    runs = of_job.get(event.job_id, ()) if event.job_id is not None else ()
    if not runs:
        return event
    if not any(_in_time(run, event) for run in runs):
        return None
    if event.host is not None and not any(event.host in run.nodes or not run.nodes for run in runs):
        return replace(event, host=None)
    return event


def _in_time(run: Run, event: Event) -> bool:
    since = run.start if run.start is not None else run.submit
    slack = _SLACK_S + event.sigma
    return (since is None or since - slack <= event.time) and (
        run.end is None or event.time <= run.end + slack + _BEHIND_S
    )


def _names_another(event: Event) -> bool:
    """Is it about the state of another node?"""
    named = event.entities.get("nodes")
    return any(name != event.host for name in ([named] if isinstance(named, str) else named or ()))


def _of_own_host(event: Event, of_job: Mapping[int, Sequence[Run]], nodes: Collection[str]) -> bool:
    """Does a node's Slurm daemon report on its own host and jobs?"""
    if event.kind.startswith(_OF_OTHERS) and _names_another(event):
        return False
    runs = of_job.get(event.job_id, ()) if event.job_id is not None else ()
    # A host without known runs may be a node under another name.
    return not runs or event.host not in nodes or any(event.host in run.nodes or not run.nodes for run in runs)
