"""Output of jobs that run: lines that look like a failure within a look, and nothing that a user can do with the paths."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_host import Host, asked, rows

from collector.agent import artifacts
from collector.agent.config import validate
from collector.agent.sources import job_output as source
from collector.agent.sources.job_output import looks_like_failure
from parsers import patterns
from tests.collector.read_here import read_here

ROOT = os.geteuid() == 0
USER = 20001 if ROOT else os.getuid()
GROUP = 20001 if ROOT else os.getgid()


@pytest.fixture
def home(host: Host) -> Path:
    folder = host.root
    while ROOT and folder not in (Path("/tmp"), Path("/")):
        folder.chmod(0o755)
        folder = folder.parent
    place = host.root / "home"
    place.mkdir()
    os.chown(place, USER, GROUP)
    return place


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is no question of rights and time limits. These tests look dozens of times."""
    monkeypatch.setattr(artifacts, "_read_in_child", read_here)


def begin(host: Host, home: Path, output: str, job: int = 15, **more: str) -> None:
    host.context.jobs.began({
        "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(USER), "SLURM_JOB_GID": str(GROUP), "SLURM_JOB_USER": "alice",
        "SLURM_JOB_STDOUT": output, "SLURM_JOB_WORK_DIR": str(home), "SLURMD_NODENAME": "gpu01", "SLURM_JOB_RESTART_COUNT": "0",
        "SLURM_CLUSTER_NAME": "mini", **more,
    })  # fmt: skip


def write(path: Path, text: str) -> Path:
    with path.open("a") as file:
        file.write(text)
    os.chown(path, USER, GROUP)
    return path


def said(found: list[dict[str, Any]]) -> list[str]:
    return [row["lines"] for row in found if row["source"] == "faultline-agent"]


def sent(found: list[dict[str, Any]]) -> list[str]:
    return [line for row in found if row["source"] != "faultline-agent" for line in row["lines"].split("\n")]


def test_a_failure_is_sent_while_the_job_runs(host: Host, home: Path) -> None:
    begin(host, home, "ring-%j.out", SLURM_JOB_RESTART_COUNT="1")
    path = write(home / "ring-15.out", "step 1\nstep 2\n")
    runner = host.runner("job_output")
    assert asked(runner) == []
    write(path, "export HF_TOKEN=hf_" + "Q" * 34 + " failed\nstep 3\nRuntimeError: CUDA error: device-side ass")
    host.wait(1)
    (row,) = asked(runner)
    about = {
        name: row[name] for name in ("source", "path", "host", "cluster", "job_id", "restarts", "tags")
    }  # what the epilog's own will say, and that it is early
    assert about == {"source": "job_stdout", "path": str(path), "host": "gpu01", "cluster": "mini", "job_id": 15, "restarts": 1, "tags": ["live"]}  # fmt: skip
    assert row["lines"] == "export HF_TOKEN=[redacted] failed"
    write(path, "ert triggered\n")
    host.wait(1)
    assert sent(asked(runner)) == ["RuntimeError: CUDA error: device-side assert triggered"]
    host.context.jobs.ended("15")
    write(path, "Error: after the epilog\n")
    host.wait(60)
    assert sent(asked(runner)) == []


@pytest.mark.usefixtures("in_process")
def test_an_agent_that_starts_anew_goes_on_where_it_was(host: Host, home: Path) -> None:
    begin(host, home, "out-15")
    path = write(home / "out-15", "error one\n")
    runner = host.runner("job_output")
    assert sent(asked(runner)) == ["error one"]
    runner.close()
    write(path, "error two\n")
    again = host.runner("job_output", json.loads(json.dumps(runner.positions)))
    assert sent(asked(again)) == ["error two"]
    path.write_text("error three\n")  # truncated, as a requeued job does
    host.wait(1)
    assert sent(asked(again)) == ["error three"]


