"""Enrolment by instance identity: what a site's machine gets, and what everybody else does not."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import random
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import enrolment_clouds as clouds
import pytest
import uvicorn
from enrolment_clouds import ACCOUNT, MACHINE, SITE
from enrolment_site import NAMES, Said, Site, digest

from collector.intake import PORT
from collector.receivers.refusals import Refused
from faultline import tls
from faultline.config import validate
from faultline.enrolment import signed_data
from faultline.enrolment.door import PATH, WAITING, Enroller
from faultline.enrolment.identity import Instance
from faultline.enrolment.register import Enrolled, EnrolmentRefused, Register
from faultline.exposure import wrong_and_open
from faultline.failure import CommandError
from faultline.receiving import Front, Receiving
from web.access.authentication import PEER


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_machine_of_the_site_enrols_and_its_token_is_bound_to_its_name(site: Site) -> None:
    status, said = site.azure("t-one")
    assert (status, said["status"], said["host"]) == (200, "enrolled", "gpu001")
    sender = site.enroller.find("t-one")
    assert sender is not None and sender.limits.hosts == ("gpu001",)
    assert "cluster" not in sender.limits.kinds and "lines" in sender.limits.kinds
    assert sender.limits.stands_for("gpu001", None) and not sender.limits.stands_for("gpu002", None)
    assert site.enroller.find("t-two") is None
    (kept,) = site.folder.iterdir()
    assert (kept.name, kept.stat().st_mode & 0o777, site.folder.stat().st_mode & 0o777) == ("gpu001.json", 0o600, 0o700)
    assert "t-one" not in kept.read_text() and "t-one" not in site.audit.read_text()


@pytest.mark.parametrize("attributes", [False, True])
def test_signed_attributes_are_understood(site: Site, attributes: bool) -> None:
    document = clouds.azure(site.nonce("t"), attributes=attributes)
    assert site.azure("t", document)[0] == 200


@pytest.mark.parametrize("indefinite", [False, True])
def test_an_instance_of_aws_enrols(site: Site, indefinite: bool) -> None:
    assert site.aws("t", clouds.aws("10.0.0.1", indefinite=indefinite))[0] == 200


def test_the_answer_may_be_lost(site: Site) -> None:
    """The same request again is no second enrolment, and changes nothing."""
    document = clouds.azure(site.nonce("t"))
    first, again = site.azure("t", document)[1], site.azure("t", document)[1]
    assert (first["status"], again["status"], first["expires"]) == ("enrolled", "repeated", again["expires"])


Hostile = Callable[[Site], Said]
AZURE: dict[str, tuple[Hostile, int, str]] = {
    "the document of another token": (lambda s: s.azure("mine", clouds.azure(s.nonce("other"))), 403, "document"),
    "a nonce of one's own": (lambda s: s.azure("t", clouds.azure("1234567890")), 403, "document"),
    "a nonce that another machine got": (lambda s: s.azure("t", clouds.azure(s.nonce("t", "gpu002", peer="10.0.0.2"))), 403, "document"),
    "another subscription": (lambda s: s.azure("t", clouds.azure(s.nonce("t"), subscriptionId="other")), 403, "document"),
    "no machine": (lambda s: s.azure("t", clouds.azure(s.nonce("t"), vmId="")), 403, "document"),
    "a machine that is a path": (lambda s: s.azure("t", clouds.azure(s.nonce("t"), vmId="../../x")), 403, "document"),
    "an old document": (
        lambda s: s.azure("t", clouds.azure(s.nonce("t"), made=datetime.now(UTC) - timedelta(minutes=11))), 403, "document",
    ),
    "a document of tomorrow": (
        lambda s: s.azure("t", clouds.azure(s.nonce("t"), made=datetime.now(UTC) + timedelta(days=1))), 403, "document",
    ),
    "self-signed": (lambda s: s.azure("t", clouds.azure(s.nonce("t"), kind="self-signed")), 403, "document"),
    "another root of the same name": (lambda s: s.azure("t", clouds.azure(s.nonce("t"), kind="another root's")), 403, "document"),
    "another site of the web": (lambda s: s.azure("t", clouds.azure(s.nonce("t"), kind="another name")), 403, "document"),
    "a name that ends alike": (lambda s: s.azure("t", clouds.azure(s.nonce("t"), kind="a name that ends alike")), 403, "document"),
    "a certificate that has ended": (lambda s: s.azure("t", clouds.azure(s.nonce("t"), kind="ended")), 403, "document"),
    "no base64": (lambda s: s.azure("t", "%%%"), 403, "document"),
    "another host's name": (lambda s: s.azure("t", host="gpu001", peer="10.0.0.2"), 403, "address"),
    "a name without an address": (lambda s: s.azure("t", host="gpu009"), 403, "address"),
    "the controller's name": (lambda s: s.azure("t", "x", host="ctl"), 403, "host"),
    "a list of names": (lambda s: s.azure("t", "x", host="gpu[001-064]"), 400, "malformed"),
    "a path": (lambda s: s.azure("t", "x", host="../gpu001"), 400, "malformed"),
    "a domain": (lambda s: s.azure("t", "x", host="gpu001.example.org"), 400, "malformed"),
    "a user's port": (lambda s: s.azure("t", "x", port=40000), 403, "unprivileged"),
    "no port": (lambda s: s.azure("t", "x", port=0), 403, "unprivileged"),
    "through a proxy": (lambda s: s.azure("t", "x", peer="10.9.9.9"), 403, "proxy"),
    "one megabyte": (lambda s: s.ask(b"x" * 1_000_000), 413, "too large"),
    "no JSON": (lambda s: s.ask(b"{"), 400, "malformed"),
    "nested": (lambda s: s.ask(b"[" * 40_000), 400, "malformed"),
    "a number": (lambda s: s.ask({"host": 1}), 400, "malformed"),
    "another cloud": (lambda s: s.ask({"host": "gpu001", "digest": digest("t"), "way": "hosts"}), 403, "way"),
    "GET": (lambda s: s.ask({}, method="GET"), 405, "method"),
}  # fmt: skip
AWS: dict[str, tuple[Hostile, int, str]] = {
    "another account": (lambda s: s.aws("t", clouds.aws("10.0.0.1", accountId="999999999999")), 403, "document"),
    "another region": (lambda s: s.aws("t", clouds.aws("10.0.0.1", region="us-east-1")), 403, "document"),
    "another machine's document": (lambda s: s.aws("t", clouds.aws("10.0.0.2")), 403, "address"),
    "another signer": (lambda s: s.aws("t", clouds.aws("10.0.0.1", by="somebody")), 403, "document"),
    "no address": (lambda s: s.aws("t", clouds.aws("")), 403, "document"),
    "Azure's to AWS": (lambda s: s.aws("t", clouds.azure(s.nonce("t"))), 403, "document"),
}


@pytest.mark.parametrize(("ask", "status", "outcome"), (AZURE | AWS).values(), ids=AZURE | AWS)
def test_others_get_nothing(site: Site, ask: Hostile, status: int, outcome: str) -> None:
    assert ask(site)[0] == status
    assert site.enroller.counts == {outcome: 1}
    assert site.enroller.find("t") is None and not list(site.folder.iterdir())
    assert json.loads(site.audit.read_text())["outcome"] == outcome


def test_altered_content_is_no_document(site: Site) -> None:
    whole = base64.b64decode(clouds.aws("10.0.0.9"))
    altered = whole.replace(b"10.0.0.9", b"10.0.0.1")
    assert altered != whole
    assert site.aws("t", base64.b64encode(altered).decode())[0] == 403


def test_a_nonce_is_good_for_minutes(site: Site) -> None:
    document = clouds.azure(site.nonce("t"))
    site.now += 119
    nearly = Site(site.folder.parent / "other")
    assert nearly.azure("t", document)[0] == 403  # another service's nonce
    assert site.azure("t", document)[0] == 200
    late = clouds.azure(site.nonce("u", "gpu002", peer="10.0.0.2"), vmId="x")
    site.now += 181
    assert site.azure("u", late, host="gpu002", peer="10.0.0.2")[0] == 403


def test_an_instance_enrols_once(site: Site) -> None:
    """A user's process on the node has the same document: without the agent's token it gets nothing, and is counted."""
    site.azure("agents")
    status, said = site.azure("users")
    assert (status, site.enroller.counts["second"]) == (409, 1) and MACHINE in said["detail"]
    assert site.enroller.find("users") is None and site.enroller.find("agents") is not None
    assert site.azure("users", token="guessed")[0] == 409
    text = [json.loads(line) for line in site.audit.read_text().splitlines()]
    assert [one["act"] for one in text][:2] == ["enrolled", "enrolment_refused"]


def test_a_document_for_the_nonce_of_an_earlier_start_is_no_alarm(site: Site, tmp_path: Path) -> None:
    document = clouds.azure(site.nonce("t"))
    anew = Site(tmp_path / "anew")
    anew.enroller._began = anew.now
    status, said = anew.azure("t", document)
    assert status == 403 and "Ask for a nonce anew" in said["do"]
    assert anew.enroller.counts == {"restarted": 1} and anew.enroller.trouble is None
    assert anew.azure("t")[0] == 200
    anew.now += 181
    assert anew.azure("u", document)[0] == 403 and "(document)" in str(anew.enroller.trouble)


def test_an_attempt_to_take_a_machines_place_is_shown_for_a_day(site: Site) -> None:
    site.ask({}, port=40000)
    site.ask(b"{")
    assert site.enroller.trouble is None, "any user can cause these"
    site.azure("agents")
    for name in ("one", "two"):
        site.azure(name)
    assert "enrolment: 2 refused since" in str(site.enroller.trouble)
    assert "from 10.0.0.1 (second)" in str(site.enroller.trouble)
    site.now += 90_000
    assert site.enroller.trouble is None


def test_a_new_machine_of_the_same_name_replaces_the_old_one(site: Site) -> None:
    """Nodes of a cloud come back under their name. The resolver says whose it is now."""
    site.azure("old")
    document = clouds.azure(site.nonce("new"), vmId="another")
    assert site.azure("new", document)[1]["status"] == "replaced"
    assert site.enroller.find("old") is None and site.enroller.find("new") is not None


def test_without_the_resolver_a_name_stays_with_its_machine(tmp_path: Path) -> None:
    site = Site(tmp_path, resolve=False)
    site.azure("old", host="gpu009")
    document = clouds.azure(site.nonce("new", "gpu009"), vmId="another")
    assert site.azure("new", document, host="gpu009")[0] == 409
    site.now += 8 * 86400
    late = clouds.azure(site.nonce("new", "gpu009"), vmId="another", made=datetime.fromtimestamp(site.now, UTC))
    assert "expire" not in site.azure("new", late, host="gpu009")[1].get("detail", "")


def test_a_token_ends_and_the_entry_of_a_machine_that_is_gone_is_removed(site: Site) -> None:
    site.azure("t")
    sender = site.enroller.find("t")
    assert sender is not None and sender.expires is not None
    assert not sender.is_over(datetime.fromtimestamp(site.now, UTC) + timedelta(days=6.9))
    assert sender.is_over(datetime.fromtimestamp(site.now, UTC) + timedelta(days=7.1))
    site.now += 13 * 86400
    site.enroller.purge()
    assert site.enroller.find("t") is not None
    site.now += 2 * 86400
    site.enroller.purge()
    assert site.enroller.find("t") is None and not list(site.folder.iterdir())


def test_a_removed_file_takes_the_token_away_and_others_stay_after_a_restart(site: Site, tmp_path: Path) -> None:
    site.azure("one")
    site.aws("two", clouds.aws("10.0.0.2"), host="gpu002", peer="10.0.0.2")
    again = Enroller(site.settings, tmp_path)
    assert again.find("one") is not None and again.find("two") is not None
    (site.folder / "gpu001.json").unlink()
    assert again.find("one") is None and site.enroller.find("one") is None
    assert site.enroller.find("two") is not None
    (site.folder / "gpu004.json").write_text((site.folder / "gpu002.json").read_text())  # not the file of its name
    assert again.find("two") is not None and Enroller(site.settings, tmp_path).register.count(datetime.now(UTC)) == 1
    assert site.azure("other")[1]["status"] == "enrolled"


def test_a_token_of_another_machine_is_not_taken_over(site: Site) -> None:
    site.azure("t")
    assert site.aws("t", clouds.aws("10.0.0.2"), host="gpu002", peer="10.0.0.2")[0] == 409
    found = site.enroller.find("t")
    assert found is not None and found.limits.hosts == ("gpu001",)


def test_a_flood_of_requests_is_refused_and_others_still_enrol(tmp_path: Path) -> None:
    site = Site(tmp_path, per_minute=5)
    answers = [site.ask(b"{}")[0] for _ in range(8)]
    assert answers == [400] * 5 + [429] * 3
    assert site.ask(b"{}", port=40000)[0] == 403  # no root: not counted against the machine
    assert site.aws("t", clouds.aws("10.0.0.2"), host="gpu002", peer="10.0.0.2")[0] == 200
    site.now += 60
    assert site.azure("t2")[0] == 200


def test_a_resolver_that_hangs_stops_no_other_request(site: Site) -> None:
    """Enrolment has threads of its own: the service's event loop goes on, and senders are answered."""
    site.aws("one", clouds.aws("10.0.0.2", instanceId="i-2"), host="gpu002", peer="10.0.0.2")
    begun, goes_on = threading.Event(), threading.Event()

    def hangs(host: str) -> set[str]:
        begun.set()
        assert goes_on.wait(120)
        return {NAMES[host]}

    site.enroller._resolve = hangs
    body = {"host": "gpu001", "digest": digest("t"), "way": "aws", "document": clouds.aws("10.0.0.1")}

    async def both() -> Said:
        asking = asyncio.ensure_future(site.asked(body))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        assert site.enroller.find("one") is not None and not asking.done()
        assert (await site.asked(b"{"))[0] == 400, "another request is answered meanwhile"
        goes_on.set()
        return await asking

    assert asyncio.run(both())[1]["status"] == "enrolled"


