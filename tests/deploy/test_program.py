"""The installed ``faultline``: Slurm's hooks and the gate by the shell's scripts, everything else by Python, wherever pip put it."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest
from installed import ROOT, lay_out

EVENTS = ("prolog", "epilog", "prologslurmctld", "epilogslurmctld", "taskprolog", "healthcheck")
#: Says what it was asked, and ends with a code of its own.
SAYS = '#!/bin/sh\nprintf "python:%s\\n" "$*"\nexit 7\n'


def ask(program: Path, folder: Path, *arguments: str, **more: str) -> tuple[int, str]:
    """Exit code and output of the program; what a hook leaves lies in ``folder``."""
    environment = {
        "SLURM_JOB_ID": "7",
        "FAULTLINE_GATE": str(folder / "gate"),
        "FAULTLINE_HOOK_SPOOL": str(folder / "spool"),
        "FAULTLINE_HOOK_WORDS": str(folder),
        **more,
    }
    done = subprocess.run(
        [program, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "bin", SAYS)


@pytest.mark.parametrize("event", EVENTS)
def test_a_hook_needs_no_python(program: Path, tmp_path: Path, event: str) -> None:
    code, output = ask(program, tmp_path, "hook", event)
    assert code == 0 and output.startswith("doubtful: its answer cannot be read") == (event == "healthcheck")
    assert "python:" not in output and (event == "healthcheck" or output == "")
    (record,) = (tmp_path / "spool").glob("*.hook")
    assert record.name.startswith(f"7.{event}.") and b"SLURM_JOB_ID=7" in record.read_bytes()


def test_a_hook_takes_the_way_in_memory(program: Path, tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    assert ask(program, tmp_path, "hook", "epilog", FAULTLINE_HOOK_MEMORY=str(tmp_path / "memory")) == (0, "")
    (record,) = (tmp_path / "memory").iterdir()
    assert record.read_text().startswith("faultline-shell/1\nepilog\n") and not (tmp_path / "spool").exists()


def test_the_gate_needs_no_python(program: Path, tmp_path: Path) -> None:
    code, output = ask(program, tmp_path, "hook", "prolog", "--gate")
    assert code == 0 and output.startswith("doubtful: its answer cannot be read: ")
    (record,) = (tmp_path / "spool").glob("*.hook")
    assert record.name.startswith("7.prolog.")


@pytest.mark.parametrize(
    "arguments", [(), ("why", "15"), ("agent", "status"), ("slurm", "hook", "prolog"), ("-h",), ("a b", "")]
)
def test_all_else_is_pythons_with_its_exit_code(program: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert ask(program, tmp_path, *arguments) == (7, f"python:{' '.join(arguments)}\n")


@pytest.mark.parametrize(
    "arguments", [("hook",), ("hook", "mail", "-s", "x"), ("hook", "prolog", "--help"), ("hook", "epilog", "--gate"), ("hook", "odd")]
)  # fmt: skip
def test_other_hooks_are_pythons_and_never_fail(program: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert ask(program, tmp_path, *arguments) == (0, f"python:{' '.join(arguments)}\n")


def test_links_and_folders_lead_to_it(program: Path, tmp_path: Path) -> None:
    """As pipx links it, by PATH, and from its own folder."""
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere/faultline"
    link.symlink_to(program)
    (tmp_path / "folder").symlink_to(program.parent)
    for named in (link, tmp_path / "folder/faultline"):
        assert ask(named, tmp_path, "why") == (7, "python:why\n")
        assert ask(named, tmp_path, "hook", "prolog", "--gate")[1].startswith("doubtful: ")
    done = subprocess.run(["/bin/sh", "faultline", "why"], cwd=program.parent, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, "python:why\n")
    found = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    assert subprocess.run("faultline why", shell=True, env=found, capture_output=True, text=True).returncode == 7


def test_a_broken_installation_drains_no_node(program: Path, tmp_path: Path) -> None:
    """Scripts or Python missing, or a Python that fails: a hook and a gate end with 0, and another command says what is wrong."""
    for name in ("faultline-gate.sh", "faultline-hook.sh"):
        (program.parent / name).unlink()
        assert ask(program, tmp_path, "hook", "prolog", "--gate") == (0, "python:hook prolog --gate\n")
    (program.parent / "faultline-python").write_text("#!/nowhere/python\n")
    for hook in (("hook", "epilog"), ("hook", "prolog", "--gate")):
        assert subprocess.run([program, *hook], capture_output=True).returncode == 0
    (program.parent / "faultline-python").unlink()
    assert ask(program, tmp_path, "hook", "prolog", "--gate") == (0, "")
    done = subprocess.run([program, "why", "15"], capture_output=True, text=True)
    assert done.returncode == 2 and "faultline-python is missing or cannot be run" in done.stderr


def _installs(folder: Path, *how: str) -> Path:
    """``faultline`` as pip installs it into an environment of its own; skips where pip finds no index."""
    venv.create(folder, with_pip=True)
    install = [
        folder / "bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
        *how,
    ]
    done = subprocess.run(install, capture_output=True, text=True)
    if "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("pip finds no setuptools to build with")
    assert done.returncode == 0, done.stderr
    return folder / "bin/faultline"


@pytest.mark.long
@pytest.mark.parametrize("how", ["whole", "editable", "over an older one"])
def test_pip_installs_it(tmp_path: Path, how: str) -> None:
    """And where an older release had the program in Python under this name, it is replaced."""
    source = tmp_path / "source"
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".git", ".venv", "tests", "benchmarks", "docs"), symlinks=True
    )
    if how == "over an older one":
        newer = (source / "pyproject.toml").read_text()
        lines = newer.replace("faultline-python = ", "faultline = ").splitlines(keepends=True)
        (source / "pyproject.toml").write_text(
            "".join(line for line in lines if not line.startswith("script-files = "))
        )
        old = _installs(tmp_path / "venv", str(source))
        assert "python" in old.read_text().splitlines()[0]
        (source / "pyproject.toml").write_text(newer)
    program = _installs(tmp_path / "venv", *(("-e",) if how == "editable" else ("--force-reinstall",)), str(source))
    assert program.read_text() == (ROOT / "deploy/bin/faultline").read_text()
    code, output = ask(program, tmp_path, "hook", "prolog", "--gate")
    assert (code, output.partition(":")[0]) == (0, "doubtful") and list((tmp_path / "spool").glob("7.prolog.*.hook"))
    helped = subprocess.run([program, "why", "--help"], capture_output=True, text=True)
    assert helped.returncode == 0 and helped.stdout.startswith("usage: faultline why")
    twin = [program.with_name("faultline-python"), "hook", "prolog", "--gate"]
    assert subprocess.run(
        twin, env={"FAULTLINE_GATE": str(tmp_path)}, capture_output=True, text=True
    ).stdout.startswith("doubtful: ")
    if how == "whole":
        scripts = [path.name for path in (tmp_path / "venv").rglob("slurm_setup/scripts/*.sh")]
        assert sorted(scripts) == sorted(path.name for path in (ROOT / "deploy/slurm").glob("*.sh"))
