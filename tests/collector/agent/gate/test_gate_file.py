"""The gate's answer as a prolog reads it, in Python, in each shell and by the installed program: forged, stale, cut, odd and
missing ones are doubtful, and never refuse a job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector import hooks
from collector.agent.exported import hook_file
from collector.agent.gate.answer_file import (
    ANSWER,
    KEY,
    MOST_BYTES,
    MOST_REASONS,
    MOST_TEXT,
    VERDICTS,
    Answer,
    body_of,
    read,
    signed,
    word,
)
from collector.agent.hook_failures import words
from parsers.documents import read as parse_document
from parsers.documents.hook import read_spool
from parsers.record import Origin
from tests.deploy.installed import lay_out

SCRIPTS = Path(__file__).resolve().parents[4] / "deploy" / "slurm"
SHELLS = {"sh": ["/bin/sh"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
SECRET = b"k" * 32
REASON = "GPU 0000:1b:00 reported Xid 79; $(touch /tmp/never) `id` \\n %s"


def uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def unfit(**more: object) -> Answer:
    """An unfit answer that refuses jobs."""
    now = int(uptime())
    fresh = Answer("gpu01", "unfit", (REASON, "second"), BOOT, now - 10, now + 500, now + 400, 5)
    return replace(fresh, **more)  # type: ignore[arg-type]


def put(folder: Path, data: bytes, key: bytes = SECRET) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, content in ((KEY, key), (ANSWER, data)):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    return folder


#: Asks with the answer in a folder, and more variables of the environment; gives exit code and lines.
Gate = Callable[..., tuple[int, list[str]]]


@pytest.fixture(params=["python", "program", *SHELLS])
def gate(request: pytest.FixtureRequest, tmp_path: Path) -> Gate:
    """Exit code and lines of the gate: in Python, as the installed ``faultline``, and as the script in each shell."""
    kind = str(request.param)
    if kind in SHELLS and not shutil.which(SHELLS[kind][0]):
        pytest.skip(f"no {SHELLS[kind][0]} on this machine")
    if kind == "python":
        command = [sys.executable, "-m", "collector.hooks", "prolog", "--gate"]
    elif kind == "program":
        command = [str(lay_out(tmp_path / "bin", "#!/bin/sh\nexit 9\n")), "hook", "prolog", "--gate"]
    else:
        command = [*SHELLS[kind], str(SCRIPTS / "faultline-gate.sh")]

    def ask(folder: Path, **more: str) -> tuple[int, list[str]]:
        environment = {
            **more,
            "FAULTLINE_GATE": str(folder),
            "FAULTLINE_HOOK_SPOOL": str(folder.parent / "spool"),
            "PYTHONPATH": str(SCRIPTS.parents[1]),
        }
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        assert done.stderr == b""
        return done.returncode, done.stdout.decode().splitlines()

    return ask


def test_an_answer_is_printed_and_an_allowed_refusal_is_the_exit_code(gate: Gate, tmp_path: Path) -> None:
    code, lines = gate(put(tmp_path / "g", signed(unfit(), SECRET)))
    age = int(lines[0].rpartition("service ")[2].split()[0])
    assert (code, lines[0].split(" (")[0], lines[1:]) == (
        1,
        "unfit gpu01",
        [f"  - {REASON}", "  - second"],
    ) and 15 <= age < 120


def test_without_the_right_to_refuse_it_is_only_said(gate: Gate, tmp_path: Path) -> None:
    now = int(uptime())
    for answer, first in (
        (unfit(refuse_until=0), "unfit gpu01 (answer"), (unfit(refuse_until=now - 5), "unfit gpu01 (answer"),
        (unfit(verdict="doubtful"), "doubtful gpu01"), (unfit(verdict="fit", reasons=(), age=-1), "fit gpu01 (without the service)"),
    ):  # fmt: skip
        code, lines = gate(put(tmp_path / "g", signed(answer, SECRET)))
        assert code == 0 and lines[0].startswith(first)
    assert lines == ["fit gpu01 (without the service)"]


def records_after(gate: Gate, folder: Path, answer: Answer, **more: str) -> list[dict[str, str]]:
    """The records of refused jobs that a prolog with the gate leaves in the spool."""
    folder.mkdir(exist_ok=True)
    gate(put(folder / "g", signed(answer, SECRET)), **more)
    found = (read_spool(path.read_bytes()) for path in sorted((folder / "spool").glob("*.hook")))
    return [one for one in found if one["FAULTLINE_EVENT"] == "gate"]


def test_a_refused_job_is_recorded_with_the_answer(gate: Gate, tmp_path: Path) -> None:
    """Slurm logs only that a prolog failed."""
    (record,) = records_after(gate, tmp_path, unfit(), SLURM_JOB_ID="7", SLURM_JOB_UID="20001", SLURM_JWT="secret")
    first, *reasons = record["FAULTLINE_GATE_ANSWER"].splitlines()
    assert first.startswith("unfit gpu01 (answer of the service ") and reasons == [f"  - {REASON}", "  - second"]
    assert (record["SLURM_JOB_ID"], record["SLURM_JOB_UID"]) == ("7", "20001") and "SLURM_JWT" not in record
    (line,) = (
        parse_document("hook_spool", next((tmp_path / "spool").glob("*.gate.*")).read_bytes(), Origin())
        .rows("logs")
        .to_dicts()
    )
    assert (line["event"], line["job_id"]) == ("sys.gate_refused", 7)


def test_what_is_not_refused_is_not_recorded(gate: Gate, tmp_path: Path) -> None:
    for number, (answer, job) in enumerate(((unfit(refuse_until=0), "7"), (unfit(verdict="fit"), "7"), (unfit(), ""))):
        assert records_after(gate, tmp_path / str(number), answer, SLURM_JOB_ID=job) == []


def test_a_spool_that_takes_nothing_does_not_change_a_refusal_and_is_counted(gate: Gate, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("no folder")
    (tmp_path / "words").mkdir()
    where = str(tmp_path / "words")
    assert gate(put(tmp_path / "g", signed(unfit(), SECRET)), SLURM_JOB_ID="7", FAULTLINE_HOOK_WORDS=where)[0] == 1
    assert ("absent", "gate") in {(word.reason, word.event) for word in words(tmp_path / "words", False)}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_record_lies_in_memory_where_an_agent_runs(shell: str, tmp_path: Path) -> None:
    """By the prolog with the gate: the hook's own record, and that of the refusal; no process is started for them."""
    if not shutil.which(SHELLS[shell][0]):
        pytest.skip(f"no {SHELLS[shell][0]} on this machine")
    memory = tmp_path / "memory"
    memory.mkdir(mode=0o700)
    environment = {
        "FAULTLINE_GATE": str(put(tmp_path / "g", signed(unfit(), SECRET))), "FAULTLINE_HOOK_MEMORY": str(memory), "PATH": "/nowhere",
        "FAULTLINE_HOOK_SPOOL": str(tmp_path / "spool"), "FAULTLINE_HOOK_WORDS": str(tmp_path), "SLURM_JOB_ID": "7",
    }  # fmt: skip
    command = [shutil.which(SHELLS[shell][0]) or "", *SHELLS[shell][1:], str(SCRIPTS / "prolog-gate.sh")]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, b"") and not (tmp_path / "spool").exists()
    records = [read_spool(hook_file(path.read_bytes(), 1)) for path in memory.iterdir()]
    said = {one["FAULTLINE_EVENT"]: one.get("FAULTLINE_GATE_ANSWER", "") for one in records}
    assert set(said) == {"prolog", "gate"} and said["prolog"] == "" and said["gate"].endswith("  - second")


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _link(path: Path) -> None:
    real = path.with_name("real")
    path.rename(real)
    path.symlink_to(real)


