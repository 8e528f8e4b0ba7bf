"""What the output of a run says: whom a line blames, which path was lost, which timeout ran out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from correlator.model.nouns import Event
from parsers.documents.fields import number

T = TypeVar("T")

#: Output events that mean "the peers or the network", not "my code". They are symptoms on every innocent rank.
COMMUNICATION = frozenset({"job.nccl_error", "job.nccl_timeout", "job.mpi_error"})
APPLICATION = frozenset({"job.cuda_error", "job.segfault", "job.exit_error", "job.bus_error"})

# Matched in lower case: ignoring case would try every word at each position of a text.

#: Output of a process that is ended from outside: it shows that a rank died, not why.
_AFTERMATH = re.compile(
    r"terminate called|exited with exit code|childfailederror|aborted \(core dumped\)|\bkilled\b|sigabrt|sigterm|root cause \(first"
    r"|torchelastic|elastic\.multiprocessing|task\s*\d+: (?:aborted|killed|exited)|mpi_abort|process received signal|signal code:",
)

#: A program that calls MPI_Abort ends all its ranks itself: the banners of Open MPI and of MPICH. An MPI library that lost its peers has
#: words of its own for that before them.
_ENDED_BY_PROGRAM = re.compile(r"mpi_abort was invoked|application called mpi_abort")

#: torch compares what its ranks call (TORCH_DISTRIBUTED_DEBUG=DETAIL): they called different collectives, so that all waited in vain.
_OUT_OF_STEP = re.compile(r"detected mismatch between collectives on ranks|collectives differ in the following aspects")

#: Ranks that waited in vain.
_WAITED = re.compile(
    r"\bwatchdog\b|monitored_?barrier|\b(?:operation|collective|wait\w*) (?:timed[ -]?out|time-?out)\b|timed[ -]?out (?:waiting|after)\b"
)

#: The peers or the network, in a program's or a library's messages.
_PEERS = re.compile(
    r"distbackenderror|distnetworkerror|distst?oreerror|processgroupnccl|\bnccl\b|\bucx\b|\brccl\b|gloo|tcpstore|rendezvous|broken pipe"
    r"|connection (?:reset|refused|closed|timed out|aborted)|remote (?:process|peer|end)|peer (?:closed|has closed|is unreachable)|no route to host"
    r"|network (?:is unreachable|error)|transport retry|retry exceeded|socket timeout|heartbeat",
)

#: CUDA's messages about a GPU that broke under the program, not about what the program did.
_BROKEN_GPU = re.compile(
    r"uncorrectable (?:ecc|nvlink)|ecc error|device (?:is )?(?:lost|unavailable)|busy or unavailable|unspecified launch failure"
    r"|no cuda-capable device|device handle|hardware (?:stack )?error|driver shutting down|system not yet initialized|unknown error|gpu is lost|fallen off",
)

#: CUDA's messages that a GPU gives as well which failed under the program: of these the program's own mistake is one cause only (CUDA
#: runtime API, cudaError). Where no display is attached, no kernel is ended for the time that it takes: the device does not answer.
_GPU_LOST = re.compile(
    r"launch timed out|unspecified launch failure|unknown error|cu(?:blas|dnn)_status_(?:execution_failed|internal_error)"
)
_GPU_ASTRAY = re.compile(r"illegal memory access|illegal instruction|misaligned address|invalid program counter")


def may_be_of_gpu(message: str, *, lately: bool = False) -> bool:
    """Does a program's error of CUDA look the same if its GPU failed under it? ``lately``: while it was at work on the GPU."""
    text = message[:_KEPT_TEXT].lower()
    if "device-side assert triggered" in text:
        return False
    return _GPU_LOST.search(text) is not None or (lately and _GPU_ASTRAY.search(text) is not None)


#: The file system's messages: the program asked, the storage failed.
_STORAGE = re.compile(
    r"input/output error|\beio\b|errno 5\b|read-only file ?system|errno 30\b|stale file handle|transport endpoint|cannot send after",
)


#: A path that could not be reached or has changed: the file system's servers, as often as the network or the user.
_FILE_LOST = re.compile(
    r"\[Errno (?:5|107|108|110|112|116)\][^'\"]*: ?['\"](?P<path>/[^'\"]+)['\"]"
    r"|['\"\u2018](?P<file>/[^'\"\u2019]+)['\"\u2019]: (?:Connection timed out|Stale (?:NFS )?file handle|Input/output error|Transport endpoint|Cannot send after)",
    re.IGNORECASE,
)


def file_lost(text: str) -> str | None:
    """The path for which a line reports that its file system timed out, lost it or returned an error."""
    match = _FILE_LOST.search(text)
    return (match["path"] or match["file"]) if match else None


def words_of(event: Event) -> str:
    """Whom a line of output blames: ``own``, ``peers``, ``gpu``, ``storage``, or ``aftermath`` (none of these)."""
    return (_kept_words if len(event.message) <= _KEPT_TEXT else _words)(event.message, event.kind)


