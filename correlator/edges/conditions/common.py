"""Requirements of edges: hard filters that give a reason when they fail.

``CONDITIONS[name](world, cause, effect) -> str | None``: None if it holds, else why it does not, in words for a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from correlator.edges.conditions import guards, launches, links, storage
from correlator.edges.conditions.links import name_of as name_of
from correlator.facts.jobs.deaths import killed_at_once
from correlator.facts.jobs.kinds import RUN_FAILED, RUN_NODE_FAIL
from correlator.facts.jobs.lines import END_SLACK_S, of_run
from correlator.facts.jobs.output import file_lost, logged_timeout
from correlator.facts.nodes.kinds import (
    ADMIN_DOWN,
    NODE_DEAD,
    NODE_DOWN,
    NODE_OVERHEATED,
    NODE_PANIC,
    NODE_REBOOT,
    SPEAKS_WITHIN_S,
)
from correlator.facts.output_hardware import LOCAL_PATH, SHARED_PATH, path_in
from correlator.facts.registry import kind_of, vocabulary
from correlator.facts.storage import STORAGE_OUTAGE
from correlator.facts.world import World, run_of, word_between
from correlator.model.attributes import (
    ASKED,
    BOOT,
    CODE,
    COMPONENT,
    END_UNSEEN,
    EVICTED,
    EXIT_CODE,
    FAILED_NODES,
    FAMILY,
    FAR_END_ONLY,
    LAST_RESPONSE,
    LASTING,
    LOST,
    MAINTENANCE,
    NOTICED,
    OUTPUT,
    PASSING,
    PLANNED,
    READ_ONLY,
    REFUSED,
    REVOKED,
    SIGNAL,
    TIMEOUT,
    UNENDED,
    UNRESUMED,
    WORDS,
)
from correlator.model.moments import UNSTAMPED_S
from correlator.model.nouns import Event, Fact
from correlator.site.site import JOB_SETTINGS, SETTINGS
from correlator.site.windows import Value
from parsers.xid import xids

Condition = Callable[[World, Fact, Fact], str | None]

_IO_TROUBLE = re.compile(
    r"input/output error|\bEIO\b|errno 5\b|read-only file ?system|errno 30\b|stale file handle|transport endpoint|cannot send after|bus error",
    re.IGNORECASE,
)
_NO_SPACE = re.compile(
    r"no space left|errno 28|launch failed|unable to create|could not launch|spooldir", re.IGNORECASE
)


def _still_down(world: World, cause: Fact, effect: Fact) -> str | None:
    """Was the link still down at the ping round that counts?

    slurmctld pings its nodes every third of SlurmdTimeout and gives up those that did not answer the previous ping. A
    link that was down for most of SlurmdTimeout and came back after that round is back too late.
    """
    if cause.end is None or cause.end + cause.sigma >= effect.start - 1.0:
        return None
    timeout, back = world.site.settings["SlurmdTimeout"], effect.start - cause.end
    if cause.end - cause.start >= 2 * timeout.high / 3 and back <= timeout.low / 3 + cause.sigma:
        return None
    return f"{name_of(cause)} was back {back:.1f} s before"


def _still_down_at_onset(world: World, cause: Fact, effect: Fact) -> str | None:
    """A silence of N seconds needs an outage of about N seconds, or the retries would have got through."""
    timeout = effect.attrs.get(TIMEOUT) or 0.0
    if cause.end is not None and cause.end - cause.start < min(timeout, 10.0) * 0.5:
        return f"{name_of(cause)} was away {cause.end - cause.start:.1f} s, the program waited {timeout:g} s"
    return None


#: A hang that began later than this before the time limit did not make the run miss it.
HUNG_S = 120.0


def _hung_long_before(world: World, cause: Fact, effect: Fact) -> str | None:
    """The run's ranks had lost their peers long before it ended.

    Ranks that a time limit ends lose their peers as well; such a loss did not hold the run up.
    """
    if cause.sigma >= UNSTAMPED_S:
        # Output without timestamps is placed where the run ended: its lines must show that a rank waited in vain.
        return (
            None
            if any(RETRIED.search(e.message) for e in cause.events)
            else "its ranks were lost when it was ended, as far as its output tells"
        )
    timeout = cause.attrs.get(TIMEOUT)
    lead = effect.start - cause.start + float(timeout or 0.0)
    return (
        None
        if lead >= HUNG_S
        else f"its ranks lost each other {lead:.0f} s before the limit, which it would have reached anyway"
    )


def _several_nodes(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    return None if run is None or len(run.nodes) > 1 else f"job {run.key} ran on one node only"


def _logged_timeout(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if effect.attrs.get(TIMEOUT) else "the program printed no timeout"


def _no_logged_timeout(world: World, cause: Fact, effect: Fact) -> str | None:
    return "the program printed its own timeout" if effect.attrs.get(TIMEOUT) else None


def _not_back_before(world: World, cause: Fact, effect: Fact) -> str | None:
    back = cause.attrs.get(NOTICED, cause.end)
    return (
        f"slurmd was back {effect.start - back:.1f} s before"
        if back is not None and back < effect.start - 1.0
        else None
    )


def _hardware_xid(world: World, cause: Fact, effect: Fact) -> str | None:
    family = cause.attrs.get(FAMILY)
    return None if family == "hardware" else f"Xid {cause.attrs.get(CODE)} is of the {family} class"


def _did_not_hang(world: World, cause: Fact, effect: Fact) -> str | None:
    """A watchdog that ran out shows that the run had stood still for that long: what silenced it happened before that."""
    timeout = max(
        (
            logged_timeout([e]) or 0.0
            for e in (effect.attrs.get(WORDS) or {}).get("peers", ())
            if e.kind == "job.nccl_timeout"
        ),
        default=0.0,
    )
    if effect.start - cause.start < timeout - HANG_SLACK_S:
        return f"the run had stood still for {timeout:g} s when its watchdog ended it"
    return None


#: What fails while a run already hangs did not make it hang; timestamps and the watchdog's rounds take this much.
HANG_SLACK_S = 90.0


#: NVIDIA's catalogue and the driver's own message (Xid 154) for a GPU that only a reboot of its machine recovers.
_REBOOT = re.compile(r"reboot", re.IGNORECASE)


def _needs_reboot(world: World, cause: Fact, effect: Fact) -> str | None:
    code = cause.attrs.get(CODE)
    known = xids().get(int(code or 0))
    asked = known is not None and known.action == "RESTART_BM"
    if asked or any(_REBOOT.search(e.message) for e in cause.events):
        return None
    return f"Xid {code} needs no reboot"


#: How a program that accessed lost memory ends (SIGBUS is 7; shells and srun add 128).
_BUS_ERROR = re.compile(r"bus error|sigbus|exit code 135|signal:? 7\b", re.IGNORECASE)


def _bus_error(world: World, cause: Fact, effect: Fact) -> str | None:
    signalled = str(effect.attrs.get(SIGNAL)) == "7" or str(effect.attrs.get(EXIT_CODE)) in ("7", "135")
    if signalled or any(_BUS_ERROR.search(e.message) for e in _output(effect)):
        return None
    return "the run did not end by a bus error"


def _xid_74(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get(CODE) == 74 else "not an NVLink error"


def _not_xid_74(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get(CODE) != 74 else "an NVLink error does not always kill"


def _output(effect: Fact) -> list[Event]:
    return list(effect.attrs.get(OUTPUT, ()))


def _io_trouble(world: World, cause: Fact, effect: Fact) -> str | None:
    messages = [e.message for e in _output(effect) if _IO_TROUBLE.search(e.message) or file_lost(e.message)]
    if not messages:
        return "the run's output speaks of no I/O error"
    # A path shows whose error it was: the node's own disk's, or that of a file system that many nodes share.
    elsewhere = LOCAL_PATH if cause.kind == STORAGE_OUTAGE.name else SHARED_PATH
    paths = [path_in(text) for text in messages]
    if all(path and (elsewhere.match(path) or _on_another(cause, path)) for path in paths):
        return f"the error was on {paths[0]}"
    return None


#: If several Lustre file systems are mounted side by side, their names distinguish them.
_MOUNTED = re.compile(r"^/(?:mnt/)?lustre/(?P<name>\w+)/")
_TARGET = re.compile(r"(?P<name>\w+)-(?:OST|MDT|MGS|MGT)", re.IGNORECASE)


def _on_another(cause: Fact, path: str) -> bool:
    place, target = _MOUNTED.match(path), _TARGET.match(cause.device or "")
    return place is not None and target is not None and place["name"] != target["name"]


def _names_node_failure(world: World, cause: Fact, effect: Fact) -> str | None:
    """A job that is to outlive its nodes (``--no-kill``) loses a step with one, and ends as its script does."""
    run = run_of(world, effect)
    lines = of_run(run, world.by_job.get(run.job_id, ())) if run else []
    phrases = ("node failure on", "due to node failure")
    if any(e.source != "slurmctld" and any(words in e.message.lower() for words in phrases) for e in lines):
        return None
    return "no step of the run was told to have lost a node"


def _evicted_or_io(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    evicted = set(cause.attrs.get(EVICTED, ()))
    words = effect.attrs.get(WORDS) or {}
    if run and evicted & set(run.nodes) and not words.get("own") and not words.get("storage"):
        return None
    return _io_trouble(world, cause, effect)


def _no_space(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    hardly = (
        effect.kind != RUN_FAILED.name
        and run is not None
        and (run.start is None or run.end is None or run.end - run.start < 30)
    )
    messages = [e.message for e in _output(effect) if _NO_SPACE.search(e.message)]
    paths = [path_in(text) for text in messages]
    if messages and all(path and SHARED_PATH.match(path) for path in paths):
        return f"what was full was the file system of {paths[0]}"
    return None if hardly or messages else "the run had been working and its output speaks of no full disk"


def _hardly_began(world: World, cause: Fact, effect: Fact) -> str | None:
    """A prolog runs before the job does: a failure of one that came later belongs to another run."""
    run = run_of(world, effect)
    if run is None or run.start is None:
        return None
    late = cause.start - run.start
    if late > 120:
        return f"it came {late:.0f} s into the run"
    begun = [
        e for e in world.by_job.get(run.job_id, ()) if e.kind == "slurm.step_start" and e.host == cause.host
        and run.start - 5.0 <= e.time < cause.start - 1.0
    ]  # fmt: skip
    if begun and cause.run is None:
        return f"{cause.host} had started a step of the run {cause.start - begun[0].time:.0f} s before"
    return None


def _not_killed_with_node(world: World, cause: Fact, effect: Fact) -> str | None:
    """The run was not killed together with a node.

    A failing prolog drains a node, and Slurm requeues or cancels its run. A run killed with a node died of what set
    that node DOWN.
    """
    if effect.kind != RUN_NODE_FAIL.name:
        return None
    for down in world.facts_of(NODE_DOWN.name, ADMIN_DOWN.name, NODE_REBOOT.name):
        noticed = float(down.attrs.get(NOTICED, down.start))
        if down.events and down.host in effect.attrs[FAILED_NODES] and abs(noticed - effect.start) <= END_SLACK_S:
            return f"slurmctld killed the run with {down.host}, which it had given up"
    return None


#: Slurm gives up a launch within this: some attempts to connect, each as long as MessageTimeout.
LAUNCH_TRIED_S = 120.0


def _away_all_along(world: World, cause: Fact, effect: Fact) -> str | None:
    """What was down from before a run's start to its end kept Slurm from starting its tasks there."""
    run = run_of(world, effect)
    if run is None or run.start is None or run.end is None or run.end - run.start > LAUNCH_TRIED_S:
        return "the run had been working"
    slack = 1.0 + cause.sigma
    if cause.start > run.start + slack or (cause.end is not None and cause.end < run.end - slack):
        return f"{name_of(cause)} was not away from the run's beginning to its end"
    started = any(
        e.kind == "slurm.step_start" and e.host == cause.host and run.start - slack <= e.time <= run.end + slack
        for e in world.by_job.get(run.job_id, ())
    )
    return f"{cause.host} started tasks of the run" if started else None


