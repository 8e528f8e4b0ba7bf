"""Follows the output of jobs that run, on the node of their batch script: lines that look like a failure, within seconds.

The whole head and tail of the output come with the epilog (``collector.agent.sources.hooks``); what is sent here says early
what the job meets, and is marked ``live``. A job chooses the paths, so each look is a child that has become its user, opens
regular files of that user only, and has a deadline (``collector.agent.artifacts``). Files of steps (``srun --output``) that the
job's processes on this node have open are followed, too, in the places that jobs' own files leave free. One reader a file, on one node; a file
that does not grow is looked at less and less often.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from collector.agent import artifacts, wire
from collector.agent.artifacts import Owner, RefusedError, Work
from collector.agent.output_names import batch_host, output_files
from collector.agent.redaction import redact
from collector.agent.source import Context, Reading, SourceKind
from collector.agent.strangers import quoted

#: Words of lines that tell of a failure, or of what a failure rests on; a test holds them against the catalogue's patterns for jobs.
_FAILURE = re.compile(
    rb"error|exception|traceback|fatal|fail|abort|segmentation|segfault|kill|out of memory|oom|xid|time[d ]*-?out|time limit|panic"
    rb"|bus error|core dumped|signal|cancel|terminat|unreachable|refused|assert|no space|too many|stale|watchdog|lost|reset|broken|denied|unable"
    rb"|cannot|can't|could not|couldn't|invalid|missing|not found|no such|preempt|requeue|revoked|dead|hang|hung|stuck|uncorrectable|warn"
    rb"|unavailable|unrecognized|unhandled|mismatch|exceed|exit code|exited|interrupt|stall|unexpected|illegal|corrupt"
    rb"|exits with|return code|ctrl-c|severe|no devices|died|entire process down|no components|expired|no kerberos|socket_ifname",
    re.IGNORECASE,
)
#: Most bytes read of one file in one look, lines sent of them, and bytes of a line.
PIECE, MOST_LINES, MOST_LINE = 64 << 10, 100, 4096
#: Lines of a file that are sent as fast as they come, and lines a second from then on: some programs warn all day.
BURST, LINES_A_S = 500.0, 1.0
#: Children that hang in the kernel at once; more are not started.
MOST_HUNG = 8
#: Files of steps that are followed of one job, and the share of all places that they may take: each job's own output comes first.
MOST_OF_STEPS, SHARE_OF_STEPS = 4, 0.5
#: What is further behind than this many looks is skipped.
BEHIND = 8
#: The longest time between two looks for a file that is not there yet, in seconds.
LATE_S = 5.0
#: How far the clocks of the node and a file server may differ.
CLOCKS_S = 2.0
#: So many bytes before the place where reading goes on are compared with what was there: others are there if the file was
#: truncated and written anew.
MARK = 64
#: Places of jobs that are not known are kept this long after a start: the source of hooks may start later.
UNKNOWN_S = 300.0
#: Device, inode, where reading began, and whether all before it was passed over; then up to ``MARK`` bytes before that place.
_PLACE = struct.Struct("!QQQ?")
_ABSENT = "no such file or directory"


@dataclass
class Followed:
    """One file of one run. ``due`` and ``wait``: seconds of the monotonic clock."""

    job: int
    restarts: int
    kind: str
    path: str
    owner: Owner
    about: Mapping[str, Any]
    #: When its prolog ran (epoch seconds); 0 where that is not known.
    began: float = 0.0
    #: Whether it may be an earlier run's or another job's file, to which this run appends.
    shared: bool = False
    #: It was not there when it was looked for: all of it is this run's.
    absent: bool = False
    device: int = 0
    inode: int = 0
    offset: int = 0
    #: Checksum of the ``MARK`` bytes before ``offset``; -1 if it is not known.
    mark: int = -1
    #: At the last look: the file's size, and how much was read of it.
    size: int = 0
    read: int = 0
    due: float = float("-inf")
    wait: float = 1.0
    #: Why it is not read any more.
    given_up: str = ""
    #: Bytes and lines that were left out: the epilog brings the end of the file.
    skipped: int = 0
    left_out: int = 0
    #: Bytes that it held when it was first seen, and that may be an earlier run's.
    before: int = 0
    #: Lines that may be sent now, as of ``looked`` (monotonic seconds).
    room: float = BURST
    looked: float = 0.0

    def place(self) -> list[Any]:
        return [self.path, self.device, self.inode, self.offset, self.mark]

    def key(self) -> str:
        return f"{self.job}.{self.restarts} {self.kind} {self.path}"


@dataclass
class JobOutput:
    context: Context
    interval: float
    most_files: int
    bytes_per_s: int
    slowest: float
    answer_s: float
    trouble: str = ""
    _files: dict[str, Followed] = field(default_factory=dict)
    _places: dict[str, list[Any]] = field(default_factory=dict)
    _announced: dict[str, None] = field(default_factory=dict)
    #: When it was opened (monotonic seconds).
    _opened: float = 0.0

    def open(self, positions: Mapping[str, Any]) -> None:
        self._places, self._opened = dict(positions.get("job_output") or {}), self.context.monotonic()

    def poll(self) -> Iterator[Reading]:
        yield from self._match()
        now, room = self.context.monotonic(), max(int(self.bytes_per_s * self.interval), 4096)
        due = [f for f in self._files.values() if not f.given_up and f.due <= now]
        hung = artifacts.hanging()
        self.trouble = (
            f"{hung} looks at jobs' files hang in the kernel: no more are started" if hung >= MOST_HUNG else ""
        )
        for file in sorted(due, key=lambda file: file.due):
            if room <= 0 or artifacts.hanging() >= MOST_HUNG:
                break  # they come first the next time
            yield from self._look(file, min(room, PIECE))
            room -= file.read
            file.due = self.context.monotonic() + file.wait

    def close(self) -> None:
        """Holds nothing open between two looks."""

    # ------------------------------------------------------------------------------------------- which files

    def _match(self) -> Iterator[Reading]:
        """Begins with files of jobs that began, and ends with those of jobs that ended."""
        wanted: dict[str, Followed] = {}
        running, of_steps = self.context.jobs.known(), dict[str, Followed]()
        for env in running.values():
            for file in _files_of(env):
                wanted[file.key()] = file
        for job, env in running.items():
            for file in _files_of_steps(env, self.context.jobs.steps(job)):
                of_steps.setdefault(file.key(), file)
        own = set(wanted)
        wanted |= {key: file for key, file in of_steps.items() if key not in own}
        for key in [key for key in self._files if key not in wanted]:
            ended = self._files.pop(key)
            self._places.pop(key, None)
            if why := _left_out(ended):
                yield self._own_record(ended, why)
        self._announced = {key: None for key in self._announced if key in wanted}
        for key, file in wanted.items():
            if key in self._files:
                continue
            steps = sum(key not in own for key in self._files)
            is_full = len(self._files) >= self.most_files
            if is_full or (key not in own and steps >= self.most_files * SHARE_OF_STEPS):
                if key not in self._announced:
                    self._announced[key] = None
                    why = f"{self.most_files} files are" if is_full else f"{steps} files of steps are"
                    yield self._own_record(file, f"is not followed: {why} (files of [sources.job_output])")
                continue
            place = self._places.get(key)
            if place and place[0] == file.path:
                file.device, file.inode, file.offset = (int(number) for number in place[1:4])
                file.mark = int(place[4]) if len(place) > 4 else -1
            file.wait = self.interval
            self._files[key] = file
        if self.context.monotonic() - self._opened > UNKNOWN_S:
            self._places = {key: place for key, place in self._places.items() if key in wanted}

    # ------------------------------------------------------------------------------------------- one look

    def _look(self, file: Followed, most: int) -> Iterator[Reading]:
        try:
            size, identity, data = artifacts.part(file.path, file.owner, _read_from(file, most), self.answer_s)
        except RefusedError as refusal:
            file.read = 0
            if str(refusal) == _ABSENT:  # it may be made later; nothing else gets better by itself
                file.absent = True
                file.wait = min(file.wait * 2, LATE_S)
                return
            file.given_up = str(refusal)
            yield self._own_record(file, f"is not followed: {refusal}")
            return
        is_first = not file.inode
        cut, torn = self._placed(file, identity, data, most)
        lines = data[torn:cut].splitlines()
        # It grows, if only by a progress bar that ends no line; or more waits for room.
        grows, file.size = size != file.size or size - file.offset > most, size
        file.wait = self.interval if grows else min(file.wait * 2, self.slowest)
        found = [line[:MOST_LINE] for line in lines if looks_like_failure(line)]
        now = self.context.monotonic()
        file.room, file.looked = min(BURST, file.room + (now - file.looked) * LINES_A_S), now
        shown = found[: min(MOST_LINES, int(file.room))]
        file.room -= len(shown)
        file.left_out += len(found) - len(shown)
        if shown:
            yield self._sent(file, shown)
        elif is_first:  # the next start of the agent must not take what was passed over for new
            self._places[file.key()] = file.place()
            yield Reading(b"", 0, {"job_output": dict(self._places)})

    def _placed(self, file: Followed, identity: bytes, data: bytes, most: int) -> tuple[int, int]:
        """Notes how far a look came. Up to where ``data`` counts as read, and how much of it is the end of a line whose
        beginning was left out: a secret in it might not be recognised."""
        device, inode, begin, passed = _PLACE.unpack_from(identity)
        ahead = identity[_PLACE.size :]
        if passed:
            file.before = begin
        elif not file.inode or (device, inode) == (file.device, file.inode):
            if begin < file.offset:  # it was truncated, so nothing of it was passed over
                file.before = 0
            file.skipped += max(0, begin - file.offset)
        cut = data.rfind(b"\n") + 1
        torn = data.find(b"\n") + 1 if ahead and not ahead.endswith(b"\n") else 0
        if not cut and len(data) == most:  # a line without an end must not be read again and again
            cut, torn = len(data), len(data)
        file.skipped += torn
        file.read = len(data)
        file.device, file.inode, file.offset = device, inode, begin + cut
        file.mark = zlib.crc32((ahead + data[:cut])[-MARK:])
        return cut, torn

    def _sent(self, file: Followed, lines: list[bytes]) -> Reading:
        text, _ = redact(b"\n".join(lines))
        # Seen within a look of when it was written: a time for lines that have none, which at the run's end none has any more.
        now = wire.stamp(self.context.now())
        body = wire.lines_record(wire.head(**file.about, tags=["live"], time=now), text, read=now)
        self._places[file.key()] = file.place()
        return Reading(body, len(lines), {"job_output": dict(self._places)})

    def _own_record(self, file: Followed, why: str) -> Reading:
        message = f"job {file.job}: {file.kind} {why}"
        return Reading(
            wire.own_words(self.context.host, "job_output", message, self.context.now(), file=quoted(file.path)), 1
        )


def looks_like_failure(line: bytes) -> bool:
    """Whether a line of a job's output is sent while the job runs."""
    return _FAILURE.search(line[:MOST_LINE]) is not None


