"""Fetching a job's files: what a user may name, and what must never result from it."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest

from collector.agent import artifacts
from collector.agent.artifacts import HEAD, TAIL, Artifact, Owner, Places, collect, fetch
from collector.agent.redaction import redact
from tests.collector.read_here import read_here

ROOT = os.geteuid() == 0
USER = 20001 if ROOT else os.getuid()
NOBODYS = Places(None, None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory of the job's user which that user can reach."""
    folder = tmp_path
    while ROOT and folder != Path("/tmp") and folder != Path("/"):
        folder.chmod(0o755)
        folder = folder.parent
    place = tmp_path / "home"
    place.mkdir()
    _give(place)
    return place


def _give(path: Path, uid: int = USER) -> Path:
    if ROOT:
        os.chown(path, uid, uid, follow_symlinks=False)
    return path


def owned(home: Path, name: str, content: bytes = b"hello\n") -> Path:
    """A file of the job's user."""
    path = home / name
    path.write_bytes(content)
    path.chmod(0o600)
    return _give(path)


def env(home: Path, **more: str) -> dict[str, str]:
    """The environment of a hook file."""
    base = {"SLURM_JOB_ID": "12", "SLURM_JOB_UID": str(USER), "SLURM_JOB_GID": str(USER if ROOT else os.getgid())}
    return {**base, "SLURM_JOB_USER": "alice", "SLURM_JOB_NAME": "train", "SLURM_JOB_WORK_DIR": str(home), **more}


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is no question of rights and time limits."""
    monkeypatch.setattr(artifacts, "_read_in_child", read_here)


@pytest.fixture(autouse=True)
def _time_for_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not read in ten seconds is left out: on a busy machine that proves nothing about the code."""
    monkeypatch.setitem(artifacts.fetch.__kwdefaults__, "time_limit_s", 300.0)


def one(home: Path, path: str) -> Artifact:
    """The result for a job with --output=PATH."""
    (artifact,) = collect(env(home, SLURM_JOB_STDOUT=path), NOBODYS)
    assert artifact.kind == "stdout"
    return artifact


def refused(artifact: Artifact, why: str) -> bool:
    """Nothing of the file, and the reason in words."""
    return why in (artifact.reason or "") and (artifact.content, artifact.sha256) == (b"", "")


def test_the_output_of_a_job(home: Path) -> None:
    owned(home, "train-12.out", b"step 1\n")
    artifact = one(home, "%x-%j.out")
    assert artifact.path == str(home / "train-12.out")
    assert (artifact.content, artifact.truncated, artifact.reason) == (b"step 1\n", False, None)
    assert artifact.sha256 == hashlib.sha256(b"step 1\n").hexdigest()


@pytest.mark.parametrize("event", ["prolog", "prologslurmctld"])
@pytest.mark.usefixtures("in_process")
def test_before_a_job_writes_its_output_is_an_earlier_runs(home: Path, event: str) -> None:
    """Of a requeued run, or of another job with ``--output=train.out``: slurmd has not truncated the file yet."""
    owned(home, "train.out", b"CUDA error of yesterday\n")
    state = home / "state"
    (state / "hash.2/job.12").mkdir(parents=True)
    (state / "hash.2/job.12/script").write_bytes(b"#!/bin/sh\n\0")
    found = collect(env(home, SLURM_JOB_STDOUT="train.out", FAULTLINE_EVENT=event), Places(state, None))
    assert [one.kind for one in found] == ["script"]


@pytest.mark.usefixtures("in_process")
def test_output_and_error_in_one_file_are_read_once(home: Path) -> None:
    owned(home, "both")
    owned(home, "err")
    both = collect(env(home, SLURM_JOB_STDOUT="both", SLURM_JOB_STDERR="both"), NOBODYS)
    two = collect(env(home, SLURM_JOB_STDOUT="both", SLURM_JOB_STDERR="err"), NOBODYS)
    assert [x.kind for x in both] == ["stdout"]
    assert [x.kind for x in two] == ["stdout", "stderr"]


@pytest.mark.skipif(not ROOT, reason="only root could read it in the first place")
def test_the_shadow_file(home: Path) -> None:
    assert refused(one(home, "/etc/shadow"), "permission denied")


def test_a_file_of_somebody_else(home: Path) -> None:
    assert refused(one(home, "/etc/hostname" if ROOT else "/etc/passwd"), "belongs to uid 0")