def test_a_resolver_that_hangs_holds_up_few_requests(site: Site) -> None:
    site.enroller._waiting = WAITING
    assert site.azure("t", "x")[0] == 503


def test_a_full_disk_enrols_nobody(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(site.enroller.register), "_write", full)
    assert site.azure("t")[0] == 503 and site.enroller.find("t") is None


def test_a_slow_disk_keeps_nobody_from_sending(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.azure("one")
    begun, goes_on = threading.Event(), threading.Event()
    plain = type(site.enroller.register)._write

    def slow(register: Any, made: Any) -> None:
        begun.set()
        assert goes_on.wait(120)
        plain(register, made)

    monkeypatch.setattr(type(site.enroller.register), "_write", slow)
    asking = threading.Thread(
        target=site.aws, args=("two", clouds.aws("10.0.0.2"), "gpu002"), kwargs={"peer": "10.0.0.2"}
    )
    asking.start()
    try:
        assert begun.wait(120) and not site.enroller.register._lock.locked()
        assert site.enroller.find("one") is not None and site.enroller.find("two") is None
    finally:
        goes_on.set()
        asking.join()
    assert site.enroller.find("two") is not None


def test_damaged_documents_are_refused_and_nothing_else_happens() -> None:
    """Cut anywhere, and with any byte changed: only ``SignedDataError``, and no content that was not signed."""
    whole = base64.b64decode(clouds.azure("1"))
    chance = random.Random(5)
    damaged = [whole[:cut] for cut in range(0, len(whole), 37)]
    for _ in range(400):
        at = chance.randrange(len(whole))
        damaged.append(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
    damaged += [b"\x30\x80" * 5000, b"\x30\x84\xff\xff\xff\xff", b"\x24\x80" * 20 + b"\0\0" * 20, whole + b"\0", b""]
    content = signed_data.read(whole).content
    for one in damaged:
        try:
            read = signed_data.read(one)
            read.signer([clouds.leaf("good")])
        except signed_data.SignedDataError:
            continue
        assert read.content == content


# ------------------------------------------------------------------------------------------------ the service around it


def test_the_service_takes_lines_of_an_enrolled_agent_and_of_nobody_without_a_token(tmp_path: Path) -> None:
    config = validate({"data": str(tmp_path / "d"), "enrolment": clouds.write(tmp_path)}, "test")
    receiving = Receiving(config, listeners=False)
    try:
        assert receiving.enroller is not None
        receiving.enroller._resolve = lambda host: {"10.0.0.1"}
        with pytest.raises(Refused) as refused:
            receiving.intake.allowed({})
        assert refused.value.status == 401
        asked = {"host": "gpu001", "digest": digest("t"), "way": "aws", "document": clouds.aws("10.0.0.1")}
        assert receiving.enroller.answer(asked, "10.0.0.1", None)["status"] == "enrolled"
        sender = receiving.intake.sender_about({"authorization": "Bearer t"}, "gpu001", None, certified=False)
        assert sender is not None and sender.limits.hosts == ("gpu001",)
        with pytest.raises(Refused):
            receiving.intake.sender_about({"authorization": "Bearer t"}, "gpu002", None, certified=False)
        assert _status(Front(receiving, "waiting"), {}) == 403
        assert _status(Front(receiving, "waiting"), {"origin": "https://evil.example.org", "host": "127.0.0.1"}) == 403
    finally:
        receiving.close()


def _status(front: Front, headers: dict[str, str]) -> int:
    named = [(key.encode(), value.encode()) for key, value in headers.items()]
    replies: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Any) -> None:
        replies.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": PATH,
        "headers": named,
        "client": ("10.0.0.1", 40000),
        "query_string": b"",
    }
    asyncio.run(front(scope, receive, send))
    return int(replies[0]["status"])


