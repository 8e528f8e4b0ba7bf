"""The value of a kernel line at a place where any user of the host can write one.

erin's job 45 fails on gx02, and nothing shows why. What ``logger -t kernel`` writes to /var/log/syslog must not decide
that.
"""

from __future__ import annotations

import re
from dataclasses import replace
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
from tests.correlator.attacked import _TREE, write
from tests.correlator.erins_job import (
    BARE,
    CONFIRMED,
    FITTING,
    HERS,
    KERN,
    QUIET,
    RING,
    RING_ALIVE,
    SACCT,
    SHARED,
    SYSLOG,
    UNKNOWN,
    WITH_UPTIMES,
    WITHOUT,
    XID,
    bobs_job,
    bsd,
    busy,
    concluded,
    of_erin,
    ring,
    stamped,
)
from tests.correlator.making import event
from tests.correlator.rows import answer
from tests.line_parser import line_parser


class Case(NamedTuple):
    """``files``: what is added to the small cluster; ``at_most``: the confidence that a GPU is blamed with, None if
    none is.

    ``doubt``: the doubt in the verdict. All jobs on gx02 are erin's, and slurmctld gives it up later.
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
#: Cases of a rule that another case shows: ``make test`` leaves them to ``make test-long``.
AGAIN = {
    "no uptime, again and again", "no other line of this kernel", "an uptime of a boot that lines of the old one outlive",
    "the ring of that time, and facility kern", "facility kern and an uptime of no boot",
    "a copy in the ring of a host whose clock was set", "an uptime of a boot that wrote nothing else", "the priority was kept",
    "the words of a boot after its first", "facility kern without the uptime of all others", "a copy in kern.log",
}  # fmt: skip
#: Cases that ``make test`` gives to ticks too, ``make test-long`` all: one that a later file makes
#: less sure.
BY_TICKS = {"the ring of that time was collected"}


@pytest.mark.parametrize(
    ("name", "live"),
    [
        pytest.param(name, live, id=f"{name}-{'by ticks' if live else 'at once'}", marks=marks)
        for name in CASES
        for live in (False, True)
        for marks in [pytest.mark.long if live != (name in BY_TICKS) or name in AGAIN else ()]
    ],
)
def test_what_a_kernels_line_is_worth(name: str, live: bool) -> None:
    case = CASES[name]
    found = concluded(case.files, live, CONFIRMED)
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


OTHERS, ALONE = "jobs of several users were on gx02", "a user's job was on gx02"
WITH_BOB = {**CONFIRMED, SACCT: SHARED[SACCT]}


@pytest.mark.parametrize("live", [False, pytest.param(True, marks=pytest.mark.long)], ids=["at once", "by ticks"])
@pytest.mark.parametrize(
    ("files", "tree", "sure", "why"),
    [
        ({SYSLOG: WITH_UPTIMES + FITTING}, HERS, None, ALONE),
        ({SYSLOG: WITH_UPTIMES + FITTING}, CONFIRMED, 0.9, ""),
        ({SYSLOG: WITH_UPTIMES + FITTING}, SHARED, None, OTHERS),
        pytest.param({SYSLOG: WITH_UPTIMES + FITTING}, WITH_BOB, None, OTHERS, marks=pytest.mark.long),
        pytest.param({SYSLOG: WITH_UPTIMES + FITTING}, UNKNOWN, None, OTHERS, marks=pytest.mark.long),
        pytest.param({SYSLOG: WITHOUT + BARE}, HERS, None, ALONE, marks=pytest.mark.long),
        pytest.param({SYSLOG: WITHOUT + BARE}, SHARED, None, OTHERS, marks=pytest.mark.long),
        pytest.param({SYSLOG: WITH_UPTIMES + stamped("10:19:55", XID, "05:00:00")}, SHARED, None, OTHERS, marks=pytest.mark.long),
        pytest.param({KERN: WITH_UPTIMES + FITTING}, HERS, None, ALONE, marks=pytest.mark.long),
        pytest.param({KERN: WITH_UPTIMES + FITTING, SYSLOG: FITTING}, SHARED, None, OTHERS, marks=pytest.mark.long),
        pytest.param({KERN: WITH_UPTIMES + stamped("10:19:55", XID, "05:00:00")}, SHARED, None, OTHERS, marks=pytest.mark.long),
        pytest.param({SYSLOG: WITH_UPTIMES + FITTING}, bobs_job("10:00:00", "10:18:00"), None, ALONE, marks=pytest.mark.long),
        ({SYSLOG: WITH_UPTIMES + FITTING}, bobs_job("10:00:00", "10:19:20"), None, OTHERS),
        pytest.param({SYSLOG: WITH_UPTIMES + FITTING}, bobs_job("10:20:30", "10:40:00"), None, OTHERS, marks=pytest.mark.long),
        pytest.param({SYSLOG: WITH_UPTIMES + FITTING}, bobs_job("10:22:00", "10:40:00"), None, ALONE, marks=pytest.mark.long),
    ],
    ids=[
        "on her own node", "on her own node, which slurmctld gives up", "on a shared one", "on a shared one, which slurmctld gives up",
        "with nobody knows whose", "no uptime, on her own node", "no uptime, on a shared one", "of no boot, on a shared one",
        "facility kern, on her own node", "facility kern and a copy, on a shared one", "facility kern of no boot, on a shared one",
        "the other one had gone", "the other one had just gone", "the other one was just coming", "the other one came later",
    ],
)  # fmt: skip
def test_where_users_could_have_written_a_line_it_does_not_count(
    files: dict[str, str], tree: dict[str, str], sure: float | None, why: str, live: bool
) -> None:
    """``sure``: the confidence that a GPU is blamed with, None if none is, ``why``."""
    found = concluded(files, live, tree)
    verdict = of_erin(found)
    incidents = [i for i in found["incidents"] if i["root_cause"]["host"] == "gx02" and i["category"] == "infra.gpu"]
    stated = " ".join(verdict["doubts"])
    if sure is None:
        assert not incidents
        assert "claims gpu.xid" in stated and "does not count" in stated and why in stated, stated
        assert any(why in rival["rejected"] for rival in verdict["rivals"])
        before = of_erin(concluded({}, tree=tree))
        assert "journal of gx02: they show who wrote" in verdict["change_my_mind"]
        if why == OTHERS:
            assert stands(verdict)[:4] == stands(before)[:4]
        else:  # she may have forged it, or not: her program is not blamed, nor the node
            assert (before["category"], verdict["category"]) == (
                "app.error",
                "unknown",
            ) and "by itself, or by" in verdict["summary"]
        return
    assert (verdict["category"], verdict["confidence"]) == ("infra.gpu", sure)
    assert "does not count" not in stated
    assert [i["confidence"] for i in incidents] == [sure]


@pytest.mark.one_of_each(kind=lambda open_: open_)
@pytest.mark.parametrize(
    ("text", "open_"),
    [
        ("blk_update_request: I/O error, dev nvme0n1, sector 195351 op 0x0:(READ) flags 0x80700", True),
        ("mce: [Hardware Error]: Machine check events logged", True),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python, MMU Fault: ENGINE GRAPHICS", False),
        (
            "python[77]: segfault at 0 ip 00007f2c9c0d1e2f sp 00007ffd6c1b2a30 error 4 in libc.so.6[7f2c9bf8a000+175000]",
            False,
        ),
    ],
    ids=["a disk", "a machine check", "an Xid of the program's own", "a segfault"],
)
def test_what_only_its_own_user_can_have_forged_leaves_a_failure_open(text: str, open_: bool) -> None:
    """erin's program says nothing of its end. A fault that it caused itself is no other explanation."""
    verdict = of_erin(concluded({SYSLOG: WITH_UPTIMES + stamped("10:19:55", text)}))
    assert verdict["category"] == ("unknown" if open_ else "app.error")
    assert ("by itself, or by" in verdict["summary"]) == open_


