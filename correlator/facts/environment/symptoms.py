"""What the last error of a run's output shows about the environment of its node.

A *symptom* is an error that the node's environment causes: the messages are those of glibc's errno texts, Python, the
shell, coreutils, the dynamic linker, NVIDIA's driver and the licence managers. All of them can be a program's own
mistake as well; ``own`` says how often. A symptom has a *thing*: the file system, library or command that was missing.
Two runs failed alike if both are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from correlator.facts.environment.kinds import FABRIC, NAMES, PROCESSES
from correlator.facts.jobs.kinds import ENVIRONMENT_ERROR
from correlator.facts.jobs.output import words_of
from correlator.facts.output_hardware import file_system
from correlator.model.attributes import ENVIRONMENT, EXIT_CODE, MEMORY, OUTPUT, SIGNAL
from correlator.model.nouns import Event, Fact
from parsers.required import needs


@dataclass(frozen=True)
class Symptom:
    """A class of errors.

    ``own``: the share of all runs that show it by a mistake of their own (estimates, for a user without a history).
    ``fault`` is what it means, ``look`` where to look; ``{host}`` and ``{thing}`` are filled in.
    ``strong``: hardly ever a program's own mistake. ``of_node``: a mistake would not depend on the node.
    ``shared``: what all nodes share fails in this way as well. ``elsewhere``: mostly that; so runs of the same users must
    have been well elsewhere. ``gpus``: only programs that use GPUs meet it. ``of_program``: whether a program meets it depends on the program,
    so that only runs of the same users and names which went on elsewhere meanwhile tell that others do not. ``unlisted``: known by its
    text only, which a user may have copied or several have mistaken alike. ``surest``: the highest confidence.
    """

    name: str
    own: float
    fault: str
    look: str
    strong: bool = False
    of_node: bool = False
    shared: bool = False
    elsewhere: bool = False
    gpus: bool = False
    of_program: bool = False
    unlisted: bool = False
    surest: float = 0.75
    #: ``fault`` of several nodes, if it must be another.
    plural: str = ""
    #: What all programs of the node share, so that others may have used it up as well; empty for what they don't share.
    shared_out: str = ""


class Signature(NamedTuple):
    """How a run failed. ``thing`` may be empty; ``event`` is the line, None for an exit code alone."""

    symptom: Symptom
    thing: str
    event: Event | None

    @property
    def file(self) -> str:
        """The whole path of a file that was missing or forbidden; empty for other symptoms."""
        paths = _paths_in(self.event.message) if self.symptom is _PATH and self.event else []
        return paths[-1] if paths else ""

    @property
    def key(self) -> tuple[str, str]:
        return (self.symptom.name, self.thing)

    @property
    def device(self) -> str:
        """The part of the node that fails; a program's own words name none."""
        return self.symptom.name if self.symptom is _SAME or not self.thing else self.thing

    def fault(self, host: str = "") -> str:
        """What it means for a node; without one, for several."""
        several = self.symptom.plural or self.symptom.fault
        text = self.symptom.fault if host else several
        return text.format(host=host or "several nodes", thing=self.thing or "a file system")


