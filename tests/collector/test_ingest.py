"""Ingest on what log hosts really hold: unreadable files are reported, nothing is stored twice or in part."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from collector.ingest import FileResult, Ingest, Options, Report
from store import open_store
from store.duckdb.store import DuckStore
from tests.line_parser import line_parser

PARSER = line_parser()
LINK_DOWN = "2026-02-28T16:29:24.000000+00:00 gpu02 kernel: igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down\n"


def line(number: int) -> str:
    return f"2026-02-28T16:{number // 60 % 60:02d}:{number % 60:02d}.000000+00:00 gpu02 sshd[42]: session {number} opened\n"


def ingest(store: DuckStore, *paths: Path, **options: Any) -> Report:
    return Ingest(store, Options(**options), parser=PARSER).run(list(paths))


def only(report: Report) -> FileResult:
    (found,) = report.files
    return found


def raws(store: DuckStore) -> list[str]:
    return [r["raw"] for r in store.rows("SELECT raw FROM raw.logs ORDER BY file, line")]


def everything(store: DuckStore) -> dict[str, list[dict[str, Any]]]:
    tables = ("logs", "jobs", "steps", "node_states", "metrics", "settings", "links", "topology", "boots", "artifacts")
    return {t: store.rows(f"SELECT * FROM raw.{t} ORDER BY ALL") for t in tables}


@pytest.fixture
def store() -> Any:
    with open_store(None) as opened:
        yield opened


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "nodes" / "gpu02"
    folder.mkdir(parents=True)
    return folder


def test_an_unreadable_file_is_named_and_the_rest_goes_on(store: DuckStore, tree: Path) -> None:
    (tree / "syslog").write_text(LINK_DOWN)
    closed = tree / "kern.log"
    closed.symlink_to(tree / "gone")
    report = ingest(store, tree)
    assert raws(store) == [LINK_DOWN.rstrip()]
    (trouble,) = [f for f in report.files if f.path.name != "syslog"]
    assert trouble.path.name in ("kern.log", "gone") and trouble.warnings


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_unreadable(store: DuckStore, tree: Path) -> None:
    (tree / "syslog").write_text(LINK_DOWN)
    (tree / "kern.log").write_text(LINK_DOWN)
    (tree / "kern.log").chmod(0)
    (trouble,) = ingest(store, tree).troubled
    assert trouble.path.name == "kern.log" and "cannot be read" in trouble.warnings[0]
    assert len(raws(store)) == 1


def test_an_empty_file_is_no_trouble(store: DuckStore, tree: Path) -> None:
    (tree / "syslog").write_bytes(b"")
    report = ingest(store, tree)
    assert not report.troubled
    assert raws(store) == []


def test_a_binary_file_is_refused_by_name(store: DuckStore, tree: Path) -> None:
    (tree / "core").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 40)
    found = only(ingest(store, tree))
    assert found.status in ("unreadable", "skipped") and found.warnings
    assert raws(store) == []


@pytest.mark.parametrize(("mode", "name"), [("w", "logs.tar"), ("w:gz", "logs.tar.gz"), ("w:xz", "logs.tar.xz")])
def test_an_archive_of_several_files_says_what_to_do_with_it(
    store: DuckStore, tree: Path, mode: str, name: str
) -> None:
    with tarfile.open(tree / name, mode) as archive:  # type: ignore[call-overload]
        named = tarfile.TarInfo("hosts/gpu02/syslog")
        named.size = len(LINK_DOWN)
        archive.addfile(named, io.BytesIO(LINK_DOWN.encode()))
    found = only(ingest(store, tree))
    stated = "a tar archive of several files: unpack it into a folder and ingest that"
    assert (found.status, found.warnings) == ("unreadable", [stated]) and raws(store) == []


@pytest.mark.parametrize("pack", [gzip.compress, lambda b: zstandard.ZstdCompressor().compress(b)], ids=["gz", "zst"])
def test_packed_is_read_as_plain(store: DuckStore, tree: Path, pack: Any) -> None:
    (tree / "syslog.1").write_bytes(pack(LINK_DOWN.encode()))
    ingest(store, tree)
    assert raws(store) == [LINK_DOWN.rstrip()]


def test_a_cut_archive_keeps_what_came_before_and_says_so(store: DuckStore, tree: Path) -> None:
    lines = "".join(line(n) for n in range(20_000))
    whole = gzip.compress(lines.encode())
    (tree / "syslog.gz").write_bytes(whole[: len(whole) // 2])
    report = ingest(store, tree)
    found = only(report)
    assert found.status == "partial" and "ends in the middle" in found.warnings[-1]
    kept = raws(store)
    assert kept and kept[:-1] == lines.splitlines()[: len(kept) - 1], "the beginning, in order, no line changed"


def test_a_cut_archive_that_is_made_whole_stores_each_line_once(store: DuckStore, tree: Path) -> None:
    lines = "".join(line(n) for n in range(20_000))
    whole = gzip.compress(lines.encode())
    (tree / "syslog.gz").write_bytes(whole[: len(whole) // 2])
    ingest(store, tree)
    (tree / "syslog.gz").write_bytes(whole)
    ingest(store, tree)
    assert raws(store) == lines.splitlines()


def test_a_line_of_20_mb_is_stored_whole_and_named(store: DuckStore, tree: Path) -> None:
    long = "2026-02-28T16:29:25.000000+00:00 gpu02 app[7]: " + "x" * 20_000_000
    (tree / "syslog").write_text(LINK_DOWN + long + "\n" + LINK_DOWN)
    found = only(ingest(store, tree))
    assert found.status == "stored" and any("line 2 is 20,000,0" in w for w in found.warnings)
    assert [len(r) for r in raws(store)] == [len(LINK_DOWN) - 1, len(long), len(LINK_DOWN) - 1]


def test_an_unknown_zone_is_refused_at_the_door(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt zone is an error for the person who typed it.

    The parser itself treats an unknown zone as UTC, so that no line is lost.
    """
    from faultline.cli import run

    (tree / "syslog").write_text("Feb 28 16:29:24 gpu02 kernel: hello\n")
    data = tmp_path / "data"
    assert run(["ingest", str(tree), "--data", str(data), "--timezone", "Mars/Olympus"]) == 2
    assert "Mars/Olympus" in capsys.readouterr().err
    assert not list(data.glob("*"))


