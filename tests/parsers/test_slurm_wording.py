"""Each release's wording of a message of Slurm's daemons means the same (``slurm_wording.jsonl``, docs/slurm-releases.md)."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.line_parser import line_parser
from tests.parsers.slurm_wording import DAEMONS, LIBRARY, TABLE, Releases, parse, table

SLUID = re.compile(r" SLUID=\w+")
#: Where Debian's packages lay the daemons and their plugins.
INSTALLED = Path("/usr/sbin/slurmctld")


@cache
def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


def source(row: dict[str, Any]) -> str:
    return min(row["daemons"])


def test_each_wording_is_read_as_the_table_says() -> None:
    assert len(rows()) > 1000 and {"22.05", "24.11", "26.05"} <= {
        release for row in rows() for releases in row["daemons"].values() for release in releases
    }
    wrong = []
    for row in rows():
        event, entities = parse(source(row), row["line"], line_parser())
        got = (event, {name: value for name, value in entities.items() if value is not None})
        if got != (row["event"], row["entities"]):
            wrong.append((row["line"], got))
    assert wrong == []


def test_a_message_about_a_job_names_it() -> None:
    """The lines' job is 901, whether as ``JobId=901``, ``job 901`` or ``StepId=901.0``."""
    about_jobs = [
        row for row in rows()
        if re.search(r"(?:JobId=|[Jj]ob |StepId=)901", row["line"]) and row["event"] != "slurm.db_error"
    ]  # fmt: skip
    assert len(about_jobs) > 100
    assert [row["line"] for row in about_jobs if row["entities"].get("job_id") != "901"] == []


def test_a_message_about_a_node_s_state_names_it() -> None:
    of_nodes = [
        row for row in rows()
        if row["event"].startswith("slurm.node_") and re.search(r"[Nn]odes?(?:\(s\))?[ =]gpu07\b", row["line"])
    ]  # fmt: skip
    assert len(of_nodes) > 40
    assert [row["line"] for row in of_nodes if row["entities"].get("nodes") != ["gpu07"]] == []


def test_the_unique_id_of_a_job_changes_nothing() -> None:
    """Since 25.11 a job's id may be followed by it."""
    plain = {row["line"]: row for row in rows()}
    with_id = [row for row in rows() if SLUID.search(row["line"])]
    assert len(with_id) > 20
    for row in with_id:
        same = plain[SLUID.sub("", row["line"])]
        told = {name: SLUID.sub("", str(value)) for name, value in row["entities"].items()}
        assert (row["event"], told) == (same["event"], {name: str(value) for name, value in same["entities"].items()})


@pytest.mark.skipif(not INSTALLED.exists(), reason="no Slurm of Debian is installed")
def test_the_rows_are_those_of_the_installed_release(tmp_path: Path) -> None:
    """The table's rows of the installed release, made anew from its programs. Plugins that a machine lacks are left out."""
    release = re.sub(r".* (\d+\.\d+)\..*", r"\1", subprocess.check_output([INSTALLED, "-V"], text=True).strip())
    if not any(release in releases for row in rows() for releases in row["daemons"].values()):
        pytest.skip(f"the table has no Slurm {release}")
    found: dict[str, set[str]] = defaultdict(set)
    sbin = tmp_path / "sbin"
    sbin.mkdir()
    for daemon in DAEMONS:
        if (program := INSTALLED.with_name(daemon)).exists():
            (sbin / daemon).write_bytes(program.resolve().read_bytes())
    made, _ = table(Releases({release: tmp_path}))
    for row in made:
        for daemon in row["daemons"]:
            found[daemon].add(row["line"])
    assert found["slurmctld"] and found["slurmd"]
    for daemon in found.keys() - {LIBRARY}:
        listed = {row["line"] for row in rows() if release in row["daemons"].get(daemon, ())}
        assert found[daemon] - listed == set(), daemon
        # A linker keeps a text that ends another one inside it: the releases together show it, one alone does not.
        ends = {line for line in listed - found[daemon] if any(one.endswith(line) for one in found[daemon])}
        assert listed - found[daemon] == ends and len(ends) < 10, daemon
