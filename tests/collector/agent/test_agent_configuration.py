"""Configuration, enrolment, installation and the documentation of the agent."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from ingest_server import IngestServer

from collector.agent import commands, strangers
from collector.agent.config import Config, load, local_zone, validate
from collector.agent.failure import AgentError
from collector.agent.sources import BUILT_IN, kinds
from parsers.visible import visible

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "server: missing"),
        ('server = "faultline:8514"', "no http:// or https:// address"),
        ('server = "http://x"\nspol = "/x"', "spol: unknown key; known are server"),
        ('server = "http://x"\nnice = "low"', "nice: 'low' is not a whole number"),
        ('server = "http://x"\ncpus = [true]', "cpus: [True] is not a list"),
        ('server = "http://x"\nspool_mb = 0', "spool_mb: must be above 0"),
        ('server = "http://x"\nspool_wait = 1.5', "spool_wait: must be above 0 and at most 1"),
        ('server = "http://x"\nagent = "a b"', "agent: 'a b' must be"),
        ('server = "http://x"\n[sources.fils]\n', "sources.fils: unknown; known are files"),
        (
            'server = "http://x"\n[sources.files]\npath = ["/x"]',
            "sources.files.path: unknown option; known are enabled, paths",
        ),
        ('server = "http://x"\n[sources.files]\npaths = "/x"', "sources.files.paths: '/x' is not a list"),
        ('server = "http://x"\n[sources.kmsg]\nenabled = 1', "sources.kmsg.enabled: 1 is not true or false"),
        ('server = "http://x"\nplugins = ["no_such_module"]', "no_such_module: cannot be imported"),
        ('server = "http://x"\n[node_names]\na = 1', "node_names.a: 1 is not the name of a node"),
        ('server = "http://x"\n[node_names]\na = "gpu1"\nb = "gpu1"', "gpu1 is the name of more than one node"),
        ("server = ", "not TOML"),
    ],
)
def test_a_wrong_configuration_names_file_key_and_reason(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    with pytest.raises(AgentError) as error:
        load(path)
    assert str(path) in str(error.value) or "source module" in str(error.value)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("given", "variable", "host"),
    [
        ({}, "aks-gpu-vmss000001", "gpu001"),
        ({}, "aks-gpu-vmss000001.internal", "gpu001"),
        ({}, "ip-10-0-0-7.ec2.internal", "ip-10-0-0-7"),
        ({"host": "aks-gpu-vmss000001"}, "other", "gpu001"),
        ({"host": "gpu9.example.org"}, "aks-gpu-vmss000001", "gpu9.example.org"),
    ],
)
def test_a_pod_has_slurms_name_of_its_node(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], variable: str, host: str
) -> None:
    monkeypatch.setenv("FAULTLINE_HOST", variable)
    names = {"aks-gpu-vmss000001": "gpu001", "aks-gpu-vmss000002": "gpu002"}
    config = validate({"server": "http://x", "node_names": names, **given}, "t")
    assert (config.host, config.agent) == (host, host)


def test_controller_sources_are_on_where_asked() -> None:
    node = validate({"server": "http://x"}, "t").enabled()
    controller = validate({"server": "http://x", "controller": True}, "t").enabled()
    one = validate({"server": "http://x", "sources": {"sdiag": {"enabled": True}}}, "t").enabled()
    assert set(BUILT_IN) - set(node) == {"accounting", "nodes", "slurm_conf", "sdiag", "slurmrestd"}
    assert set(controller) == set(BUILT_IN)
    assert set(one) - set(node) == {"sdiag"}


def test_the_hosts_zone_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)
    assert local_zone(tmp_path) == "UTC"
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/localtime").symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert local_zone(tmp_path) == "Europe/Berlin"
    (tmp_path / "etc/timezone").write_text("America/New_York\n")
    assert local_zone(tmp_path) == "America/New_York"


def test_enrolment_asks_then_writes(tmp_path: Path, server: IngestServer, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "etc/agent.toml"
    enroll = ["enroll", "--server", server.url, "--token", "s3cret", "--config", str(config), "--controller"]
    assert commands.main(enroll) == 0
    assert server.authorizations == ["Bearer s3cret"]
    assert stat.S_IMODE(config.with_suffix(".token").stat().st_mode) == 0o600
    assert "s3cret" not in config.read_text()
    written = load(config)
    assert (written.server, written.bearer(), written.controller) == (server.url, "s3cret", True)
    assert commands.main(enroll) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert commands.main([*enroll, "--force"]) == 0


@pytest.mark.parametrize(
    ("code", "says"), [(401, "refuses this token"), (404, "is it a Faultline service?"), (0, "is the service running")]
)
def test_enrolment_refuses_before_it_writes(
    tmp_path: Path, server: IngestServer, capsys: pytest.CaptureFixture[str], code: int, says: str
) -> None:
    config = tmp_path / "agent.toml"
    server.refuse = lambda key, body: (code, {}, json.dumps({"detail": "no"}))
    if not code:
        server.close()
    assert commands.main(["enroll", "--server", server.url, "--token", "x", "--config", str(config)]) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["🚀", 'a"b\\c', "é\u2028", "\x7f\x01"])
def test_enrolment_writes_paths_of_any_characters(tmp_path: Path, name: str) -> None:
    config, spool = tmp_path / name / "agent.toml", str(tmp_path / f"spool {name}")
    arguments = [
        "--server",
        "http://127.0.0.1:8514",
        "--token",
        "x",
        "--image",
        "--config",
        str(config),
        "--spool",
        spool,
    ]
    assert commands.main(["enroll", *arguments]) == 0
    written = tomllib.loads(config.read_text(encoding="utf-8"))
    assert (written["spool"], written["token_file"]) == (spool, str(config.with_suffix(".token")))


def test_enrolment_refuses_a_path_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.toml"
    arguments = ["--server", "http://127.0.0.1:8514", "--token", "x", "--image", "--config", str(config)]
    assert commands.main(["enroll", *arguments, "--spool", "/var/\udcff"]) == 2
    assert "is not UTF-8" in capsys.readouterr().err and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--cnfig", "x"], ["enroll"], ["--config", "/nowhere/agent.toml"]])
def test_bad_usage_is_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(arguments) == 2
    assert capsys.readouterr().err


def test_probe_asks_every_source_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\ntwo\n")
    config = tmp_path / "agent.toml"
    off = "".join(f"[sources.{n}]\nenabled = false\n" for n in BUILT_IN if n not in ("files", "boot"))
    config.write_text(f'server = "http://x"\n{off}[sources.files]\npaths = ["{log}"]\n')
    assert commands.main(["probe", "--config", str(config)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"files\s+ok\s+2 lines\s+one", shown) and "boot" in shown


def test_what_strangers_wrote_steers_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log's first line, the detail of a source, a trouble and an error, in each command that prints them."""
    bad = "\x1b]0;owned\x07\x1b[31m\u202eabc\u202c\x9b2J\ud800"
    log = tmp_path / "app.log"
    log.write_text(bad[:-1] + "\n")
    config = tmp_path / "agent.toml"
    off = "".join(f"[sources.{n}]\nenabled = false\n" for n in BUILT_IN if n not in ("files", "boot"))
    config.write_text(f'server = "http://x"\nspool = "{tmp_path}"\n{off}[sources.files]\npaths = ["{log}"]\n')
    commands.main(["probe", "--config", str(config)])
    reported = {
        "at": "now", "version": "1", "delivery": {"trouble": bad, "lines": 1, "batches": 1},
        "spool": {"batches": 0, "bytes": 0, "cap": 1, "dropped_lines": 0, "trouble": bad},
        "sources": [{"name": "hooks", "state": "error", "detail": f"{bad}\nforged line"}],
    }  # fmt: skip
    (tmp_path / "status.json").write_text(json.dumps(reported))
    assert commands.main(["status", "--config", str(config)]) == 1
    assert commands.main(["status", "--config", str(config), "--format", "json"]) == 1
    assert commands.main(["status", "--config", f"{tmp_path}/{bad[:-1]}"]) == 2
    out, err = capsys.readouterr()
    assert r"\u001b]0;owned\u0007\u001b[31m\u202eabc" in out and r"\u001b]0;owned" in err
    assert not [sign for sign in out + err if sign != "\n" and visible(sign, lines=False) != sign]
    assert not [line for line in out.splitlines() if line.startswith("forged")]