#: How long a machine that is going down may still log after its network is gone.
LAST_WORDS_S = 10.0


def _silent_till_boot(world: World, cause: Fact, effect: Fact) -> str | None:
    """The machine logged nothing more until it booted.

    That is so for a machine that a run's other nodes lost; one that ended with its run logs at least that.
    """
    logged = cause.attrs.get(BOOT)
    boot = float(logged or cause.end or cause.start)
    host, run = cause.host or "", run_of(world, effect)
    if run is None or run.start is None or run.start >= boot - cause.sigma:
        return f"the run began after {host} had booted"
    if effect.start >= boot:
        return None
    if cause.attrs.get(PLANNED) or cause.attrs.get(PASSING):
        return f"{host} was rebooted on purpose"
    if word_between(world, host, effect.start - SPEAKS_WITHIN_S, boot) is None:
        return f"nothing tells when {host} wrote last"
    word = word_between(world, host, effect.start + LAST_WORDS_S + effect.sigma, boot)
    return f"{host} still wrote {word - effect.start:.0f} s after" if word else None


def _no_own_words(world: World, cause: Fact, effect: Fact) -> str | None:
    words = effect.attrs.get(WORDS) or {}
    return "the run's output tells of its own error" if words.get("own") else None


def _gave_up(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get(READ_ONLY) else "the file system stayed writable"


def _no_lost_peers(world: World, cause: Fact, effect: Fact) -> str | None:
    """A run whose output dates the loss of its peers is judged by that moment, not by its end."""
    words = effect.attrs.get(WORDS) or {}
    return "the run's output tells when its peers were lost" if words.get("peers") else None


def _down_at_effect(world: World, cause: Fact, effect: Fact) -> str | None:
    """Retries run out while the link is down; once it is back they succeed."""
    slack = 5.0 + cause.sigma + min(effect.sigma, 10.0)
    if cause.end is not None and cause.end + slack < effect.start:
        return f"{name_of(cause)} was back after {cause.end - cause.start:.1f} s, {effect.start - cause.end:.1f} s before the error"
    return None


#: 4.096 us x 2^18 x 7: what NCCL 2.14 to 2.22 retry for; later ones four times as long (nccl env.rst).
TYPICAL_RETRIES_S = 7.5


def _outlasts_retries(world: World, cause: Fact, effect: Fact) -> str | None:
    """An outage that ended before the run's retries were exhausted was absorbed by them (correlation.md, E08).

    If a run's settings are unknown and its output shows nothing about retries, typical ones are assumed.
    """
    if cause.duration is None or cause.attrs.get(END_UNSEEN):
        return None
    values = derived_values(world.site.values_for(effect.run), effect)
    if values["NCCL_IB_TIMEOUT"].origin == "job environment":
        budget = values["IbRetryBudget"].low
        # Timestamps of both ends, and the time that a port needs until packets flow again.
        if cause.duration + 2.0 * cause.sigma + LINK_TRAINS_S >= budget:
            return None
        return f"{name_of(cause)} was back after {cause.duration:.1f} s, the run's retries last {budget:.0f} s"
    if cause.duration >= TYPICAL_RETRIES_S or any(RETRIED.search(e.message) for e in effect.events):
        return None
    return f"{name_of(cause)} was back after {cause.duration:.1f} s, usual retries last {TYPICAL_RETRIES_S:g} s and more, and the run says nothing of retries"


#: From carrier to the first packet: speed is negotiated, the subnet manager or routing brings the port into use.
LINK_TRAINS_S = 2.0


#: A transport's own message that its retries were exhausted; a closed connection may as well be a dead peer's.
RETRIED = re.compile(r"retry|retries|status[= ]*12\b|timed? ?out|no path", re.IGNORECASE)


def _ended_by_itself(world: World, cause: Fact, effect: Fact) -> str | None:
    """A rank that loses its rail gives up, with a code or an abort; the others are killed after it."""
    return "all tasks of the run were killed, none had ended before" if killed_at_once(effect) else None


def _away_at_boot(world: World, cause: Fact, effect: Fact) -> str | None:
    """The link was still down when the machine went down, or was lost within two minutes of its boot.

    A machine that goes on logging after its link was lost was up; it may have been booted later, to repair it.
    """
    if abs(effect.start - cause.start) <= 120.0:
        return None
    has_log = bool(world.spoke_at(cause.host or ""))  # for a host whose log is missing, silence proves nothing
    until = cause.start if effect.end is None else effect.end + (POST_S if has_log else 0.0)
    if not effect.start <= cause.start <= until:
        return f"{name_of(effect)} was back before {cause.host} went down"
    # If only its own moment is known of a boot, the machine may have gone any time after its last line.
    logged = cause.attrs.get(BOOT)
    boot = float(logged or cause.start)
    word = word_between(world, cause.host or "", effect.start + SHUTTING_DOWN_S, max(boot, cause.start))
    return f"{cause.host} wrote on for {word - effect.start:.0f} s after {name_of(effect)} was lost" if word else None


#: A machine that is shut down takes its links down first, and writes its last lines within this.
SHUTTING_DOWN_S = 90.0

#: Firmware brings links up while it tests the machine, minutes before the kernel starts.
POST_S = 300.0


def _silent_until_boot(world: World, cause: Fact, effect: Fact) -> str | None:
    """A machine that still logged after slurmctld had given it up was alive; its later boot repaired something else."""
    if cause.start <= effect.start or cause.attrs.get(LAST_RESPONSE) is None:
        return f"{cause.host} had booted before" if cause.start <= effect.start else "its last answer is not known"
    word = word_between(world, cause.host or "", effect.start + effect.sigma + 2.0, cause.start)
    return f"{cause.host} still wrote {word - effect.start:.0f} s after it was set DOWN" if word else None


def _unasked(world: World, cause: Fact, effect: Fact) -> str | None:
    """A node that was switched on, or ordered to boot, did not go down by itself."""
    asked = cause.attrs.get(ASKED)
    if asked:
        return f"{cause.host} did not boot by itself: {asked}"
    return f"{cause.host} was not up before: Slurm had powered it up" if effect.attrs.get(UNRESUMED) else None


#: A machine that died no longer answers; what was lost after that did not silence it.
DIED_S = 1000.0


def _lived_until_then(world: World, cause: Fact, effect: Fact) -> str | None:
    host = effect.host
    for died in world.facts_of(NODE_PANIC.name, NODE_OVERHEATED.name, NODE_DEAD.name):
        if died.host != host or not 2.0 + died.sigma + cause.sigma < cause.start - died.start <= DIED_S:
            continue
        back = [
            f
            for f in world.facts_of(NODE_REBOOT.name)
            if f.host == host and died.start < (f.end or f.start) <= cause.start
        ]
        if not back:
            return f"{host} had died {cause.start - died.start:.0f} s before"
    return None


def _named_by_reason(world: World, cause: Fact, effect: Fact) -> str | None:
    """A health check names what it found; a person may, too (parsers/reasons.py)."""
    named = effect.attrs.get(COMPONENT)
    if named and named == kind_of(cause.kind).component:
        return None
    return f"the reason given for {effect.host} does not speak of it"


def _planned_work(world: World, cause: Fact, effect: Fact) -> str | None:
    if not cause.attrs.get(MAINTENANCE):
        return "the drain names no planned work"
    return None if not world.runs_at(effect.host or "", effect.start - 2.0) else "runs were still on the node"


def _job_was_on_it(world: World, cause: Fact, effect: Fact) -> str | None:
    """A node that comes back still considers killed, by number, the jobs that it was to end while it was away."""
    run = run_of(world, effect)
    if run is None or not effect.attrs.get(REVOKED):
        return "the launch was not refused for a revoked credential"
    for other in world.runs_of_job.get(run.job_id, ()):
        if (
            other is not run
            and cause.host in other.nodes
            and other.end is not None
            and abs(other.end - cause.start) <= 5.0
        ):
            return None
    return f"no former run of job {run.job_id} was on {cause.host} when it was set DOWN"


def _did_not_answer(world: World, cause: Fact, effect: Fact) -> str | None:
    return f"{effect.host} answered, and refused the job's credential" if effect.attrs.get(REFUSED) else None


def _row_remapped(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get(CODE) in (63, 64) else "not a row remapping"


def _met_memory_error(world: World, cause: Fact, effect: Fact) -> str | None:
    words = (effect.attrs.get(WORDS) or {}).get("gpu", ())
    return None if any("ecc" in e.message.lower() for e in words) else "the run met no uncorrectable memory error"


def _far_end_only(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if effect.attrs.get(FAR_END_ONLY) else f"{effect.host} itself logged the loss"


def _slow_to_the_end(world: World, cause: Fact, effect: Fact) -> str | None:
    """What slowed for a while and recovered cost that time only; it must exceed what the run had left."""
    run = run_of(world, effect)
    length = (run.end - run.start) if run and run.end is not None and run.start is not None else 0.0
    lost = float(cause.attrs.get(LOST, 0.0))
    if not cause.attrs.get(LASTING) and lost < 0.5 * length:
        return f"the run was back to its pace and had lost {lost:.0f} s"
    if lost < 0.05 * length:
        return f"only {lost:.0f} s of {length:.0f} s were lost"
    return None


def _while_slow(world: World, cause: Fact, effect: Fact) -> str | None:
    """Cause and slowness must coincide for most of the time (correlation.md, E28: 70 %)."""
    until = effect.end if effect.end is not None else world.last
    over = cause.end is not None and not cause.attrs.get(UNENDED)
    end = cause.end if over and cause.end is not None else until  # no line says that it was over
    shared = min(end + cause.sigma + effect.sigma, until) - max(cause.start - cause.sigma, effect.start - effect.sigma)
    length = max(1.0, until - effect.start)
    return (
        None if shared >= 0.5 * length else f"it went on for {max(0.0, shared):.0f} s of the {length:.0f} slow seconds"
    )


CONDITIONS: dict[str, Condition] = {
    "management link": links.management, "fabric link": links.fabric, "still down at effect": _still_down,
    "still down at onset": _still_down_at_onset, "several nodes": _several_nodes, "printed timeout": _logged_timeout,
    "no printed timeout": _no_logged_timeout, "not back before effect": _not_back_before,
    "switch carries fabric": links.switch_fabric, "switch carries management": links.switch_management,
    "hardware xid": _hardware_xid, "xid 74": _xid_74, "did not hang": _did_not_hang, "not xid 74": _not_xid_74,
    "input/output trouble in the run": _io_trouble, "client evicted or input/output trouble": _evicted_or_io,
    "launch trouble or no space in the run": _no_space, "run hardly began": _hardly_began, "not killed with its node": _not_killed_with_node, "no words of its own": _no_own_words,
    "file system given up": _gave_up, "no lost peers told": _no_lost_peers, "down at effect": _down_at_effect,
    "outlasts usual retries": _outlasts_retries, "a task ended by itself": _ended_by_itself,
    "hung long before": _hung_long_before, "needs a reboot": _needs_reboot, "killed by a bus error": _bus_error,
    "same adapter": links.same_adapter, "single path": links.single_path, "slow to the end": _slow_to_the_end, "far end only": _far_end_only,
    "a step lost its node": _names_node_failure, "away at the boot": _away_at_boot, "silent until the boot": _silent_until_boot, "booted by itself": _unasked, "named by the reason": _named_by_reason,
    "its job was on it": _job_was_on_it, "planned work": _planned_work, "row remapped": _row_remapped, "uncorrectable memory in the run": _met_memory_error, "while slow": _while_slow,
    "away all along": _away_all_along, "silent until it booted": _silent_till_boot,
    "node did not answer": _did_not_answer, "node lived until then": _lived_until_then, "its share of the planes": links.its_share,
    "away at the launch": launches.away,
    "link carries the storage": storage.carries, "away while it waited": storage.away_while_waiting,
    "killed by the guard": guards.killed_it, "others held the memory": guards.others_held_most,
    "stood still from then on": storage.stood_still,
}  # fmt: skip


@cache
def conditions() -> Mapping[str, Condition]:
    """All requirements by name, including those of installed packages."""
    return vocabulary("CONDITIONS", CONDITIONS)


def derived_values(values: dict[str, Value], effect: Fact | None) -> dict[str, Value]:
    """Adds what windows may name besides settings: the InfiniBand retry budget and the effect's logged timeout."""
    values = dict(values)
    exponent, retries = values["NCCL_IB_TIMEOUT"], values["NCCL_IB_RETRY_CNT"]
    values["IbRetryBudget"] = Value(
        4.096e-6 * 2**exponent.low * retries.low,
        4.096e-6 * 2**exponent.high * retries.high,
        exponent.known and retries.known,
    )
    logged = effect.attrs.get(TIMEOUT) if effect else None
    timeout = float(logged or 0.0)
    values["PrintedTimeout"] = Value(timeout, timeout, True, "printed by the program")
    return values


@cache
def example_values() -> Mapping[str, Value]:
    """Default values, for checking that a window can be computed."""
    values = {name: Value.of(default) for name, (default, _) in {**SETTINGS, **JOB_SETTINGS}.items()}
    return derived_values(values, None)
