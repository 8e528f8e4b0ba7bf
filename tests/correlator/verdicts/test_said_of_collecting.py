"""What a verdict says of logs that were collected is true of the files in the tree."""

from __future__ import annotations

from pathlib import Path

from collector.ingest import Ingest
from correlator.engine import correlate, result
from parsers.engine import LineParser
from store import open_store

ACCOUNTING = """\
JobID|JobIDRaw|JobName|User|Account|Partition|State|ExitCode|Submit|Start|End|NodeList|NNodes|AllocTRES|Cluster
12|12|a|ann|ml|gpu|FAILED|1:0|2026-11-21T00:00:00|2026-11-21T00:00:01|2026-11-21T00:10:00|gpu01|1|cpu=4|alpha
"""
#: gpu02's kernel wrote; gpu01's syslog was collected, and has the prolog's words only.
SYSLOGS = {
    "gpu01": "2026-11-21T00:00:01.6+00:00 gpu01 slurm-prolog: job=12 user=ann nodes=gpu01 node=gpu01 exit=\n",
    "gpu02": "2026-11-21T00:00:01.6+00:00 gpu02 kernel: [ 12.0] Linux version 6.1.0\n",
}


def test_a_syslog_without_a_line_of_the_system_was_collected_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "accounting").mkdir()
    (tmp_path / "accounting" / "sacct.txt").write_text(ACCOUNTING)
    for host, text in SYSLOGS.items():
        (tmp_path / "nodes" / host).mkdir(parents=True)
        (tmp_path / "nodes" / host / "syslog").write_text(text)
    with open_store(tmp_path / "data") as store:
        Ingest(store, parser=LineParser()).run([tmp_path / "accounting", tmp_path / "nodes"])
        correlate(store)
        doubts = result(store)["verdicts"]["12"]["doubts"]
    assert "No line of the kernel or the system of gpu01 was collected: a cause there would not show" in doubts