def test_the_service_sees_the_port_of_the_connection_itself() -> None:
    """Not one that a proxy or the sender's headers name."""
    seen: list[tuple[Any, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope[PEER], scope[PORT]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    settings = uvicorn.Config(app, http=tls.Connection, lifespan="off", log_config=None, forwarded_allow_ips="*")
    server = uvicorn.Server(settings)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        connection = http.client.HTTPConnection(*listener.getsockname())
        try:
            connection.request("GET", "/", headers={"X-Forwarded-For": "10.0.0.1:700"})
            assert connection.getresponse().status == 204 and connection.sock is not None
            assert seen == [connection.sock.getsockname()]
        finally:
            connection.close()
            server.should_exit = True
            thread.join()


WRONG = {
    "no hosts": ({"hosts": []}, "hosts is missing"),
    "unknown data": ({"data": ["everything"]}, "is no kind of data"),
    "no subscription": ({"azure": {"subscriptions": [], "certificates": "x"}}, "subscriptions"),
    "no file": ({"azure": {"subscriptions": [SITE], "certificates": "/nowhere.pem"}}, "certificates cannot be read"),
}


@pytest.mark.parametrize(("changed", "why"), WRONG.values(), ids=WRONG)
def test_a_configuration_that_cannot_work_is_refused(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    section = clouds.write(tmp_path) | changed
    with pytest.raises(CommandError, match=why):
        Receiving(validate({"data": str(tmp_path / "d"), "enrolment": section}, "test"), listeners=False)


def test_check_names_what_is_left_open(tmp_path: Path) -> None:
    section = clouds.write(tmp_path) | {"privileged_port": False, "resolve": False, "data": ["lines", "cluster"]}
    found = wrong_and_open(validate({"data": str(tmp_path), "enrolment": section}, "test"), None, None)[1]
    assert [one.partition(":")[0] for one in found if "enrolment" in one] == [
        "[enrolment] privileged_port = false", "[enrolment] resolve = false", "[enrolment] data",
    ]  # fmt: skip
    assert ACCOUNT not in "".join(found)
    assert "in the agent's place once that was silent for 15 minutes" in next(
        one for one in found if "privileged" in one
    )


A, B, C = (f"sha256:{letter * 64}" for letter in "abc")


def test_a_file_of_a_former_name_hides_no_valid_entry(tmp_path: Path) -> None:
    """Files are read in no order, so sixteen pairs of names are tried."""
    now = datetime.now(UTC)
    for n in range(16):
        folder = tmp_path / str(n)
        folder.mkdir()
        for host, token, end in ((f"old{n}", A, -1), (f"new{n}", B, 3600)):
            entry = Enrolled(host, "azure/s/x", token, "10.0.0.1", now.timestamp() + end - 7200, now.timestamp() + end)
            (folder / f"{host}.json").write_text(json.dumps(asdict(entry)))
        known = Register(folder, (), (), timedelta(days=1))
        with pytest.raises(EnrolmentRefused, match="enrolled"):
            known.enrol(f"new{n}", Instance("azure/s/x"), C, None, "10.0.0.1", now, sure=True)
        assert known.enrol(f"new{n}", Instance("azure/s/x"), C, B, "10.0.0.1", now, sure=True)[0] == "renewed"