@pytest.mark.skipif(not ROOT, reason="needs two users")
def test_somebody_elses_home_is_closed(home: Path) -> None:
    private = home.parent / "private"
    private.mkdir(mode=0o700)
    _give(owned(private, "diary"), USER)
    assert refused(one(home, str(private / "diary")), "permission denied")


def test_a_symbolic_link(home: Path) -> None:
    owned(home, "real")
    (home / "link").symlink_to("real")
    _give(home / "link")
    assert refused(one(home, "link"), "symbolic link")


@pytest.mark.parametrize("reader", [False, True])
def test_a_fifo_does_not_hang(home: Path, reader: bool) -> None:
    os.mkfifo(home / "pipe", 0o600)
    _give(home / "pipe")
    other_end = os.open(home / "pipe", os.O_RDWR) if reader else None
    assert refused(one(home, "pipe"), "not a regular file")
    if other_end is not None:
        os.close(other_end)


def test_a_directory_a_device_and_nothing(home: Path) -> None:
    _give(home)
    assert refused(one(home, str(home)), "not a regular file")
    assert refused(one(home, "/dev/zero"), "not a regular file")
    assert refused(one(home, "missing"), "no such file")
    assert refused(one(home, "x" * 300), "file name too long")
    assert refused(fetch("stdout", "a\0b", Owner(USER, USER, (), ROOT)), "not a path")


@pytest.mark.usefixtures("in_process")
def test_a_name_with_line_ends_is_a_name(home: Path) -> None:
    """It names one file, and what is reported of it stays on one line."""
    owned(home, "a\nkernel: NVRM: Xid 79\nb", b"hello\n")
    assert one(home, "a\nkernel: NVRM: Xid 79\nb").content == b"hello\n"
    missing = one(home, "no\nsuch")
    assert refused(missing, "no such file") and "\n" not in (missing.reason or "")


