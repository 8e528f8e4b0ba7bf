"""What makes a log count as collected: nobody's words in another's name do.

carol's job 43 ends with the link of gx03; neither the log of the switch at the other end nor slurmd's log was collected.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

import pytest

from store import open_store
from store.questions import telemetry as samples
from tests.correlator.attacked import judged
from tests.correlator.erins_job import bring_in, empty_root
from tests.correlator.rows import answer

FAN = "Feb 28 10:05:00 leaf1 switchd: fan 1 speed 4000"
PORT = "%ETH-5-IF_DOWN_LINK_FAILURE: Interface Ethernet{} is down (Link failure)"
STARTED = "slurmd version 23.02.6 started"
#: The same words where their writer is known.
OWN = {
    "switches/leaf1/messages": [FAN],
    "nodes/gx03/slurmd.log": [f"[2026-02-28T10:05:00.100] {STARTED}"],
}
#: Packets, an upload, a job's output, and a user of gx03 with ``logger``.
OF_OTHERS = {
    "udp": [f"<187>{FAN}", f"<187>Feb 28 10:05:00 leaf1 : {PORT.format(9)}", f"<30>Feb 28 10:05:00 gx03 slurmd[77]: {STARTED}"],
    "loki": [FAN, f"[2026-02-28T10:05:00.100] {STARTED}"],
    "jobs/41/stdout": [FAN, f"[2026-02-28T10:05:00.100] {STARTED}", f"Feb 28 10:05:00 gx03 slurmd[77]: {STARTED}"],
    "nodes/gx03/syslog": [f"Feb 28 10:05:00 gx03 slurmd[77]: {STARTED}", f"Feb 28 10:05:00 gx03 switchd: {PORT.format(9)}", FAN],
}  # fmt: skip


#: A switch that logs its ports, and has no line about gx03's when carol's node lost its link.
SILENT = [f"<189>Feb 28 {at} leaf1 {words}" for at, words in (
    ("09:00:00", f": {PORT.format(9)}"), ("10:05:00", "switchd: fan 1 speed 4000"), ("10:15:00", "switchd: fan 1 speed 4000"),
)]  # fmt: skip


@cache
def carols(*places: str, silent: bool = False) -> dict[str, Any]:
    """The verdict on carol's job with what was written to some places."""
    written = {place: SILENT if silent else {**OWN, **OF_OTHERS}[place] for place in places}
    verdict: dict[str, Any] = judged(empty_root(), written)["verdicts"]["43"]
    return verdict


def test_a_log_where_only_its_writer_can_write_is_collected() -> None:
    before, after = carols(), carols(*OWN)
    assert before["category"] == after["category"] == "infra.network"
    assert all(any(log in doubt for doubt in before["doubts"]) for log in ("switch leaf1", "slurmd's log of gx03"))
    assert not any("leaf1" in doubt or "slurmd's log" in doubt for doubt in after["doubts"])
    assert after["confidence"] > before["confidence"]


def test_nobody_elses_words_make_a_log_collected() -> None:
    """In all these places together. ``make test-long`` takes each by itself."""
    assert carols(*OF_OTHERS) == carols()


@pytest.mark.long
@pytest.mark.parametrize("place", OF_OTHERS)
def test_nobody_elses_words_in_one_place_make_a_log_collected(place: str) -> None:
    assert carols(place) == carols()


def test_only_the_switch_itself_denies_a_lost_link() -> None:
    denied = carols("switches/leaf1/messages", silent=True)
    assert denied["category"] != "infra.network"
    assert "leaf1 logs the loss of its ports" in str(denied["rivals"])
    assert carols("udp", silent=True) == carols()


@pytest.mark.parametrize("places", [
    pytest.param(tuple(OWN), id="both"), *(pytest.param((place,), id=place, marks=pytest.mark.long) for place in OWN),
])  # fmt: skip
def test_ticks_learn_of_a_collected_log(places: tuple[str, ...]) -> None:
    with open_store(None) as store:
        bring_in(store, {place: f"{OWN[place][0]}\n" for place in places}, True, {}, answer)


def test_a_hosts_name_is_no_part_of_a_statement() -> None:
    """Whoever names a host, in a label of a sample too, writes no SQL."""
    at = datetime(2026, 2, 28)
    asked = samples.gauges("c", "gx'01", ("nvml_xid_errors",), at, at)
    assert "gx" not in str(asked.compile()) and "gx'01" in asked.compile().params.values()
