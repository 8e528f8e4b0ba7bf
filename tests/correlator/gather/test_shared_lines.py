"""What a line is worth that others than its program can have written: in a daemon's name in a syslog file, from an address
that nobody knows, or from a shipper that names no file.

erin's job 45 fails on gx02, and nothing else shows why.
"""

from __future__ import annotations

import json
import re
from itertools import product
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import polars as pl
import pytest
import sqlalchemy as sa

from collector.decoding import _rows
from collector.ingest import Ingest
from collector.receivers import all_receivers
from collector.receivers.base import Decoded, Payload, micros
from correlator.engine import correlate, result
from correlator.evidence.exposure import between, other_now
from correlator.gather.presence import WhoWasThere
from correlator.live.ticker import Ticker
from correlator.model.nouns import Run
from correlator.site.senders import RELAYS_SETTING, SENDING_SETTING, USERS_SETTING
from store import open_store
from store.door import Door
from store.line_frames import logs_for_storage
from store.tables import LINES
from tests.correlator.attacked import _TREE, write
from tests.correlator.erins_job import (
    CONFIRMED,
    HERS,
    SACCT,
    SHARED,
    SYSLOG,
    XID,
    begun,
    bobs_job,
    bring_in,
    bsd,
    busy,
    concluded,
    in_both_ways,
    of_erin,
)
from tests.correlator.liars import roots, said
from tests.correlator.rows import answer
from tests.line_parser import line_parser

LOST = "Unable to determine the device handle for GPU3: 0000:5e:00.0: Unknown Error"
DAEMONS = bsd("10:19:55", f"nv-fabricmanager[77]: {LOST}")
OWN_FILE = f"[Feb 28 2026 10:19:55] [ERROR] [tid 77] {LOST}\n"
OTHERS = "jobs of several users were on gx02"


class Case(NamedTuple):
    """``tree``: whose job 42 ran there as well; ``at_most``: the confidence that a GPU of gx02 is blamed with, None if none
    is."""

    files: dict[str, str]
    tree: dict[str, str]
    at_most: float | None
    doubt: str = ""


CASES = {
    "of the user alone": Case({SYSLOG: DAEMONS}, HERS, None, "a user's job was on gx02"),
    "of the user alone, on a node that slurmctld gives up": Case({SYSLOG: DAEMONS}, CONFIRMED, 1.0),
    "beside another user's job": Case({SYSLOG: DAEMONS}, SHARED, None, OTHERS),
    "before another user's job": Case(
        {SYSLOG: DAEMONS}, bobs_job("10:22:00", "10:24:00"), None, "a user's job was on gx02"
    ),
    "with a copy in the daemon's own file": Case(
        {SYSLOG: DAEMONS, "nodes/gx02/fabricmanager.log": OWN_FILE}, SHARED, 1.0
    ),
}


@pytest.mark.parametrize(("name", "live"), in_both_ways(CASES, {"beside another user's job"}))
def test_what_a_line_in_a_daemons_name_is_worth(name: str, live: bool) -> None:
    case = CASES[name]
    found = concluded(case.files, live, case.tree)
    verdict = of_erin(found)
    doubts = " ".join(verdict["doubts"])
    assert case.doubt in doubts
    if case.at_most is None:
        assert (
            verdict["category"] == ("app.error" if case.doubt == OTHERS else "unknown") and "does not count" in doubts
        )
        assert not [i for i in found["incidents"] if i["root_cause"]["host"] == "gx02"]
        return
    assert verdict["category"] == "infra.gpu" and verdict["confidence"] <= case.at_most
    if case.at_most == 1.0:
        assert verdict["confidence"] > 0.9 and "can write" not in doubts
        return
    (incident,) = (i for i in found["incidents"] if i["root_cause"]["host"] == "gx02")
    assert incident["confidence"] <= case.at_most
    assert "the daemon's own log" in doubts.lower()


@pytest.mark.long
@pytest.mark.parametrize(
    "start", ["10:01:00", pytest.param("10:22:00", marks=pytest.mark.long)], ids=["there at that time", "there later"]
)
def test_a_second_user_who_becomes_known_later_decides_again(start: str) -> None:
    """Accounting comes late: a tick that reads only a part of the day says what a full pass says."""
    row = next(line for line in HERS[SACCT].splitlines(keepends=True) if line.startswith("42|"))
    late = row.replace("42|42|", "46|46|").replace("|erin|1005|", "|bob|1002|").replace("T10:00:00|", f"T{start}|")
    late = late.replace("T10:20:00|", "T19:00:00|")
    assert late.count(f"T{start}|") == 1 and "T19:00:00|" in late and "|bob|" in late
    tree = {**CONFIRMED, "nodes/gx04/syslog": busy(lambda hour, minute: "")}
    before = of_erin(concluded({SYSLOG: DAEMONS}, True, tree))
    after = of_erin(concluded({SYSLOG: DAEMONS, SACCT: late}, True, tree))
    assert before["category"] == "infra.gpu"
    if start < "10:20":
        assert after["category"] == "app.error" and OTHERS in " ".join(after["doubts"])
    else:
        assert said(after) == said(before)