def test_a_zone_moves_stamps_without_one_and_no_others(store: DuckStore, tree: Path) -> None:
    (tree / "syslog").write_text("Feb 28 16:29:24 gpu02 kernel: hello\n")
    (tree / "messages").write_text(LINK_DOWN)
    ingest(store, tree, timezone="Asia/Tokyo")
    times = {r["file"].rsplit("/", 1)[1]: r["time"].hour for r in store.rows("SELECT file, time FROM raw.logs")}
    assert times == {"syslog": 7, "messages": 16}


def test_events_of_a_document_are_counted_as_those_of_lines_are(store: DuckStore, tmp_path: Path) -> None:
    head = "Sat 2026-02-28 16:29:2{0}.000000 UTC [s=a;i={0};b=b;m={0};t=64be4a7b0f90{0};x={0}]\n    _HOSTNAME=gpu02\n"
    records = [head.format(i) + f"    _TRANSPORT=kernel\n    MESSAGE={stated}\n" for i, stated in
               enumerate(("igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down", "usb 1-1: new device"))]  # fmt: skip
    (tmp_path / "journal.txt").write_text("".join(records))
    found = only(ingest(store, tmp_path))
    assert (found.kind, found.events) == ("journal_verbose", 1)


def test_a_second_run_stores_nothing(store: DuckStore, tree: Path) -> None:
    (tree / "syslog").write_text("".join(line(n) for n in range(50)))
    (tree / "slurmd.log").write_text(
        "[2026-02-28T16:29:24.123] error: Unable to register: Unable to contact slurm controller\n"
    )
    ingest(store, tree)
    before = everything(store)
    report = ingest(store, tree)
    assert everything(store) == before
    assert {f.status for f in report.files} == {"unchanged"}


def test_a_growing_file_adds_its_new_lines_only(store: DuckStore, tree: Path) -> None:
    log = tree / "syslog"
    for upto in (10, 11, 200):
        log.write_text("".join(line(n) for n in range(upto)))
        ingest(store, tree)
        assert raws(store) == [line(n).rstrip() for n in range(upto)]
    assert [r["line"] for r in store.rows("SELECT line FROM raw.logs ORDER BY line")] == list(range(1, 201))


def test_a_line_that_was_half_written_is_one_line_in_the_end(store: DuckStore, tree: Path) -> None:
    log = tree / "syslog"
    log.write_text(line(1) + line(2)[:40])
    ingest(store, tree)
    log.write_text(line(1) + line(2) + line(3))
    ingest(store, tree)
    assert raws(store) == [line(n).rstrip() for n in (1, 2, 3)]


def test_a_rotated_file_is_read_from_its_beginning(store: DuckStore, tree: Path) -> None:
    log = tree / "syslog"
    log.write_text("".join(line(n) for n in range(100)))
    ingest(store, tree)
    log.write_text(line(500))
    ingest(store, tree)
    assert raws(store).count(line(500).rstrip()) == 1
    assert len(raws(store)) == 101


def test_a_rotated_file_is_stored_once_under_whatever_name_it_has(store: DuckStore, tree: Path) -> None:
    """Every night ``ingest`` reads the tree, and logrotate renames and packs, with lines that were written meanwhile."""
    log, turned, packed = (tree / name for name in ("syslog", "syslog.1", "syslog.2.gz"))
    log.write_text("".join(line(n) for n in range(100)))
    ingest(store, tree)
    with log.open("a") as more:
        more.write(line(100))
    log.rename(turned)
    log.write_text(line(500))
    ingest(store, tree)
    packed.write_bytes(gzip.compress(turned.read_bytes()))
    log.rename(turned)
    log.write_text(line(600))
    for _ in range(2):
        ingest(store, tree)
        assert sorted(raws(store)) == sorted(line(n).rstrip() for n in (*range(101), 500, 600))


