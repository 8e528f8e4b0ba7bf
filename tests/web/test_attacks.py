"""Who may only read attacks a real service with queries: each ends at its limits, and nobody beside it waits for it.

Beside each attack lines come in, another person asks a small query, signs in, and looks at a page. What is printed is
what was measured.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.collector.running import Running
from tests.faultline.test_guarded_service import faultline
from tests.queries.attacks import ATTACKS, Attack

pytestmark = pytest.mark.long
LIMIT_S = 3.0
LINES = 4_000
BUDGET = 512 * 10**6
PASSWORD = "a password to try"
#: What the client waits for an answer before it calls the service dead.
PATIENCE_S = 90.0
#: Only these of the table, for work on one of them: a regular expression of "kind: name".
ONLY = os.environ.get("FAULTLINE_ATTACKS", "")


@dataclass
class Beside:
    """What others saw: the longest wait for each thing, in seconds, and how often it was asked."""

    longest: dict[str, float] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def note(self, what: str, seconds: float, status: int, expected: tuple[int, ...]) -> None:
        self.longest[what] = max(self.longest.get(what, 0.0), seconds)
        self.times[what] = self.times.get(what, 0) + 1
        if status not in expected:
            self.wrong.append(f"{what}: {status}")


class Site:
    """The service, those who use it, and what it measures."""

    def __init__(self, folder: Path) -> None:
        users = str(folder / "users.toml")
        self.tokens = {n: faultline("access", "token", n, "--users", users).stdout.strip() for n in ("mallory", "bob")}
        assert faultline("access", "password", "bob", "--users", users, given=PASSWORD + "\n").returncode == 0
        access = f'[access]\nusers = "{users}"\nread = ["mallory", "bob"]\n'
        self.service = Running(folder / "data", extra=access, syslog=())
        os.environ["FAULTLINE_QUERY_MEMORY"] = str(BUDGET)
        try:
            self.service.start()
        finally:
            del os.environ["FAULTLINE_QUERY_MEMORY"]
        self.beside, self.sent, self.peak = Beside(), 0, 0
        self.over = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._measure, self._look, self._sign_in, self._send, self._ask)
        ]  # fmt: skip

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

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
        status, answer, _ = self.service.request("POST", "/api/v1/query", sent, self.as_(name), PATIENCE_S)
        try:
            return status, json.loads(answer)
        except ValueError:
            return status, {}

    def memory(self) -> int:
        """Bytes of the service and of all it started, what they share counted once."""
        assert self.service.process is not None
        parents: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, ValueError, IndexError):
                parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        ours = {self.service.process.pid}
        while more := {p for p, parent in parents.items() if parent in ours} - ours:
            ours |= more
        whole = 0
        for pid in ours:
            with suppress(OSError, ValueError):
                _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
                whole += (resident - shared) * 4096
        return whole

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
            self.peak = max(self.peak, self.memory())

    def _look(self) -> None:
        while not self.over.wait(0.5):
            self._timed("health", (200,), "GET", "/healthz")
            self._timed("page", (200,), "GET", "/incidents", None, {**self.as_("bob"), "Accept": "text/html"})

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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("attacked"))
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
        while (counted := made.ask("bob", "Logs | count", timeout_s=30)[1].get("rows")) is None or counted[0][
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


def _attack(site: Site, attack: Attack) -> tuple[float, int, str, int, Beside]:
    """Seconds, status, what was said, bytes above what the service had before, and what others saw."""
    time.sleep(0.3)
    before, site.peak, site.beside = site.memory(), 0, Beside()
    began = time.monotonic()
    status, said = site.ask("mallory", attack.kql, **attack.body)
    seconds = time.monotonic() - began
    time.sleep(0.1)
    detail = str(said.get("detail", "")) or (
        f"{len(said.get('rows', []))} rows" + (", cut" if said.get("truncated") else "")
    )
    return seconds, status, detail, max(0, site.peak - before), site.beside


def _judge(site: Site, attacks: list[Attack], say: Any) -> None:
    late, fat, waited, wrong, broken = [], [], [], [], []
    for attack in attacks:
        name = f"{attack.kind}: {attack.name}"
        seconds, status, detail, memory, beside = _attack(site, attack)
        alive = site.service.process is not None and site.service.process.poll() is None
        others = " ".join(f"{what} {longest:.1f}" for what, longest in sorted(beside.longest.items()))
        say(f"{name:46.46} {status} {seconds:5.1f} s {memory / 1e6:6.0f} MB  {detail[:60]:60} | {others}")
        assert alive, f"{name}: the service is gone"
        # A machine that others use is as slow for this as for the simplest request.
        slack = 2 * beside.longest.get("health", 0.0)
        late += [name] if seconds > LIMIT_S + 1 + slack else []
        fat += [f"{name}: {memory / 1e6:.0f} MB"] if memory > BUDGET * 1.1 + INGEST else []
        waited += [f"{name}: {w}" for w, s in beside.longest.items() if s > LIMIT_S + 1 + slack]
        broken += [f"{name}: {status} {detail}"] if status >= 500 and status != 504 else []
        wrong += [f"{name}: {w}" for w in beside.wrong]
    assert (late, fat, waited, broken, wrong) == ([], [], [], [], [])


#: What the service itself takes and gives back while lines come in and pages are made: the answer as text, transactions.
INGEST = 350 * 10**6


def test_attacks(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    attacks = [a for a in ATTACKS if re.search(ONLY, f"{a.kind}: {a.name}")]
    with capsys.disabled():
        print(f"\n{len(attacks)} attacks, limit {LIMIT_S:g} s, {BUDGET / 1e6:.0f} MB", flush=True)
        _judge(site, attacks, lambda text: print(text, flush=True))


def test_lines_went_on(site: Site) -> None:
    end = time.monotonic() + 60
    sent = site.sent
    counted: Any = None
    while time.monotonic() < end:
        counted = site.ask("bob", "Logs | where Message has 'storm' | count")[1].get("rows")
        if counted and counted[0][0] >= sent:
            return
        time.sleep(0.5)
    raise AssertionError(f"{sent} lines were taken in, {counted} are stored")


def test_tails_wait_their_turn(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Thirty streams with a dear filter: four are opened, the others are told why not, and people sign in meanwhile."""
    import http.client

    site.beside = Beside()
    statuses: list[int] = []
    held = []
    query = urlencode({"filter": "strlen(strrep(Message, 100000)) > 5"})
    for _ in range(30):
        connection = http.client.HTTPConnection("127.0.0.1", site.service.http, timeout=PATIENCE_S)
        connection.request("GET", f"/api/v1/tail?{query}", headers=site.as_("mallory"))
        statuses.append(connection.getresponse().status)
        held.append(connection)
    time.sleep(6)
    for connection in held:
        connection.close()
    with capsys.disabled():
        print(f"\n30 tails: {statuses.count(200)} open, {statuses.count(429)} refused; others {site.beside.longest}")
    assert set(statuses) <= {200, 429} and 0 < statuses.count(200) <= 30 and statuses.count(429) > 0
    assert site.beside.longest["sign-in"] < LIMIT_S + 2 * site.beside.longest["health"] + 1