def of_bob(found: dict[str, Any]) -> dict[str, Any]:
    verdict: dict[str, Any] = found["verdicts"]["42"]
    return verdict


def stands(verdict: dict[str, Any]) -> tuple[Any, ...]:
    return verdict["category"], verdict["confidence"], verdict["root_cause"], verdict["incident_id"], verdict["summary"]


#: bob's program says itself why it failed. A bus error is what lost memory looks like to a program, a ValueError is not.
BUS_ERROR = {"jobs/42/stderr": "2026-02-28 10:19:57,000 - ERROR - loading\nFatal Python error: Bus error\n"}
LOST_MEMORY = (
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1 offset:0x0 grain:32)"
)


@pytest.mark.one_of_each(kind=lambda tree, changed: (changed, "jobs/42/stderr" in tree))
@pytest.mark.parametrize("live", [False, pytest.param(True, marks=pytest.mark.long)], ids=["at once", "by ticks"])
@pytest.mark.parametrize(
    ("files", "tree", "changed"),
    [
        ({SYSLOG: WITHOUT + BARE}, CONFIRMED, False),
        ({SYSLOG: WITH_UPTIMES + FITTING}, CONFIRMED, False),
        ({RING: ring("10:19:55", XID)}, SHARED, True),
        pytest.param({SYSLOG: WITH_UPTIMES + stamped("10:19:55", LOST_MEMORY)}, CONFIRMED | BUS_ERROR, False, marks=pytest.mark.long),
        pytest.param({SYSLOG: WITHOUT + bsd("10:19:55", f"kernel: {LOST_MEMORY}")}, CONFIRMED | BUS_ERROR, False, marks=pytest.mark.long),
        ({RING: ring("10:19:55", LOST_MEMORY)}, SHARED | BUS_ERROR, True),
    ],
    ids=[
        "no uptime", "an uptime that fits, on the user's own node", "the kernel's ring", "lost memory", "lost memory, no uptime", "lost memory, the kernel's ring",
    ],
)  # fmt: skip
def test_an_unproven_cause_displaces_no_explanation_that_is_as_sure(
    files: dict[str, str], tree: dict[str, str], changed: bool, live: bool
) -> None:
    before, after = of_bob(concluded({}, tree=tree)), of_bob(concluded(files, live, tree))
    assert before["category"] == "app.error" and before["confidence"] > 0.9
    if changed:
        assert after["category"] != "app.error" or after["confidence"] < 0.6
        return
    assert stands(after) == stands(before)
    (doubt,) = (d for d in after["doubts"] if "where anybody on gx02 can write" in d)
    assert "nodes/gx02/syslog" in doubt and "journalctl -k or dmesg" in doubt


