"""A real service under attack with queries, its other users, and the measurements.

Beside each attack lines come in, another user sends small queries, signs in, and loads a page.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.collector.running import Running
from tests.faultline.test_guarded_service import faultline
from tests.queries.attack import Attack

LIMIT_S = 2.0
LINES = 4_000
BUDGET = 512 * 10**6
PASSWORD = "a password to try"
#: How long the client waits for an answer before it considers the service dead.
PATIENCE_S = 120.0
#: The states of processes that have ended.
_ENDED = ("Z", "X")
#: Periods without an attack in which the baseline of lines, pages and small queries is measured.
WINDOWS = 8


@dataclass(frozen=True)
class Memory:
    """Bytes that no file backs.

    ``whole``: of all processes, each page once; ``query``: of the forked process with the most private memory.
    """

    whole: int = 0
    query: int = 0

    def or_more(self, other: Memory) -> Memory:
        return Memory(max(self.whole, other.whole), max(self.query, other.query))


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:  # it ended
        return b""


def _bytes(pid: int, *names: str) -> int:
    lines = (line.split() for line in _read(pid, "smaps_rollup").decode().splitlines()[1:])
    return 1024 * sum(int(line[1]) for line in lines if line[0].rstrip(":") in names)


@dataclass
class Beside:
    """The experience of other users: the longest wait for each operation, in seconds, and its count."""

    longest: dict[str, float] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def note(self, what: str, seconds: float, status: int, expected: tuple[int, ...]) -> None:
        self.longest[what] = max(self.longest.get(what, 0.0), seconds)
        self.times[what] = self.times.get(what, 0) + 1
        if status not in expected:
            self.wrong.append(f"{what}: {status}")


class Site:
    """The service, its users, and the measurements."""

    def __init__(self, folder: Path) -> None:
        users, self.probe = str(folder / "users.toml"), folder / "probe"
        self.tokens = {n: faultline("access", "token", n, "--users", users).stdout.strip() for n in ("mallory", "bob")}
        assert faultline("access", "password", "bob", "--users", users, given=PASSWORD + "\n").returncode == 0
        access = f'[access]\nusers = "{users}"\nread = ["mallory", "bob"]\n'
        self.service = Running(folder / "data", extra=access, syslog=())
        os.environ["FAULTLINE_QUERY_MEMORY"] = str(BUDGET)
        try:
            self.service.start()
        finally:
            del os.environ["FAULTLINE_QUERY_MEMORY"]
        self.beside, self.sent, self.most = Beside(), 0, Memory()
        #: What the others experienced during the last query.
        self.seen = Beside()
        self.alone, self.waited = 0, 0.0
        self.over = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._measure, self._look, self._sign_in, self._send, self._ask, self._write)
        ]  # fmt: skip

    def begin(self) -> None:
        """Starts the others; first measures the service with only them, over periods as long as an attack's."""
        for thread in self._threads:
            thread.start()
        for _ in range(WINDOWS):
            time.sleep(0.3)
            before = self.mark()
            time.sleep(LIMIT_S + 1)
            self.alone = max(self.alone, self.most.whole - before.whole)

    def mark(self) -> Memory:
        """The present memory; from here on the maximum is recorded."""
        self.beside = Beside()
        while (now := self.memory()) is None:
            time.sleep(0.01)
        self.most = now
        return now

    def end(self) -> None:
        self.over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(PATIENCE_S)
        self.service.stop()

    def as_(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[name]}", "Content-Type": "application/json"}

    def ask(self, name: str, kql: str, **body: Any) -> tuple[int, dict[str, Any]]:
        sent = json.dumps({"query": kql, "timeout_s": LIMIT_S, **body}).encode()
        began = time.monotonic()
        status, answer, _ = self.service.request("POST", "/api/v1/query", sent, self.as_(name), PATIENCE_S)
        self.waited = time.monotonic() - began
        time.sleep(0.1)  # the others had a turn since
        # None has one while Python reads 64 MiB of JSON, for seconds: how long they waited then is no fault of the service's.
        self.seen, self.beside = self.beside, Beside(wrong=self.beside.wrong)
        try:
            return status, json.loads(answer)
        except ValueError:
            return status, {}

    def memory(self) -> Memory | None:
        """Memory of the service and all its children, shared pages counted once; None if one began or ended meanwhile.

        A page that a process shares with its parent counts half for each. If it ends between the two looks, or begins, the
        page counts for more than one.
        """
        ours = self._family()
        forkers = {pid for pid in ours if b"wall.forking" in _read(pid, "cmdline")}
        forked = {pid for pid, parent in ours.items() if parent in forkers}
        found = Memory(sum(_bytes(pid, "Pss_Anon", "SwapPss") for pid in ours),
                       max((_bytes(pid, "Private_Dirty", "Swap") for pid in forked), default=0))  # fmt: skip
        return found if self._family() == ours else None

    def _family(self) -> dict[int, int]:
        """The service and all processes below it that have not ended, with their parents."""
        assert self.service.process is not None
        parents: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, ValueError, IndexError):
                state, parent = stat.read_text().rsplit(")", 1)[1].split()[:2]
                if state not in _ENDED:
                    parents[int(stat.parent.name)] = int(parent)
        ours = {self.service.process.pid}
        while more := {p for p, parent in parents.items() if parent in ours} - ours:
            ours |= more
        return {pid: parents.get(pid, 0) for pid in ours}

    # -- the others, each in a thread ----------------------------------------------------------------------------------

    def _timed(self, what: str, expected: tuple[int, ...], *request: Any) -> None:
        began = time.monotonic()
        try:
            status = self.service.request(*request, timeout_s=PATIENCE_S)[0]
        except (OSError, HTTPException) as error:
            self.beside.wrong.append(f"{what}: {error!r}")
            return
        self.beside.note(what, time.monotonic() - began, status, expected)

    def _measure(self) -> None:
        while not self.over.wait(0.03):
            if (now := self.memory()) is not None:
                self.most = self.most.or_more(now)

    def _look(self) -> None:
        while not self.over.wait(0.5):
            self._timed("health", (200,), "GET", "/healthz")
            self._timed("page", (200,), "GET", "/incidents", None, {**self.as_("bob"), "Accept": "text/html"})

    def _write(self) -> None:
        """The machine's disk, which the service shares with whatever else runs."""
        with self.probe.open("wb", buffering=0) as file:
            while not self.over.wait(0.2):
                began = time.monotonic()
                file.write(b"x" * 4096)
                os.fdatasync(file.fileno())
                self.beside.note("disk", time.monotonic() - began, 200, (200,))

    def _sign_in(self) -> None:
        form = urlencode({"name": "bob", "password": PASSWORD}).encode()
        while not self.over.wait(1.0):
            self._timed(
                "sign-in", (303,), "POST", "/login", form, {"Content-Type": "application/x-www-form-urlencoded"}
            )

    def _ask(self) -> None:
        small = [b'{"query": "Logs | take 3 | project Host"}', b'{"query": "print strlen(url_encode(\'a b\'))"}']
        while not self.over.wait(0.5):
            for what, body in zip(("small query", "small query behind the wall"), small, strict=True):
                self._timed(what, (200,), "POST", "/api/v1/query", body, self.as_("bob"))

    def _send(self) -> None:
        while not self.over.wait(0.2):
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            lines = [
                {"raw": f"{now} gpu07 app[1]: line {self.sent + n} of the storm", "host": "gpu07"} for n in range(20)
            ]
            body = "\n".join(json.dumps(line) for line in lines).encode()
            headers = {"Content-Type": "application/x-ndjson"}
            began = time.monotonic()
            with suppress(OSError, HTTPException):
                status = self.service.request("POST", "/api/v1/ingest", body, headers | self._sender())[0]
                self.beside.note("ingest", time.monotonic() - began, status, (200,))
                self.sent += 20 if status == 200 else 0

    def _sender(self) -> dict[str, str]:
        return {}


