"""Times the requests of the incident page while lines come in and while none do.

Both cases send the same requests about the same incidents: those of lines that were stored, concluded about and left
alone before the first request. Otherwise the two would differ by what is requested: in a growing store, an incident in
the middle of the list changes each time, with more lines around it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

#: Requests about one incident, in the order in which the page sends them.
ASKED = ("list", "incident", "axis", "lines")
#: This many incidents take turns, from all over the list.
INCIDENTS = 7
#: Rounds (one incident each) on the idle service, before lines come in and again after them. The first ``UNTIMED`` run
#: with cold caches.
IDLE_ROUNDS = 28
UNTIMED = INCIDENTS
#: Between two rounds, seconds: a person, or a page that reloads by itself.
PAUSE_S, IDLE_PAUSE_S = 0.1, 0.02
#: Lines of the page: the time before and after the incident's start, and their number.
AROUND, MOST_LINES = timedelta(seconds=30), 120

Times = dict[str, list[float]]


class IncidentPage:
    """``ask(method, path)`` returns a service's answer; the service is idle and has incidents. Seconds by request."""

    def __init__(self, ask: Callable[[str, str], Any]) -> None:
        self.ask = ask
        found = ask("GET", "/api/v1/incidents?limit=50")["incidents"]
        self.asked = [_questions(one) for one in found[:: max(1, len(found) // INCIDENTS)][:INCIDENTS]]
        self.loaded: Times = {name: [] for name in ASKED}
        self.quiet: Times = {name: [] for name in ASKED}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def idle(self) -> None:
        """Sends the requests to the idle service."""
        if not self.asked:
            return
        for number in range(UNTIMED + IDLE_ROUNDS):
            self._round(number, self.quiet if number >= UNTIMED else {name: [] for name in ASKED})
            time.sleep(IDLE_PAUSE_S)

    def start(self) -> None:
        """Repeats the requests, beside other work, until ``stop``."""
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()

    def report(self) -> None:
        if not all(self.loaded.values()) or not all(self.quiet.values()):
            print("  incident page       no incident was there before the clock started: give more --lines")
            return
        print(
            f"  incident page       p50 / p95 ms of {len(self.loaded['list'])} rounds under load, {len(self.quiet['list'])} idle"
        )
        sums = [0.0] * 4
        for name in ASKED:
            reported = [
                at * 1e3
                for times in (self.loaded[name], self.quiet[name])
                for at in (_part(times, 0.5), _part(times, 0.95))
            ]
            sums = [total + own for total, own in zip(sums, reported, strict=True)]
            print(
                "    {:17} {:6.0f} / {:4.0f}   idle {:6.0f} / {:4.0f}".format(name, *reported),
                f"  {reported[0] / reported[2]:.1f} times at p50",
            )
        print("    {:17} {:6.0f} / {:4.0f}   idle {:6.0f} / {:4.0f}".format("together", *sums),
              f"  {sums[0] / sums[2]:.1f} times at p50, {sums[1] / sums[3]:.1f} at p95")  # fmt: skip

    def _run(self) -> None:
        number = 0
        while self.asked and not self._ending.wait(PAUSE_S):
            self._round(number, self.loaded)
            number += 1

    def _round(self, number: int, into: Times) -> None:
        for name, path in self.asked[number % len(self.asked)]:
            begun = time.perf_counter()
            self.ask("GET", path)
            into[name].append(time.perf_counter() - begun)


def _questions(incident: dict[str, Any]) -> list[tuple[str, str]]:
    start = datetime.fromisoformat(incident["start"])
    window = {
        "from": (start - AROUND).isoformat(), "to": (start + AROUND).isoformat(), "limit": MOST_LINES,
        "host": ",".join(incident.get("hosts") or []),
    }  # fmt: skip
    name = quote(incident["id"])
    paths = (
        "/api/v1/incidents?limit=50",
        f"/api/v1/incidents/{name}",
        f"/api/v1/axis/{name}",
        f"/api/v1/lines?{urlencode(window)}",
    )
    return list(zip(ASKED, paths, strict=True))


def _part(times: list[float], part: float) -> float:
    """The time below which this fraction of all is."""
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]