def test_the_agents_escapes_are_the_services() -> None:
    every = "".join(map(chr, range(0x110000)))
    assert strangers.visible(every) == visible(every, lines=False)


# ------------------------------------------------------------------------------------------------------ installation

#: A stub for Python: makes a venv whose programs only record how they were called.
PYTHON = """#!/bin/sh
case "$1" in
-c) exit 0;;
-m) mkdir -p "$3/bin"
    printf '#!/bin/sh\\necho "pip $@" >> {log}\\n' > "$3/bin/pip"
    printf '#!/bin/sh\\necho "faultline $@ TOKEN=$FAULTLINE_TOKEN" >> {log}\\nexec {python} -m faultline.entry "$@"\\n' > "$3/bin/faultline"
    chmod +x "$3/bin/pip" "$3/bin/faultline";;
esac
"""


def shell(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(ROOT / "deploy/agent" / name), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environment}
    )


def test_an_image_gets_the_agent_in_one_command_and_loses_it_again(tmp_path: Path) -> None:
    root, log, python = tmp_path / "image", tmp_path / "log", tmp_path / "python"
    python.write_text(PYTHON.replace("{log}", str(log)).replace("{python}", sys.executable))
    python.chmod(0o755)
    arguments = ["--root", str(root), "--server", "https://faultline:8514", "--token", "s3cret", "--image", "--gpu"]
    done = shell("install.sh", *arguments, "--from", "/tmp/faultline-0.1.0-py3-none-any.whl", PYTHON=str(python))
    assert done.returncode == 0, done.stderr
    noted = log.read_text()
    assert "/tmp/faultline-0.1.0-py3-none-any.whl[agent] nvidia-ml-py" in noted
    assert "s3cret" not in noted.split("TOKEN=")[0], "a token on a command line could be read by every user"
    config = tomllib.loads((root / "etc/faultline/agent.toml").read_text())
    assert config["server"] == "https://faultline:8514" and config["token_file"] == "/etc/faultline/agent.token"
    assert (root / "etc/systemd/system/multi-user.target.wants/faultline-agent.service").resolve().exists()
    assert (root / "var/spool/faultline/hooks").stat().st_mode & 0o7777 == 0o700
    (root / "etc/faultline/agent.toml").write_text('server = "https://mine"\n')
    assert shell("install.sh", *arguments, PYTHON=str(python)).returncode == 0
    assert "mine" in (root / "etc/faultline/agent.toml").read_text(), "a configuration that is there stays"
    (root / "var/lib/faultline-agent").mkdir(parents=True)
    assert shell("uninstall.sh", "--root", str(root)).returncode == 0
    assert [p.name for p in root.rglob("*") if p.is_file() or p.is_symlink()] == []
    assert (root / "var/lib/faultline-agent").exists()
    assert shell("uninstall.sh", "--root", str(root), "--purge").returncode == 0
    assert not (root / "var/lib/faultline-agent").exists()