def attacked_site(folder: Path) -> Iterator[Site]:
    """For a fixture: the site with lines to attack, running."""
    made = Site(folder)
    try:
        # Lines to attack, some of them long.
        for part in range(LINES // 2000):
            lines = [
                {"raw": f"2026-03-01T00:00:{n % 60:02d}Z gpu{n % 64:02d} app[1]: step {part * 2000 + n} loss {'x' * (n % 400)}",
                 "host": f"gpu{n % 64:02d}"} for n in range(2000)
            ]  # fmt: skip
            body = "\n".join(json.dumps(line) for line in lines).encode()
            assert (
                made.service.request("POST", "/api/v1/ingest", body, {"Content-Type": "application/x-ndjson"})[0] == 200
            )
        end = time.monotonic() + 300
        while (counted := made.ask("bob", "Logs | count", timeout_s=120)[1].get("rows")) is None or counted[0][
            0
        ] < LINES:
            assert time.monotonic() < end, f"{counted} lines are stored"
            time.sleep(0.5)
        made.ask("bob", "range x from 1 to 3 step 1")
        time.sleep(2)
        made.begin()
        yield made
    finally:
        made.end()


@dataclass(frozen=True)
class Seen:
    """The effect of one attack."""

    name: str
    seconds: float
    status: int
    detail: str
    memory: Memory  # above the baseline
    beside: Beside

    def line(self) -> str:
        others = " ".join(f"{what} {longest:.1f}" for what, longest in sorted(self.beside.longest.items()))
        return (f"{self.name:48.48} {self.status} {self.seconds:5.1f} s {self.memory.whole / 1e6:5.0f} MB "
                f"({self.memory.query / 1e6:4.0f} forked)  {self.detail[:60]:60} | {others}")  # fmt: skip


def attacked(site: Site, attack: Attack) -> Seen:
    """Sends one attack and waits for its answer."""
    time.sleep(0.3)
    before = site.mark()
    status, stated = site.ask("mallory", attack.kql, **attack.body)
    seconds = site.waited
    detail = str(stated.get("detail", "")) or (
        f"{len(stated.get('rows', []))} rows" + (", cut" if stated.get("truncated") else "")
    )
    taken = Memory(max(0, site.most.whole - before.whole), site.most.query)
    return Seen(f"{attack.kind}: {attack.name}", seconds, status, detail, taken, site.seen)


def judged(site: Site, attacks: list[Attack], say: Callable[[str], None]) -> list[Seen]:
    """Sends each attack and asserts, after the last, that the limits held and that the others were served."""
    late, fat, waited, wrong, broken = [], [], [], [], []
    every = []
    for attack in attacks:
        seen = attacked(site, attack)
        say(seen.line())
        every.append(seen)
        assert site.service.process is not None and site.service.process.poll() is None, (
            f"{seen.name}: the service is gone"
        )
        # A busy machine is as slow for this as for the simplest request, or for a page written to its disk.
        slack = 2 * sum(seen.beside.longest.get(what, 0.0) for what in ("health", "disk"))
        late += [seen.name] if seen.seconds > LIMIT_S + 1 + slack else []
        if seen.memory.whole > BUDGET * 1.1 + site.alone or seen.memory.query > BUDGET * 1.1:
            fat.append(f"{seen.name}: {seen.memory}")
        waited += [f"{seen.name}: {w}" for w, s in seen.beside.longest.items() if s > LIMIT_S + 1 + slack]
        broken += [f"{seen.name}: {seen.status} {seen.detail}"] if seen.status >= 500 and seen.status != 504 else []
        wrong += [f"{seen.name}: {w}" for w in seen.beside.wrong]
    say(summary(site, every))
    found = {"late": late, "fat": fat, "waited": waited, "broken": broken, "wrong": wrong}
    assert not any(found.values()), found
    return every


def summary(site: Site, every: list[Seen]) -> str:
    """One line: the number, and the worst of each."""
    statuses = [one.status for one in every]
    slowest, largest = max(every, key=lambda one: one.seconds), max(every, key=lambda one: one.memory.whole)
    forked = max(one.memory.query for one in every)
    return (
        f"{len(every)} queries, statuses { {s: statuses.count(s) for s in sorted(set(statuses))} }; longest {slowest.seconds:.1f} s "
        f"of {LIMIT_S:g} ({slowest.name}); most {largest.memory.whole / 1e6:.0f} MB ({largest.name}), of a forked process "
        f"{forked / 1e6:.0f} MB, budget {BUDGET / 1e6:.0f} MB; lines, pages and small queries alone took {site.alone / 1e6:.0f} MB"
    )
