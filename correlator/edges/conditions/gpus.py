"""Requirements of edges about GPUs. Each gives the reason if it does not hold."""

from __future__ import annotations

import re

from correlator.edges.conditions.declaration import Conditions
from correlator.facts.environment.kinds import FABRIC
from correlator.facts.environment.symptoms import symptom_of
from correlator.facts.fabric_managers import started_between
from correlator.facts.gpu_drains import is_unusable, may_be_taken_off, taken_off
from correlator.facts.gpu_hangs import stood_by
from correlator.facts.gpu_holders import may_hold_as_well, none_counted
from correlator.facts.jobs.output import may_be_of_gpu
from correlator.facts.world import World, run_of
from correlator.model.attributes import CODE, FAMILY, WORDS
from correlator.model.nouns import Fact, Run
from parsers.xid import xids

CONDITIONS = Conditions()


@CONDITIONS.named("hardware xid", "The Xid is of the hardware class in NVIDIA's catalogue.")
def hardware_xid(world: World, cause: Fact, effect: Fact) -> str | None:
    family = cause.attrs.get(FAMILY)
    return None if family == "hardware" else f"Xid {cause.attrs.get(CODE)} is of the {family} class"


#: NVIDIA's catalogue and the driver's own message (Xid 154) for a GPU that only a reboot of its machine recovers.
_REBOOT = re.compile(r"reboot", re.IGNORECASE)


@CONDITIONS.named(
    "needs a reboot",
    "Only a reboot of the machine recovers the GPU, by NVIDIA's catalogue or the driver's own message.",
)
def needs_reboot(world: World, cause: Fact, effect: Fact) -> str | None:
    code = cause.attrs.get(CODE)
    known = xids().get(int(code or 0))
    asked = known is not None and known.action == "RESTART_BM"
    if asked or any(_REBOOT.search(e.message) for e in cause.events):
        return None
    return f"Xid {code} needs no reboot"


@CONDITIONS.named(
    "taken off the node",
    "The GPU cannot be used before it is reset, its node was drained for it, and somebody else than its user ended the run.",
    may_be_taken_off,
)
def taken_off_node(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    return "the run is not known" if run is None else taken_off(world, cause, run, effect)


@CONDITIONS.named(
    "stood still by its GPU",
    "Nobody else can have held the GPU, which cannot be used before it is reset, and the run's output did not go on after that.",
    lambda run, end: not none_counted(run),
)
def stood_by_its_gpu(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    if run is None:
        return "the run is not known"
    stood = stood_by(world, cause, run)
    if isinstance(stood, str):
        return stood
    return _held_as_well(world, run, cause)


def _held_as_well(world: World, run: Run, cause: Fact) -> str | None:
    """Another run that may have held the GPU, in words."""
    others = may_hold_as_well(world, run, cause)
    return f"nothing tells whether job {run.key} held it or job {min(o.key for o in others)}" if others else None


@CONDITIONS.named(
    "its error is that of a lost GPU",
    "Nobody else can have held the GPU, which cannot be used before it is reset; the run's error is that of a GPU that does not answer.",
    lambda run, end: not none_counted(run),
)
def lost_its_gpu(world: World, cause: Fact, effect: Fact) -> str | None:
    """A program whose GPU is lost meets that at its next call, and its end waits for the driver."""
    run = run_of(world, effect)
    if run is None:
        return "the run is not known"
    code = cause.attrs.get(CODE)
    if not is_unusable(cause):
        return f"the GPU can be used after Xid {code}"
    words = effect.attrs.get(WORDS) or {}
    own = words.get("own", ())
    if not (own or words.get("gpu")) or not all(may_be_of_gpu(e.message) for e in own):
        return "the run's error is not that of a GPU that does not answer"
    return _held_as_well(world, run, cause)


@CONDITIONS.named("xid 74", "The Xid is 74, an NVLink error.")
def xid_74(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get(CODE) == 74 else "not an NVLink error"


@CONDITIONS.named("not xid 74", "The Xid is none of NVLink: such an error does not always kill.")
def not_xid_74(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get(CODE) != 74 else "an NVLink error does not always kill"


@CONDITIONS.named("row remapped", "The Xid reports that a row of memory was remapped (63, 64).")
def row_remapped(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get(CODE) in (63, 64) else "not a row remapping"


@CONDITIONS.named("uncorrectable memory in the run", "The run's output reports an ECC error.")
def met_memory_error(world: World, cause: Fact, effect: Fact) -> str | None:
    words = (effect.attrs.get(WORDS) or {}).get("gpu", ())
    return None if any("ecc" in e.message.lower() for e in words) else "the run met no uncorrectable memory error"


@CONDITIONS.named(
    "fabric not initialised", "CUDA found the GPUs not initialised, and their fabric manager had not started again."
)
def not_initialised(world: World, cause: Fact, effect: Fact) -> str | None:
    words = (effect.attrs.get(WORDS) or {}).get("gpu", ())
    if not any((found := symptom_of(e.message)) and found[0].name == FABRIC for e in words):
        return "the run's output does not tell of GPUs that were not initialised"
    run = run_of(world, effect)
    begun = run.start if run is not None and run.start is not None else effect.start
    again = started_between(world, cause.host, cause.end or cause.start, begun)
    return f"the fabric manager of {cause.host} had started again" if again else None
