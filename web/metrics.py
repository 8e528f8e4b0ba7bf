"""Prometheus text from a few counters kept in this process. Small enough not to need a library."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import ClassVar


def escape(value: str) -> str:
    """A label value as the exposition format wants it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Counters:
    """Thread-safe counters with labels; ``render`` prints them with help and type lines."""

    HELP: ClassVar[dict[str, str]] = {
        "faultline_http_requests_total": "Requests answered, by route and status.",
        "faultline_http_seconds_total": "Seconds spent answering, by route.",
        "faultline_queries_total": "KQL queries, by outcome.",
        "faultline_query_seconds_total": "Seconds spent in KQL queries.",
    }

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Lines of others, made when asked: what stands in the spool is no counter of this room.
        self.more: list[Callable[[], str]] = []
        self._values: dict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(lambda: defaultdict(float))

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        with self._lock:
            self._values[name][tuple(sorted(labels.items()))] += amount

    def render(self) -> str:
        out: list[str] = []
        with self._lock:
            for name in sorted(self._values):
                out += [f"# HELP {name} {self.HELP.get(name, name)}", f"# TYPE {name} counter"]
                for labels, value in sorted(self._values[name].items()):
                    inside = ",".join(f'{key}="{escape(text)}"' for key, text in labels)
                    out.append(f"{name}{{{inside}}} {value:g}" if inside else f"{name} {value:g}")
        return "\n".join(out) + "\n" + "".join(made() for made in self.more)