@pytest.mark.parametrize(
    ("user", "node", "end", "moved"),
    [("bob", "gx02", 500.0, True), ("bob", "gx02", 200.0, False), ("bob", "gx03", 500.0, False), ("erin", "gx02", 500.0, False), ("root", "gx02", 500.0, False)],
)  # fmt: skip
def test_runs_that_crowd_a_host_move_the_effects_of_its_lines(user: str, node: str, end: float, moved: bool) -> None:
    hers, other = (
        Run(key, int(key), 0, "FAILED", (at,), 0.0, 0.0, until, {"user": whose})
        for key, at, until, whose in (("45", "gx02", 900.0, "erin"), ("46", node, end, user))
    )
    looks = WhoWasThere.of({(300.0, "gx02"), (400.0, "gx02"), (10.0, "gx04")}, 30.0)
    found = other_now(looks, [hers], [hers, other], 800.0)
    assert found == (270.0 if moved else inf)
    elsewhere = other_now(looks, [], [other], 800.0, lambda since: [hers])
    assert elsewhere == found, "hers did not change, and counts as well"
    assert other_now(between(looks, 300.0, inf), [hers], [hers, other], 800.0) == (370.0 if moved else inf)


def concluded_again(store: Door, ticker: Ticker | None) -> dict[str, Any]:
    """The conclusions after a tick, or without a ticker after a full pass."""
    if ticker is None:
        correlate(store)
    else:
        ticker.tick()
    return result(store)


def _verdicts(found: dict[str, Any]) -> dict[str, Any]:
    return {key: said(verdict) for key, verdict in found["verdicts"].items()}


def sent(store: Door, address: str, text: str) -> None:
    """Stores what the receiver of syslog makes of ``text`` from this address."""
    known = {"received": micros("2026-02-28T10:20:05Z"), "parts": [[address, False, "udp", len(text.encode()), False, "UTC"]]}  # fmt: skip
    _store(store, "syslog", text.encode(), known)


def shipped(store: Door, text: str) -> None:
    """Stores what the receiver of Loki's protocol makes of ``text`` from a stream that names no file."""
    pushed = {"streams": [{"stream": {"host": "gx02"}, "values": [["1772273995000000000", text]]}]}
    _store(store, "loki", json.dumps(pushed).encode(), {"received": micros("2026-02-28T10:20:05Z"), "form": "json"})


def _store(store: Door, kind: str, body: bytes, known: dict[str, Any]) -> None:
    into = Decoded()
    all_receivers()[kind].decode(Payload(body, known), into)
    for group in into.groups.values():
        rows = pl.concat(_rows(group, line_parser())).drop("_transport")
        store.append({"logs": logs_for_storage(rows.with_columns(cluster=rows["cluster"].fill_null("c")))})


UNKNOWN, OWN, RELAY = "10.9.9.9", "10.0.0.2", "10.0.0.200"
PACKET = f"<2>Feb 28 10:19:55 gx02 kernel: {XID}\n"


#: A relay's lines are judged as the host's own are.
@pytest.mark.one_of_each(
    kind=lambda address, closed, category: (address, closed, address == OWN and category == "infra.gpu")
)
@pytest.mark.parametrize("live", [False, pytest.param(True, marks=pytest.mark.long)], ids=["at once", "by ticks"])
@pytest.mark.parametrize(
    ("address", "tree", "closed", "category", "why"),
    [
        (UNKNOWN, HERS, True, "app.error", "anybody can have sent it"),
        (OWN, HERS, False, "unknown", "a user's job was on gx02"),
        (OWN, SHARED, False, "app.error", OTHERS),
        (OWN, CONFIRMED, False, "infra.gpu", ""),
        (OWN, SHARED, True, "infra.gpu", ""),
        (RELAY, SHARED, False, "app.error", OTHERS),
        (RELAY, CONFIRMED, False, "infra.gpu", ""),
        (RELAY, HERS, False, "unknown", "a user's job was on gx02"),
        ("127.0.0.1", HERS, False, "app.error", "a user's job was on gx02"),
    ],
    ids=[
        "an unknown address", "its own address", "its own, beside another user's job", "its own, of a node that slurmctld gives up",
        "its own, where only root sends", "a relay", "a relay, of a node that slurmctld gives up",
        "a relay, of her own node", "the log daemon beside Faultline",
    ],
)  # fmt: skip
def test_a_packet_that_a_user_can_send_blames_nothing(
    address: str, tree: dict[str, str], closed: bool, category: str, why: str, live: bool
) -> None:
    settings = {RELAYS_SETTING: [RELAY], SENDING_SETTING: not closed}
    with open_store(None) as store:
        begun(store, tree)
        ticker = Ticker(store, settings=settings)
        if live:
            ticker.tick()
        sent(store, address, PACKET)
        if live:
            ticker.tick()
            ticked = answer(store)
        correlate(store, settings=settings)
        assert not live or ticked == answer(store), "a tick says what a full pass says"
        verdict = of_erin(result(store))
    stated = " ".join(verdict["doubts"])
    assert verdict["category"] == category
    if category != "infra.gpu":
        assert "does not count" in stated and why in stated, stated
        return
    assert verdict["root_cause"]["host"] == "gx02"
    assert verdict["confidence"] > 0.5 and "does not count" not in stated