def test_a_copy_beside_a_log_and_another_log_are_files_of_their_own(store: DuckStore, tree: Path) -> None:
    for name in ("syslog", "syslog.1", "messages"):
        (tree / name).write_text(line(1))
        ingest(store, tree)
    assert raws(store) == [line(1).rstrip()] * 3


def test_a_packed_file_that_is_cut_is_read_as_far_as_it_goes(store: DuckStore, tree: Path) -> None:
    """It may be the log that was read before, but that cannot be seen."""
    log = tree / "syslog"
    log.write_text("".join(line(n) for n in range(2_000)))
    ingest(store, tree)
    (tree / "syslog.1.gz").write_bytes(gzip.compress(log.read_bytes())[:-2_000])
    log.write_text(line(5_000))
    report = ingest(store, tree)
    assert [f.status for f in report.files if f.path.name == "syslog.1.gz"] == ["partial"]
    assert raws(store).count(line(5_000).rstrip()) == 1 and raws(store).count(line(1).rstrip()) == 2


def test_undecodable_bytes_are_kept(store: DuckStore, tree: Path) -> None:
    odd = LINK_DOWN.encode().rstrip() + b" \xff\xfe\n"
    (tree / "syslog").write_bytes(odd)
    ingest(store, tree)
    (row,) = store.rows("SELECT raw, raw_bytes FROM raw.logs")
    assert row["raw"].endswith("\ufffd\ufffd") and bytes(row["raw_bytes"]) == odd.rstrip()


def test_a_failure_at_the_commit_stores_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch, store: DuckStore) -> None:
    (tree / "syslog").write_text(LINK_DOWN)
    real = store.append

    def breaks(tables: Any, files: Any) -> None:
        real({**tables, "no_such_table": tables["logs"]}, files)

    monkeypatch.setattr(store, "append", breaks)
    with pytest.raises(Exception, match="no_such_table"):
        ingest(store, tree)
    monkeypatch.undo()
    assert raws(store) == [] and store.rows("SELECT * FROM raw.files") == []
    ingest(store, tree)
    assert raws(store) == [LINK_DOWN.rstrip()]


def test_a_name_that_is_no_text_is_stored_in_escapes_and_read_once(store: DuckStore, tmp_path: Path) -> None:
    folder = tmp_path / "nodes" / os.fsdecode(b"gpu\xff")
    folder.mkdir(parents=True)
    (folder / "syslog").write_text("Feb 28 16:29:24 gpu02 sshd[42]: one\n")
    (folder / os.fsdecode(b"kern\xfe.log")).write_text(LINK_DOWN)
    assert sorted(f.status for f in ingest(store, tmp_path).files) == ["stored", "stored"]
    names = [str(r["file"]).removeprefix(str(tmp_path)) for r in store.rows("SELECT file FROM raw.logs ORDER BY file")]
    assert names == ["/nodes/gpu\\xff/kern\\xfe.log", "/nodes/gpu\\xff/syslog"]
    assert sorted(f.status for f in ingest(store, tmp_path).files) == ["unchanged", "unchanged"]


SACCT = "JobID|JobIDRaw|Cluster|State|Start|End|NodeList\n"


@pytest.mark.parametrize(
    ("rows", "options", "clusters"),
    [
        (("mini", "mini"), {}, ["mini"]),
        (("mini", "mini"), {"cluster": "east"}, ["east"]),
        (("mini", "other"), {"cluster": "east"}, ["east", "mini", "other"]),  # accounting of several clusters
    ],
)
def test_a_tree_is_of_the_cluster_that_was_named_unless_it_reports_several(
    store: DuckStore, tmp_path: Path, rows: tuple[str, ...], options: dict[str, str], clusters: list[str]
) -> None:
    reported = [
        f"{n}|{n}|{name}|FAILED|2026-02-28T16:00:00|2026-02-28T16:10:00|gpu02\n" for n, name in enumerate(rows, 7)
    ]
    for name, text in (("accounting/sacct.txt", SACCT + "".join(reported)), ("nodes/gpu02/syslog", LINK_DOWN)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    ingest(store, tmp_path, **options)
    found = store.rows("SELECT cluster FROM raw.jobs UNION SELECT cluster FROM raw.logs ORDER BY cluster")
    assert [r["cluster"] for r in found] == clusters


def test_slurms_lower_case_of_a_clusters_name_is_no_other_cluster(store: DuckStore, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=Mini\nSlurmctldHost=ctl\nNodeName=gpu02\n")
    (tmp_path / "accounting").mkdir()
    (tmp_path / "accounting" / "sacct.txt").write_text(
        SACCT + "7|7|mini|FAILED|2026-02-28T16:00:00|2026-02-28T16:10:00|gpu02\n"
    )
    ingest(store, tmp_path)
    found = store.rows("SELECT cluster FROM raw.jobs UNION SELECT cluster FROM raw.settings ORDER BY cluster")
    assert [r["cluster"] for r in found] == ["Mini"]
