"""What users put into the folder of task prologs: they report for nobody else, under no other name, and stop nothing."""

from __future__ import annotations

import gc
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_host import Host, asked, parsed, rows, tables

from collector.agent import wire
from collector.agent.strangers import quoted
from parsers import patterns
from parsers.engine import LineParser
from tests.examples import examples

SPOOL = "/var/spool/faultline/hooks"
TASKS = "/var/spool/faultline/task-hooks"
MALLORY, ALICE = 20002, 20001
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of several users")


def env(event: str, **reported: str) -> bytes:
    pairs = {"FAULTLINE_EVENT": event, "FAULTLINE_HOST": "gpu01", "FAULTLINE_TIME": "1795278590.5", **reported}
    return b"faultline-hook/1\n" + "\0".join(f"{key}={value}" for key, value in pairs.items()).encode()


def spools(host: Host) -> tuple[Path, Path]:
    made = []
    for name, mode in ((SPOOL, 0o700), (TASKS, 0o1733)):
        folder = host.root / name.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
        made.append(folder)
    return made[0], made[1]


def owned(path: Path, content: bytes, uid: int) -> Path:
    path.write_bytes(content)
    os.chown(path, uid, uid)
    return path


@pytest.fixture(scope="module", autouse=True)
def _looked_through_once() -> None:
    """``handles`` collects garbage often: what is in memory before these tests need not be scanned each time."""
    gc.collect()
    gc.freeze()


def handles() -> int:
    """Open handles of this process. What earlier tests left to the garbage collector is closed first; their threads may
    still close more, so compare with "at most"."""
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


CLAIM = {
    "SLURM_JOB_ID": "15", "SLURM_JOB_UID": str(MALLORY), "SLURM_JOB_USER": "mallory", "SLURM_JOB_NAME": "mine",
    "SLURM_JOB_ACCOUNT": "m", "SLURM_JOB_NODELIST": "gpu[01-99]", "SLURM_JOB_EXIT_CODE2": "0:9", "SLURM_JOB_STDOUT": "/home/alice/secret",
    "SLURM_JOB_START_TIME": "1795278000", "SLURM_JOB_END_TIME": "1795279000", "SLURM_CLUSTER_NAME": "other",
}  # fmt: skip


@needs_root
def test_a_task_prolog_says_nothing_but_which_uid_spoke_of_which_job(host: Host) -> None:
    _, tasks = spools(host)
    owned(tasks / "15.taskprolog.gpu01.7.1.hook", env("taskprolog", **CLAIM), MALLORY)
    (reported,) = asked(host.runner("hooks"))
    assert (
        reported["document"] == "task_hook"
        and "mallory" not in json.dumps(reported)
        and "secret" not in json.dumps(reported)
    )
    (job,) = tables(reported)["jobs"].to_dicts()
    stated = {name for name, value in job.items() if value is not None}
    assert stated <= {"job_id", "uid", "observed_at", "source", "host", "file", "line", "cluster"}
    assert (job["uid"], job["source"]) == (MALLORY, "task_hook")


@needs_root
def test_a_job_that_roots_prolog_gave_to_another_is_not_spoken_of(host: Host) -> None:
    root, tasks = spools(host)
    (root / "15.prolog.gpu01.6.1.hook").write_bytes(env("prolog", SLURM_JOB_ID="15", SLURM_JOB_UID=str(ALICE)))
    owned(tasks / "15.taskprolog.gpu01.7.2.hook", env("taskprolog", **CLAIM), MALLORY)
    owned(tasks / "15.taskprolog.gpu01.7.3.hook", env("taskprolog", SLURM_JOB_ID="15"), ALICE)
    found = asked(host.runner("hooks"))
    assert [row.get("document") for row in found] == ["hook_spool", None, "task_hook", "task_environment"]
    assert "root's prolog gave to uid 20001" in found[1]["lines"]
    assert json.loads(found[2]["raw"])["owner_uid"] == ALICE and json.loads(found[2]["raw"])["confirmed"] is True


@needs_root
@pytest.mark.parametrize("event", ["prolog", "epilog", "prologslurmctld", "epilogslurmctld", "healthcheck", "unknown"])
@pytest.mark.parametrize("uid", [MALLORY, 0])
def test_nothing_in_the_users_folder_is_slurms_word(host: Host, event: str, uid: int) -> None:
    """A file of root's, too: without link protection a user can put one there."""
    _, tasks = spools(host)
    owned(tasks / "15.x.gpu01.7.1.hook", env(event, **CLAIM), uid)
    (line,) = asked(host.runner("hooks"))
    assert "document" not in line and "may not say what Slurm says" in line["lines"]