@pytest.mark.parametrize(
    ("clock", "live"),
    [
        pytest.param("10:19:56", False, id="a copy, at once"),
        pytest.param("10:18:30", False, id="another line, at once"),
        pytest.param("10:19:56", True, id="a copy, by ticks", marks=pytest.mark.long),
        pytest.param("10:18:30", True, id="another line, by ticks", marks=pytest.mark.long),
    ],
)
def test_what_counts_for_nothing_supports_no_other_line(clock: str, live: bool) -> None:
    """bob sends a packet in the name of the kernel of gx02, and writes the same with ``logger`` beside erin's job."""
    with open_store(None) as store:
        begun(store, SHARED)
        ticker = Ticker(store)
        if live:
            ticker.tick()
        sent(store, UNKNOWN, PACKET)
        with TemporaryDirectory() as folder:
            write(Path(folder), {SYSLOG: _TREE[SYSLOG] + bsd(clock, f"kernel: {XID}")})
            Ingest(store, parser=line_parser()).run([Path(folder)])
        if live:
            ticker.tick()
            ticked = answer(store)
        correlate(store)
        assert not live or ticked == answer(store), "a tick says what a full pass says"
        verdict = of_erin(result(store))
    assert verdict["category"] == "app.error" and OTHERS in " ".join(verdict["doubts"])


def test_a_ring_that_a_shipper_sent_without_a_file_blames_nothing() -> None:
    with open_store(None) as store:
        begun(store, HERS)
        shipped(store, f"[Sat Feb 28 10:19:55 2026] {XID}")
        correlate(store)
        verdict = of_erin(result(store))
    assert verdict["category"] == "app.error"
    assert "does not count: anybody can have sent it" in " ".join(verdict["doubts"])


EXPIRED = "<27>Feb 28 10:19:55 gx02 slurmd[77]: error: Munge decode failed: Expired credential\n"
CRASHED = '<186>Feb 28 10:10:50 leaf1 %SYSMGR-2-SERVICE_CRASHED: Service "ethpm" (PID 3111) hasn\'t caught signal 11 (core will be saved).\n'
LOST_TOO = "".join(
    f"[Sat Feb 28 10:{clock} 2026] mlx5_core 0000:c4:00.0 eth0: Link {how}\n"
    for clock, how in (("10:55", "down"), ("14:00", "up"))
)


@pytest.mark.parametrize(
    ("packet", "job", "live"),
    [
        pytest.param(EXPIRED, "45", True, id="as slurmd, by ticks"),
        pytest.param(CRASHED, "43", False, id="as a switch, at once"),
        pytest.param(EXPIRED, "45", False, id="as slurmd, at once", marks=pytest.mark.long),
        pytest.param(CRASHED, "43", True, id="as a switch, by ticks", marks=pytest.mark.long),
    ],
)
def test_a_packet_of_an_unknown_address_changes_no_verdict(packet: str, job: str, live: bool) -> None:
    """erin's job 45 fails on gx02 for an unknown reason, carol's 43 by the link of gx03 at leaf1. gx04 lost its link too."""
    with open_store(None) as store:
        bring_in(store, {"nodes/gx04/dmesg": LOST_TOO}, False, HERS, answer)
        ticker = Ticker(store)
        if live:
            ticker.tick()
        before = result(store)
        sent(store, UNKNOWN, packet)
        after = concluded_again(store, ticker if live else None)
        (stored,) = store.ask(sa.select(LINES.c.event).where(LINES.c.file.like("syslog:%")))
    assert stored["event"] in ("slurm.comm_error", "switch.hw_error"), "it is stored, and can be searched for"
    assert job in before["verdicts"]
    assert _verdicts(after) == _verdicts(before)
    assert roots(after) == roots(before)