def test_on_a_controller_the_spool_is_slurmusers_and_hooks_go_before_the_agent(tmp_path: Path) -> None:
    """Found on a real cluster: it was root's, a hook of slurmctld wrote nothing, and all was said to be well."""
    root, log, python = tmp_path / "image", tmp_path / "log", tmp_path / "python"
    python.write_text(PYTHON.replace("{log}", str(log)).replace("{python}", sys.executable))
    python.chmod(0o755)
    (root / "etc/slurm").mkdir(parents=True)
    (root / "etc/slurm/slurm.conf").write_text("ClusterName=mini\nSlurmUser=batch\n")
    (root / "etc/passwd").write_text("batch:x:20017:20018::/:\n")
    arguments = ["--root", str(root), "--server", "https://faultline:8514", "--image", "--controller"]
    assert shell("install.sh", *arguments, PYTHON=str(python), FAULTLINE_TOKEN="t").returncode == 0
    if os.geteuid() == 0:
        about = (root / "var/spool/faultline/hooks").stat()
        assert (about.st_uid, about.st_gid, about.st_mode & 0o7777) == (20017, 20018, 0o700)
    assert (root / "var/spool/faultline").stat().st_mode & 0o7777 == 0o755, "SlurmUser passes through it"
    (root / "etc/faultline/slurm").mkdir()
    (root / "etc/faultline/slurm/.installed.json").write_text("{}")
    done = shell("uninstall.sh", "--root", str(root))
    assert done.returncode == 2 and "slurm remove" in done.stderr and (root / "etc/faultline/agent.toml").exists()


