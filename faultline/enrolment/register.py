"""The enrolled instances: a folder with one small file for each name, which an operator may read and remove.

Only digests of tokens are kept. A file is on disk before its instance may send. Removing a file takes the token away at
the next request; nothing else needs to be notified.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import structlog

from collector.senders import Limits, Sender, digest_of
from faultline.enrolment.identity import Instance

log = structlog.get_logger()

#: One name, as Slurm has it: without a domain, so that no two names are the same host.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: More files than this are not made: the largest clusters have some 20,000 nodes.
MOST = 50_000
_SUFFIX = ".json"
#: A token that nobody used for this long, while the service ran, is not a running agent's: an agent reports once a minute.
IDLE_S = 900.0


class EnrolmentRefused(Exception):  # noqa: N818
    """``outcome``: one word for metrics and the audit log; ``status``: of HTTP; the text is for the agent's log."""

    def __init__(self, outcome: str, status: int, text: str, do: str = "", retry_s: float | None = None) -> None:
        super().__init__(text)
        self.outcome, self.status, self.do, self.retry_s = outcome, status, do, retry_s


@dataclass(frozen=True)
class Enrolled:
    """One instance. ``digest``: of its token; times are epoch seconds."""

    host: str
    instance: str
    digest: str
    address: str
    enrolled: float
    expires: float

    def is_over(self, now: datetime) -> bool:
        return self.expires <= now.timestamp()


class Done(NamedTuple):
    """What an enrolment did, in a word; the entry; and the valid entry of another machine that it ended."""

    what: str
    entry: Enrolled
    ousted: Enrolled | None = None