_USERS = Symptom(
    "users", 0.0005, "{host} does not know its users", "the user database (sssd, nslcd, nsswitch.conf)",
    strong=True, of_node=True, surest=0.9, plural="{host} do not know their users",
)  # fmt: skip
_DRIVER = Symptom(
    "driver", 0.0005, "the GPU driver's library and kernel module of {host} do not fit", "the GPU driver (a reboot after its update)",
    strong=True, of_node=True, gpus=True, surest=0.9,
)  # fmt: skip
#: CUDA waits for the fabric manager before it uses GPUs behind an NVSwitch (error 802).
_FABRIC = Symptom(
    FABRIC, 0.0005, "the GPUs of {host} are not initialised for their NVSwitch", "nvidia-fabricmanager and its log",
    strong=True, of_node=True, gpus=True, surest=0.9,
)  # fmt: skip
_STALE = Symptom(
    "stale", 0.001, "{thing} of {host} is stale", "the mounts", strong=True, of_node=True, shared=True, surest=0.9
)
_READ_ONLY = Symptom(
    "read-only", 0.002, "{thing} of {host} is read-only", "the mounts and the disks", strong=True, of_node=True,
    shared=True, surest=0.85,
)  # fmt: skip
_IO = Symptom(
    "io", 0.001, "{thing} of {host} fails with input/output errors", "the disks and mounts",
    strong=True, of_node=True, shared=True, surest=0.9,
)  # fmt: skip
_DEVICE = Symptom(
    "device",
    0.002,
    "devices are missing on {host} ({thing})",
    "the devices and their drivers",
    of_node=True,
    surest=0.85,
)
_GPU = Symptom(
    "gpu", 0.01, "programs find no GPU on {host}", "the GPUs, their driver and device files", of_node=True, gpus=True
)
_FULL = Symptom(
    "full",
    0.005,
    "{thing} of {host} is full",
    "what fills the disk",
    of_node=True,
    shared=True,
    surest=0.85,
    shared_out="that space",
)
_SHM = Symptom(
    "shm",
    0.004,
    "the shared memory of {host} is full",
    "what is left in /dev/shm",
    of_node=True,
    surest=0.85,
    shared_out="that memory",
)
_FORK = Symptom(
    PROCESSES, 0.003, "{host} lets programs start no more processes or threads", "the limits of processes (kernel.pid_max, TasksMax)",
    of_node=True,
)  # fmt: skip
#: One program's own limit is reached by its own mistakes as well; the table of the whole system hardly ever is.
_FILES = Symptom(
    "files", 0.005, "{host} lets programs open too few files", "the limits of open files (LimitNOFILE of slurmd's unit, limits.conf, PropagateResourceLimits)",
    elsewhere=True, of_program=True,
)  # fmt: skip
_FILE_TABLE = Symptom(
    "file-table", 0.001, "the kernel of {host} has no room for more open files", "what holds so many open files, and fs.file-max",
    of_node=True, surest=0.85,
)  # fmt: skip
_NAMES = Symptom(
    NAMES, 0.005, "{host} resolves no names", "the resolver (resolv.conf, nscd, systemd-resolved)", of_node=True,
    shared=True, surest=0.85, plural="{host} resolve no names",
)  # fmt: skip
_CLOCK = Symptom("clock", 0.001, "the clock of {host} is wrong", "the clock (chronyd)", of_node=True, surest=0.85)
_LIBRARY = Symptom(
    "library", 0.01, "the library {thing} is missing on {host}", "the site's software tree and its mounts"
)
_LINKED = Symptom(
    "link",
    0.01,
    "a library on {host} is another one than programs were built for ({thing})",
    "the site's software tree and its mounts",
)
_MOUNT = Symptom(
    "mount", 0.001, "{thing} of {host} is cut off from its servers", "the mounts and the network of the storage",
    strong=True, of_node=True, shared=True, surest=0.9,
)  # fmt: skip
_MODULE = Symptom("module", 0.03, "the module {thing} is missing on {host}", "the site's software tree and its mounts")
#: The files that an interpreter begins with lie beside it: its own installation is broken, or a variable names another one.
_INTERPRETER = Symptom(
    "interpreter", 0.004, "interpreters do not find their own files on {host}",
    "the site's software tree and its mounts, and what profiles and task prologs set there (PYTHONHOME, PERL5LIB)", shared=True, surest=0.85,
)  # fmt: skip
_COMMAND = Symptom(
    "command", 0.02, "the command {thing} is missing on {host}", "the site's software tree and its mounts"
)
_PATH = Symptom("path", 0.04, "files under {thing} are missing on {host}", "the mounts")
_UNREACHED = Symptom(
    "network", 0.02, "programs on {host} reach no others", "its addresses, routes and /etc/hosts, and the firewall",
    of_node=True, shared=True, elsewhere=True,
)  # fmt: skip
_PORT = Symptom("port", 0.005, "a port is taken on {host}", "processes that an earlier job left there")
_LICENCE = Symptom("licence", 0.01, "a licence server does not answer", "the way to the licence server", shared=True)
_CREDENTIALS = Symptom(
    "credentials", 0.005, "credentials are refused or have expired on {host}", "tickets, keys and tokens of users there (Kerberos, AFS, certificates), and its clock",
    of_node=True, shared=True, surest=0.85,
)  # fmt: skip
_MEMORY = Symptom(
    "memory", 0.02, "programs get no memory on {host}", "what holds its memory (processes that a job left, huge pages, /dev/shm) and its limits (ulimit, overcommit)",
    of_node=True, surest=0.85,
)  # fmt: skip
#: An error of which nothing is known but its text.
_SAME = Symptom(
    "error",
    0.01,
    "programs fail with the same error on {host}",
    "what these programs need there that other nodes have",
    elsewhere=True,
    unlisted=True,
)
_EXIT = Symptom("exit", 0.08, "programs fail on {host} without a word", "mounts, user database, disks, devices, drivers and limits", surest=0.7)  # fmt: skip

