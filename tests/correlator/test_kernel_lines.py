"""The value of a kernel line at a place where any user of the host can write one.

erin's job 45 fails on gx02, and nothing shows why. What ``logger -t kernel`` writes to /var/log/syslog must not decide
that.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import polars as pl
import pytest

from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.gather import kernel_lines
from correlator.live.ticker import Ticker
from store import open_store
from tests.correlator.attacked import _TREE
from tests.line_parser import line_parser

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
SYSLOG, KERN, RING = "nodes/gx02/syslog", "nodes/gx02/kern.log", "nodes/gx02/dmesg"


def bsd(clock: str, text: str) -> str:
    return f"Feb 28 {clock} gx02 {text}\n"


def uptime(clock: str, boot: str = "08:00:00") -> str:
    """The uptime that the kernel of a host booted at that time puts before its messages."""
    hours, minutes, seconds = (int(a) - int(b) for a, b in zip(clock.split(":"), boot.split(":"), strict=True))
    return f"[{hours * 3600 + minutes * 60 + seconds}.000100]"


def stamped(clock: str, text: str, boot: str = "08:00:00") -> str:
    return bsd(clock, f"kernel: {uptime(clock, boot)} {text}")


QUIET = "audit: backlog limit exceeded"
#: The kernel of gx02 writes an uptime into every line, or into none.
WITH_UPTIMES = "".join(stamped(f"09:4{n}:00", QUIET) for n in range(4))
WITHOUT = "".join(bsd(f"09:4{n}:00", f"kernel: {QUIET}") for n in range(4))
BARE = bsd("10:19:55", f"kernel: {XID}")
FITTING = stamped("10:19:55", XID)
#: dmesg -T of a time before and after.
RING_ALIVE = "".join(f"[Sat Feb 28 {clock} 2026] {QUIET}\n" for clock in ("09:40:00", "10:22:00"))


class Case(NamedTuple):
    """``files``: what is added to the small cluster; ``at_most``: the confidence that a GPU is blamed with, None if
    none is.

    ``doubt``: the doubt in the verdict.
    """

    files: dict[str, str]
    at_most: float | None
    doubt: str = ""


CASES = {
    "no uptime where the kernel writes one into every line": Case({SYSLOG: WITH_UPTIMES + BARE}, None),
    "no uptime, again and again": Case({SYSLOG: WITH_UPTIMES + BARE.replace("10:19:55", "10:05:00") + BARE}, None),
    "a kernel that writes none, and a forger who writes some": Case({SYSLOG: WITHOUT + 5 * stamped("09:50:00", QUIET) + BARE}, 0.7, "no uptime"),
    "a kernel that writes none": Case({SYSLOG: WITHOUT + BARE}, 0.7, "they carry no uptime"),
    "no other line of this kernel": Case({SYSLOG: BARE}, 0.7, "they carry no uptime"),
    "an uptime that fits": Case({SYSLOG: WITH_UPTIMES + FITTING}, 0.9, "which every user of the node can read as well"),
    "an uptime of no boot": Case({SYSLOG: WITH_UPTIMES + stamped("10:19:55", XID, "05:00:00")}, 0.7, "fits no boot"),
    "an uptime of a boot that lines of the old one outlive": Case(
        {SYSLOG: WITH_UPTIMES + stamped("10:17:00", QUIET) + stamped("10:19:55", XID, "10:10:00")}, 0.7, "fits no boot"
    ),
    "the words of a boot after its first": Case(
        {SYSLOG: WITH_UPTIMES + 2 * stamped("10:19:50", QUIET, "10:19:00") + stamped("10:19:55", XID, "10:19:00")}, 0.9, "fits"
    ),
    "an uptime of a boot that wrote nothing else": Case(
        {SYSLOG: WITH_UPTIMES + stamped("10:19:55", XID, "10:19:05")}, 0.7, "fits no boot"
    ),
    "the ring of that time was collected": Case({RING: RING_ALIVE, SYSLOG: WITH_UPTIMES + FITTING}, 0.5, "does not hold them"),
    "the ring of that time, and facility kern": Case(
        {RING: RING_ALIVE, KERN: WITH_UPTIMES + FITTING}, 0.5, "does not hold them"
    ),
    "facility kern without the uptime of all others": Case({KERN: WITH_UPTIMES + BARE}, None),
    "facility kern and an uptime of no boot": Case(
        {KERN: WITH_UPTIMES + stamped("10:19:55", XID, "05:00:00")}, 0.7, "fits no boot"
    ),
    "facility kern": Case({KERN: WITH_UPTIMES + FITTING}, 1.0),
    "a copy in kern.log": Case({SYSLOG: WITHOUT + BARE, KERN: WITHOUT + BARE}, 1.0),
    "a copy in the kernel's ring": Case(
        {SYSLOG: FITTING, "nodes/gx02/dmesg": f"[Sat Feb 28 10:19:55 2026] {XID}\n"}, 1.0
    ),
    "a copy in the ring of a host whose clock was set": Case(
        {"nodes/gx02/dmesg": RING_ALIVE + f"[Sat Feb 28 10:22:58 2026] {XID}\n", SYSLOG: WITH_UPTIMES + FITTING}, 1.0
    ),
    "the facility was kept": Case(
        {SYSLOG: f"2026-02-28T10:19:55+00:00 2026-02-28T10:19:55+00:00 gx02 kern.err kernel: {XID}\n"}, 1.0
    ),
    "the priority was kept": Case({SYSLOG: "<3>" + BARE}, 1.0),
}  # fmt: skip


def concluded(files: dict[str, str], live: bool = False) -> dict[str, Any]:
    """The conclusions about the small cluster with these files; ``live``: line by line, with a tick after each."""
    with TemporaryDirectory() as folder, open_store(None) as store:
        root = Path(folder)
        for name, text in {**_TREE, **({} if live else {n: _TREE.get(n, "") + t for n, t in files.items()})}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        reader = Ingest(store, parser=line_parser())
        reader.run([root])
        if not live:
            correlate(store)
            return result(store)
        ticker = Ticker(store)
        ticker.tick()
        for name, text in files.items():
            for line in text.splitlines(keepends=True):
                with (root / name).open("a", encoding="utf-8") as file:
                    file.write(line)
                reader.run([root])
                ticker.tick()
        return result(store)


def of_erin(found: dict[str, Any]) -> dict[str, Any]:
    verdict: dict[str, Any] = found["verdicts"]["45"]
    return verdict


@pytest.mark.parametrize("live", [False, True], ids=["at once", "by ticks"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_a_kernels_line_is_worth(case: Case, live: bool) -> None:
    found = concluded(case.files, live)
    verdict = of_erin(found)
    if case.at_most is None:
        assert not verdict["category"].startswith("infra."), verdict["category"]
        assert not any("gx02" in i["hosts"] for i in found["incidents"])
        return
    assert verdict["category"] == "infra.gpu" and verdict["confidence"] <= case.at_most
    stated = " ".join(verdict["doubts"])
    assert ("where anybody on gx02 can write" in stated) == (case.at_most < 1.0), stated
    assert case.doubt in stated
    if case.at_most == 1.0:
        assert verdict["confidence"] > 0.9, "what proves itself is believed as before"
    (incident,) = (i for i in found["incidents"] if i["root_cause"]["host"] == "gx02")
    assert incident["confidence"] <= case.at_most and (case.doubt in " ".join(incident["doubts"]))


LINK = "mlx5_core 0000:c4:00.0 eth0: Link down"


@pytest.mark.parametrize(
    ("more", "sure"),
    [
        ({}, False),
        ({"switches/leaf1/syslog": "Feb 28 10:19:50 leaf1 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet2, changed state to down\n"}, True),
    ],
    ids=["alone", "the switch saw it"],
)  # fmt: skip
def test_who_else_reports_it_takes_the_doubt_away(more: dict[str, str], sure: bool) -> None:
    text = stamped("10:19:50", LINK)
    found = concluded({SYSLOG: WITH_UPTIMES + text, **more})
    (incident,) = (i for i in found["incidents"] if i["root_cause"]["host"] == "gx02")
    assert ("where anybody on gx02 can write" not in " ".join(incident["doubts"])) == sure, incident["doubts"]


def test_slurmctld_s_record_of_what_followed_takes_the_doubt_away() -> None:
    """carol's job 43: the link of gx03 is in syslog only, and slurmctld gave the node up a minute later."""
    verdict = concluded({})["verdicts"]["43"]
    assert verdict["category"] == "infra.network" and verdict["confidence"] > 0.9
    assert "can write" not in " ".join(verdict["doubts"])