def _linked_folder(path: Path) -> None:
    real = path.parent.with_name("elsewhere")
    path.parent.rename(real)
    path.parent.symlink_to(real)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _sparse(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more\n" * 2000)
        file.truncate(8 << 30)


def _written(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(change(path.read_bytes())) and None


def _foreign(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give a file away")
    os.chown(path, 20001, 20001)


def _foreign_folder(path: Path) -> None:
    _foreign(path.parent)


#: What is done to a good answer that would refuse the job.
SPOILT: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(), "no folder": lambda path: shutil.rmtree(path.parent), "fifo": _fifo, "link": _link,
    "linked folder": _linked_folder, "folder": _folder, "huge": _sparse, "one huge line": _written(lambda data: b"x" * (MOST_BYTES * 4)),
    "empty": _written(lambda data: b""), "cut in the head": _written(lambda data: data[:60]), "cut in the signature": _written(lambda data: data[:-10]),
    "no signature": _written(lambda data: data.rpartition(b"mac ")[0]), "other version": _written(lambda data: data.replace(b"gate/1", b"gate/2")),
    "binary": _written(lambda data: bytes(range(256)) * 8), "no number": _written(lambda data: data.replace(b"good_until ", b"good_until x")),
    "another's": _foreign, "another's folder": _foreign_folder,
}  # fmt: skip


@pytest.mark.parametrize("spoilt", SPOILT)
def test_what_cannot_be_believed_is_doubtful_and_refuses_nobody(gate: Gate, spoilt: str, tmp_path: Path) -> None:
    folder = put(tmp_path / "g", signed(unfit(), SECRET))
    SPOILT[spoilt](folder / ANSWER)
    code, lines = gate(folder)
    assert code == 0 and len(lines) == 1 and lines[0].startswith("doubtful: its answer ")


STALE: dict[str, dict[str, object]] = {
    "old": {"made": 1, "good_until": 2}, "of another boot": {"boot": "0d4f7c1e-0000-4000-8000-000000000001"},
    "from the future": {"made": 10**9, "good_until": 2 * 10**9},
}  # fmt: skip


@pytest.mark.parametrize("stale", STALE)
def test_an_old_answer_is_doubtful(gate: Gate, stale: str, tmp_path: Path) -> None:
    code, lines = gate(put(tmp_path / "g", signed(unfit(**STALE[stale]), SECRET)))
    assert code == 0 and lines[0].startswith("doubtful: its answer is ") and "faultline-agent running?" in lines[0]


def test_the_command_believes_only_what_the_agent_signed(tmp_path: Path) -> None:
    """The script, which cannot check this in the time, goes by the owner."""
    good, now = signed(unfit(), SECRET), uptime()
    assert word(str(put(tmp_path / "g", good)), BOOT, now).refuses
    for forged in (
        signed(unfit(), b"x" * 32),
        good.replace(b"unfit", b"fit"),
        good.replace(b"second", b"secret"),
        good[:-2] + (b"1\n" if good.endswith(b"0\n") else b"0\n"),
    ):
        found = word(str(put(tmp_path / "g", forged)), BOOT, now)
        assert (found.verdict, found.refuses) == ("doubtful", False) and "not signed" in found.why
    assert (
        "not signed" in word(str(put(tmp_path / "g", signed(unfit(), b""), b"")), BOOT, now).why
    )  # an empty key signs nothing
    folder = put(tmp_path / "g", good)
    for place, what in ((folder / ANSWER, "answer"), (folder / KEY, "key"), (folder, "the folder")):
        before = place.stat().st_mode
        place.chmod(before | 0o022)
        assert f"others may write to {what}" in word(str(folder), BOOT, now).why
        place.chmod(before)
    assert word(str(folder), BOOT, now).refuses


TEXTS = st.text(st.characters(codec="utf-8"), max_size=400)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXTS, max_size=40), TEXTS, st.sampled_from(VERDICTS))
def test_whatever_a_reason_says_the_file_stays_small_and_readable(reasons: list[str], node: str, verdict: str) -> None:
    answer = unfit(reasons=tuple(reasons), node=node, verdict=verdict)
    data = signed(answer, SECRET)
    found = read(data.rpartition(b"mac ")[0].decode("ascii"))
    assert len(data) <= MOST_BYTES and found.verdict == verdict and len(found.reasons) <= MOST_REASONS + 1
    assert (found.made, found.good_until, found.refuse_until) == (answer.made, answer.good_until, answer.refuse_until)
    assert all(
        line.isascii() and line.isprintable() and len(line) <= MOST_TEXT for line in body_of(answer).splitlines()
    )