_ENOENT = r"(?:no such file or directory|errno 2\b|no such device(?: or address)?|errno (?:6|19)\b)"
_DEVICES = r"/dev/(?:nvidia|infiniband/|dri/|kfd\b|hfi1|xpmem|gdrdrv|fuse\b)"

#: The words of a write that found no space.
NO_SPACE = r"no space left on device|\benospc\b|errno 28\b"

#: In the order in which they are tried: an error about /dev/nvidia0 is about the device, not about a path.
_PATTERNS: tuple[tuple[Symptom, re.Pattern[str]], ...] = tuple(
    (symptom, re.compile(text, re.IGNORECASE))
    for symptom, text in (
        (_USERS, r"getpwuid\(\): uid not found|\bi have no name!|cannot find name for user id \d|\bno user exists for uid \d|\byou don't exist, go away"),
        (_DRIVER, r"driver/library version mismatch|api mismatch: (?:the client|this) |unsupported display driver / cuda driver combination|cuda_?error_?system_?driver_?mismatch"),
        (_FABRIC, r"\bsystem not yet initialized\b|\bcuda_?error_?system_?not_?ready\b"),
        (_DEVICE, rf"{_ENOENT}.*?(?P<thing>{_DEVICES})|(?P<thing_>{_DEVICES})\S*.*?{_ENOENT}"),
        (_GPU, r"\bno devices were found|no cuda-capable device|no cuda gpus are available|"
               r"\bcuda unknown error|found no nvidia driver|couldn't communicate with the nvidia driver|failed to initialize nvml"),
        (_STALE, r"stale (?:nfs )?file handle|\bestale\b|errno 116\b"),
        (_READ_ONLY, r"read-only file ?system|\berofs\b|errno 30\b"),
        (_SHM, r"/dev/shm\b.*no space left|no space left.*/dev/shm\b|insufficient shared memory|\bout of shared memory|error while creating shared memory segment"),
        (_FULL, NO_SPACE),
        (_MOUNT, r"(?=.*(?<![\w.:/])/\w)(?:transport endpoint is not connected|cannot send after transport endpoint shutdown|host is down|remote i/o error|"
                r"software caused connection abort|communication error on send|link has been severed)"),
        (_IO, r"input/output error|\beio\b|errno 5\b"),
        (_FORK, r"\bfork\b.*(?:resource temporarily unavailable|cannot allocate memory)|blockingioerror: \[errno 11\]|"
                r"can't start new thread|pthread_create.*(?:fail|eagain|resource temporarily)|thread creation failed"),
        (_FILE_TABLE, r"too many open files in system|errno 23\b|\benfile\b"),
        (_FILES, r"too many open files|errno 24\b|\bemfile\b"),
        (_NAMES, r"temporary failure in name resolution|name or service not known|could not resolve host|\beai_again\b|"
                r"\bcan.t find an address, check slurm\.conf|\bslurm_set_addr: unable to resolve "),
        (_CREDENTIALS, r"\bkey has (?:expired|been revoked)|required key not available|errno 12[678]\b|\bticket expired|no kerberos credentials|"
                       r"credentials? cache .*not found|cannot (?:find|contact any) kdc\b|certificate has expired|credentials? (?:has |have |is |are )?expired|"
                       r"expired ?token|token (?:has |is |was )?expired|\b401 (?:client error|unauthorized)"),
        (_MEMORY, r"cannot allocate memory|errno 12\b|\bmemoryerror\b|std::bad_alloc|defaultcpuallocator: not enough memory"),
        (_CLOCK, r"certificate is not yet valid|clock skew too great"),
        (_LICENCE, r"licen[cs]e server|licen[cs]e checkout failed|flex(?:net|lm)\b.*error"),
        (_LIBRARY, r"error while loading shared libraries: (?P<thing>[^\s:]+)|(?P<thing_>[\w.+-]+\.so[\w.]*): cannot open shared object file|"
                   r"could not load library \"?(?P<thing__>[^\s\"]+)"),
        (_LINKED, r"symbol lookup error: (?:\S+: )?(?:undefined symbol: )?(?P<thing>\w+)|undefined symbol: (?P<thing_>\w+)|version `(?P<thing__>[^']+)' not found"),
        (_INTERPRETER, r"no module named '?encodings\b(?!\.)|failed to get the python codec of the filesystem encoding|could not find platform (?:in)?dependent libraries"
                       r"|can't locate (?:strict|warnings|exporter)\.pm in @inc"),
        (_MODULE, r"no module named '?(?P<thing>\w+)|following module\(s\) are unknown: \"?(?P<thing_>[\w./+-]+)|unable to locate a modulefile for '(?P<thing__>[^']+)|"
                  r"no package called ['\"]?(?P<thing___>\w+)|can't locate (?P<thing____>[\w/]+)\.pm in @inc"),
        (_COMMAND, r"(?P<thing>[\w./+-]+): command not found|\b[a-z]*sh: (?:\d+: )?(?P<thing_>[\w./+-]+): not found$"),
        (_PORT, r"address already in use|errno 98\b|\beaddrinuse\b"),
        (_PATH, r"no such file or directory|errno 2\]|permission denied|errno 13\]"),
        (_UNREACHED, r"\btimeouterror: |\bconnectionrefusederror: |connection refused|no route to host|network is unreachable"),
    )
)  # fmt: skip