@pytest.mark.parametrize("live", [False, pytest.param(True, marks=pytest.mark.long)], ids=["at once", "by ticks"])
def test_a_forger_on_a_shared_node_changes_no_verdict_that_explains_itself(live: bool) -> None:
    """erin writes every kind of kernel line that can blame hardware, memory or the program, just before bob's program
    fails."""
    forged = "".join(
        stamped(f"10:19:{40 + n}", text)
        for n, text in enumerate((
            XID, "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=python, DBE (double bit error) detected", LINK,
            "mce: [Hardware Error]: Machine check events logged", "EXT4-fs error (device nvme0n1p1): ext4_find_entry:1455: inode #2: comm python: reading directory lblock 0",
            "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python, MMU Fault: ENGINE GRAPHICS",
            "Out of memory: Killed process 77 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:1002 pgtables:1kB oom_score_adj:0",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0,oom_memcg=/slurm/uid_1002/job_42,task_memcg=/slurm/uid_1002/job_42/step_0,task=python,pid=77,uid=1002",
        ))
    )  # fmt: skip
    before, after = concluded({}, tree=SHARED), concluded({SYSLOG: WITH_UPTIMES + forged}, live, SHARED)
    assert stands(of_bob(after)) == stands(of_bob(before))
    for job in ("41", "43", "46"):
        assert stands(after["verdicts"][job]) == stands(before["verdicts"][job])
    assert not [i for i in after["incidents"] if i["root_cause"]["host"] == "gx02"]


def test_how_a_run_ended_is_no_better_explanation() -> None:
    """erin's job left an exit code only: a limited hardware cause stays, because nothing better is known."""
    files = {RING: RING_ALIVE, SYSLOG: WITH_UPTIMES + FITTING}
    before, after = of_erin(concluded({})), of_erin(concluded(files, tree=CONFIRMED))
    assert before["category"] == "app.error" and before["confidence"] > 0.5
    assert (after["category"], after["confidence"]) == ("infra.gpu", 0.5)


@pytest.mark.long
@pytest.mark.parametrize(
    "late",
    [
        "that there is a job 42",
        pytest.param("that there was a job 42, which ended hours later", marks=pytest.mark.long),
    ],
)
def test_who_was_there_becomes_known_hours_later(late: str) -> None:
    """Ticks judge erin's job before it is known who else ran on gx02, and again when accounting reports it."""
    tree = {**UNKNOWN, SYSLOG: _TREE[SYSLOG] + WITH_UPTIMES + FITTING}
    tree["controller/slurmctld.log"] = CONFIRMED["controller/slurmctld.log"]
    row = next(line for line in _TREE[SACCT].splitlines() if line.startswith("42|"))
    if late == "that there was a job 42, which ended hours later":
        row = row.replace("|2026-02-28T10:20:00|", "|2026-02-28T15:00:00|")
    tree[SACCT] = "".join(x for x in _TREE[SACCT].splitlines(keepends=True) if not x.startswith("42|"))
    tree["controller/slurmctld.log"] = "".join(
        x for x in tree["controller/slurmctld.log"].splitlines(keepends=True) if "JobId=42" not in x
    )
    with TemporaryDirectory() as folder, open_store(None) as store:
        root = Path(folder)
        write(root, {**_TREE, **tree, "nodes/gx04/kmsg.log": busy(lambda h, m: f"[{3600 * h + 60 * m}.000100] ")})
        reader = Ingest(store, parser=line_parser())
        reader.run([root])
        ticker = Ticker(store)
        ticker.tick()
        assert of_erin(result(store))["confidence"] == 0.9
        (root / "accounting/later.txt").write_text(_TREE[SACCT].partition("\n")[0] + f"\n{row}\n", encoding="utf-8")
        reader.run([root])
        assert not ticker.tick().full, "this test is about a tick that looks at a part"
        ticked = answer(store)
        assert of_erin(result(store))["category"] == "app.error"
        correlate(store)
        assert ticked == answer(store)


