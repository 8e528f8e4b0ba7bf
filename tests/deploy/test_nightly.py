"""The nightly run of ``make test-cluster``: what a maintainer's timer starts, and that a night which shows nothing is no good night."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from booted import booted

CI = Path(__file__).resolve().parents[2] / ".ci"
GOOD = "===== 9 passed in 3600.00s ====="


@pytest.fixture
def night(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs a night in a copy of the checkout's script, where ``make`` and ``id`` are stand-ins; gives exit code and output."""
    checkout, programs = tmp_path / "checkout" / ".ci", tmp_path / "bin"
    checkout.mkdir(parents=True)
    programs.mkdir()
    shutil.copy(CI / "nightly", checkout / "nightly")

    def run(output: str, code: int = 0, uid: int = 0) -> tuple[int, str]:
        (programs / "id").write_text(f"#!/bin/sh\necho {uid}\n")
        (programs / "make").write_text(f"#!/bin/sh\necho \"$@ $PYTEST_ADDOPTS\"\ncat <<'E'\n{output}\nE\nexit {code}\n")
        for program in programs.iterdir():
            program.chmod(0o755)
        done = subprocess.run(
            [checkout / "nightly", tmp_path / "logs"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
            env={"PATH": f"{programs}:/usr/bin:/bin", "LANG": "C.UTF-8"},
        )  # fmt: skip
        assert done.stderr == ""
        return done.returncode, done.stdout

    return run


Night = Callable[..., tuple[int, str]]


def test_a_good_night_keeps_its_output(night: Night, tmp_path: Path) -> None:
    code, words = night(GOOD)
    (log,) = (tmp_path / "logs").glob("*.log")
    assert code == 0 and words.splitlines()[-1].startswith("nightly: well at ") and "9 passed" in words
    assert log.read_text().splitlines() == ["test-cluster  -rs", GOOD]


@pytest.mark.parametrize(
    ("output", "code", "expected", "says"),
    [
        ("FAILED tests/cluster/test_live_faults.py::test_x\n== 1 failed, 8 passed in 9s ==", 2, 1, "FAILED at"),
        ("make: *** no rule", 2, 1, "make ended with 2"),
        ("SKIPPED [9] tests/cluster/test_live_faults.py:28: a mini cluster needs munged\n== 9 skipped in 1s ==", 0, 3, "nothing ran"),
        ("SKIPPED [4] tests/cluster/test_live_faults.py:28: is up already\n== 5 passed, 4 skipped in 1s ==", 0, 3, "did not run"),
        ("", 0, 3, "no test was counted"),
    ],
    ids=["a test failed", "make failed", "all skipped", "the faults skipped", "no output"],
)  # fmt: skip
def test_a_night_that_failed_or_shows_nothing(night: Night, output: str, code: int, expected: int, says: str) -> None:
    found, words = night(output, code)
    assert found == expected and says in words.splitlines()[-1]
    assert [line for line in words.splitlines()[:-1] if line.startswith(("FAILED", "SKIPPED"))] == [
        line for line in output.splitlines() if line.startswith(("FAILED", "SKIPPED"))
    ]


def test_without_root_nothing_is_tried(night: Night, tmp_path: Path) -> None:
    assert night(GOOD, uid=1000)[0] == 2 and not (tmp_path / "logs").exists()


def test_two_nights_do_not_meet_and_thirty_are_kept(night: Night, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for day in range(1, 32):
        (logs / f"2026-10-{day:02}T023000Z.abc.log").write_text("")
    with (logs / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert night(GOOD)[0] == 75
    assert night(GOOD)[0] == 0
    left = sorted(path.name for path in logs.glob("*.log"))
    assert len(left) == 30 and left[0].startswith("2026-10-03")


def test_the_script_is_one_that_bash_reads() -> None:
    assert subprocess.run(["bash", "-n", CI / "nightly"], capture_output=True).returncode == 0
    assert (CI / "nightly").stat().st_mode & 0o111
    assert re.search(r"^test-cluster:", (CI.parent / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_reads_the_units(tmp_path: Path) -> None:
    """Both together; only that the checkout of the example is not here may be said."""
    units = [shutil.copy(CI / f"faultline-nightly.{kind}", tmp_path) for kind in ("service", "timer")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    wrong = [line for line in done.stderr.splitlines() if "faultline-nightly" in line and "/srv/faultline" not in line]
    assert not wrong
    (calendar,) = re.findall(r"^OnCalendar=(.*)$", (CI / "faultline-nightly.timer").read_text(), re.MULTILINE)
    asked = subprocess.run(["systemd-analyze", "calendar", calendar], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr


def test_the_service_starts_the_script_of_its_checkout() -> None:
    unit = (CI / "faultline-nightly.service").read_text()
    folder = re.findall(r"^WorkingDirectory=(.*)$", unit, re.MULTILINE)[0]
    assert re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE) == [f"{folder}/.ci/nightly"]
    assert "Type=oneshot" in unit and "/var/log/" + re.findall(r"^LogsDirectory=(.*)$", unit, re.MULTILINE)[0] in (CI / "nightly").read_text()  # fmt: skip


@pytest.mark.long
def test_systemd_runs_a_night_by_the_timer(tmp_path: Path) -> None:
    """Both units as they are, but that the timer begins with its start; ``make`` is a stand-in."""
    units = {name: (CI / name).read_text() for name in ("faultline-nightly.service", "faultline-nightly.timer")}
    units["faultline-nightly.timer.d/now.conf"] = "[Timer]\nOnActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=1ms\n"
    units["faultline-nightly.service.d/here.conf"] = (
        "[Service]\nEnvironment=PATH=/srv/stand-ins:/usr/bin:/bin\nStandardOutput=append:/var/log/night.out\n"
    )
    (tmp_path / "make").write_text(f"#!/bin/sh\necho \"$@\"\necho '{GOOD}'\n")
    prepare = (
        f"mkdir -p /srv/faultline/.ci /srv/stand-ins && cp {CI}/nightly /srv/faultline/.ci && cp {tmp_path}/make /srv/stand-ins\n"
        "chmod 755 /srv/stand-ins/make /srv/faultline/.ci/nightly\n"
    )
    with booted(tmp_path, units, prepare) as system:
        system.systemctl("start", "faultline-nightly.timer")
        assert "OnCalendar=*-*-* 02:30:00" in system.show("faultline-nightly.timer", "TimersCalendar")
        end = time.monotonic() + 120
        output = system.file("/var/log/night.out")
        while time.monotonic() < end and not (output.exists() and "nightly: " in output.read_text()):
            time.sleep(0.1)
        assert output.read_text().splitlines()[-1].startswith("nightly: well at ")
        (log,) = system.file("/var/log/faultline-nightly").glob("*.log")
        assert log.read_text().splitlines() == ["test-cluster", GOOD]
        while time.monotonic() < end and system.show("faultline-nightly.service", "ActiveState") != "inactive":
            time.sleep(0.1)
        assert system.show("faultline-nightly.service", "Result") == "success"
        assert system.show("faultline-nightly.timer", "LastTriggerUSec")
