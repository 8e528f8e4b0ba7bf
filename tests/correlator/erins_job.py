"""A small cluster on which erin's job 45 fails on gx02, and nothing shows why: its files, and what lines added to them
change."""

from __future__ import annotations

import atexit
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa
from _pytest.mark.structures import ParameterSet

from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.live.ticker import Ticker
from correlator.site.senders import SENDING_SETTING
from store import open_store
from store.door import Door, FileEntry
from store.tables import FILES
from tests.correlator.attacked import _TREE, write
from tests.correlator.rows import answer, rows_in
from tests.line_parser import remembering

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


def ring(clock: str, text: str) -> str:
    """A line of ``dmesg -T``, which only the kernel of gx02 can have written."""
    return f"[Sat Feb 28 {clock} 2026] {text}\n"


QUIET = "audit: backlog limit exceeded"
#: The kernel of gx02 writes an uptime into every line, or into none.
WITH_UPTIMES = "".join(stamped(f"09:4{n}:00", QUIET) for n in range(4))
WITHOUT = "".join(bsd(f"09:4{n}:00", f"kernel: {QUIET}") for n in range(4))
BARE = bsd("10:19:55", f"kernel: {XID}")
FITTING = stamped("10:19:55", XID)
#: dmesg -T of a time before and after.
RING_ALIVE = "".join(ring(clock, QUIET) for clock in ("09:40:00", "10:22:00"))

SACCT = "accounting/sacct.txt"
#: On gx02 run erin's job 45 and, in the same minutes, job 42 of bob, of erin as well, or of an unknown user.
SHARED, HERS, UNKNOWN = (
    {SACCT: _TREE[SACCT].replace("|bob|1002|", user)} for user in ("|bob|1002|", "|erin|1005|", "|||")
)

#: slurmctld gives gx02 up after erin's job failed there: that confirms that something happened to it.
CONFIRMED = {
    **HERS,
    "controller/slurmctld.log": _TREE["controller/slurmctld.log"] + "[2026-02-28T10:24:00.000] error: Nodes gx02 not responding\n",
}  # fmt: skip


def bobs_job(start: str, end: str) -> dict[str, str]:
    """Job 42 at another time."""
    row = "42|42|bob|1002|train|FAILED|1:0|2026-02-28T09:59:00|2026-02-28T{}|2026-02-28T{}|"
    before = row.format("10:00:00", "10:20:00")
    assert before in _TREE[SACCT]
    other = _TREE["controller/slurmctld.log"].replace(
        "[2026-02-28T10:00:00.002] sched: Allocate JobId=42 ",
        f"[2026-02-28T{start}.002] sched: Allocate JobId=42 ",
    )
    lines = sorted(other.splitlines(keepends=True))
    return {SACCT: _TREE[SACCT].replace(before, row.format(start, end)), "controller/slurmctld.log": "".join(lines)}


def busy(mark: Callable[[int, int], str]) -> str:
    """Enough events before and after, so that a tick reads only a part of the day. ``mark`` gives what the kernel writes
    before a line of an hour and minute."""
    return "".join(f"Feb 28 {h:02}:{m:02}:00 gx04 kernel: {mark(h, m)}mlx5_core 0000:c4:00.0 eth0: Link {how}\n"
                   for h in (*range(10), *range(13, 20)) for m in range(0, 60, 10) for how in ("down", "up"))  # fmt: skip


def concluded(
    files: dict[str, str], live: bool = False, tree: dict[str, str] = HERS, *, sending: bool = True
) -> dict[str, Any]:
    """The conclusions about the small cluster, with the files of ``tree`` in place of its own and these lines added.

    ``live``: line by line, with a tick after each; the last tick must reach the same conclusions as a full pass.
    ``sending``: can users send to the log host?
    """
    return _concluded(tuple(files.items()), live, tuple(tree.items()), sending)


@cache
def _concluded(
    added: tuple[tuple[str, str], ...], live: bool, changed: tuple[tuple[str, str], ...], sending: bool
) -> dict[str, Any]:
    """The same, once for each cluster: several tests begin with the same one."""
    with open_store(None) as store:
        bring_in(store, dict(added), live, dict(changed), answer, {SENDING_SETTING: sending})
        return result(store)


def bring_in(
    store: Door,
    files: dict[str, str],
    live: bool,
    tree: dict[str, str],
    look: Callable[[Door], object],
    settings: Mapping[str, object] | None = None,
) -> None:
    """Concludes about the small cluster in an empty store. ``live`` as for ``concluded``: what ``look`` finds must be the
    same after the last tick as after a full pass."""
    root, known = empty_root(), {**_TREE, **tree}
    reader = Ingest(store, parser=remembering())
    if not live and not files and tuple(tree.items()) not in _rows_of:  # most of these are trees of one test
        write(root, known)
        reader.run([root])
        correlate(store, settings=settings)
        return
    rows, entries = _ingested(tuple(tree.items()))
    write(root, known)
    store.append(rows, entries)
    if not live:
        for name, text in files.items():
            _append(root / name, text)
        reader.run([root])
        correlate(store, settings=settings)
        return
    ticker = Ticker(store, settings=settings)
    ticker.tick()
    for name, text in files.items():
        # The lines of the hour before, which show the habit, arrive in one piece.
        for line in filter(None, re.split(r"(?<=\n)(?!.* 09:)", text)):
            _append(root / name, line)
            reader.run([root])
            ticker.tick()
    ticked = look(store)
    correlate(store, settings=settings)
    assert ticked == look(store), "a tick says what a full pass says"


def _append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def empty_root() -> Path:
    """An empty folder, always at the same path: a store knows its files by their paths."""
    root = _folder() / "site"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    return root


@cache
def _folder() -> Path:
    folder = Path(mkdtemp(prefix="faultline-erin-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_rows_of: dict[tuple[tuple[str, str], ...], tuple[dict[str, pl.DataFrame], list[FileEntry]]] = {}


def _ingested(changed: tuple[tuple[str, str], ...]) -> tuple[dict[str, pl.DataFrame], list[FileEntry]]:
    """The rows of the small cluster, and how far each file was read. Each tree is ingested once."""
    if changed in _rows_of:
        return _rows_of[changed]
    root = empty_root()
    write(root, {**_TREE, **dict(changed)})
    with open_store(None) as store:
        Ingest(store, parser=remembering()).run([root])
        _rows_of[changed] = rows_in(store), [_entry(row) for row in store.ask(sa.select(FILES))]
    return _rows_of[changed]


def _entry(row: dict[str, Any]) -> FileEntry:
    names = {field.name for field in fields(FileEntry)} - {"replaces_tail", "tail_line"}
    return FileEntry(**{name: row[name] for name in names} | {"warnings": tuple(row["warnings"])})


def begun(store: Door, tree: dict[str, str]) -> None:
    """Stores the rows of the small cluster with the files of ``tree`` in place of its own."""
    store.append(_ingested(tuple(tree.items()))[0])


def in_both_ways(cases: Iterable[str], by_ticks: Collection[str]) -> list[ParameterSet]:
    """Names of cases, each at once and live. ``make test`` takes those ``by_ticks`` live, which ends with a full pass over
    the same lines, and the others at once."""
    return [
        pytest.param(name, live, id=f"{name}-{'by ticks' if live else 'at once'}",
                     marks=pytest.mark.long if live != (name in by_ticks) else ())
        for name in cases for live in (False, True)
    ]  # fmt: skip


def of_erin(found: dict[str, Any]) -> dict[str, Any]:
    verdict: dict[str, Any] = found["verdicts"]["45"]
    return verdict