@pytest.mark.long
def test_the_first_line_with_an_uptime_arrives_after_ticks_that_knew_of_none() -> None:
    """Ticks remember that no line shows the kernel's clock, and ask no more; a line that shows it counts at once."""
    tree = {name: re.sub(r"kernel: \[[0-9.]+\] ", "kernel: ", text) for name, text in {**_TREE, **CONFIRMED}.items()}
    tree |= {SYSLOG: tree[SYSLOG] + BARE, "nodes/gx04/kern.txt": busy(lambda h, m: "")}
    with TemporaryDirectory() as folder, open_store(None) as store:
        root = Path(folder)
        write(root, tree)
        reader = Ingest(store, parser=line_parser())
        reader.run([root])
        ticker = Ticker(store)
        ticker.tick()
        for lines, is_known, blamed in (
            (bsd("10:30:00", f"kernel: {QUIET}"), False, ("infra.gpu", 0.7)),
            (WITH_UPTIMES, True, ("app.error", None)),
        ):
            with (root / SYSLOG).open("a", encoding="utf-8") as file:
                file.write(lines)
            reader.run([root])
            assert not ticker.tick().full, "this test is about ticks that look at a part"
            (known,) = ticker._known.values()
            assert known.memory.basis.any_kernel_clock is is_known
            ticked = answer(store)
            verdict = of_erin(result(store))
            assert (verdict["category"], verdict["confidence"] if blamed[1] else None) == blamed
            correlate(store)
            assert ticked == answer(store)


LINK = "mlx5_core 0000:c4:00.0 eth0: Link down"


@pytest.mark.parametrize(
    ("more", "sure"),
    [
        ({}, False),
        ({"switches/leaf1/syslog": "Feb 28 10:19:50 leaf1 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet2, changed state to down\n"}, True),
    ],
    ids=["alone", "the switch saw it"],
)  # fmt: skip
def test_who_else_reports_it_makes_it_count(more: dict[str, str], sure: bool) -> None:
    text = stamped("10:19:50", LINK)
    found = concluded({SYSLOG: WITH_UPTIMES + text, **more})
    incidents = [i for i in found["incidents"] if i["root_cause"]["host"] == "gx02"]
    assert bool(incidents) == sure
    assert not any("where anybody on gx02 can write" in " ".join(i["doubts"]) for i in incidents)


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
        ("kernel", None, "dmesg", "otlp:a", "name"),
    ],
)
def test_by_what_a_line_is_known(source: str | None, facility: str | None, form: str | None, file: str | None, known: str) -> None:  # fmt: skip
    authority = "unverified" if file == "otlp:a" else "local"
    row = {"source": source, "facility": facility, "format": form, "file": file, "authority": authority}
    other = {"source": "kernel", "facility": "kern", "format": "rfc3164", "file": "x", "authority": "local"}
    frame = pl.DataFrame([row, other], schema=kernel_lines.COLUMNS)
    in_doubt = frame.select(kernel_lines.is_in_doubt()).to_series()
    assert kernel_lines.known_by(frame, in_doubt) == [known, "facility"] and kernel_lines.known_by_of(row) == known


def test_a_line_of_the_ring_is_the_copy_of_one_line_and_of_none_if_a_file_has_it() -> None:
    """Else a user could repeat what the kernel said a while ago, and a loss would be a flap."""
    ring_line = event("nic.link_down", 0, "n1", "eth0: Link down", port="eth0")
    repeated = [replace(ring_line, id=str(at), time=ring_line.time + at, known_by="name") for at in (100.0, 200.0)]
    assert [e.id for e in kernel_lines.unsupported([ring_line, *repeated])] == ["200.0"]
    assert [e.id for e in kernel_lines.unsupported([*repeated[::-1], ring_line])] == ["200.0"]
    filed = replace(ring_line, also=(("nodes/n1/syslog", 7),))
    assert len(kernel_lines.unsupported([filed, *repeated])) == 2
    in_ring_twice = replace(ring_line, also=(("nodes/n1/dmesg.log", 1),))
    assert len(kernel_lines.unsupported([in_ring_twice, *repeated])) == 1