#: Every match of a pattern has one of these words. Most errors have none, and trying all patterns takes ten times as long.
_WORDS = tuple(sorted({word for _, pattern in _PATTERNS for word in needs(pattern)[0]}))

#: Symptoms about a file system, whose thing is the place of the path in the line.
_OF_PATHS = frozenset({_STALE, _READ_ONLY, _FULL, _MOUNT, _IO, _PATH})
_A_PATH = re.compile(r"(?<![\w.:/])(/[\w.+@-]+(?:/[\w.+@%=-]+)*)")

#: Events that are a run's errors; others (steps, progress, notes about its end) do not say how it failed.
_ERRORS = frozenset({
    "job.exit_error", ENVIRONMENT_ERROR, "job.cuda_error", "job.bus_error", "job.launch_error", "job.segfault",
    "job.mpi_error", "job.nccl_error", "job.nccl_timeout", "job.container_error", "job.oom",
})  # fmt: skip


#: Every pass looks at the errors of the window again. Longer ones are not kept: users write them.
_KEPT_TEXT = 500


def symptom_of(text: str) -> tuple[Symptom, str] | None:
    """What an error shows about the environment, and the thing that it is about; None if it shows nothing."""
    return (_kept_symptom if len(text) <= _KEPT_TEXT else _symptom)(text)