def _left_out(file: Followed) -> str:
    """What was not sent of a file, in a sentence; empty if all was."""
    parts = []
    if file.left_out or file.skipped:
        parts.append(f"{file.left_out} lines and {file.skipped} bytes were not sent while it ran")
    if file.before:
        parts.append(
            f"{file.before} bytes that it held when it was first seen, perhaps an earlier run's, were not sent"
        )
    return "; ".join([*parts, "its end comes with the epilog"]) if parts else ""


def _read_from(file: Followed, most: int) -> Work:
    """Reads on from where a file was read to; from its start if it is another file or was truncated; and only its end if
    much more was written than may be read.

    Of a file that is seen for the first time, all is passed over if nobody has written to it since the job's prolog, or if
    it may be shared with an earlier run and was never seen absent: whether slurmd truncated it or appends to it cannot be
    seen. If it is truncated later, the bytes before the place are others, and it is read from its start."""
    device, inode, offset, mark = file.device, file.inode, file.offset, file.mark
    fresh, doubted = file.began - CLOCKS_S, file.shared and not file.absent

    def work(handle: int, status: os.stat_result) -> tuple[int, bytes, bytes]:
        size, begin, passed = status.st_size, offset, False
        is_same = (status.st_dev, status.st_ino) == (device, inode) and size >= offset
        if not is_same or mark not in (-1, zlib.crc32(_ahead(handle, offset))):
            begin = 0
            passed = not inode and size > 0 and (doubted or status.st_mtime < fresh)
        jumped = not passed and size - begin > most * BEHIND
        if passed:
            begin = size
        elif jumped:
            begin = size - most
        data = b"" if passed else os.pread(handle, most, begin)
        if jumped:  # the first line is torn
            cut = data.find(b"\n") + 1
            begin, data = begin + cut, data[cut:]
        return size, _PLACE.pack(status.st_dev, status.st_ino, begin, passed) + _ahead(handle, begin), data

    return work