def test_the_installer_says_what_is_missing(tmp_path: Path) -> None:
    done = shell("install.sh", "--root", str(tmp_path))
    assert done.returncode == 2 and "--server is missing" in done.stderr
    done = shell("install.sh", "--sever", "x")
    assert done.returncode == 2 and "--sever" in done.stderr


# ----------------------------------------------------------------------------------------------------- documentation

PAGE = ROOT / "docs/agent.md"
SOURCES = ROOT / "docs/sources/agent.md"


def table() -> str:
    """The sources' own descriptions as a table; ``python tests/collector/agent/test_agent_configuration.py`` writes it."""
    rows = []
    for name, kind in kinds().items():
        shown = ", ".join(f"`{key}` ({_shown(value)})" for key, value in kind.options.items())
        rows.append(f"| `{name}` | {kind.reads} | {shown} | {kind.costs} | {kind.blind_to} |")
    return "\n".join(rows) + "\n"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} globs" if len(value) > 1 else (f"`{value[0]}`" if value else "none")
    if isinstance(value, str) and len(value) > 24:
        return "errors, drops, pauses, physical layer" if "err" in value else "per queue and priority"
    return {True: "true", False: "false", "": "none"}.get(
        value, f"{value:g}" if isinstance(value, float) else str(value)
    )


def test_the_page_lists_every_source_as_it_describes_itself() -> None:
    between = re.search(r"<!-- sources -->\n(.*?)<!-- /sources -->", SOURCES.read_text(), re.DOTALL)
    assert between is not None
    assert between[1] == table(), f"run: python {Path(__file__).relative_to(ROOT)}"


def test_every_source_says_what_it_becomes() -> None:
    becomes = SOURCES.read_text().partition("## What they become")[2].partition("## More")[0]
    assert [name for name in BUILT_IN if f"`{name}`" not in becomes] == []


def test_the_page_names_every_key_of_the_configuration() -> None:
    text = PAGE.read_text()
    assert [f.name for f in fields(Config) if f.name not in ("where", "sources") and f"`{f.name}`" not in text] == []


def test_the_example_of_a_new_source_runs() -> None:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    space: dict[str, Any] = {}
    exec(code[1], space)
    source = space["SOURCE"].make(None, {})
    source.open({})
    assert b"3000 rpm" in next(iter(source.poll())).body


if __name__ == "__main__":
    page = re.sub(
        r"(<!-- sources -->\n).*?(<!-- /sources -->)",
        lambda m: m[1] + table() + m[2],
        SOURCES.read_text(),
        flags=re.DOTALL,
    )
    SOURCES.write_text(page)