def test_a_hundred_gigabytes(home: Path) -> None:
    path = owned(home, "huge")
    with path.open("r+b") as file:
        file.write(b"first\n" * (HEAD // 6 + 1))
        file.truncate(100 << 30)
        file.seek(-(TAIL - 10), os.SEEK_END)
        file.write(b"x" * 100 + b"\n" + b"last\n" * ((TAIL - 116) // 5))
    artifact = one(home, "huge")  # reading all of it would exceed the limit
    assert artifact.truncated
    assert len(artifact.content) <= HEAD + TAIL + 100
    assert artifact.content.startswith(b"first\nfirst\n")
    assert b"bytes left out]\nlast\nlast\n" in artifact.content


@pytest.mark.usefixtures("in_process")
def test_head_and_tail_do_not_overlap(home: Path) -> None:
    for size in (HEAD - 1, HEAD, HEAD + 1, HEAD + TAIL, HEAD + TAIL + 1):
        content = (b"%063d\n" * (size // 64 + 1) % tuple(range(size // 64 + 1)))[:size]
        owned(home, "out", content)
        artifact = one(home, "out")
        assert artifact.truncated == (size > HEAD + TAIL)
        if not artifact.truncated:
            assert artifact.content == content
        else:
            kept = [line for line in artifact.content.split(b"\n") if line.isdigit()]
            assert len(kept) == len(set(kept))


@pytest.mark.usefixtures("in_process")
def test_a_secret_is_taken_out_even_where_the_cut_tears_it(home: Path) -> None:
    secret = b"hf_" + b"Q" * 34
    line = b"export HF_TOKEN=" + secret + b"\n"
    filler = b"y" * (HEAD - 20) + b"\n"
    owned(home, "out", filler + line + b"z" * (2 << 20) + b"\n" + line + b"-" * (TAIL - 30) + b"\n")
    artifact = one(home, "out")
    assert b"Q" not in artifact.content
    owned(home, "out", b"begin\n" + line)
    artifact = one(home, "out")
    assert (artifact.redacted, artifact.content) == (1, b"begin\nexport HF_TOKEN=[redacted]\n")
    assert artifact.sha256 == hashlib.sha256(artifact.content).hexdigest()


def test_a_file_system_that_does_not_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owned(home, "out")
    monkeypatch.setattr(artifacts, "_read_file", lambda path, uid: time.sleep(600))
    begin = time.monotonic()
    artifact = fetch("stdout", str(home / "out"), Owner(USER, USER, (USER,), ROOT), time_limit_s=0.3)
    assert refused(artifact, "no answer from the file system in 0.3 s")
    assert time.monotonic() - begin < 300, "it was waited for"
    until = time.monotonic() + 120  # a busy machine takes a while to end the child; the next call collects it
    while artifacts._left_behind and time.monotonic() < until:
        time.sleep(0.05)
        artifacts._left_behind.difference_update([c for c in artifacts._left_behind if artifacts._is_gone(c)])
    assert artifacts._left_behind == set()


@pytest.mark.parametrize("uid", ["0", "-1", "root", "", "4294967295", "99999999999"])
def test_without_a_user_nothing_is_read(home: Path, uid: str) -> None:
    owned(home, "out")
    assert collect({**env(home, SLURM_JOB_STDOUT="out"), "SLURM_JOB_UID": uid}) == []
    assert collect({}) == []


def test_many_threads_at_once(home: Path) -> None:
    owned(home, "out", b"line\n" * 10_000)
    found: list[Artifact] = []
    threads = [threading.Thread(target=lambda: found.append(one(home, "out"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert {artifact.reason for artifact in found} == {None}
    assert len({artifact.sha256 for artifact in found}) == 1
    assert len(found) == 4


@pytest.mark.usefixtures("in_process")
def test_the_script_from_the_nodes_spool_or_the_controllers_state(home: Path) -> None:
    spool, state = home / "slurmd", home / "slurmctld"
    (spool / "job00012").mkdir(parents=True)
    (state / "hash.2" / "job.12").mkdir(parents=True)
    places = Places(state_save=state, slurmd_spool=spool)

    def script(**more: str) -> Artifact:
        (found,) = (x for x in collect({**env(home), **more}, places) if x.kind == "script")
        return found

    missing = script()
    assert refused(missing, "no such file")
    kept = state / "hash.2" / "job.12" / "script"
    kept.write_bytes(b"#!/bin/sh\nsrun b\n\0")
    artifact = script()
    assert (artifact.kind, artifact.path, artifact.content) == ("script", str(kept), b"#!/bin/sh\nsrun b\n")
    owned(spool / "job00012", "slurm_script", b"#!/bin/sh\nsrun a\n")
    artifact = script()
    assert artifact.content == b"#!/bin/sh\nsrun a\n"
    of_array = script(SLURM_JOB_ID="99", SLURM_ARRAY_JOB_ID="12")
    assert of_array.content == b"#!/bin/sh\nsrun a\n"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b"ghp_abcdefghijklmnopqrstuvwxyz0123456789", b"[redacted]"),
        (b"sk-proj-abcdefghijklmnop_qrst", b"[redacted]"),
        (b"AKIAABCDEFGHIJKLMNOP", b"[redacted]"),
        (b"Authorization: Bearer abc.def-ghi", b"Authorization: [redacted]"),
        (b"pip install https://user:pass@host/x", b"pip install https://[redacted]@host/x"),
        (b'{"api_key": "x y", "lr": 0.1}', b'{"api_key": "[redacted]", "lr": 0.1}'),
        (b"AWS_SECRET_ACCESS_KEY=a/b+c", b"AWS_SECRET_ACCESS_KEY=[redacted]"),
        (b"PASSWORD=123456", b"PASSWORD=[redacted]"),
        (b"KEY=value", b"KEY=[redacted]"),
        (b"mysql --password hunter2", b"mysql --password [redacted]"),
        (b"-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nx", b"[redacted]\n[redacted]\n[redacted]\nx"),
        (b"max_tokens: 4096, pad_token=0, tokenizer=gpt2", b"max_tokens: 4096, pad_token=0, tokenizer=gpt2"),
        (b"monkey=3 keyboard: qwerty task-1 disk-usage", b"monkey=3 keyboard: qwerty task-1 disk-usage"),
    ],
)  # fmt: skip
def test_redaction(text: bytes, kept: bytes) -> None:
    assert redact(text) == (kept, int(text != kept))


@pytest.mark.parametrize(
    "word",
    [
        b"A", b"x://x:", b'key="', b"_",
        *(pytest.param(word, marks=pytest.mark.long) for word in (b"eyJ", b"-KEY", b"TOKEN ", b"a-", b"authorization ")),
    ],
)  # fmt: skip
def test_redaction_of_a_hostile_text_is_fast(word: bytes) -> None:
    begin = time.thread_time()
    redact(word * ((HEAD + TAIL) // 2 // len(word)))
    assert time.thread_time() - begin < 10, "work that grows with the square of the text takes half a minute"