def _ahead(handle: int, offset: int) -> bytes:
    """Up to ``MARK`` bytes before a place in a file."""
    length = min(offset, MARK)
    return os.pread(handle, length, offset - length) if length else b""


def _files_of(env: Mapping[str, str]) -> Iterator[Followed]:
    paths = output_files(env)
    files = [(kind, path) for kind, path in paths.items() if kind != "stderr" or path != paths.get("stdout")]
    for file in _followed(env, files):
        file.shared = file.shared or not _names_the_job(file.path, env)
        yield file


def _files_of_steps(env: Mapping[str, str], seen: Iterable[tuple[str, str]]) -> Iterator[Followed]:
    own = set(output_files(env).values())
    return _followed(env, islice(((kind, path) for kind, path in seen if path not in own), MOST_OF_STEPS))


def _followed(env: Mapping[str, str], files: Iterable[tuple[str, str]]) -> Iterator[Followed]:
    owner, job, restarts = artifacts.job_owner(env), env.get("SLURM_JOB_ID", ""), env.get("SLURM_JOB_RESTART_COUNT", "")
    if owner is None or not job.isdigit():
        return
    for kind, path in files:
        number = int(restarts) if restarts.isdigit() else 0
        about = {
            "stream": "job_output", "source": f"job_{kind}", "path": path, "host": batch_host(env),
            "cluster": env.get("SLURM_CLUSTER_NAME"), "job_id": int(job), "restarts": number,
        }  # fmt: skip
        yield Followed(
            int(job), number, kind, path, owner, about, _moment(env.get("FAULTLINE_TIME", "")), shared=number > 0
        )