class Register:
    """Safe to use from several threads. ``clusters`` and ``kinds`` are what every enrolled agent is bound to besides.
    ``steady``: a clock that nobody sets."""

    def __init__(
        self, folder: Path, clusters: tuple[str, ...], kinds: tuple[str, ...], life: timedelta,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._folder, self._clusters, self._kinds, self._life = folder, clusters, kinds, life
        self._steady = steady
        #: When each token was used last, by its digest; at first, when this service learned of it.
        self._used: dict[str, float] = {}
        #: Held by whoever changes files. ``_lock`` is for what is in memory: requests to send wait for it, and never for a disk.
        self._changing, self._lock = threading.Lock(), threading.Lock()
        self._hosts: dict[str, Enrolled] = {}
        self._digests: dict[str, Enrolled] = {}
        self._instances: dict[str, Enrolled] = {}
        #: Names whose file is not of use any more: its machine has a later one under another name.
        self._outdated: set[str] = set()
        self._seen: int | None = None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._follow()  # now, not at the first request: thousands of files take a tenth of a second
        for host in sorted(self._outdated):
            self._remove(host)

    def find(self, token: str) -> Sender | None:
        """The sender of a token, even of one that has ended. Raises nothing: a folder that cannot be read admits nobody."""
        with self._lock:
            self._follow()
            one = self._digests.get(digest_of(token))
            # Asked for itself: a file system may give two changes of the folder the same time.
            if one is not None and not self._file(one.host).exists():
                self._forget(one.host)
                one = None
            if one is not None:
                self._used[one.digest] = self._steady()
        if one is None:
            return None
        limits = Limits(f"instance {one.host}", (one.host,), self._clusters, self._kinds)
        return Sender(limits.name, one.digest, datetime.fromtimestamp(one.expires, UTC), limits)

    def enrol(
        self, host: str, instance: Instance, digest: str, former: str | None, address: str, now: datetime, *, sure: bool
    ) -> Done:
        """Binds a token to an instance and its name. Raises ``EnrolmentRefused`` and ``OSError``.

        ``former``: digest of the token that the agent has. Without it an instance is enrolled again only if that token is
        out of use: the machine's disk was lost. ``sure``: the name belongs to this machine by somebody else's word than its
        own, so that another machine's entry may be replaced, and its own under another name.
        """
        with self._changing:
            with self._lock:
                self._follow()
                done = self._decide(host, instance, digest, former, address, now, sure=sure)
                # Asked for now: while the file is written, a request to send may take it in.
                before = self._instances.get(instance.name)
            if done.what == "repeated":
                return done
            self._write(done.entry)
            with self._lock:
                if before is not None and before.host != host:
                    self._forget(before.host)
                    self._remove(before.host)
                self._forget(host)
                self._enter(done.entry)
                self._outdated.discard(host)
                self._seen = self._stamp()
        return done

    def _decide(
        self, host: str, instance: Instance, digest: str, former: str | None, address: str, now: datetime, *, sure: bool
    ) -> Done:
        known, holder = self._valid(self._instances.get(instance.name), now), self._valid(self._hosts.get(host), now)
        done = "enrolled" if holder is None else "replaced"
        if known is not None:
            if known.host == host and known.digest == digest:
                return Done("repeated", known)
            done = self._again(known, digest, former)
            if known.host != host and (not done or not sure):
                raise EnrolmentRefused("renamed", 409, f"{instance.name} is enrolled as {known.host}", _OLD)
            if not done:
                raise EnrolmentRefused("second", 409, f"{instance.name} is enrolled, with another token", _OLD)
            done = "moved" if known.host != host else done
        elif holder is not None and not sure:
            raise EnrolmentRefused("taken", 409, f"{host} is the name of {holder.instance}", _REMOVE)
        if digest in self._digests and (known is None or digest != known.digest):
            raise EnrolmentRefused("reused", 409, "this token is another's", "Make a new one.")
        if host not in self._hosts and len(self._hosts) >= MOST:
            raise EnrolmentRefused("full", 503, f"{MOST} instances are enrolled", retry_s=60.0)
        stamp = now.timestamp()
        before, end = self._instances.get(instance.name), stamp + self._life.total_seconds()
        if before is not None:  # later than it, even if the clock was set back: of two files the later one is believed
            stamp = max(stamp, before.enrolled + 0.001)
        made = Enrolled(host, instance.name, digest, address, stamp, end)
        return Done(done, made, holder if holder is not None and holder.instance != made.instance else None)

    def _again(self, known: Enrolled, digest: str, former: str | None) -> str:
        """Why an instance that is enrolled may be enrolled again, in a word; empty if it may not: what asks may be a
        user's process beside the agent, which has the same document."""
        if former == known.digest or digest == known.digest:
            return "renewed"
        return "anew" if self._steady() - self._used[known.digest] >= IDLE_S else ""

    def _valid(self, one: Enrolled | None, now: datetime) -> Enrolled | None:
        return None if one is None or one.is_over(now) else one

    def count(self, now: datetime) -> int:
        """Instances whose token is valid."""
        with self._lock:
            self._follow()
            return sum(not one.is_over(now) for one in self._hosts.values())

    def purge(self, now: datetime, after: timedelta) -> list[str]:
        """Removes entries that ended longer than ``after`` ago: those machines are gone. Returns their names. Tries again to
        remove files that are not of use any more."""
        with self._changing, self._lock:
            self._follow()
            gone = [one.host for one in self._hosts.values() if one.expires + after.total_seconds() < now.timestamp()]
            gone = [host for host in gone if self._remove(host)]
            for host in gone:
                self._forget(host)
            for host in sorted(self._outdated):
                self._remove(host)
        return gone

    # ------------------------------------------------------------------------------------------------ files

    def _file(self, host: str) -> Path:
        return self._folder / f"{host}{_SUFFIX}"

    def _remove(self, host: str) -> bool:
        try:
            self._file(host).unlink(missing_ok=True)
        except OSError as error:
            self._outdated.add(host)
            log.warning("the file of an entry that ended cannot be removed", node=host, error=str(error))
            return False
        self._outdated.discard(host)
        return True

    def _stamp(self) -> int | None:
        try:
            return self._folder.stat().st_mtime_ns
        except OSError:
            return None

    def _follow(self) -> None:
        """Takes in what was removed or added by others: any change of the folder's list changes its time."""
        stamp = self._stamp()
        if stamp is not None and stamp == self._seen:
            return
        try:
            names = {name.removesuffix(_SUFFIX) for name in os.listdir(self._folder) if name.endswith(_SUFFIX)}  # noqa: PTH208
        except OSError as error:
            log.warning("enrolled instances cannot be read; none may send", folder=str(self._folder), error=str(error))
            names = set()
        for host in set(self._hosts) - names:
            self._forget(host)
        self._outdated.clear()  # those that are still there are read again
        for host in names - set(self._hosts):
            if (one := self._read(host)) is not None:
                self._enter(one)
        self._seen = stamp

    def _read(self, host: str) -> Enrolled | None:
        try:
            found = Enrolled(**json.loads(self._file(host).read_text(encoding="utf-8")))
            if found.host != host or not NAME.fullmatch(host) or not DIGEST.fullmatch(found.digest):
                raise ValueError("it does not fit its name")
            return found
        except (OSError, ValueError, TypeError) as error:
            log.warning("an enrolled instance cannot be read; it may not send", host=host[:80], error=str(error))
            return None

    def _write(self, one: Enrolled) -> None:
        draft = self._folder / f".{one.host}.draft"
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(one), indent=1) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(self._file(one.host))
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _enter(self, one: Enrolled) -> None:
        """A machine has one entry. A file of a name that it had before may still be there (a crash, a disk that fails), and
        files are read in no order: the later entry is the machine's."""
        other = self._instances.get(one.instance)
        if other is not None and other.host != one.host:
            former = min(other, one, key=lambda entry: entry.enrolled)
            self._outdated.add(former.host)
            if former is one:
                return
            self._forget(other.host)
        self._hosts[one.host] = self._digests[one.digest] = self._instances[one.instance] = one
        self._used[one.digest] = self._steady()

    def _forget(self, host: str) -> None:
        one = self._hosts.pop(host, None)
        if one is None:
            return
        if self._digests.get(one.digest) is one:
            del self._digests[one.digest]
            self._used.pop(one.digest, None)
        if self._instances.get(one.instance) is one:
            del self._instances[one.instance]


_REMOVE = "If that is right, remove the file of this name from the folder enrolled/ of the service's data."

_OLD = (
    f"Show the token that it has. Without it, try again once that token was not used for {IDLE_S / 60:.0f} minutes. "
    + _REMOVE
)

__all__ = ["DIGEST", "NAME", "Done", "Enrolled", "EnrolmentRefused", "Register"]
