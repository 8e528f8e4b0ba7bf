"""The spools of Slurm's hooks: what prolog and epilog learned about a job, its batch script and the ends of its output.

A file is removed once its content is on the agent's disk. In a spool that users may write into (that of task prologs),
a file is only a claim of its owner: nothing is fetched for it, and the agent reports only that this uid, as named by the
file system, refers to a job. A claim about a job that root's prolog assigned to another uid is not reported. If root's
prolog gave the job to that uid, the allow-listed part of the step's environment is reported too, as the user's word.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from collector.agent import environment, exported, hook_failures, hook_memory, wire
from collector.agent.artifacts import Artifact, Places, collect, fetch, job_owner
from collector.agent.failure import Denied, Missing
from collector.agent.hook_folder import HookFolder, Odd, Word, words_given_up, words_unfinished
from collector.agent.output_names import batch_host, first_host
from collector.agent.slurm.host import Host
from collector.agent.source import Context, Reading, SourceKind
from collector.agent.step_files import StepFiles
from collector.agent.strangers import quoted

_MAGIC = b"faultline-hook/1\n"
#: Most files per poll; the next poll follows at once.
_MOST_FILES = 100
#: Jobs whose batch script runs here, remembered from prolog to epilog.
_MOST_RUNS = 4096
#: Jobs whose owner is remembered after their epilog.
_MOST_ENDED = 64
#: Most steps of a run whose environment is reported: a user can write as many files as they like.
_MOST_STEPS = 32
#: Jobs of which the agent's status lists the hooks whose records arrived.
MOST_ARRIVED = 64
#: Events after which the job's own files are complete, or after which they will be removed.
_FETCHED = ("epilog", "epilogslurmctld", "prologslurmctld")
#: How often running steps are looked at, and how soon again after one began, in seconds.
STEPS_EVERY_S, STEPS_SOON_S = 10.0, 1.0
#: Looks take at most this share of a core.
STEPS_SHARE = 0.01
#: Hooks of which only the number is known.
_ANY = "*"
#: Between two looks at whether hooks could write, and at what task prologs left among users' files.
_LOOK_EVERY_S = 60.0
_NO_FILE = os.strerror(errno.ENOENT).lower()
#: The process that read a file: positions of another process are those that it stored.
_PROCESS = f"{os.getpid()}.{time.time_ns()}"


@dataclass
class Hooks:
    context: Context
    folders: list[str]
    places: Places
    interval: float
    _taken: set[str] = field(default_factory=set)
    #: Files in memory among them: a later one of the same name has another number.
    _inodes: dict[str, int] = field(default_factory=dict)
    _begun: dict[str, None] = field(default_factory=dict)
    _dropped: dict[str, int] = field(default_factory=dict)
    #: Owners of the jobs that run here, from root's prologs: job -> uid.
    _owners: dict[str, int] = field(default_factory=dict)
    #: Their restart counts, and the steps whose environment was reported.
    _restarts: dict[str, int] = field(default_factory=dict)
    _reported_steps: dict[str, set[str]] = field(default_factory=dict)
    #: What steps of the jobs write to, and when it was looked for last (monotonic seconds).
    _step_files: StepFiles = field(default_factory=StepFiles)
    _steps_at: float = float("-inf")
    #: CPU seconds that the last look took: a node may have tens of thousands of processes.
    _steps_cost_s: float = 0.0
    #: Those whose epilog ran, oldest first.
    _ended: dict[str, None] = field(default_factory=dict)
    _open: dict[Path, HookFolder] = field(default_factory=dict)
    #: Events of the last jobs whose record is on the agent's disk: what ``faultline slurm verify --job`` waits for.
    arrived: dict[str, list[str]] = field(default_factory=dict)
    #: Why a folder is not read while the others are.
    trouble: str = ""
    _trouble: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    #: What hooks could not do, until one of their kind writes again: event (``_ANY``: not known which) -> sentence, and
    #: when the last one failed.
    _failed: dict[str, tuple[str, float]] = field(default_factory=dict)
    _reported: dict[str, set[str]] = field(default_factory=dict)
    _unwritable: str = ""
    _looked_at: float = float("-inf")
    _boot: str = ""

    def open(self, positions: Mapping[str, Any]) -> None:
        self._host = Host(self.context.root)
        self._step_files.proc = self.context.path("proc")
        self._make_room()
        if not any(self.context.path(folder).is_dir() for folder in hook_memory.read(self.folders)):
            unwritable = hook_failures.unwritable(self._host, self.folders)
            if unwritable:
                raise Denied(unwritable)
            raise Missing(f"no spool of hooks: {', '.join(self.folders)}")
        position = positions.get("hooks") or {}
        self._taken = set(position.get("taken", ()))
        self._inodes = dict(position.get("inodes", {}))
        self._begun = dict.fromkeys(position.get("begun", ()))
        self._dropped = dict(position.get("dropped", {}))
        self._owners = dict(position.get("owners", {}))
        self._failed = {event: (str(why), float(at)) for event, (why, at) in dict(position.get("failed", {})).items()}
        self._restarts = dict(position.get("restarts", {}))
        self._ended = dict.fromkeys(position.get("ended", ()))
        self._boot = self.context.boot_id()
        if position.get("boot") == self._boot:  # a boot ends all jobs
            self.context.jobs.restore(position.get("running", {}))
        if position.get("process") != _PROCESS:  # the agent ended after storing them and before removing them
            self._clear_away()

    def _make_room(self) -> None:
        owner = hook_failures.owner(self._host)
        hook_failures.make_room(self._host, owner)
        hook_memory.make(self._host, self.folders, owner)

    def _clear_away(self) -> None:
        by_folder: dict[Path, list[str]] = {}
        for path in sorted(self._taken):
            by_folder.setdefault(Path(path).parent, []).append(path)
        for name in hook_memory.read(self.folders):
            folder = self.context.path(name)
            paths = by_folder.pop(folder, [])
            spool = HookFolder(folder)
            try:
                if paths:
                    spool.look()
            except (Denied, OSError):
                continue
            for path in paths:
                if path in self._inodes and spool.inode(Path(path).name) != self._inodes[path]:
                    self._done(path)  # it was removed, and a hook has used its name again
                else:
                    self._remove(spool, path)
            spool.release()
        with self._lock:  # of folders that are no longer read
            self._taken.difference_update(path for paths in by_folder.values() for path in paths)
            self._inodes = {path: inode for path, inode in self._inodes.items() if path in self._taken}

    def poll(self) -> Iterator[Reading]:
        self._look_at_steps(STEPS_EVERY_S)
        troubles, read = [], 0
        for name in hook_memory.read(self.folders):
            folder = self.context.path(name)
            if not folder.is_dir() and not folder.is_symlink():
                continue
            spool = self._open.setdefault(folder, HookFolder(folder))
            try:
                spool.look()
            except Denied as why:  # the other folder is still read
                troubles.append(str(why))
                continue
            if not spool.claim():
                self._trouble = f"{folder} is emptied by another process"
                continue
            read += 1
            yield from self._report_lost(spool)
            with self._lock:
                taken = {Path(path).name for path in self._taken if Path(path).parent == folder}
            for file in spool.waiting(taken, _MOST_FILES):
                reading = self._reading(spool, file)
                if reading is not None:
                    yield reading
        yield from self._report_failed()
        troubles += [text for text in (self._unwritable, *(why for why, _ in self._failed.values())) if text]
        self.trouble = "; ".join(troubles)
        if troubles and not read:
            raise Denied(self.trouble)
        if self._trouble:
            trouble, self._trouble = self._trouble, ""
            raise Denied(trouble)

    def _reading(self, spool: HookFolder, name: str) -> Reading | None:
        now, path = self.context.now(), spool.path / name
        try:
            word = spool.read(name)
            env = _environment(word.data)
            if word.is_slurms:
                self._wrote(env, now)
            body = self._slurms(env, word, path, now) if word.is_slurms else self._users(env, word, now)
        except FileNotFoundError:  # its owner removed it
            return None
        except Odd as why:
            became = spool.set_aside(name)
            reason = f"a file of {spool.path} was not read: {why}; {became}"
            return Reading(wire.own_words(self.context.host, "hooks", reason, now, file=quoted(name)), 1)
        self._take(spool, str(path))
        return Reading(body, 1, self._positions(), kept=partial(self._kept, spool, str(path), *self._whose(env, word)))

    def _whose(self, env: Mapping[str, str], word: Word) -> tuple[str, str]:
        """Job and event; no job where a user speaks of one that root's prolog gave to nobody."""
        job = env.get("SLURM_JOB_ID", "")
        known = _number(job) is not None and (word.is_slurms or job in self._owners)
        return job if known else "", env.get("FAULTLINE_EVENT", "")

    def _kept(self, spool: HookFolder, path: str, job: str, event: str) -> None:
        """What a hook wrote is on the agent's disk."""
        self._remove(spool, path)
        if not job:
            return
        self.arrived[job] = [*(one for one in self.arrived.pop(job, ()) if one != event), event]
        while len(self.arrived) > MOST_ARRIVED:
            self.arrived.pop(next(iter(self.arrived)))

    def _take(self, spool: HookFolder, path: str) -> None:
        with self._lock:
            self._taken.add(path)
            if path.endswith(exported.SUFFIX):
                self._inodes[path] = spool.inode(Path(path).name)

    def _done(self, path: str) -> None:
        with self._lock:
            self._taken.discard(path)
            self._inodes.pop(path, None)

    def _wrote(self, env: Mapping[str, str], now: float) -> None:
        """A hook wrote after those that could not: its kind works again."""
        try:
            at = float(env.get("FAULTLINE_TIME") or now)
        except ValueError:
            at = now
        for event in (env.get("FAULTLINE_EVENT", ""), _ANY):
            if event in self._failed and self._failed[event][1] < at:
                del self._failed[event]

    def _slurms(self, env: Mapping[str, str], word: Word, path: Path, now: float) -> bytes:
        if env.get("FAULTLINE_EVENT") == "taskprolog":  # a user's environment, whichever folder it is in
            raise Odd("a task prolog's word belongs into the folder that users may write into")
        text = word.data.decode("utf-8", "replace")
        body = wire.document("hook_spool", text, "hooks", now, path=str(path), timezone="UTC")
        return body + self._files(env, now)

    def _users(self, env: Mapping[str, str], word: Word, now: float) -> bytes:
        """A user's claim as a record of ours: which uid refers to which job; and with what a job of theirs runs."""
        job = _number(env.get("SLURM_JOB_ID"))
        if env.get("FAULTLINE_EVENT") != "taskprolog" or job is None:
            raise Odd(f"uid {word.uid} may not say what Slurm says")
        owner = self._owners.get(str(job))
        if owner is not None and owner != word.uid:
            raise Odd(f"uid {word.uid} speaks of job {job}, which root's prolog gave to uid {owner}")
        if owner is not None:
            self._look_at_steps(STEPS_SOON_S)  # a step began
            self.context.jobs.named(str(job), env.get("SLURM_JOB_NAME", ""))
        document = {"job_id": job, "owner_uid": word.uid, "read_at": f"{now:.6f}", "confirmed": owner is not None}
        claim = wire.document("task_hook", json.dumps(document), "hooks", now, timezone="UTC")
        return claim + (self._environment(env, job, now) if owner is not None else b"")

    def _environment(self, env: Mapping[str, str], job: int, now: float) -> bytes:
        """What a step of a job runs with, once for each step: by root's prolog, this uid's own job."""
        step, reported = environment.step_of(env), self._reported_steps.setdefault(str(job), set())
        if step is None or step in reported or len(reported) >= _MOST_STEPS or not environment.is_first_task(env):
            return b""
        reported.add(step)
        variables, cut = environment.kept(env, environment.allowed(self.context.path(str(environment.SITE))))
        document = {
            "job_id": job, "restarts": self._restarts.get(str(job), 0), "step": step, "read_at": f"{now:.6f}", "cut": cut,
            "variables": variables,
        }  # fmt: skip
        return wire.document("task_environment", json.dumps(document), "hooks", now, timezone="UTC")

    def _positions(self) -> dict[str, Any]:
        with self._lock:
            taken, inodes = sorted(self._taken), dict(self._inodes)
        begun = list(self._begun)[-_MOST_RUNS:]
        return {
            "hooks": {
                "process": _PROCESS,
                "taken": taken,
                "inodes": inodes,
                "begun": begun,
                "dropped": dict(self._dropped),
                "owners": dict(self._owners),
                "failed": dict(self._failed),
                "restarts": dict(self._restarts),
                "ended": list(self._ended),
                "running": self.context.jobs.known(),
                "boot": self._boot,
            }
        }

    def _remove(self, spool: HookFolder, path: str) -> None:
        """Removes a file and never raises. A file that cannot be removed is not read again and becomes the status."""
        try:
            spool.look()
            why = spool.remove(Path(path).name)
        except (Denied, OSError) as error:
            why = getattr(error, "strerror", None) or str(error)
        if why:
            self._trouble = f"{spool.path} holds a file that was delivered and cannot be removed: {why}"
            return
        self._done(path)

    # ------------------------------------------------------------------------------------------- the job's own files

    def _files(self, env: Mapping[str, str], now: float) -> bytes:
        """The job's script and output, from the node that runs its batch script and from the controller."""
        event = env.get("FAULTLINE_EVENT", "")
        run = f"{env.get('SLURM_JOB_ID')}.{env.get('SLURM_JOB_RESTART_COUNT', 0)}"
        self._owned(event, env)
        if event == "prolog" and _is_first(env):
            self._begun[run] = None
            self.context.jobs.began(env)
            while len(self._begun) > _MOST_RUNS:
                self._begun.pop(next(iter(self._begun)))
        elsewhere = event == "epilog" and run not in self._begun and not _is_first(env)
        if event == "epilog":
            self._begun.pop(run, None)
            self.context.jobs.ended(env.get("SLURM_JOB_ID", ""))
        if event not in _FETCHED:
            return b""
        found = [] if elsewhere else collect(env, self.places)
        if event == "epilog":
            found += self._of_steps(env, {one.path for one in found})
        return b"".join(self._file(one, env, now) for one in found)

    def _look_at_steps(self, every_s: float) -> None:
        """Learns what steps of running jobs write to, at most once in so many seconds."""
        now = self.context.monotonic()
        if now - self._steps_at >= max(every_s, self._steps_cost_s / STEPS_SHARE):
            begun, refused = time.thread_time(), self._step_files.refused
            self._step_files.look({job: uid for job, uid in self._owners.items() if job not in self._ended})
            for job in self._owners:
                seen = self._step_files.of(job)
                self.context.jobs.wrote(job, [(file.kind, file.path) for file in seen if not file.hidden])
            self._steps_at, self._steps_cost_s = now, time.thread_time() - begun
            if self._step_files.refused and not refused:
                self._trouble = (
                    "output files of steps are not collected: the agent lacks CAP_SYS_PTRACE (docs/hooks.md)"
                )

    def _of_steps(self, env: Mapping[str, str], known: Collection[str]) -> Iterator[Artifact]:
        """Head and tail of what steps wrote on this node. After one that does not answer no other is opened: they are on the
        same file system, most often, and each would take its whole time limit."""
        job, owner, hung = env.get("SLURM_JOB_ID", ""), job_owner(env), False
        for file in self._step_files.of(job, known):
            if owner is None:
                break
            if file.hidden or hung:
                why = (
                    "it was in the step's own mount namespace"
                    if file.hidden
                    else "another file of the job did not answer"
                )
                yield Artifact(file.kind, file.path, reason=why)
                continue
            one = fetch(file.kind, file.path, owner)
            hung = bool(one.reason and one.reason.startswith("no answer"))
            yield one
        self._step_files.forget(job)

    def _owned(self, event: str, env: Mapping[str, str]) -> None:
        """Remembers a job's owner from root's prolog to its epilog, and a little longer: the files of a short job's task
        prologs are read after both."""
        job, uid = (_number(env.get(name)) for name in ("SLURM_JOB_ID", "SLURM_JOB_UID"))
        if job is None:
            return
        if event == "prolog":
            self._forget(str(job))
        elif event == "epilog" and str(job) in self._owners:
            self._ended[str(job)] = None
            while len(self._ended) > _MOST_ENDED:
                self._forget(next(iter(self._ended)))
        if event == "prolog" and uid is not None:
            self._owners[str(job)] = uid
            self._restarts[str(job)] = _number(env.get("SLURM_JOB_RESTART_COUNT")) or 0
            while len(self._owners) > _MOST_RUNS:
                self._forget(next(iter(self._owners)))

    def _forget(self, job: str) -> None:
        for known in (self._owners, self._restarts, self._reported_steps, self._ended):
            known.pop(job, None)
        self._step_files.forget(job)

    def _file(self, found: Artifact, env: Mapping[str, str], now: float) -> bytes:
        job, restarts = (_number(env.get(name)) for name in ("SLURM_JOB_ID", "SLURM_JOB_RESTART_COUNT"))
        if found.kind == "script" and found.reason == _NO_FILE:  # slurmd removes it at the job's end
            return b""
        if found.reason is not None:
            reason = f"job {job}: {found.kind} was not read: {found.reason}"
            return wire.own_words(self.context.host, "hooks", reason, now, file=quoted(found.path))
        text, host = found.content.decode("utf-8", "replace"), batch_host(env)
        document = {
            "job_id": job, "restarts": restarts, "kind": found.kind, "path": found.path, "content": text,
            "truncated": found.truncated, "ran_at": env.get("FAULTLINE_TIME"),
        }  # fmt: skip
        about = {"path": found.path, "host": host, "cluster": env.get("SLURM_CLUSTER_NAME"), "timezone": "UTC"}
        return wire.document("job_file", json.dumps(document), "hooks", now, **about)

    # ------------------------------------------------------------------------------------------- what was not taken

    def _report_lost(self, spool: HookFolder) -> Iterator[Reading]:
        """Reports what hooks could not deliver: hooks that gave up, and hooks killed while writing."""
        (size, at), before = spool.given_up(), self._dropped.get(str(spool.path), 0)
        if size and size != before:
            self._dropped[str(spool.path)] = size
            count = size - before if size > before else size
            why = words_given_up(spool.path, count)
            self._failed[_ANY] = (
                f"{why}, and {hook_failures.WROTE_NOTHING}; keep the spool on a local disk that has room",
                at,
            )
            yield Reading(wire.blind("hooks", "hook_spool", at, at, why, count), 0, self._positions())
        fresh = [name for name in spool.unfinished() if str(spool.path / name) not in self._taken]
        for name in fresh[:_MOST_FILES]:
            path = str(spool.path / name)
            self._take(spool, path)
            now = self.context.now()
            why = words_unfinished(spool, name)
            if not spool.is_users:
                event = [*name.lstrip(".").split("."), "", ""][1]
                self._failed[event] = (
                    f"{why}, and {hook_failures.WROTE_NOTHING}; what killed it is in the node's own log",
                    now,
                )
            record = wire.blind("hooks", "hook_spool", now, now, why, 1)
            yield Reading(record, 0, self._positions(), kept=partial(self._remove, spool, path))

    def _report_failed(self) -> Iterator[Reading]:
        """Reports hooks that could not write at all, and learns whether they could now."""
        places = [(hook_failures.WORDS, False)]
        now = self.context.monotonic()
        if now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            self._make_room()
            self._unwritable = hook_failures.unwritable(self._host, self.folders)
            places.append((hook_failures.TASK_WORDS, True))
        for name, of_users in places:
            found = hook_failures.words(self.context.path(name), of_users)
            reported, self._reported[name] = self._reported.get(name, set()), {word.file for word in found}
            for some in hook_failures.counted(word for word in found if word.file not in reported).values():
                why = hook_failures.sentence(some)
                if not of_users:  # a user's claim is reported, and changes no status
                    self._failed[some[0].event] = why, max(word.at for word in some)
                begin, end = min(word.at for word in some), max(word.at for word in some)
                record = wire.blind("hooks", "hook_spool", begin, end, why, len(some))
                yield Reading(record, 0, self._positions(), kept=partial(hook_failures.remove, some))

    def close(self) -> None:
        for spool in self._open.values():
            spool.release()
        hook_memory.leave(self._host, self.folders, self._taken)


