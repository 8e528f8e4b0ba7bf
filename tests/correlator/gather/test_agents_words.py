"""What a node's agent states itself, in the kernel's name and without its clock: Xids of NVML, links, ports.

Root asked the driver or the kernel for it. Before, it was taken for a user's forgery wherever the node's syslog has the
kernel's uptimes, and reported as one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector.decoding import _rows
from collector.ingest import Ingest
from collector.receivers import all_receivers
from collector.receivers.base import Decoded, Payload, micros
from correlator.engine import correlate, result
from correlator.gather.kernel_lines import NAME, RING, known_by_of
from correlator.live.ticker import Ticker
from parsers.writers import ROOT, UNVERIFIED
from queries.kql import run
from store import open_store
from store.door import Door
from store.line_frames import logs_for_storage
from tests.correlator.attacked import _TREE, write
from tests.correlator.erins_job import HERS, SYSLOG, WITH_UPTIMES, XID, of_erin
from tests.line_parser import line_parser

AT = "2026-02-28T10:19:55Z"


def told(store: Door, stream: str, line: str) -> None:
    """Stores a line that gx02's agent sent."""
    body = (
        json.dumps(
            {
                "host": "gx02",
                "cluster": "c",
                "stream": stream,
                "source": "kernel",
                "time": AT,
                "read": AT,
                "lines": line,
            }
        )
        + "\n"
    )
    into = Decoded()
    all_receivers()["ingest"].decode(
        Payload(body.encode(), {"received": micros(AT), "peer": "10.9.9.9", "form": "records"}), into
    )
    for group in into.groups.values():
        store.add({"logs": logs_for_storage(pl.concat(_rows(group, line_parser())).drop("_transport"))})


@pytest.mark.parametrize("live", [False, True], ids=["at once", "by ticks"])
def test_an_xid_that_nvml_reports_counts_beside_a_syslog_with_uptimes(tmp_path: Path, live: bool) -> None:
    write(tmp_path, {**_TREE, **HERS, SYSLOG: _TREE.get(SYSLOG, "") + WITH_UPTIMES})
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([tmp_path])
        ticker = Ticker(store)
        if live:
            ticker.tick()
        told(store, "nvml", XID)
        ticker.tick() if live else correlate(store)
        verdict: dict[str, Any] = of_erin(result(store))
        assert (verdict["category"], verdict["root_cause"]["host"]) == ("infra.gpu", "gx02") and verdict[
            "confidence"
        ] > 0.9
        assert not [doubt for doubt in verdict["doubts"] if "claims" in doubt]
        assert run(store.cursor(), "Events | where Event == 'security.forged_evidence' | count").rows == [[0]]


@pytest.mark.parametrize("stream", ["nvml", "infiniband", "links"])
def test_it_is_the_agents_word_only_where_an_agent_sent_it(stream: str) -> None:
    line = {"source": "kernel", "format": "plain", "facility": None, "file": f"gx02:{stream}", "authority": ROOT}
    assert known_by_of(line) == RING
    for other in (
        {"authority": UNVERIFIED},
        {"file": f"gx02:/var/log/{stream}"},
        {"file": f"udp:10.0.0.1/gx02:{stream}"},
    ):
        assert known_by_of({**line, **other}) == NAME
