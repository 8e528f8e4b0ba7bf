"""Requirements of edges: hard filters that give a reason when they fail.

``CONDITIONS[name](world, cause, effect) -> str | None``: None when it holds, else why it does not, in words for a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from correlator.expressions import Value
from correlator.facts import World
from correlator.model import Event, Fact
from correlator.scopes import run_of
from correlator.site import JOB_SETTINGS, SETTINGS

Condition = Callable[[World, Fact, Fact], str | None]

_IO_TROUBLE = re.compile(
    r"input/output error|\bEIO\b|errno 5\b|read-only file ?system|errno 30\b|stale file handle|transport endpoint|cannot send after|bus error",
    re.IGNORECASE,
)
_NO_SPACE = re.compile(
    r"no space left|errno 28|launch failed|unable to create|could not launch|spooldir", re.IGNORECASE
)


def name_of(fact: Fact) -> str:
    return f"{fact.device} of {fact.host}" if fact.device else str(fact.host)


def _management(world: World, cause: Fact, effect: Fact) -> str | None:
    if cause.attrs.get("role") == "fabric":
        return f"{name_of(cause)} carries the jobs' data, not Slurm's messages"
    return None


def _fabric(world: World, cause: Fact, effect: Fact) -> str | None:
    if cause.attrs.get("role") == "management":
        return f"{name_of(cause)} carries Slurm's messages, not the jobs' data"
    return None


def _still_down(world: World, cause: Fact, effect: Fact) -> str | None:
    if cause.end is not None and cause.end + cause.sigma < effect.start - 1.0:
        return f"{name_of(cause)} was back {effect.start - cause.end:.1f} s before"
    return None


def _still_down_at_onset(world: World, cause: Fact, effect: Fact) -> str | None:
    """A silence of N seconds needs an outage of about N seconds, or the retries would have got through."""
    timeout = effect.attrs.get("timeout") or 0.0
    if cause.end is not None and cause.end - cause.start < min(timeout, 10.0) * 0.5:
        return f"{name_of(cause)} was away {cause.end - cause.start:.1f} s, the program waited {timeout:g} s"
    return None


def _several_nodes(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    return None if run is None or len(run.nodes) > 1 else f"job {run.key} ran on one node only"


def _printed_timeout(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if effect.attrs.get("timeout") else "the program printed no timeout"


def _no_printed_timeout(world: World, cause: Fact, effect: Fact) -> str | None:
    return "the program printed its own timeout" if effect.attrs.get("timeout") else None


def _not_back_before(world: World, cause: Fact, effect: Fact) -> str | None:
    back = cause.attrs.get("noticed", cause.end)
    return (
        f"slurmd was back {effect.start - back:.1f} s before"
        if back is not None and back < effect.start - 1.0
        else None
    )


def _switch_fabric(world: World, cause: Fact, effect: Fact) -> str | None:
    roles = {world.site.role(host, device) for host, device in cause.attrs.get("links", ())}
    return f"{cause.host} carries Slurm's messages, not the jobs' data" if roles == {"management"} else None


def _hardware_xid(world: World, cause: Fact, effect: Fact) -> str | None:
    family = cause.attrs.get("family")
    return None if family == "hardware" else f"Xid {cause.attrs.get('code')} is of the {family} class"


def _xid_74(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get("code") == 74 else "not an NVLink error"


def _not_xid_74(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get("code") != 74 else "an NVLink error does not always kill"


def _output(effect: Fact) -> list[Event]:
    return list(effect.attrs.get("output", ())) + list(effect.attrs.get("application", ()))


def _io_trouble(world: World, cause: Fact, effect: Fact) -> str | None:
    if any(_IO_TROUBLE.search(e.message) for e in _output(effect)):
        return None
    return "the run's output speaks of no I/O error"


def _evicted_or_io(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    evicted = set(cause.attrs.get("evicted", ()))
    if run and evicted & set(run.nodes):
        return None
    return _io_trouble(world, cause, effect)


def _no_space(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    hardly = (
        effect.kind != "run.failed"
        and run is not None
        and (run.start is None or run.end is None or run.end - run.start < 30)
    )
    if hardly or any(_NO_SPACE.search(e.message) for e in _output(effect)):
        return None
    return "the run had been working and its output speaks of no full disk"


def _hardly_began(world: World, cause: Fact, effect: Fact) -> str | None:
    """A prolog runs before the job does: a failure of one that came later belongs to another run."""
    run = run_of(world, effect)
    if run is None or run.start is None:
        return None
    late = cause.start - run.start
    return f"it came {late:.0f} s into the run" if late > 120 else None


CONDITIONS: dict[str, Condition] = {
    "management link": _management, "fabric link": _fabric, "still down at effect": _still_down,
    "still down at onset": _still_down_at_onset, "several nodes": _several_nodes, "printed timeout": _printed_timeout,
    "no printed timeout": _no_printed_timeout, "not back before effect": _not_back_before,
    "switch carries fabric": _switch_fabric, "hardware xid": _hardware_xid, "xid 74": _xid_74, "not xid 74": _not_xid_74,
    "input/output trouble in the run": _io_trouble, "client evicted or input/output trouble": _evicted_or_io,
    "launch trouble or no space in the run": _no_space, "run hardly began": _hardly_began,
}  # fmt: skip


def derived_values(values: dict[str, Value], effect: Fact | None) -> dict[str, Value]:
    """Adds what windows may name besides settings: the InfiniBand retry budget and the effect's printed timeout."""
    values = dict(values)
    exponent, retries = values["NCCL_IB_TIMEOUT"], values["NCCL_IB_RETRY_CNT"]
    values["IbRetryBudget"] = Value(
        4.096e-6 * 2**exponent.low * retries.low,
        4.096e-6 * 2**exponent.high * retries.high,
        exponent.known and retries.known,
    )
    timeout = float((effect.attrs.get("timeout") if effect else None) or 0.0)
    values["PrintedTimeout"] = Value(timeout, timeout, True, "printed by the program")
    return values


def example_values() -> dict[str, Value]:
    """Defaults, for checking that a window can be worked out."""
    values = {name: Value.of(default) for name, (default, _) in {**SETTINGS, **JOB_SETTINGS}.items()}
    return derived_values(values, None)
