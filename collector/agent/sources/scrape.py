"""Prometheus text from exporters on this host: dcgm-exporter, node_exporter, a switch agent."""

from __future__ import annotations

import fnmatch
import http.client
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from collector.agent import wire
from collector.agent.failure import Missing
from collector.agent.source import Context, Reading, SourceKind

_MOST_BYTES = 8 * 1024 * 1024
_HOSTNAME = re.compile(r'[{,]\s*Hostname\s*=\s*"([^"\\]*)"')


@dataclass
class Scrape:
    """``keep``: globs of metric names; a node exporter has thousands, and a verdict needs a handful. ``own_only``: samples
    whose label ``Hostname`` names another node are not taken, and the status says so."""

    context: Context
    urls: list[str]
    keep: list[str]
    timeout_s: float
    interval: float
    own_only: bool = False

    def open(self, positions: Mapping[str, Any]) -> None:
        if not self.urls:
            raise Missing('no urls are configured ([sources.scrape] urls = ["http://127.0.0.1:9400/metrics"])')

    def poll(self) -> Iterator[Reading]:
        refused = []
        for url in self.urls:
            try:
                text = self._get(url)
            except (OSError, http.client.HTTPException) as error:
                refused.append(f"{url}: {error or type(error).__name__}")
                continue
            # The text after the last line end is truncated: half a number is a different number.
            kept = [line for line in text[: text.rfind("\n") + 1].splitlines() if self._wanted(line)]
            if self.own_only and (others := [line for line in kept if not self._is_own(line)]):
                # A load balancer chose another node's exporter: its GPUs would be this node's.
                refused.append(f"{url}: {len(others)} samples of another node: {others[0][:200]}")
                kept = [line for line in kept if self._is_own(line)]
            if kept:
                now = self.context.now()
                body = wire.document(
                    "prometheus", "\n".join(kept) + "\n", "scrape", now, host=self.context.host, path=url
                )
                yield Reading(body, len(kept))
        if refused:
            raise Missing("; ".join(refused))

    def _wanted(self, line: str) -> bool:
        if not line or line.startswith("#"):
            return False
        name = line.partition("{")[0].partition(" ")[0]
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.keep)

    def _is_own(self, line: str) -> bool:
        """Whether a sample is of this node, by the label ``Hostname`` of dcgm-exporter; without one, it counts as such."""
        label = _HOSTNAME.search(line)
        if label is None:
            return True
        names = self.context.node_names
        return self.context.host in (
            label[1],
            label[1].split(".")[0],
            names.get(label[1]),
            names.get(label[1].split(".")[0]),
        )

    def _get(self, url: str) -> str:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        asked = kind(parts.hostname or "127.0.0.1", parts.port, timeout=self.timeout_s)
        try:
            asked.request("GET", (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else ""))
            answer = asked.getresponse()
            data = answer.read(_MOST_BYTES + 1)
            if answer.status != 200:
                raise OSError(f"HTTP {answer.status}")
            if len(data) > _MOST_BYTES:
                raise OSError(f"more than {_MOST_BYTES} bytes")
            return data.decode("utf-8", "replace")
        finally:
            asked.close()

    def close(self) -> None:
        """Nothing is held open."""


def _make(context: Context, options: Mapping[str, Any]) -> Scrape:
    return Scrape(
        context, options["urls"], options["keep"], options["timeout_s"], options["every_s"], options["own_only"]
    )


SOURCE = SourceKind(
    "scrape", _make, {"urls": [], "keep": ["DCGM_*"], "timeout_s": 5.0, "every_s": 30.0, "own_only": False},
    reads="Prometheus text of exporters on this host (dcgm-exporter in place of NVML)",
    costs="one HTTP request per exporter every 30 s",
    blind_to="events between two scrapes; metrics that no glob of keep matches",
)  # fmt: skip
