"""Requirements of edges about I/O errors and full disks in a run's output.

Each gives the reason if it does not hold.
"""

from __future__ import annotations

import re

from correlator.edges.conditions.declaration import Conditions
from correlator.facts.jobs.kinds import RUN_FAILED
from correlator.facts.jobs.output import file_lost
from correlator.facts.output_hardware import LOCAL_PATH, SHARED_PATH, path_in
from correlator.facts.storage import STORAGE_OUTAGE, deadline_by
from correlator.facts.world import World, run_of
from correlator.model.attributes import EVICTED, EXIT_CODE, OUTPUT, READ_ONLY, SIGNAL, WORDS
from correlator.model.nouns import Event, Fact

CONDITIONS = Conditions()

_IO_TROUBLE = re.compile(
    r"input/output error|\bEIO\b|errno 5\b|read-only file ?system|errno 30\b|stale file handle|transport endpoint|cannot send after|bus error",
    re.IGNORECASE,
)
_NO_SPACE = re.compile(
    r"no space left|errno 28|launch failed|unable to create|could not launch|spooldir", re.IGNORECASE
)


#: How a program that accessed lost memory ends (SIGBUS is 7; shells and srun add 128).
_BUS_ERROR = re.compile(r"bus error|sigbus|exit code 135|signal:? 7\b", re.IGNORECASE)


@CONDITIONS.named("killed by a bus error", "The run ended by SIGBUS, or its output says so.")
def bus_error(world: World, cause: Fact, effect: Fact) -> str | None:
    signalled = str(effect.attrs.get(SIGNAL)) == "7" or str(effect.attrs.get(EXIT_CODE)) in ("7", "135")
    if signalled or any(_BUS_ERROR.search(e.message) for e in _output(effect)):
        return None
    return "the run did not end by a bus error"


def _output(effect: Fact) -> list[Event]:
    return list(effect.attrs.get(OUTPUT, ()))


@CONDITIONS.named(
    "input/output trouble in the run", "The run's output has an I/O error that can be of this file system."
)
def io_trouble(world: World, cause: Fact, effect: Fact) -> str | None:
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


@CONDITIONS.named(
    "client evicted or input/output trouble",
    "A client of the run's nodes was evicted, or its output has an I/O error that can be of this file system, or a deadline of its own for "
    "reading or writing that ran out by this.",
)
def evicted_or_io(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    evicted = set(cause.attrs.get(EVICTED, ()))
    words = effect.attrs.get(WORDS) or {}
    if run and evicted & set(run.nodes) and not words.get("own") and not words.get("storage"):
        return None
    if not deadline_by(cause, effect):
        return io_trouble(world, cause, effect)
    paths = [path_in(event.message) for event in words["own"]]
    local = [path for path in paths if path and LOCAL_PATH.match(path)]
    return f"what took long was on {local[0]}" if local else None


@CONDITIONS.named(
    "launch trouble or no space in the run", "The run hardly began, or its output speaks of a full disk of the node."
)
def no_space(world: World, cause: Fact, effect: Fact) -> str | None:
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


@CONDITIONS.named("file system given up", "The file system was remounted read-only.")
def gave_up(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get(READ_ONLY) else "the file system stayed writable"