@pytest.mark.usefixtures("in_process")
def test_a_file_that_does_not_grow_is_looked_at_less_and_less(
    host: Host, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(host, home, "out-15")
    path, runner, looks = write(home / "out-15", "step\n"), host.runner("job_output"), []
    ask = artifacts.part

    def counted(*given: Any) -> Any:
        looks.append(host.uptime)
        return ask(*given)

    monkeypatch.setattr(artifacts, "part", counted)
    for _ in range(100):
        assert asked(runner) == []
        host.wait(1)
    gaps = [round(b - a) for a, b in itertools.pairwise(looks)]
    assert gaps[:2] == [1, 2] and gaps == sorted(gaps) and gaps[-1] == 30 and len(looks) < 12
    write(path, "Killed\n")
    for _ in range(31):
        host.wait(1)
        if sent(asked(runner)):
            break
    looks.clear()
    host.wait(1)
    asked(runner)
    assert len(looks) == 1, "it grew: it is looked at again at once"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: os.mkfifo(path), "not a regular file"),
        (lambda path: path.symlink_to("/etc/passwd"), "a symbolic link"),
        (lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
        (lambda path: path.mkdir(), "not a regular file"),
        (lambda path: path.write_text("root's\n"), "belongs to uid 0"),
    ],
)
def test_what_is_no_file_of_the_user_is_named_once_and_left_alone(make: Any, why: str, host: Host, home: Path) -> None:
    if not ROOT:
        pytest.skip("needs root: files of two users")
    make(home / "out-15")
    if (home / "out-15").is_fifo():
        os.chown(home / "out-15", USER, GROUP)
    begin(host, home, "out-15")
    runner = host.runner("job_output")
    (line,) = said(asked(runner))
    assert "job 15: stdout is not followed: " in line and why in line and str(home) not in line
    host.wait(60)
    assert asked(runner) == []


@pytest.mark.parametrize("path", ["/dev/zero", "/etc/shadow", "/proc/kmsg"])
def test_files_of_the_system_are_not_read(path: str, host: Host, home: Path) -> None:
    begin(host, home, path)
    found = asked(host.runner("job_output"))
    assert len(said(found)) == 1 and not sent(found)


def test_a_file_that_becomes_a_link_between_two_looks_is_not_followed(host: Host, home: Path) -> None:
    begin(host, home, "out-15")
    path, runner = write(home / "out-15", "error mine\n"), host.runner("job_output")
    assert sent(asked(runner)) == ["error mine"]
    secret = host.put("/secret", "error secret\n")
    secret.chmod(0o600)
    path.unlink()
    path.symlink_to(secret)
    host.wait(1)
    found = asked(runner)
    assert not sent(found) and "a symbolic link" in said(found)[0]


