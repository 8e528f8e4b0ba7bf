"""Whatever a user writes in the kernel's name, the ring buffer's lines stay where they belong.

They are the kernel's own, so a verdict believes them at whatever time they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from collector.ingest import Ingest
from store import open_store
from tests.line_parser import line_parser

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
#: The machine booted at 10:00:00.0001.
RING = (
    f"[ 1000.000100] {XID}",
    "[ 9000.000100] mlx5_core 0000:17:00.0 hsn0: Link down",
    "[   42.500000] Spectre V2 : ok",
)
AT = (datetime(2026, 11, 30, 10, 16, 40, 200), datetime(2026, 11, 30, 12, 30, 0, 200))
COPIES = (
    f"2026-11-30T10:16:40.000200+00:00 gpu03 kernel: {RING[0]}",
    f"2026-11-30T12:30:00.000200+00:00 gpu03 kernel: {RING[1]}",
)
LATER = "2026-11-30T16:30:00.000200+00:00 gpu03 systemd[1]: Started Session 7 of user root."
SLURM = "NodeName=gpu03 Arch=x86_64 CoresPerSocket=1\n   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1\n   BootTime=2026-11-30T10:00:02 SlurmdStartTime=2026-11-30T10:01:00\n"


def placed(
    folder: Path, syslog: Sequence[str], *, reported: bool = False, more: dict[str, Sequence[str]] | None = None
) -> list[datetime | None]:
    """The times of the ring's lines."""
    files: dict[str, Sequence[str]] = {"hosts/gpu03/dmesg.log": RING, "hosts/gpu03/syslog": syslog, **(more or {})}
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if reported:
        (folder / "slurm").mkdir()
        (folder / "slurm/nodes.txt").write_text(SLURM, encoding="utf-8")
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([folder])
        return [r["time"] for r in store.rows("SELECT time FROM raw.log_view WHERE format = 'dmesg' ORDER BY line")]


#: What a user writes, and by which channel. A readable ring lets her repeat its lines; one she repeats that has no other
#: copy tells of a boot that most copies do not show.
LIES = {
    "a boot that was none": ["2026-11-30T14:00:00.000200+00:00 gpu03 kernel: [    5.000100] hello"],
    "many lines": [f"2026-11-30T14:00:{n:02d}.000200+00:00 gpu03 kernel: [{5 + n:5d}.000100] hello" for n in range(40)],
    "a line of the ring again": [f"2026-11-30T14:00:00.000200+00:00 gpu03 kernel: {RING[0]}"],
    "one that no other file has": [f"2026-11-30T14:00:00.000200+00:00 gpu03 kernel: {RING[2]}"],
    "seconds after it": [f"2026-11-30T10:16:{41 + n}.000200+00:00 gpu03 kernel: {RING[0]}" for n in range(18)],
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("reported", [False, True], ids=["by copies", "by Slurm"])
def test_a_users_line_with_an_uptime_moves_no_line_of_the_ring(name: str, reported: bool, tmp_path: Path) -> None:
    found = placed(tmp_path, [*COPIES, *LIES[name], LATER], reported=reported)
    assert found[:2] == [*AT]


@pytest.mark.parametrize("folder", ["gpu03", "loghost"])
def test_what_is_no_copy_places_no_line_of_the_ring(folder: str, tmp_path: Path) -> None:
    """Nothing else shows when the machine booted."""
    assert placed(tmp_path, [LATER], more={f"hosts/{folder}/gpu03.log": LIES["a boot that was none"]}) == [None] * 3


def test_each_file_of_a_ring_has_its_own_boot(tmp_path: Path) -> None:
    """dmesg.0 is the ring of the boot before."""
    before = "[ 2000.000100] EXT4-fs error (device sda1): htree_dirblock_to_tree:1080: inode #2"
    copy = f"2026-11-30T08:33:20.000200+00:00 gpu03 kernel: {before}"
    found = placed(tmp_path, [copy, *COPIES, LATER], more={"hosts/gpu03/dmesg.0": [before]})
    assert sorted(t for t in found if t is not None)[0] == datetime(2026, 11, 30, 8, 33, 20, 200)
    assert set(AT) <= set(found)


def test_a_file_with_the_rings_of_two_boots_has_a_boot_for_each(tmp_path: Path) -> None:
    """All lines counted as of the boot with the most copies, and what was left over got its own at the next look only."""
    second = "[   77.000100] Kernel panic - not syncing: Fatal exception"
    again = f"2026-11-30T15:01:17.000200+00:00 gpu03 kernel: {second}"
    ring = [*RING[:2], second, f"[   78.000100] {XID}"]
    found = placed(tmp_path, [*COPIES, again, LATER], more={"hosts/gpu03/dmesg.log": ring})
    assert found == [*AT, datetime(2026, 11, 30, 15, 1, 17, 200), datetime(2026, 11, 30, 15, 1, 18, 200)]