def _names_the_job(path: str, env: Mapping[str, str]) -> bool:
    """Whether a path has the job's number, so that no other job writes there.

    >>> _names_the_job("/home/a/train-0104711.out", {"SLURM_JOB_ID": "104711"})
    True
    >>> _names_the_job("/home/a/train.out", {"SLURM_JOB_ID": "104711"})
    False
    """
    numbers = {int(number) for number in re.findall(r"[0-9]{1,20}", path)}
    job, array, task = (env.get(f"SLURM_{name}", "") for name in ("JOB_ID", "ARRAY_JOB_ID", "ARRAY_TASK_ID"))
    is_task = array.isdigit() and task.isdigit() and {int(array), int(task)} <= numbers
    return is_task or int(job) in numbers


def _moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _make(context: Context, options: Mapping[str, Any]) -> JobOutput:
    return JobOutput(
        context, options["every_s"], options["files"], options["bytes_per_s"], options["slowest_s"], options["answer_s"]
    )


SOURCE = SourceKind(
    "job_output", _make,
    {"files": 16, "bytes_per_s": 262_144, "every_s": 1.0, "slowest_s": 30.0, "answer_s": 5.0},
    reads="lines that look like a failure in the output of jobs that run, on the node of their batch script, opened as the job's "
    "user; the whole comes with the epilog",
    costs="for each file that grows a child process and one read a second, for others one in 30 s; at most 256 KiB/s in all",
    blind_to="jobs without a prolog of ours; the name %x before the first task; files of steps (srun --output) on other nodes and without CAP_SYS_PTRACE, "
    "and more than 4 of a job, all of which come with the epilog; what a file held when it was first seen, if the run was started again or its name has no number of the job; "
    "what is written faster",
)  # fmt: skip
