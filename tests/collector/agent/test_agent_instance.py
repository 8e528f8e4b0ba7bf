"""The agent without a token from a person: it asks its cloud who it is, and shows that to the service."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from collector.agent import instance
from collector.agent.commands import main
from collector.agent.config import load, validate
from collector.agent.failure import AgentError
from collector.agent.instance import AWS, AZURE, LAST_WAIT_S, LOOK_S, Enrolment, Metadata, RootConnection, bearer
from collector.agent.sender import Answer, Connection
from collector.senders import digest_of


class FakeCloud(BaseHTTPRequestHandler):
    """Both clouds' metadata service; ``mode``: how it fails."""

    mode: ClassVar[str] = ""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if self.mode == "down":
            self._say(503, b"")
        elif url.path == "/metadata/attested/document" and self.headers["Metadata"] == "true":
            nonce = parse_qs(url.query)["nonce"][0]
            body = {"encoding": "pkcs7", "signature": f"azure document for {nonce}"}
            self._say(200, b"x" * 200_000 if self.mode == "large" else json.dumps(body).encode())
        elif url.path.endswith("/rsa2048") and self.headers["X-aws-ec2-metadata-token"] == "session":
            self._say(200, b"aws document")
        else:
            self._say(400, b"")

    def do_PUT(self) -> None:
        self._say(200 if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else 400, b"session\n")

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def metadata() -> Iterator[Metadata]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeCloud)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield Metadata(("127.0.0.1", server.server_address[1]))
    server.shutdown()
    server.server_close()


class FakeService:
    """A service that enrols; ``answers`` come first, 0 for one that was carried out and got lost."""

    def __init__(self, *answers: int) -> None:
        self.answers, self.asked, self.tokens = list(answers), [], []  # type: ignore[var-annotated]
        self.digest = ""

    def connection(self, folder: Path) -> Connection:
        made = Connection("http://127.0.0.1:1", lambda: bearer(folder))
        made.request = self.request  # type: ignore[method-assign]
        self.folder = folder
        return made

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        asked = json.loads(body or b"")
        self.asked.append((method, path, asked))
        if "document" not in asked:
            return Answer(200, text='{"nonce": "1234567890"}')
        self.tokens.append(bearer(self.folder))
        code = self.answers.pop(0) if self.answers else 200
        if code in (0, 200):
            self.digest = asked["digest"]
        return Answer(code, "why", text='{"expires_s": 1000}')


class Node:
    def __init__(self, folder: Path, metadata: Metadata, service: FakeService, cloud: str = AZURE) -> None:
        self.folder, self.service, self.now, self.told = folder, service, 1000.0, 0
        self.refused = False
        self.enrolment = Enrolment(
            folder, "gpu001", cloud, lambda: service.connection(folder), metadata=metadata, now=lambda: self.now,
            enrolled=self._tell, refused=lambda: self.refused,
        )  # fmt: skip

    def _tell(self) -> None:
        self.told += 1


@pytest.mark.parametrize(("cloud", "document"), [(AZURE, "azure document for 1234567890"), (AWS, "aws document")])
def test_it_shows_its_clouds_document_and_only_the_digest_of_its_token(
    cloud: str, document: str, tmp_path: Path, metadata: Metadata
) -> None:
    service = FakeService()
    node = Node(tmp_path, metadata, service, cloud)
    assert node.enrolment.step() == LOOK_S and node.told == 1 and not node.enrolment.trouble
    token = bearer(tmp_path)
    shown = {"host": "gpu001", "digest": digest_of(token), "way": cloud}
    assert [one[2] for one in service.asked] == [shown, {**shown, "document": document}]
    assert {one[:2] for one in service.asked} == {("POST", "/api/v1/enrol")}
    assert len(token) == 43 and token not in json.dumps(service.asked)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "instance.token": 0o600, "instance.json": 0o600,
    }  # fmt: skip


def test_a_token_is_renewed_at_about_half_of_its_life_and_used_until_then(tmp_path: Path, metadata: Metadata) -> None:
    node = Node(tmp_path, metadata, FakeService(200, 0))
    node.enrolment.step()
    first = bearer(tmp_path)
    node.now += 390
    assert 10 <= node.enrolment.step() <= 210 and len(node.service.tokens) == 1
    node.now += 210
    node.enrolment.step()  # carried out, and the answer was lost
    assert bearer(tmp_path) == first and node.enrolment.trouble == "why"
    node.enrolment.step()
    assert node.service.tokens == ["", first, first]
    assert digest_of(bearer(tmp_path)) == node.service.digest and bearer(tmp_path) != first