def is_out_of_step(message: str) -> bool:
    """Does a line show that the ranks of a program called different collectives? That is why they waited for each other."""
    return _OUT_OF_STEP.search(message.lower()) is not None


def is_wait(event: Event) -> bool:
    """Does a line show only that a rank waited in vain for others?"""
    return event.kind == "job.nccl_timeout" or _WAITED.search(event.message.lower()) is not None


#: Every pass looks at the output of the window again. Longer lines are not kept: users write them.
_KEPT_TEXT = 500


def remembered(ask: Callable[[str], T]) -> Callable[[str], T]:
    """What ``ask`` answers about a text, kept for as many texts as the windows of some passes hold."""
    known = lru_cache(maxsize=4096)(ask)
    return lambda text: known(text) if len(text) <= _KEPT_TEXT else ask(text)


def _words(message: str, kind: str) -> str:
    if file_lost(message):
        return "storage"
    text = message.lower()
    if kind == "job.mpi_error" and _ENDED_BY_PROGRAM.search(text):
        return "aftermath"
    if is_out_of_step(message):
        return "own"
    if kind in COMMUNICATION or _PEERS.search(text):
        return "peers"
    if _AFTERMATH.search(text):
        return "aftermath"
    if _STORAGE.search(text):
        return "storage"
    if kind == "job.cuda_error" and _BROKEN_GPU.search(text):
        return "gpu"
    return "own"


_kept_words = lru_cache(maxsize=16_384)(_words)


#: A program's own deadline for what it reads or writes: what took too long, and how long, at most.
_IO_WORDS = r"(?:checkpoint\w*|snapshot\w*|sav(?:e|ing)|writ(?:e|ing)|read(?:ing)?|load(?:ing)?|flush\w*|fsync|data ?set|data ?loader|shards?|file ?system|i/o)"
_TOO_LONG = r"(?:\btook\b.*\b(?:more|longer) than\b|\bexceed(?:ed|s)\b|\btimed[ -]?out\b|\btime-?out(?: expired)?\b|\bdeadline\b|\bnot (?:done|finished|completed?) (?:within|after|in)\b)"
_IO_DEADLINE = re.compile(rf"(?=.*\b{_IO_WORDS}\b).*{_TOO_LONG}")
_TOOK = re.compile(r"\b(?:took|after|waited(?: for)?)(?: for)? (\d{1,6}(?:\.\d{1,6})?) ?(?:s|secs?|seconds)\b")
_ALLOWED = re.compile(
    r"\b(?:(?:more|longer) than|exceed(?:ed|s)|deadline(?: of)?|limit(?: of)?|within|at most|max(?:imum)?(?: of)?)(?: the (?:limit|deadline) of)? (\d{1,6}(?:\.\d{1,6})?) ?(?:s|secs?|seconds)\b"
)


class IoDeadline(NamedTuple):
    """A program's own deadline for reading or writing, that ran out: what it ``took`` and was ``allowed`` (seconds; None if the line does not say)."""

    took: float | None
    allowed: float | None


def io_deadline(text: str) -> IoDeadline | None:
    """What a line says of a deadline of the program's own for what it reads or writes; None if it speaks of none."""
    lowered = text[:_KEPT_TEXT].lower()
    if not _IO_DEADLINE.search(lowered) or _PEERS.search(lowered):
        return None
    took, allowed = _TOOK.search(lowered), _ALLOWED.search(lowered)
    return IoDeadline(None if took is None else float(took[1]), None if allowed is None else float(allowed[1]))


_TIMEOUT_MS = re.compile(r"Timeout\(ms\)\s*=\s*(\d+)")
_TIMEOUT_S = re.compile(
    r"\b(?:nothing|no (?:data|response|progress|reply|heartbeat)|timed out|timeout)\b.{0,60}?\b(\d+(?:\.\d+)?) ?(?:s|sec|seconds)\b",
    re.IGNORECASE,
)


#: Programs wait for each other for minutes, some for hours. Users write the line, and every tick looks back for as long as
#: the longest timeout, so a longer one counts for nothing.
LONGEST_TIMEOUT_S = 86_400.0


def logged_timeout(events: Iterable[Event]) -> float | None:
    """The timeout in seconds in a watchdog's line, if there is one; at most ``LONGEST_TIMEOUT_S``."""
    found = (seconds for event in events if (seconds := _timeout_of(event)) is not None)
    return next((seconds for seconds in found if seconds <= LONGEST_TIMEOUT_S), None)


def _timeout_of(event: Event) -> float | None:
    for entity, form, unit in (("timeout_ms", _TIMEOUT_MS, 1000.0), ("timeout_s", _TIMEOUT_S, 1.0)):
        match = form.search(event.message)
        named = event.entities.get(entity, match[1] if match else None)
        if named is not None:
            seconds = number(named)
            return None if seconds is None else seconds / unit
    return None