def test_prolog_and_healthcheck_hand_over_and_then_ask_the_gate(tmp_path: Path) -> None:
    folder, spool = put(tmp_path / "g", signed(unfit(), SECRET)), tmp_path / "spool"
    environment = {"FAULTLINE_GATE": str(folder), "FAULTLINE_HOOK_SPOOL": str(spool), "SLURM_JOB_ID": "7"}
    for script, event in (("prolog-gate", "prolog"), ("healthcheck", "healthcheck")):
        done = subprocess.run(
            ["/bin/sh", str(SCRIPTS / f"{script}.sh")], env=environment, capture_output=True, timeout=120
        )
        assert (done.returncode, done.stdout.startswith(b"unfit gpu01"), done.stderr) == (1, True, b"")
        assert len(list(spool.glob(f"7.{event}.*.hook"))) == 1 or (spool / "dropped").exists()
        alone = tmp_path / event
        alone.mkdir()
        shutil.copy(SCRIPTS / f"{script}.sh", alone)  # without the script beside it
        done = subprocess.run(
            ["/bin/sh", str(alone / f"{script}.sh")], env=environment, capture_output=True, timeout=120
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_other_hooks_ask_no_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAULTLINE_GATE", str(put(tmp_path / "g", signed(unfit(), SECRET))))
    monkeypatch.setenv("FAULTLINE_HOOK_SPOOL", str(tmp_path / "spool"))
    for argv in (["prolog"], ["epilog", "--gate"], ["taskprolog", "--gate"], []):
        assert hooks.main(argv) == 0 and capfd.readouterr().out == ""
    assert hooks.main(["healthcheck"]) == 1 and capfd.readouterr().out.startswith("unfit gpu01")