def test_cancelled_clients_leave_nothing(site: Site) -> None:
    """Forty questions whose clients go away at once."""
    import http.client

    for _ in range(40):
        connection = http.client.HTTPConnection("127.0.0.1", site.service.http, timeout=5)
        body = json.dumps({"query": "range x from 1 to 1000000000 step 1 | summarize sum(x)", "timeout_s": 60}).encode()
        connection.request("POST", "/api/v1/query", body, site.as_("mallory"))
        connection.close()
    began = time.monotonic()
    while (status := site.ask("mallory", "print 1", timeout_s=60)[0]) == 429:  # until it is seen that they are gone
        assert time.monotonic() - began < 30
        time.sleep(0.1)
    assert status == 200 and time.monotonic() - began < 30


GROWING = ["strcat(a, a)", "strrep(a, 9)", "replace_string(a, '0', a)", "url_encode(a)", "base64_encode_tostring(a)",
           "tostring(pack_array(a, a, a))", "strcat_delim(a, a, a)", "tostring(bag_pack('k', a, 'l', a))", "reverse(a)",
           "replace_regex(a, '(.)', '\\\\1\\\\1')", "tostring(range(1, strlen(a), 1))", "tostring(split(a, '0'))",
           "tostring(extract_all('(.)', a))", "tostring(parse_json(a))", "toupper(a)", "translate('0', a, a)"]  # fmt: skip
STEPS = ["| extend a = {0}", "| where strlen({0}) > 0", "| mv-expand b = split(a, '0')", "| summarize a = tostring(make_list(a))",
         "| summarize a = take_any(a) by x", "| join kind=inner (range x from 1 to 3000 step 1) on x", "| sort by a asc",
         "| extend x = x % 5", "| distinct a, x", "| union (range x from 1 to 1000 step 1 | extend a = tostring(x))"]  # fmt: skip


def _random_query(chance: random.Random) -> str:
    query = f"range x from 1 to {10 ** chance.randint(0, 7)} step 1 | extend a = tostring(x)"
    for _ in range(chance.randint(2, 14)):
        query += "\n" + chance.choice(STEPS).format(chance.choice(GROWING))
    return query + "\n" + chance.choice(["| count", "| summarize max(strlen(a))", "| take 100", ""])


def test_random_costs(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps and functions that grow, put together by chance."""
    seed = int(os.environ.get("FAULTLINE_SEED", "6"))
    chance = random.Random(seed)
    attacks = [
        Attack("random", f"{seed}.{n}", _random_query(chance))
        for n in range(int(os.environ.get("FAULTLINE_RANDOM", "80")))
    ]
    told: list[str] = []
    try:
        _judge(site, attacks, told.append)
    finally:
        with capsys.disabled():
            seen = [(line[47:50], float(line[51:56]), float(line[58:65])) for line in told]
            print(f"\n{len(told)} random queries, seed {seed}: statuses { {s: [x[0] for x in seen].count(s) for s in {x[0] for x in seen}} }, "
                  f"longest {max(x[1] for x in seen):.1f} s, most {max(x[2] for x in seen):.0f} MB", file=sys.stdout)  # fmt: skip