#: bob's job 42 runs on gx03, where carol's job 43 ends with the link: the kernel's ring has it.
ON_GX03 = {
    SACCT: re.sub(r"(?m)^(42\|.*)\|gx02\|", r"\1|gx03|", SHARED[SACCT]),
    "controller/slurmctld.log": _TREE["controller/slurmctld.log"].replace("JobId=42 NodeList=gx02", "JobId=42 NodeList=gx03"),
}  # fmt: skip
GENUINE = {"nodes/gx03/dmesg": "[Sat Feb 28 10:10:55 2026] mlx5_core 0000:c4:00.0 eth0: Link down\n"}


#: What bob writes with ``logger``: node, time and words.
LIES = {
    "munge, as slurmd": ("gx02", "10:19:55", "slurmd[77]: error: Munge decode failed: Expired credential"),
    "a credential, as slurmd": ("gx02", "10:19:55", "slurmd[77]: error: Invalid job credential from 1001@10.0.0.1: Job credential revoked"),
    "an invalid opcode, as the kernel": ("gx03", "10:10:50", "kernel: invalid opcode: 0000 [#1] SMP NOPTI"),
    "a stall, as the kernel": ("gx03", "10:10:50", "kernel: rcu: INFO: rcu_sched self-detected stall on CPU"),
}  # fmt: skip


#: One as slurmd and one as the kernel.
@pytest.mark.one_of_each(kind=lambda name: LIES[name][0])
@pytest.mark.parametrize(("name", "live"), in_both_ways(LIES, ()))
def test_logger_beside_another_users_job_changes_nothing(name: str, live: bool) -> None:
    host, clock, words = LIES[name]
    tree, known = (SHARED, {}) if host == "gx02" else (ON_GX03, GENUINE)
    before = concluded(known, live, tree)
    after = concluded({**known, f"nodes/{host}/syslog": f"Feb 28 {clock} {host} {words}\n"}, live, tree)
    assert _verdicts(after) == _verdicts(before)
    assert roots(after) == roots(before)


#: What users say of the clock of gx03, where carol's job 43 ends with the link.
CLOCKS = {
    "as slurmd, of a file": "slurmd[77]: error: The modification time of /var/spool/slurmctld/job_state moved backwards by 250 seconds",
    "as the time daemon": "chronyd[77]: System clock wrong by 250.5 seconds",
}  # fmt: skip


#: What ``make test`` takes of all combinations: each of the words and each of the places.
_SOME = {("as slurmd, of a file", "nodes/gx03/syslog", False), ("as the time daemon", "udp", False)}


@pytest.mark.parametrize(
    ("words", "place", "live"),
    [
        pytest.param(*way, marks=() if way in _SOME else pytest.mark.long)
        for way in product(CLOCKS, ("nodes/gx03/syslog", "udp"), (False, True))
    ],
)
def test_no_user_sets_a_clock(words: str, place: str, live: bool) -> None:
    line = f"Feb 28 10:05:00 gx03 {CLOCKS[words]}\n"
    with open_store(None) as store:
        bring_in(store, GENUINE, False, ON_GX03, answer)
        ticker = Ticker(store)
        if live:
            ticker.tick()
        before = result(store)
        if place == "udp":
            sent(store, UNKNOWN, f"<27>{line}")
        else:
            with TemporaryDirectory() as folder:
                write(Path(folder), {place: _TREE.get(place, "") + line})
                Ingest(store, parser=line_parser()).run([Path(folder)])
        after = concluded_again(store, ticker if live else None)
        events = store.ask(sa.select(LINES.c.event).where(LINES.c.event == "sys.clock"))
    assert len(events) == 1
    assert _verdicts(after) == _verdicts(before)
    assert roots(after) == roots(before) and "The clock of" not in json.dumps(after)


@pytest.mark.parametrize("live", [pytest.param(False, marks=pytest.mark.long), True], ids=["at once", "by ticks"])
def test_where_users_cannot_write_to_syslog_its_lines_count(live: bool) -> None:
    """But a packet of an unknown address still counts for nothing."""
    settings = {USERS_SETTING: False}
    with open_store(None) as store:
        begun(store, SHARED)
        ticker = Ticker(store, settings=settings)
        ticker.tick()
        sent(store, UNKNOWN, PACKET)
        ticker.tick()
        assert of_erin(result(store))["category"] == "app.error"
        with TemporaryDirectory() as folder:
            write(Path(folder), {SYSLOG: _TREE[SYSLOG] + DAEMONS})
            Ingest(store, parser=line_parser()).run([Path(folder)])
        if live:
            ticker.tick()
            ticked = answer(store)
        correlate(store, settings=settings)
        assert not live or ticked == answer(store), "a tick says what a full pass says"
        verdict = of_erin(result(store))
        assert verdict["category"] == "infra.gpu" and verdict["confidence"] > 0.9
        assert "can write" not in " ".join(verdict["doubts"])