@pytest.mark.usefixtures("in_process")
def test_a_hundred_gigabytes_are_skipped_and_an_endless_line_is_no_loop(host: Host, home: Path) -> None:
    path = write(home / "out-15", "step\n")
    with path.open("r+b") as file:
        file.truncate(100 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nerror at the end\n")
    begin(host, home, "out-15")
    runner = host.runner("job_output")
    assert sent(asked(runner)) == ["error at the end"]
    with path.open("ab") as file:
        file.write(b"x" * (200 << 10) + b"\nerror behind it\n")
    found: list[str] = []
    for _ in range(8):
        host.wait(1)
        found += sent(asked(runner))
    assert found == ["error behind it"]
    host.context.jobs.ended("15")
    host.wait(1)
    (line,) = said(asked(runner))
    assert "0 lines and" in line and "bytes were not sent while it ran" in line


@pytest.mark.usefixtures("in_process")
def test_a_storm_is_bounded_in_bytes_and_lines(host: Host, home: Path) -> None:
    path = write(home / "out-15", "".join(f"error {number}\n" for number in range(3000)))
    begin(host, home, "out-15")
    runner = host.runner("job_output", bytes_per_s=8192)
    size = 0
    for _ in range(3):
        found = asked(runner)
        assert len(sent(found)) <= source.MOST_LINES
        size += sum(len(row["lines"]) for row in found)
        host.wait(1)
    assert 0 < size <= 3 * 8192 < path.stat().st_size


@pytest.mark.usefixtures("in_process")
def test_what_warns_all_day_is_sent_sparingly(host: Host, home: Path) -> None:
    begin(host, home, "out-15")
    path, runner, count = write(home / "out-15", ""), host.runner("job_output"), 0
    for _ in range(12):
        write(path, "warning: again\n" * 80)
        count += len(sent(asked(runner)))
        host.wait(1)
    assert count == source.BURST + 11 * source.LINES_A_S
    host.context.jobs.ended("15")
    (line,) = said(asked(runner))
    assert f"{12 * 80 - count} lines and 0 bytes" in line


@pytest.mark.usefixtures("in_process")
def test_no_more_files_than_allowed_and_the_others_are_named(host: Host, home: Path) -> None:
    for job in (1, 2, 3):
        begin(host, home, f"{job}.out", job)
        write(home / f"{job}.out", f"error of {job}\n")
    runner = host.runner("job_output", files=2)
    found = asked(runner)
    assert sent(found) == ["error of 1", "error of 2"]
    assert len(said(found)) == 1 and "job 3" in said(found)[0] and "2 files" in said(found)[0]
    host.context.jobs.ended("1")
    host.wait(1)
    assert sent(asked(runner)) == ["error of 3"]


def test_a_file_system_that_hangs_holds_one_look_and_is_not_asked_again(
    host: Host, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home / "out-15", "error\n")
    write(home / "other-16", "error of another job\n")
    begin(host, home, "out-15")
    begin(host, home, "other-16", 16)
    really = artifacts._open

    def hang(path: str, uid: int) -> Any:
        if path.endswith("/out-15"):
            time.sleep(600)
        return really(path, uid)

    monkeypatch.setattr(artifacts, "_open", hang)
    runner = host.runner("job_output", answer_s=0.3)
    found = asked(runner)
    assert sent(found) == ["error of another job"]
    assert "no answer from the file system in 0.3 s" in said(found)[0]
    begun = time.monotonic()
    host.wait(60)
    assert asked(runner) == [] and time.monotonic() - begun < 300, "it was waited for"


def test_children_that_hang_are_bounded(host: Host, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / "out-15", "error\n")
    begin(host, home, "out-15")
    monkeypatch.setattr(artifacts, "hanging", lambda: source.MOST_HUNG)
    runner = host.runner("job_output")
    assert rows(runner.poll()) == [] and runner.status.state == "error" and "hang in the kernel" in runner.status.detail


@pytest.mark.usefixtures("in_process")
def test_a_progress_bar_that_ends_no_line_keeps_it_watched(host: Host, home: Path) -> None:
    begin(host, home, "out-15")
    path, runner = write(home / "out-15", "step\n"), host.runner("job_output")
    for done in range(20):
        assert asked(runner) == []
        write(path, f"\r{done}%")
        host.wait(1)
    write(path, "\rKilled\n")
    host.wait(1)
    assert sent(asked(runner)) == ["Killed"]


@pytest.mark.usefixtures("in_process")
def test_a_file_that_is_made_late_is_found(host: Host, home: Path) -> None:
    begin(host, home, "out-15")
    runner = host.runner("job_output")
    assert asked(runner) == []
    write(home / "out-15", "Killed\n")
    host.wait(source.LATE_S)
    assert sent(asked(runner)) == ["Killed"]


def hook(host: Host, event: str, folder: str = "/var/spool/faultline/hooks", uid: int = 0, **more: str) -> None:
    env = {
        "FAULTLINE_EVENT": event, "FAULTLINE_HOST": "gpu01", "SLURM_JOB_ID": "15", "SLURM_JOB_UID": str(USER), "SLURM_JOB_GID": str(GROUP),
        "SLURM_JOB_NUM_NODES": "2", "SLURMD_NODENAME": "gpu01", "SLURM_NODELIST": "gpu[01-02]", **more,
    }  # fmt: skip
    name = f"{folder}/15.{event}.gpu01.{len(more)}.{int(host.time * 1e9)}.hook"
    path = host.put(name, "faultline-hook/1\n" + "\0".join(f"{key}={value}" for key, value in env.items()))
    if folder.endswith("task-hooks"):
        path.parent.chmod(0o1733)
        os.chown(path, uid, uid)


def polled(host: Host, runner: Any) -> None:
    host.wait(3)
    for reading in runner.poll():
        if reading.kept:
            reading.kept()


@pytest.fixture
def hooks(host: Host) -> Iterator[Any]:
    runner = host.runner("hooks")
    yield runner
    runner.close()


@pytest.mark.skipif(not ROOT, reason="needs root: files of several users")
def test_from_prolog_to_epilog_with_the_name_that_only_the_user_tells(host: Host, home: Path, hooks: Any) -> None:
    where = {"SLURM_JOB_STDOUT": "%x-%j.out", "SLURM_JOB_WORK_DIR": str(home)}
    write(home / "train-15.out", "NCCL error\n")
    hook(host, "prolog", **where)
    polled(host, hooks)
    runner = host.runner("job_output")
    assert asked(runner) == [], "slurmd's prolog has no name of the job"
    hook(host, "taskprolog", "/var/spool/faultline/task-hooks", 20002, SLURM_JOB_NAME="other")
    hook(host, "taskprolog", "/var/spool/faultline/task-hooks", USER, SLURM_JOB_NAME="train", SLURM_PROCID="0")
    polled(host, hooks)
    assert sent(asked(runner)) == ["NCCL error"]

    held = json.loads(json.dumps(hooks.positions))
    hooks.close()
    host.context.jobs.ended("15")
    again = host.runner("hooks", held)
    polled(host, again)
    assert host.context.jobs.known()["15"]["SLURM_JOB_NAME"] == "train", "over a start of the agent"
    hook(host, "epilog", **where)
    polled(host, again)
    assert host.context.jobs.known() == {}
    again.close()


@pytest.mark.skipif(not ROOT, reason="needs root: files of several users")
def test_no_other_node_of_the_job_follows_it_and_no_boot_is_outlived(host: Host, hooks: Any) -> None:
    hook(host, "prolog", SLURMD_NODENAME="gpu02")
    polled(host, hooks)
    assert host.context.jobs.known() == {}
    hook(host, "prolog", MORE="x")
    polled(host, hooks)
    assert list(host.context.jobs.known()) == ["15"]
    held = json.loads(json.dumps(hooks.positions))
    hooks.close()
    host.context.jobs.ended("15")
    host.put("/proc/sys/kernel/random/boot_id", "another")
    again = host.runner("hooks", held)
    list(again.poll())
    assert host.context.jobs.known() == {}
    again.close()


def test_every_example_of_a_jobs_failure_is_sent() -> None:
    ours = [pattern for pattern in patterns.load().entries if pattern.event.startswith("job.") and pattern.of_job]
    texts = [example.text for pattern in ours for example in pattern.examples]
    assert len(texts) > 100 and not [text for text in texts if not looks_like_failure(text.encode())]


@pytest.mark.parametrize(
    "line",
    [
        "step 1200/90000 loss 2.417 lr 3.0e-4 tokens/s 41200 grad_norm 0.83",
        "gpu01:812:901 [0] NCCL INFO Channel 03/0 : 1[1] -> 2[2] via P2P/CUMEM",
        "Epoch 3:  42%|####      | 420/1000 [01:12<01:39,  5.8it/s]",
        "2026-11-29 02:00:00 INFO saved checkpoint to /scratch/alice/ck/001200",
    ],
)
def test_what_a_job_writes_all_day_is_not_sent(line: str) -> None:
    assert not looks_like_failure(line.encode())


def test_a_site_can_turn_it_off() -> None:
    config = {"server": "http://x", "sources": {"job_output": {"enabled": False}}}
    assert "job_output" not in validate(config, "t").enabled()
    assert validate({"server": "http://x"}, "t").enabled()["job_output"][1]["slowest_s"] == 30.0


@pytest.mark.parametrize("appends", [True, False])
@pytest.mark.usefixtures("in_process")
def test_what_an_earlier_run_wrote_into_the_same_file_is_not_this_runs(host: Host, home: Path, appends: bool) -> None:
    """A requeued run, or another job with ``--output=train.out``: the file is there before slurmd opens it."""
    path = write(home / "out", "error: *** JOB 15 ON gpu01 CANCELLED AT 2026-11-30T14:02:28 DUE TO NODE FAILURE ***\n")
    os.utime(path, (1_000_000, 1_000_000))
    begin(host, home, "out", FAULTLINE_TIME="1000100.5")
    runner = host.runner("job_output")
    assert asked(runner) == []
    if not appends:
        path.write_text("")
    write(path, "error of this run\n")
    host.wait(2)
    assert sent(asked(runner)) == ["error of this run"]


EARLIER = "error: *** JOB 104711 ON gpu01 CANCELLED AT 2026-11-30T14:02:28 DUE TO NODE FAILURE ***\n"


@pytest.mark.parametrize(("restarts", "name"), [("1", "out-104711"), ("0", "train.out")], ids=["requeued", "shared"])
@pytest.mark.usefixtures("in_process")
def test_what_was_there_before_an_appending_run_is_not_its_own_even_if_it_writes_at_once(
    host: Host, home: Path, restarts: str, name: str
) -> None:
    path = write(home / name, EARLIER + "error: at once\n")
    begin(host, home, name, 104711, SLURM_JOB_RESTART_COUNT=restarts)
    runner = host.runner("job_output")
    assert asked(runner) == []
    runner.close()
    write(path, "error: while the agent was down\n")
    again = host.runner("job_output", json.loads(json.dumps(runner.positions)))
    assert sent(asked(again)) == ["error: while the agent was down"], "what is passed over stays so"
    write(path, "error: later\n")
    host.wait(2)
    assert sent(asked(again)) == ["error: later"]


@pytest.mark.usefixtures("in_process")
def test_the_bytes_that_were_passed_over_are_told_when_the_job_ends(host: Host, home: Path) -> None:
    write(home / "out", EARLIER)
    begin(host, home, "out", 104711, SLURM_JOB_RESTART_COUNT="1")
    runner = host.runner("job_output")
    assert asked(runner) == []
    host.context.jobs.ended("104711")
    host.wait(1)
    (told,) = said(asked(runner))
    assert f"{len(EARLIER)} bytes that it held when it was first seen" in told and "lines" not in told


@pytest.mark.usefixtures("in_process")
def test_a_file_that_was_seen_absent_is_this_runs_from_its_start(host: Host, home: Path) -> None:
    begin(host, home, "train.out", 104711, SLURM_JOB_RESTART_COUNT="1")
    runner = host.runner("job_output")
    assert asked(runner) == []
    write(home / "train.out", "error: at once\n")
    host.wait(source.LATE_S)
    assert sent(asked(runner)) == ["error: at once"]


@pytest.mark.usefixtures("in_process")
def test_a_file_that_is_truncated_and_outgrows_its_former_size_between_two_looks(host: Host, home: Path) -> None:
    """slurmd keeps the file, and the run has soon written more than the one before."""
    path = write(home / "out", EARLIER)
    os.utime(path, (1_000_000, 1_000_000))
    begin(host, home, "out", 104711, SLURM_JOB_RESTART_COUNT="1", FAULTLINE_TIME="1000100.5")
    runner = host.runner("job_output")
    assert asked(runner) == []
    runner.close()
    path.write_text("CUDA error: the first one\n" + "step\n" * 100)
    again = host.runner("job_output", json.loads(json.dumps(runner.positions)))
    assert sent(asked(again)) == ["CUDA error: the first one"]
    path.write_text("CUDA error: the second one\n" + "step\n" * 200)
    host.wait(2)
    assert sent(asked(again)) == ["CUDA error: the second one"]
    host.context.jobs.ended("104711")
    host.wait(1)
    assert asked(again) == [], "nothing was passed over"


@pytest.mark.usefixtures("in_process")
def test_the_end_of_a_line_that_was_passed_over_is_not_sent(host: Host, home: Path) -> None:
    """A secret in it would not be recognised."""
    path = write(home / "out", "failed: HF_TOKEN=hf_" + "Q" * 20)
    begin(host, home, "out", 104711, SLURM_JOB_RESTART_COUNT="1")
    runner = host.runner("job_output")
    assert asked(runner) == []
    write(path, "Q" * 14 + " failed\nerror: whole\n")
    host.wait(2)
    assert sent(asked(runner)) == ["error: whole"]


@pytest.mark.usefixtures("in_process")
def test_a_place_outlives_a_start_in_which_jobs_become_known_later(host: Host, home: Path) -> None:
    """Each source starts in its own thread, and the jobs are known from the source of hooks."""
    begin(host, home, "out-15")
    path, runner = write(home / "out-15", "error one\n"), host.runner("job_output")
    assert sent(asked(runner)) == ["error one"]
    runner.close()
    host.context.jobs.ended("15")
    again = host.runner("job_output", json.loads(json.dumps(runner.positions)))
    assert asked(again) == []
    begin(host, home, "out-15")
    write(path, "error two\n")
    host.wait(2)
    assert sent(asked(again)) == ["error two"]


@pytest.mark.usefixtures("in_process")
def test_files_of_steps_are_followed_as_well(host: Host, home: Path) -> None:
    begin(host, home, "ring.out")
    own, step = write(home / "ring.out", ""), write(home / "step.out", "")
    runner = host.runner("job_output")
    asked(runner)
    host.context.jobs.wrote("15", [("stdout", str(own)), ("stderr", str(step))])
    host.wait(1)
    asked(runner)
    write(own, "Error: of the script\n")
    write(step, "Error: of a step\nstep 4\n")
    host.wait(30)
    found = {(row["path"], row["source"], row["lines"]) for row in asked(runner)}
    assert found == {(str(own), "job_stdout", "Error: of the script"), (str(step), "job_stderr", "Error: of a step")}
    host.context.jobs.ended("15")
    write(step, "Error: too late\n")
    host.wait(30)
    assert asked(runner) == [] and host.context.jobs.steps("15") == ()


@pytest.mark.usefixtures("in_process")
def test_files_of_steps_leave_room_for_the_output_of_jobs(host: Host, home: Path) -> None:
    """Of six places a job's steps get three, and what is not followed is told once."""
    begin(host, home, "first.out", job=1)
    host.context.jobs.wrote("1", [("stdout", str(write(home / f"step{n}.out", ""))) for n in range(9)])
    runner = host.runner("job_output", files=6)
    told = said(asked(runner))
    assert len(told) == 1 and "3 files of steps are" in told[0], "4 of a job at most, of which one has no place"
    begin(host, home, "second-%j.out", job=2)
    write(home / "second-2.out", "Error: seen\n")
    host.wait(1)
    assert sent(asked(runner)) == ["Error: seen"]


@pytest.mark.skipif(not ROOT, reason="needs root")
def test_a_file_of_a_step_is_opened_as_the_jobs_user(host: Host, home: Path) -> None:
    begin(host, home, "ring.out")
    secret = home / "secret.out"
    secret.write_text("Error: of root\n")
    secret.chmod(0o600)
    host.context.jobs.wrote("15", [("stdout", str(secret))])
    (told,) = said(asked(host.runner("job_output")))
    assert "is not followed" in told
