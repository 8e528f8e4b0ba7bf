"""A service with HTTPS, client certificates for senders and a login, all real."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from collector.agent.sender import Connection
from faultline import tls
from faultline.authentication import authentication_of
from faultline.config import Tls, validate
from faultline.failure import CommandError
from tests.collector.running import ROOT, free_port
from tests.faultline import certificates, command

FLAP = ROOT / "tests" / "captures" / "mgmt_flap_long"
CONFIG = """
listen = "127.0.0.1:{port}"
data = "{folder}/data"
syslog = []
[tls]
certificate = "{folder}/service.pem"
key = "{folder}/service.key"
client_ca = "{folder}/ca.pem"
[access]
users = "{folder}/users.toml"
operate = ["ops"]
own = ["alice", "bob"]
"""


@dataclass(frozen=True)
class Answer:
    returncode: int
    stdout: str
    stderr: str


def faultline(*arguments: str, given: str = "", **more: str) -> Answer:
    done = command.faultline(*arguments, stdin=given.encode(), **more)
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


class Guarded:
    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        certificates.make(folder, "service", "gpu01")
        self.users = folder / "users.toml"
        self.tokens = {
            n: faultline("access", "token", n, "--users", str(self.users)).stdout.strip()
            for n in ("ops", "alice", "bob")
        }
        (folder / "config.toml").write_text(CONFIG.format(port=self.port, folder=folder))
        self.context = ssl.create_default_context(cafile=str(folder / "ca.pem"))

    def status(self, path: str, **headers: str) -> int:
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=240, context=self.context) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def send(self, **shown: str) -> int:
        files = {name: str(self.folder / file) for name, file in shown.items()}
        sender = Connection(self.url, lambda: "", timeout=120.0, ca=str(self.folder / "ca.pem"), **files)
        try:
            record = {"raw": "Nov 23 08:00:00 gpu01 kernel: mlx5_core 0000:3b:00.0 ens1: Link down", "host": "gpu01"}
            return sender.request("POST", "/api/v1/ingest", json.dumps(record).encode() + b"\n", {}).code
        finally:
            sender.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    stored = faultline("ingest", str(FLAP), "--data", str(made.folder / "data"))
    assert stored.returncode == 0, stored.stderr
    with (made.folder / "log").open("wb") as log:
        serve = [sys.executable, "-m", "faultline.entry", "serve", "--config", str(made.folder / "config.toml")]
        process = subprocess.Popen(serve, cwd=ROOT, stdout=log, stderr=log)
    until = time.monotonic() + 180
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            if made.status("/readyz") == 200:
                break
        time.sleep(0.1)
    else:
        raise AssertionError((made.folder / "log").read_text()[-3000:])
    yield made
    process.terminate()
    process.wait(240)


def test_a_sender_with_a_certificate_needs_no_token(guarded: Guarded) -> None:
    assert guarded.send(cert="gpu01.pem", key="gpu01.key") in (200, 202, 204)
    assert guarded.send() == 401


def test_pages_and_api_answer_who_is_known(guarded: Guarded) -> None:
    assert guarded.status("/api/v1/jobs") == 401 and guarded.status("/login") == 200
    for name, expected in (("ops", 200), ("alice", 403)):
        assert guarded.status("/api/v1/nodes", Authorization=f"Bearer {guarded.tokens[name]}") == expected
    # a certificate identifies a sender, and opens no page
    context = guarded.context
    context.load_cert_chain(guarded.folder / "gpu01.pem", guarded.folder / "gpu01.key")
    assert guarded.status("/api/v1/jobs") == 401


def test_why_asks_with_a_token_and_shows_ones_own_jobs_only(guarded: Guarded) -> None:
    trusted = {"SSL_CERT_FILE": str(guarded.folder / "ca.pem")}

    def why(name: str) -> Answer:
        return faultline(
            "why", "15", "--server", guarded.url, FAULTLINE_ACCESS_TOKEN=guarded.tokens.get(name, ""), **trusted
        )

    assert "infra.network" in why("alice").stdout and "lost its network" in why("ops").stdout
    refused = why("bob")
    assert refused.returncode != 0 and "gpu02" not in refused.stdout + refused.stderr
    stranger = why("")
    assert stranger.returncode == 2 and "FAULTLINE_ACCESS_TOKEN" in stranger.stderr


def test_the_file_of_people_is_followed(guarded: Guarded) -> None:
    token = faultline("access", "token", "ops visitor", "--users", str(guarded.users)).stdout.strip()
    asked = {"Authorization": f"Bearer {token}"}
    assert guarded.status("/api/v1/nodes", **asked) == 200
    assert faultline("access", "remove", "ops visitor", "--users", str(guarded.users)).returncode == 0
    assert guarded.status("/api/v1/nodes", **asked) == 401


def test_passwords_and_tokens_are_given_by_the_command(tmp_path: Path) -> None:
    users = str(tmp_path / "users.toml")
    assert faultline("access", "password", "ada", "--users", users, given="long enough\n").returncode == 0
    assert faultline("access", "token", "grafana", "--users", users).stdout.strip()
    listed = [line.split("\t") for line in faultline("access", "list", "--users", users).stdout.splitlines()]
    assert [line[:2] for line in listed] == [["password", "ada"], ["token", "grafana"]]
    assert listed[0][2] == "argon2id" and re.match(r"scope all, ends 20\d\d-\d\d-\d\d, \.\.\.\S{4}$", listed[1][2])
    kept = Path(users).read_text()
    assert "long enough" not in kept and "$argon2id$" in kept and Path(users).stat().st_mode & 0o007 == 0
    for wrong, stated in (
        (("password", "ada"), "8 characters"),
        (("password",), "NAME"),
        (("pasword", "ada"), "did you mean password"),
    ):
        answer = faultline("access", *wrong, "--users", users, given="short\n")
        assert answer.returncode == 2 and stated in answer.stderr, wrong
    assert Path(users).read_text() == kept
    assert faultline("access", "remove", "eve", "--users", users).returncode == 1


def test_check_looks_at_the_ways_in(guarded: Guarded, tmp_path: Path) -> None:
    config = guarded.folder / "config.toml"
    right = faultline("check", "--config", str(config))
    assert right.returncode == 0 and "3 tokens" in right.stdout and "service.pem" in right.stdout
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(config.read_text().replace("users.toml", "nowhere/no-users.toml"))
    answer = faultline("check", "--config", str(wrong))
    assert answer.returncode == 1 and "no-users.toml: cannot be read" in answer.stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"access": {"operate": ["ops"]}}, "nobody could sign in"),
        ({"access": {"users": "u.toml"}}, "nobody has a role"),
        ({"access": {"proxies": ["10.0.0.1"], "read": ["*"]}}, "user_header"),
        ({"access": {"provider": {"issuer": "login.example.org", "client_id": "x"}, "read": ["*"]}}, "issuer"),
    ],
)
def test_a_way_in_that_lets_nobody_in_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        validate(given, "test")


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no-such\.pem"):
        tls.options(Tls(certificate=tmp_path / "no-such.pem", key=tmp_path / "no-such.key"))
    certificates.make(tmp_path, "service")
    with pytest.raises(CommandError, match=r"client_ca .*no-ca\.pem"):
        tls.options(
            Tls(certificate=tmp_path / "service.pem", key=tmp_path / "service.key", client_ca=tmp_path / "no-ca.pem")
        )
    config = {"data": str(tmp_path / "data"), "access": {"users": str(tmp_path / "no-users.toml"), "read": ["*"]}}
    with pytest.raises(CommandError, match=r"no-users\.toml"):
        authentication_of(validate(config, "test"))