def _symptom(text: str) -> tuple[Symptom, str] | None:
    if text.isascii() and not any(map(text.lower().__contains__, _WORDS)):
        return None
    for symptom, pattern in _PATTERNS:
        if found := pattern.search(text):
            named = next((value for value in found.groupdict().values() if value), "")
            if symptom not in _OF_PATHS:
                return symptom, named.rstrip("/")
            thing = _place_of(text)
            # A relative path, or one in a user's own words, says nothing about the node.
            return None if symptom is _PATH and not thing else (symptom, thing)
    return None


_kept_symptom = lru_cache(maxsize=16_384)(_symptom)


def _place_of(text: str) -> str:
    """The file system of the last path in a line (``/home`` of ``/home/a/x``), or a folder of the system (``/opt/conda``)."""
    paths = _paths_in(text)
    if not paths:
        return ""
    parts = paths[-1].split("/")
    return "/".join(parts[:3]) if parts[1] in ("opt", "usr", "var", "dev") else file_system(paths[-1])


def _paths_in(text: str) -> list[str]:
    return [found[1] for found in _A_PATH.finditer(text) if not found[1].startswith(("/usr/bin/", "/bin/"))]


def signature_of(end: Fact) -> Signature | None:
    """How a run failed, by the last error of its output, else by its exit code; None if by something else.

    ``end`` is its ``run.failed``.
    """
    last = _last_error([*end.attrs[OUTPUT], *end.attrs[ENVIRONMENT]])
    found = None if last is None else symptom_of(last.message)
    if end.attrs[MEMORY]:
        # A limit of Slurm's, and a GPU that is full, are the program's; only it itself says that the node gave it none.
        return Signature(*found, last) if found and found[0] is _MEMORY and _only_in_output(end.attrs[MEMORY]) else None
    if last is not None:
        found = found or _same_error(last)
        return None if found is None else Signature(*found, last)
    code, signal = end.attrs.get(EXIT_CODE), end.attrs.get(SIGNAL)
    if not code and not signal:
        return None
    return Signature(_EXIT, f"signal {signal}" if signal else f"exit code {code}", None)


def _only_in_output(evidence: Iterable[object]) -> bool:
    """Is there no word of Slurm or the kernel among the evidence that memory ended a run?"""
    return all(isinstance(e, Event) and e.kind == "job.oom" and not _OF_SLURM.match(e.message) for e in evidence)


_OF_SLURM = re.compile(r"\s*(?:srun|slurmstepd[\w.-]*): ")
#: What differs from run to run in the same error: numbers, and the path below a file system.
_NUMBERS, _BELOW = (
    re.compile(r"\b0x[0-9a-f]+\b|\d+", re.IGNORECASE),
    re.compile(r"(?<![\w.:/])(/[\w.+@-]+)(?:/[\w.+@%=-]+)+"),
)
#: A shorter text is too common to be the same error, and of a longer one the beginning counts.
_LEAST_WORDS, _MOST_TEXT = 3, 200


def _same_error(event: Event) -> tuple[Symptom, str] | None:
    """An error that is not known, by its text without what differs from run to run; None if it is too common, or about
    others than the program."""
    if event.kind != "job.exit_error" or words_of(event) != "own":
        return None
    return _same_text(event.message[:_MOST_TEXT])


@lru_cache(maxsize=16_384)
def _same_text(text: str) -> tuple[Symptom, str] | None:
    text = _NUMBERS.sub("#", _BELOW.sub(r"\1", text))
    return (_SAME, text) if len(re.findall(r"[^\W\d_]{2,}", text)) >= _LEAST_WORDS else None


def _last_error(output: Iterable[Event]) -> Event | None:
    errors = [e for e in output if e.kind in _ERRORS and words_of(e) != "aftermath"]
    return max(errors, key=lambda e: (e.time, e.line or 0), default=None)