def test_a_line_without_proof_is_kept() -> None:
    with TemporaryDirectory() as folder, open_store(None) as store:
        (Path(folder) / "syslog").write_text(WITH_UPTIMES + BARE)
        Ingest(store, parser=line_parser()).run([Path(folder)])
        correlate(store)
        assert [r["message"] for r in store.rows("SELECT message FROM raw.log_view WHERE event = 'gpu.xid'")] == [XID]


@pytest.mark.parametrize(
    ("source", "facility", "form", "file", "known"),
    [
        ("kernel", None, "rfc3164", "nodes/a/syslog", "name"),
        ("kernel", None, "rfc3164", "a:/var/log/messages", "name"),
        ("kernel", None, "json", "a:/var/log/containers/x.log", "name"),
        ("kernel", None, "rfc3164", None, "name"),
        ("kernel", "kern", "rfc3164", "nodes/a/syslog", "facility"),
        ("kernel", None, "rfc3164", "nodes/a/kern.log", "facility"),
        ("kernel", None, "rfc3164", "a:/var/log/kern.log.1", "facility"),
        ("kernel", None, "kmsg", "nodes/a/kmsg", ""),
        ("kernel", None, "dmesg", "nodes/a/dmesg", ""),
        ("kernel", "kern", "journald", "journal:a", ""),
        ("syslog", None, "rfc3164", "nodes/a/syslog", ""),
        (None, None, None, None, ""),
    ],
)
def test_by_what_a_line_is_known(source: str | None, facility: str | None, form: str | None, file: str | None, known: str) -> None:  # fmt: skip
    row = {"source": source, "facility": facility, "format": form, "file": file}
    other = {"source": "kernel", "facility": "kern", "format": "rfc3164", "file": "x"}
    frame = pl.DataFrame([row, other], schema=kernel_lines.COLUMNS)
    assert kernel_lines.known_by(frame) == [known, "facility"] and kernel_lines.known_by_of(row) == known
