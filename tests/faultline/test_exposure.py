"""Insecure settings of a site: refused at an address that others reach, reported everywhere else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from faultline import exposure, private
from faultline.cli import run
from faultline.config import Config, validate
from faultline.failure import CommandError
from tests.collector.running import ROOT
from tests.faultline import certificates
from web.access.passwords import SCRYPT
from web.access.users import Users, hashed_password, hashed_token

HASHED = hashed_password("correct horse")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    certificates.make(folder, "service")
    for key in folder.glob("*.key"):
        key.chmod(0o600)
    Users(folder / "users.toml", {"ada": HASHED}).save()
    return folder


def settings(files: Path, *parts: str, **more: object) -> Config:
    reported: dict[str, object] = {"data": str(files / "data"), "syslog": []}
    if "tls" in parts:
        reported["tls"] = {"certificate": str(files / "service.pem"), "key": str(files / "service.key")}
    if "access" in parts:
        reported["access"] = {"users": str(files / "users.toml"), "operate": ["ada"]}
    return validate({**reported, **more}, "test")


@pytest.mark.parametrize(
    ("host", "shut"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("[::1]", True), ("::1", True), ("localhost", True), ("::ffff:127.0.0.1", True),
     ("0.0.0.0", False), ("[::]", False), ("::", False), ("10.0.0.5", False), ("::ffff:10.0.0.5", False), ("fe80::1%eth0", False),
     ("no-such-host.invalid", False), ("0", False), ("0.0", False), ("0x0", False), ("", False), ("[::ffff:0.0.0.0]", False), ("::0", False),
     ("[0:0:0:0:0:0:0:0]", False), ("127.1", True), ("::ffff:127.1", False), ("x" * 70 + ".invalid", False)],
)  # fmt: skip
def test_what_others_reach(host: str, shut: bool) -> None:
    assert exposure.is_loopback(host) is shut


@pytest.mark.parametrize("address", ["0:0", "[::]:0", "[::ffff:0.0.0.0]:0", "0x0:0", "::0:0"])
def test_every_spelling_of_everywhere_is_refused(files: Path, address: str) -> None:
    with pytest.raises(CommandError, match="--insecure"):
        exposure.refuse(settings(files, listen=address))


def test_no_host_is_this_machine_for_pages_and_everybody_for_syslog(files: Path) -> None:
    """The addresses that they bind to."""
    config = settings(files, listen=":0", syslog=[{"listen": ":5514", "transport": "udp"}])
    exposure.refuse(config)
    assert config.address[0] == "127.0.0.1"
    (reported,) = [line for line in exposure.startup_warnings(config) if "syslog" in line]
    assert "whoever reaches it" in reported


@pytest.mark.parametrize("parts", [(), ("tls",), ("access",)], ids=["nothing", "tls only", "access only"])
def test_an_open_address_needs_https_and_signing_in(files: Path, parts: tuple[str, ...]) -> None:
    with pytest.raises(CommandError) as refused:
        exposure.refuse(settings(files, *parts, listen="0.0.0.0:0"))
    stated = str(refused.value)
    assert "--insecure" in stated and "127.0.0.1" in stated and "\n" not in stated
    assert ("no [tls]" in stated) == ("tls" not in parts) and ("no [access]" in stated) == ("access" not in parts)
    exposure.refuse(settings(files, *parts, listen="127.0.0.1:0"))
    exposure.refuse(settings(files, *parts, listen="0.0.0.0:0", insecure=True))


def test_with_both_it_is_served(files: Path) -> None:
    exposure.refuse(settings(files, "tls", "access", listen="0.0.0.0:0"))


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_the_commands_refuse_it_in_one_line_before_anything_is_made(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([command, "--listen", "0.0.0.0:0"]) == 2
    stated = capsys.readouterr().err
    assert stated.count("\n") == 1 and "--insecure" in stated and not list(tmp_path.iterdir())


def test_receivers_that_anybody_reaches_are_reported(files: Path) -> None:
    def reported(**more: object) -> str:
        return "\n".join(exposure.startup_warnings(settings(files, "tls", "access", **more)))

    everywhere = {"listen": "0.0.0.0:0"}
    assert "whoever reaches it may send lines as any host" in reported(**everywhere)
    assert reported(**everywhere, ingest={"tokens": ["t"]}) == ""
    assert reported(listen="127.0.0.1:0") == ""
    assert "syslog udp 0.0.0.0:514" in reported(
        listen="127.0.0.1:0", syslog=[{"listen": "0.0.0.0:514", "transport": "udp"}]
    )
    by_default = reported(**everywhere, ingest={"tokens": ["t"]}, syslog=None)
    assert "syslog udp 0.0.0.0:5514" in by_default and "syslog tcp 0.0.0.0:5514" in by_default
    tls = {
        "listen": "0.0.0.0:6514",
        "transport": "tls",
        "certificate": str(files / "service.pem"),
        "key": str(files / "service.key"),
    }
    assert "syslog tls" in reported(listen="127.0.0.1:0", syslog=[tls])
    assert reported(listen="127.0.0.1:0", syslog=[{**tls, "client_ca": str(files / "ca.pem")}]) == ""


def test_check_shows_what_is_open_and_is_wrong_only_where_serve_would_refuse(
    tmp_path: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(UTC)
    users = tmp_path / "users.toml"
    tokens = {
        "grafana": hashed_token("1"), "ada old": hashed_token("2", expires=now - timedelta(days=1)),
        "ada soon": hashed_token("3", expires=now + timedelta(days=3)), "ada well": hashed_token("4", expires=now + timedelta(days=300)),
    }  # fmt: skip
    Users(users, {"ada": HASHED, "old": f"{SCRYPT}32768:8:3:AAAA:AAAA"}, tokens).save()
    users.chmod(0o644)
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    config = tmp_path / "faultline.toml"
    config.write_text(
        f'listen = "0.0.0.0:8514"\ndata = "{data}"\ninsecure = true\nuser_header = "X-User"\nproxies = ["10.0.0.0/16"]\n'
        f'[ingest]\ntokens = ["secret"]\n[access]\nusers = "{users}"\noperate = ["ada"]\nproxies = ["127.0.0.1"]\n'
    )
    config.chmod(0o666)
    assert run(["check", "--config", str(config)]) == 0
    reported = [line for line in capsys.readouterr().out.splitlines() if line.startswith("OPEN")]
    for stated in ("insecure, without [tls]", "syslog udp 0.0.0.0:5514", "'grafana': never ends", "'ada old': ended", "'ada soon': ends",
                 "passwords of old: old hashes", f"{users}: mode 0644", f"{config}: mode 0666: every user", "others may change it",
                 f"{data}: mode 0755", "proxies 127.0.0.1: every user of this machine", "65,536 addresses"):  # fmt: skip
        assert any(stated in line for line in reported), (stated, reported)
    assert not any("ada well" in line or "passwords of ada" in line for line in reported)
    config.write_text(config.read_text().replace("insecure = true\n", ""))
    assert run(["check", "--config", str(config)]) == 1
    assert "WRONG  0.0.0.0:8514" in capsys.readouterr().out


def test_check_of_a_shut_site_shows_nothing_open(
    tmp_path: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private.begin(tmp_path / "data")
    config = tmp_path / "faultline.toml"
    config.write_text(
        f'listen = "0.0.0.0:8514"\ndata = "{tmp_path}/data"\nsyslog = []\n[tls]\ncertificate = "{files}/service.pem"\n'
        f'key = "{files}/service.key"\nclient_ca = "{files}/ca.pem"\nclient_hosts = true\n[access]\nusers = "{files}/users.toml"\noperate = ["ada"]\n'
    )
    assert run(["check", "--config", str(config)]) == 0
    assert "OPEN" not in capsys.readouterr().out


# -- the data folder ---------------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_data_folder_is_shut(tmp_path: Path) -> None:
    assert private.begin(tmp_path / "a" / "data") == []
    assert mode(tmp_path / "a" / "data") == 0o700
    (tmp_path / "a" / "data" / "x").write_text("")
    assert mode(tmp_path / "a" / "data" / "x") == 0o600, "and so is what is made from now on"


def test_one_of_before_is_shut_and_that_is_reported(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    for name in ("faultline.duckdb", "faultline.duckdb.wal", "audit.ndjson", "session.key", "users.toml"):
        (data / name).write_text("")
    (data / "spool").mkdir()
    (reported,) = private.begin(data)
    assert "0755" in reported and "0700" in reported and "--server" in reported and mode(data) == 0o700
    assert private.begin(data) == []


def test_a_folder_with_other_things_stays_and_what_is_ours_in_it_is_shut(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name in ("thesis.tex", "faultline.duckdb"):
        (tmp_path / name).write_text("")
    (tmp_path / "archive").mkdir()
    (tmp_path / "spool").symlink_to("/etc")
    (reported,) = private.begin(tmp_path)
    assert "thesis.tex" in reported and "0755" in reported and mode(tmp_path) == 0o755
    assert (mode(tmp_path / "faultline.duckdb"), mode(tmp_path / "archive"), mode(tmp_path / "thesis.tex")) == (
        0o600,
        0o700,
        0o644,
    )
    assert mode(Path("/etc")) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away needs root")
def test_a_folder_of_somebody_else_is_told() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir(mode=0o755)
        Path(folder).chmod(0o755)
        os.chown(data, 12345, 12345)
        code = f"import os; from pathlib import Path; from faultline import private; os.setuid(23456); print(private.begin(Path({str(data)!r})))"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
        assert "not ours to change" in done.stdout and mode(data) == 0o755, done.stderr