@needs_root
def test_a_users_file_in_roots_folder_is_not_believed(host: Host) -> None:
    root, _ = spools(host)
    owned(root / "15.epilog.gpu01.7.1.hook", env("epilog", **CLAIM), MALLORY)
    (line,) = asked(host.runner("hooks"))
    assert "document" not in line and "may not say what Slurm says" in line["lines"]


@needs_root
@pytest.mark.parametrize(
    "what", ["folder", "full folder", "link", "fifo", "hard link", "sparse", "nameless", "newline", "long", "device"]
)
def test_what_is_no_file_stops_nothing_and_holds_no_handle(host: Host, what: str) -> None:
    _, tasks = spools(host)
    odd, secret = tasks / "x.1.hook", host.put("/etc/secret", "faultline-hook/1\nSLURM_JOB_ID=1")
    if what.endswith("folder"):
        odd.mkdir()
        os.chown(odd, MALLORY, MALLORY)
        if what == "full folder":
            (odd / "a").mkdir()
    elif what == "link":
        odd.symlink_to(secret)
    elif what == "fifo":
        os.mkfifo(odd)
    elif what == "hard link":
        os.link(secret, odd)
    elif what == "sparse":
        with odd.open("wb") as stream:
            stream.truncate(100 << 30)
    elif what == "device":
        os.mknod(odd, 0o020644, os.makedev(1, 3))
    else:
        name = {"nameless": ".hook", "newline": "a\n\x1b[2J\r.1.hook", "long": "x" * 250 + ".hook"}[what]
        owned(tasks / name, b"nothing", MALLORY)
    owned(tasks / "16.taskprolog.gpu01.7.9.hook", env("taskprolog", SLURM_JOB_ID="16"), ALICE)
    runner = host.runner("hooks")
    found = asked(runner)
    assert [json.loads(r["raw"])["job_id"] for r in found if r.get("document") == "task_hook"] == [16]
    assert len([r for r in found if "lines" in r]) == (what != "nameless") and secret.exists()
    before = handles()
    for _ in range(5):
        host.wait(61)
        assert asked(runner) == []  # reported once
    assert handles() <= before


@needs_root
def test_bad_is_never_somebody_elses_folder(host: Host, tmp_path: Path) -> None:
    _, tasks = spools(host)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tasks / "bad").symlink_to(elsewhere)
    owned(tasks / "1.x.hook", b"nothing", MALLORY)
    asked(host.runner("hooks"))
    assert not list(elsewhere.iterdir()) and (tasks / "bad" / "1.x.hook").exists() and not (tasks / "bad").is_symlink()


@needs_root
def test_bad_of_a_user_is_put_away(host: Host) -> None:
    _, tasks = spools(host)
    (tasks / "bad").mkdir(mode=0o777)
    os.chown(tasks / "bad", MALLORY, MALLORY)
    owned(tasks / "1.x.hook", b"nothing", MALLORY)
    asked(host.runner("hooks"))
    about = (tasks / "bad").stat()
    assert (about.st_uid, about.st_mode & 0o777) == (0, 0o700) and (tasks / "bad" / "1.x.hook").exists()


@needs_root
def test_bad_is_bounded_and_what_goes_is_reported(host: Host) -> None:
    _, tasks = spools(host)
    for number in range(230):
        owned(tasks / f"{number}.x.hook", b"nothing", MALLORY)
    runner, stated = host.runner("hooks"), []
    for _ in range(4):
        stated += [row["lines"] for row in asked(runner)]
        host.wait(3)
    assert len(list((tasks / "bad").iterdir())) == 200 and not list(tasks.glob("*.hook"))
    assert len(stated) == 230 and sum("was removed, bad/ is full" in line for line in stated) == 30


@needs_root
def test_a_folder_in_the_place_of_the_lock_keeps_nobody_out(host: Host) -> None:
    _, tasks = spools(host)
    (tasks / ".reader").mkdir()
    os.chown(tasks / ".reader", MALLORY, MALLORY)
    owned(tasks / "16.taskprolog.gpu01.7.9.hook", env("taskprolog", SLURM_JOB_ID="16"), ALICE)
    assert len(asked(host.runner("hooks"))) == 1