def test_machines_that_were_started_together_renew_at_different_times(tmp_path: Path, metadata: Metadata) -> None:
    waits = set()
    for n in range(5):
        (tmp_path / str(n)).mkdir()
        node = Node(tmp_path / str(n), metadata, FakeService())
        node.enrolment.step()
        node.now += 390
        waits.add(node.enrolment.step())
    assert len(waits) == 5


def test_a_token_that_the_service_does_not_know_any_more_is_made_anew(tmp_path: Path, metadata: Metadata) -> None:
    node = Node(tmp_path, metadata, FakeService())
    node.enrolment.step()
    first, node.refused = bearer(tmp_path), True
    node.enrolment.step()
    assert bearer(tmp_path) != first and node.told == 2


def test_what_the_service_will_never_accept_is_not_shown_again(tmp_path: Path, metadata: Metadata) -> None:
    node = Node(tmp_path, metadata, FakeService(409, 429))
    for _ in range(3):
        node.enrolment.step()
    shown = [one[2]["digest"] for one in node.service.asked if "document" in one[2]]
    assert shown[0] != shown[1] == shown[2]


@pytest.mark.parametrize("mode", ["down", "large"])
def test_a_metadata_service_that_fails_is_asked_again_later_and_later(
    mode: str, tmp_path: Path, metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeCloud, "mode", mode)
    node = Node(tmp_path, metadata, FakeService())
    waits = [node.enrolment.step() for _ in range(14)]
    assert 1 <= waits[0] <= 2 and LAST_WAIT_S / 2 <= waits[-1] <= LAST_WAIT_S
    assert "metadata service" in node.enrolment.trouble and bearer(tmp_path) == "" and node.told == 0


def test_nobody_there_and_a_strange_service_are_told(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        node = Node(tmp_path, Metadata(closed.getsockname()), FakeService())
        node.enrolment.step()
    assert "metadata service" in node.enrolment.trouble
    node.service.request = lambda *_: Answer(200, text='{"nonce": "1&x=2"}')  # type: ignore[method-assign]
    node.enrolment.step()
    assert "no nonce" in node.enrolment.trouble


def test_the_connection_comes_from_the_chosen_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root from a port below 1024; here from any that is free, after one that is not."""
    with socket.socket() as listener, socket.socket() as used, socket.socket() as free:
        for one in (listener, used, free):
            one.bind(("127.0.0.1", 0))
        listener.listen()
        chosen = free.getsockname()[1]
        free.close()
        made = RootConnection(
            f"http://127.0.0.1:{listener.getsockname()[1]}", str, ports=lambda: [used.getsockname()[1], chosen]
        )
        connection = made._connect()
        accepted, peer = listener.accept()
        assert peer[1] == chosen
        accepted.close()
        connection.close()
    assert set(instance.ports()) <= set(range(512, 1024)) and len(set(instance.ports())) == instance.TRIES


def test_a_process_that_may_not_use_such_a_port_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_connection", denied)
    enrolment = Enrolment(tmp_path, "gpu001", AZURE, lambda: RootConnection("http://127.0.0.1:1", str))
    enrolment.step()
    assert "CAP_NET_BIND_SERVICE" in enrolment.trouble


def test_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, spool = tmp_path / "agent.toml", tmp_path / "spool"
    given = ["enroll", "--server", "https://s:1", "--instance", "azure", "--config", str(file), "--spool", str(spool)]
    assert main(given) == 0
    config = load(file)
    assert (config.enrol, config.bearer(), file.with_suffix(".token").exists()) == ("azure", "", False)
    assert main([*given, "--force", "--token", "t"]) == 2 and "exclude" in capsys.readouterr().err
    for wrong in ({"enrol": "moon"}, {"enrol": "aws", "token": "t"}, {"enrol": "aws", "server": "http://s"}):
        with pytest.raises(AgentError, match="enrol"):
            validate({"server": "https://s", **wrong}, "test")