def _environment(data: bytes) -> dict[str, str]:
    if not data.startswith(_MAGIC):
        raise Odd(f"does not begin with {_MAGIC.decode().strip()}")
    pieces = data[len(_MAGIC) :].decode("utf-8", "replace").split("\0")
    return {name: value for name, equals, value in (piece.partition("=") for piece in pieces) if equals}


def _is_first(env: Mapping[str, str]) -> bool:
    """Whether the batch script runs on this node: it is the only one, or the first in the list. (slurmd's epilog gets a
    list of itself only: there, a multi-node job is known from its prolog.)"""
    if (env.get("SLURM_JOB_NUM_NODES") or env.get("SLURM_NNODES")) == "1":
        return True
    whole = env.get("SLURM_JOB_NODELIST") or (
        env.get("SLURM_NODELIST", "") if env.get("FAULTLINE_EVENT") == "prolog" else ""
    )
    return bool(whole) and first_host(whole) == env.get("SLURMD_NODENAME")


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def _make(context: Context, options: Mapping[str, Any]) -> Hooks:
    places = (context.path(options[name]) if options[name] else None for name in ("state_save", "slurmd_spool"))
    return Hooks(context, list(options["folders"]), Places(*places), options["every_s"])


SOURCE = SourceKind(
    "hooks", _make,
    {"folders": ["/var/spool/faultline/hooks", "/var/spool/faultline/task-hooks"], "state_save": "/var/spool/slurmctld",
     "slurmd_spool": "/var/spool/slurmd", "every_s": 2.0},
    reads="the spools of Slurm's hooks, on disk and in memory; for an epilog also the job's script and the head and tail of its output, "
    "opened as the job's user, where its batch script ran and on the controller, and what its steps had open (srun --output) on each node",
    costs="one directory listing per folder every 2 s, and while a job runs one pass over /proc every 10 s; for a job's end a child process and at most 320 KiB per file",
    blind_to="the output of a job of several nodes without a prolog or a hook of slurmctld; the name %x if Slurm does not "
    "provide it; files in the agent's own /tmp (PrivateTmp); output of steps that ended within a second or two",
)  # fmt: skip