@needs_root
@pytest.mark.parametrize(
    ("mode", "uid", "says"), [(0o777, 0, "chmod 0700"), (0o775, 0, "chmod 0700"), (0o1733, MALLORY, "chown root")]
)
def test_a_folder_that_users_may_change_is_not_read_and_the_other_is(
    host: Host, mode: int, uid: int, says: str
) -> None:
    root, tasks = spools(host)
    (root / "15.prolog.gpu01.6.1.hook").write_bytes(env("prolog", SLURM_JOB_ID="15"))
    tasks.chmod(mode)
    os.chown(tasks, uid, uid)
    tasks.chmod(mode)
    owned(tasks / "15.taskprolog.gpu01.7.1.hook", env("taskprolog", **CLAIM), MALLORY)
    runner = host.runner("hooks")
    assert [row["document"] for row in rows(runner.poll())] == ["hook_spool"]
    assert runner.status.state == "error" and says in runner.status.detail


def _names() -> list[str]:
    """Every example of the catalogue, as a valid file name."""
    found = [text for entry in patterns.load([]).entries for text in entry.examples]
    return sorted({text.text.replace("/", "|").replace("\0", "")[:240] for text in found})


def _events(made: list[dict[str, Any]]) -> list[str]:
    return [row["event"] for row in made if row["event"] not in (None, "other")]


def test_no_example_of_the_catalogue_is_an_event_when_it_is_quoted(host: Host) -> None:
    parser, names = LineParser(patterns.load([])), _names()
    assert len(names) > 200
    stated = [
        json.loads(wire.own_words("gpu01", "hooks", "a file was not read: odd", host.time, file=quoted(n)))
        for n in names
    ]
    units = [f"hook spool file={quoted(n)} is not read" for n in names]
    # All in one batch: the meaning of a line depends on no other.
    unit = {"source": "syslog", "read": stated[0]["read"]}
    for head, lines in ((stated[0], [row["lines"] for row in stated]), (unit, units)):
        rows = parsed(parser, [{**head, "lines": "\n".join(lines)}])
        assert len(rows) == len(names) and not _events(rows)


@needs_root
def test_hostile_names_in_the_folder_become_no_event(host: Host) -> None:
    _, tasks = spools(host)
    for number, name in enumerate(_names()[:90]):
        owned(
            tasks / os.fsdecode(f"{name}".encode()[:230].decode("utf-8", "ignore") + f".{number}.hook"), b"x", MALLORY
        )
    found = asked(host.runner("hooks"))
    assert len(found) > 60 and not _events(parsed(LineParser(patterns.load([])), found))
    assert all(row["source"] == "faultline-agent" for row in found)


_ENTRY = st.tuples(
    st.text(st.characters(blacklist_characters="/\0", blacklist_categories=("Cs",)), min_size=1, max_size=40),
    st.sampled_from([".hook", ".1.hook", ".hook.tmp", ""]),
    st.sampled_from(["file", "folder", "link", "fifo", "good"]),
    st.binary(max_size=60),
)


@needs_root
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_ENTRY, max_size=12))
def test_whatever_a_user_puts_there(entries: list[tuple[str, str, str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        host = Host(Path(name))
        root, tasks = spools(host)
        for stem, end, kind, data in entries:
            path = tasks / (stem + end)
            try:
                if kind == "folder":
                    path.mkdir()
                elif kind == "link":
                    path.symlink_to(root)
                elif kind == "fifo":
                    os.mkfifo(path)
                else:
                    path.write_bytes(env("taskprolog", SLURM_JOB_ID="15") + data if kind == "good" else data)
                os.chown(path, MALLORY, MALLORY, follow_symlinks=False)
            except OSError:
                continue
        owned(tasks / "16.taskprolog.gpu01.7.9.hook", env("taskprolog", SLURM_JOB_ID="16"), ALICE)
        (root / "17.prolog.gpu01.6.1.hook").write_bytes(env("prolog", SLURM_JOB_ID="17", SLURM_JOB_UID=str(ALICE)))
        before = handles()
        runner = host.runner("hooks")
        found = rows(runner.poll())
        assert [row["document"] for row in found if row.get("document") == "hook_spool"] == ["hook_spool"]
        words = [json.loads(row["raw"]) for row in found if row.get("document") == "task_hook"]
        assert (16, ALICE) in [(w["job_id"], w["owner_uid"]) for w in words]
        assert all(w["owner_uid"] == MALLORY for w in words if w["job_id"] != 16)
        runner.close()
        assert handles() <= before
