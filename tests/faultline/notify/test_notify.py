"""Who is notified of what, and when again; and what each notifier sends to a real receiver."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import gethostname
from typing import Any, ClassVar

import pytest
import structlog

from correlator.model.false_lines import FORGED
from faultline.config import validate
from faultline.failure import CommandError
from faultline.notify import GROUP, notifiers
from faultline.notify.dispatch import MOST, REMEMBERED, RETRY_S, Dispatcher, Target
from faultline.notify.email import mail
from faultline.notify.incident_news import SETTLE_S, WITHDRAW_S
from faultline.notify.message import Message
from faultline.notify.silence_news import BACK_S, GATHER, SILENT_S
from faultline.notify_targets import dispatcher_of
from faultline.service import Service
from parsers import extensions
from store.duckdb.store import DuckStore
from tests.correlator.rows import concluded
from web.metrics import exposition

FLAP = Path(__file__).parents[2] / "captures" / "mgmt_flap_long"
SOON = datetime(2026, 11, 21, 0, 35)


@pytest.fixture
def store() -> Iterator[DuckStore]:
    with concluded(FLAP) as made:
        yield made


class Ears:
    """A target that records its notifications, and a clock."""

    def __init__(self, store: DuckStore, now: datetime = SOON, **about: Any) -> None:
        self.heard: list[Message] = []
        self.away: Exception | None = None
        self.alerts: list[tuple[str, str]] = []
        self.time = 0.0
        self.start = now
        self.target = Target("ears", self.take, **about)
        self.dispatcher = Dispatcher(store, [self.target], "http://x", lambda: self.alerts, self.now, lambda: self.time)

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.time)

    def take(self, message: Message) -> None:
        if self.away:
            raise self.away
        self.heard.append(message)

    def round(self, later: float = 0.0) -> list[tuple[str, str]]:
        """The notifications of one more round."""
        self.time += later
        before = len(self.heard)
        self.dispatcher.round()
        return [(message.state, message.key) for message in self.heard[before:]]


def the_incident(store: DuckStore) -> str:
    ((found,),) = store.cursor().execute("SELECT incident_id FROM model.incidents WHERE severity = 'impact'").fetchall()
    return str(found)


def change(store: DuckStore, **members: Any) -> None:
    (row,) = store.rows("SELECT document FROM model.incidents WHERE severity = 'impact'")
    document = json.dumps({**json.loads(row["document"]), **members})
    with store.transaction() as connection:
        connection.execute("UPDATE model.incidents SET document = ? WHERE severity = 'impact'", [document])


def test_an_incident_is_reported_once_with_what_to_do_also_over_a_restart(store: DuckStore) -> None:
    ears, name = Ears(store), the_incident(store)
    assert ears.round() == [("opened", name)] and ears.round(60) == []
    text = ears.heard[0].text
    assert "gpu02" in text and "15 of alice" in text and "Check cable, transceiver and switch port" in text
    assert text.endswith(f"http://x/incidents/{name}")
    assert Ears(store).round() == []


@pytest.mark.parametrize(
    ("about", "now", "told"),
    [({}, SOON, 1), ({"severity": ("degraded",)}, SOON, 0), ({"least_confidence": 0.999}, SOON, 0),
     ({}, SOON + timedelta(hours=3), 0)],
)  # fmt: skip
def test_what_is_no_news_for_a_target_is_not_reported(
    store: DuckStore, about: dict[str, Any], now: datetime, told: int
) -> None:
    assert len(Ears(store, now, **about).round()) == told


def test_another_cause_is_reported_when_it_stays(store: DuckStore) -> None:
    ears, name = Ears(store), the_incident(store)
    ears.round()
    change(store, category="infra.gpu")
    assert ears.round(1) == []
    change(store, category="infra.storage")
    assert ears.round(SETTLE_S) == []
    assert ears.round(SETTLE_S) == [("changed", name)] and ears.round(SETTLE_S) == []


def remove(store: DuckStore) -> list[tuple[Any, ...]]:
    """The incident of impact, taken out of the store."""
    with store.transaction() as connection:
        rows = connection.execute("SELECT * FROM model.incidents WHERE severity = 'impact'").fetchall()
        connection.execute("DELETE FROM model.incidents WHERE severity = 'impact'")
    return rows


def put(store: DuckStore, rows: list[tuple[Any, ...]], name: str | None = None) -> None:
    with store.transaction() as connection:
        for row in rows:
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO model.incidents VALUES ({marks})", [name or row[0], *row[1:]])


def test_what_is_concluded_no_more_is_withdrawn_and_what_is_only_old_is_not(store: DuckStore) -> None:
    ears, name = Ears(store), the_incident(store)
    ears.round()
    assert ears.round(REMEMBERED.total_seconds() - 2 * WITHDRAW_S) == []
    remove(store)
    assert ears.round() == [] and ears.round(WITHDRAW_S) == [("withdrawn", name)] and ears.round(WITHDRAW_S) == []
    assert "later lines tell otherwise" in ears.heard[-1].title


def test_an_incident_that_is_withdrawn_and_concluded_again_is_one_thread(store: DuckStore) -> None:
    ears, name = Ears(store), the_incident(store)
    ears.round()
    rows = remove(store)
    assert ears.round(1) == []
    put(store, rows)
    assert ears.round(1) == [], "it was away for a tick"
    remove(store)
    ears.round(1)
    assert ears.round(WITHDRAW_S) == [("withdrawn", name)]
    put(store, rows)
    assert ears.round(1) == [] and ears.round(SETTLE_S * 2) == [("again", name)]
    remove(store)
    assert ears.round(1) == [] and ears.round(WITHDRAW_S) == [], "the wait doubles with each message"
    assert [message.thread for message in ears.heard] == [name] * 3
    first, *later = (mail(message, "f@x", ["ops@x"]) for message in ears.heard)
    assert first["References"] is None and {one["References"] for one in later} == {first["Message-ID"]}
    assert len({one["Message-ID"] for one in (first, *later)}) == 3


@pytest.mark.parametrize("is_alias", [True, False])
def test_the_same_fault_under_another_name_goes_on_in_its_thread(store: DuckStore, is_alias: bool) -> None:
    ears, name = Ears(store), the_incident(store)
    ears.round()
    rows = remove(store)
    put(store, rows, "I-new")
    if is_alias:
        with store.transaction() as connection:
            connection.execute("INSERT INTO kept.aliases VALUES ('mini', ?, 'I-new', now())", [name])
    assert ears.round(WITHDRAW_S * 2) == ears.round(WITHDRAW_S * 2) == [], "the same under another name is no news"
    change(store, category="infra.storage")
    assert ears.round(1) == [] and ears.round(SETTLE_S * 4) == [("changed", "I-new")]
    assert ears.heard[-1].thread == name and Ears(store).round() == []


def test_two_incidents_that_turn_out_as_one_end_one_of_two_threads(store: DuckStore) -> None:
    ears, name = Ears(store), the_incident(store)
    rows = remove(store)
    put(store, rows)
    put(store, rows, "I-other")
    assert sorted(ears.round()) == [("opened", name), ("opened", "I-other")]
    with store.transaction() as connection:
        connection.execute("INSERT INTO kept.aliases VALUES ('mini', ?, 'I-other', now())", [name])
        connection.execute("DELETE FROM model.incidents WHERE incident_id = ?", [name])
    assert ears.round() == [] and ears.round(WITHDRAW_S) == [("withdrawn", name)]
    assert "it is part of I-other" in ears.heard[-1].title and ears.heard[-1].link.endswith("/I-other")


def test_a_failing_notifier_of_a_package_is_logged_with_its_entry_point(
    store: DuckStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = extensions.Extension(GROUP, "wall", "our_package.wall:WALL", "our-package")
    monkeypatch.setattr(extensions, "_brought", {(GROUP, "webhook"): point})
    options: dict[str, Any] = {"webhook": {"url": "http://x"}, "command": {"command": ["x"]}}
    config = validate({"notify": [{"kind": kind, "options": given} for kind, given in options.items()]}, "test")
    by = [target.brought_by for target in dispatcher_of(config, store, list).targets]
    assert by == ["notifier wall (our_package.wall:WALL) of our-package", None]
    ears = Ears(store, brought_by=by[0])
    ears.away = OSError("refused")
    with structlog.testing.capture_logs() as logged:
        ears.round()
    assert [(line["target"], line["extension"]) for line in logged] == [("ears", by[0])]


def test_a_target_that_is_away_is_tried_later_and_later_and_the_others_are_reported(store: DuckStore) -> None:
    ears, other = Ears(store), Ears(store)
    other.target.name = "other"
    ears.dispatcher.targets = [ears.target, other.target]
    ears.away = OSError("refused")
    ears.dispatcher.round()
    assert len(other.heard) == 1 and ears.dispatcher.counts == {("ears", "failed"): 1, ("other", "sent"): 1}
    ears.away = None
    assert ears.round(RETRY_S - 1) == []
    assert len(ears.round(2)) == 1
    assert 'faultline_notices_total{outcome="sent",target="ears"} 1' in exposition(ears.dispatcher)


def test_a_storm_is_reported_in_a_few_messages(store: DuckStore) -> None:
    with store.transaction() as connection:
        connection.execute(
            "INSERT INTO model.incidents SELECT 'I-' || n, cluster, start, \"end\", severity, category, root_event, root_host, "
            "root_device, document FROM model.incidents, range(30) AS many(n) WHERE severity = 'impact'"
        )
    ears = Ears(store)
    reported = ears.round()
    assert len(reported) == MOST + 1 and reported[-1][0] == "more" and "21 more" in ears.heard[-1].title
    assert ears.round() == []


def test_a_source_that_falls_silent_is_reported_until_it_speaks(store: DuckStore) -> None:
    ears = Ears(store, severity=())
    ears.alerts = [("gpu02", "syslog of gpu02 silent for 20 min")]
    key = "source gpu02"
    assert ears.round() == [] and ears.round(SILENT_S) == [("silent", key)] and ears.round(9) == []
    ears.alerts = []
    assert ears.round(1) == [] and ears.round(BACK_S) == [("heard", key)] and ears.round() == []
    ears.alerts = [("gpu02", "again")]
    assert ears.round(1) == [] and ears.round(GATHER.total_seconds()) == [("silent", key)]
    assert len({message.thread for message in ears.heard}) == 1
    assert [message.number for message in ears.heard] == [0, 1, 2]
    ears.target.sources = False
    ears.alerts = []
    assert ears.round(1) == [] and ears.round(86400.0) == []


def test_a_source_that_comes_and_goes_within_minutes_is_no_news(store: DuckStore) -> None:
    ears = Ears(store, severity=())
    for _ in range(20):
        ears.alerts = [("gpu02", "syslog of gpu02 silent for 20 min")]
        assert ears.round(5) == []
        ears.alerts = []
        assert ears.round(5) == []


def test_hosts_that_fall_silent_together_are_one_thread_of_few_messages(store: DuckStore) -> None:
    ears = Ears(store, severity=())
    for number in range(40):  # a relay died; its hosts lose their patience one after the other
        ears.alerts.append((f"gpu{number:02d}", f"syslog of gpu{number:02d} silent for 15 min"))
        ears.round(10)
    ears.round(GATHER.total_seconds())
    assert [message.state for message in ears.heard] == ["silent", "silent"]
    assert ears.heard[1].title.startswith("39 hosts are silent: gpu01, gpu02, gpu03 and 36 more; syslog of gpu01")
    ears.alerts = ears.alerts[:1]
    ears.round(5)
    ears.round(BACK_S * 2)
    ears.alerts = []
    ears.round(5)
    ears.round(BACK_S * 8)
    assert [message.state for message in ears.heard[2:]] == ["changed", "heard"]
    assert len({message.thread for message in ears.heard}) == 1 and "1 still silent" in ears.heard[2].title


def test_forged_lines_are_reported_once_without_their_text(store: DuckStore) -> None:
    ears = Ears(store, severity=())
    about = json.dumps({"claimed_event": "gpu.xid", "channel": "log host", "writer": "mallory"})
    with store.transaction() as connection:
        connection.execute(
            "INSERT INTO model.events (event_id, time, cluster, host, event, message, entities, layer, count) "
            "VALUES ('f1', ?, 'mini', 'gpu02', ?, 'secret text', ?, 'security', 1)",
            [SOON, FORGED, about],
        )
    assert ears.round() == [("opened", "forged f1")] and ears.round(60) == []
    (message,) = ears.heard
    assert "gpu.xid in the name of gpu02 (log host)" in message.text and message.link.endswith("/nodes/gpu02")
    assert "secret" not in json.dumps(message.as_json()) and "mallory" not in json.dumps(message.as_json())
    assert Ears(store, SOON + timedelta(hours=3), severity=(), forgeries=False).round() == []


# --------------------------------------------------------------------------------------------------------- the kinds

MESSAGE = Message(
    "I-1", "opened", "impact", "eth0 of gpu02 lost its link", "http://x/incidents/I-1", "mini",
    {"start": "2026-11-21T00:30:17Z", "end": "2026-11-21T00:32:45Z", "confidence": 0.99, "category": "infra.network"},
)  # fmt: skip


class Receiver(BaseHTTPRequestHandler):
    got: ClassVar[list[tuple[str, dict[str, str], Any]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.path, dict(self.headers), json.loads(body)))
        self.send_response(302 if self.path == "/moved" else 200)
        if self.path == "/moved":
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@pytest.fixture
def receiver() -> Iterator[str]:
    Receiver.got.clear()
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_webhook(receiver: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    send = notifiers()["webhook"].sender({"url": f"{receiver}/hook", "token_file": str(tmp_path / "token")})
    send(MESSAGE)
    ((path, headers, body),) = Receiver.got
    assert (path, headers["Authorization"], body["key"], body["state"]) == ("/hook", "Bearer secret", "I-1", "opened")
    assert body["text"].startswith("[impact] mini: New: eth0 of gpu02") and body["incident"]["confidence"] == 0.99
    with pytest.raises(OSError, match="302"):
        notifiers()["webhook"].sender({"url": f"{receiver}/moved"})(MESSAGE)


def test_alertmanager_ends_an_alert_under_the_labels_that_began_it(receiver: str) -> None:
    send = notifiers()["alertmanager"].sender({"url": receiver})
    send(MESSAGE)
    send(Message("I-1", "withdrawn", "impact", "no more", "http://x", "mini"))
    (path, _, (begun,)), (_, _, (ended,)) = Receiver.got
    assert path == "/api/v2/alerts" and begun["labels"] == ended["labels"]
    assert begun["startsAt"] == "2026-11-21T00:30:17Z"
    now = datetime.now(UTC)
    lasts, over = (datetime.fromisoformat(reported["endsAt"]) - now for reported in (begun, ended))
    assert lasts > timedelta(hours=23) and over <= timedelta(0)


def test_a_command_reads_the_message_and_its_failure_is_one(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    notifiers()["command"].sender({"command": ["/bin/sh", "-c", f"cat > {out}"]})(MESSAGE)
    assert json.loads(out.read_text())["title"] == MESSAGE.title
    with pytest.raises(OSError, match="exit code 3: no pager"):
        notifiers()["command"].sender({"command": ["/bin/sh", "-c", "echo no pager >&2; exit 3"]})(MESSAGE)


class Smtp(socketserver.StreamRequestHandler):
    mails: ClassVar[list[str]] = []

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        while line := self.rfile.readline():
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                self.mails.append("".join(iter(lambda: self.rfile.readline().decode(), ".\r\n")))
            self.wfile.write(b"221 bye\r\n" if line.upper().startswith(b"QUIT") else b"250 ok\r\n")


def test_email() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Smtp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {
            "to": ["ops@example.org"],
            "sender": "faultline@example.org",
            "server": "127.0.0.1",
            "port": server.server_address[1],
        }
        notifiers()["email"].sender(options)(MESSAGE)
        server.shutdown()
    (mail,) = Smtp.mails
    assert "Subject: [impact] mini: New: eth0 of gpu02 lost its link" in mail and "<I-1@faultline>" in mail


WRONG = {
    "unknown kind": {"kind": "pigeon"},
    "options.url: missing": {"kind": "webhook"},
    "options.url: 'ftp://x' is no": {"kind": "webhook", "options": {"url": "ftp://x"}},
    "options.colour: unknown": {"kind": "webhook", "options": {"url": "http://x", "colour": "red"}},
    "url: there is no such key; known are kind, name, severity": {"kind": "webhook", "url": "http://x"},
    "options.to: must be a list": {"kind": "email", "options": {"to": "ops", "sender": "a@b"}},
    "options.port: must be a int": {"kind": "email", "options": {"to": ["a@b"], "sender": "a@b", "port": "25"}},
    "options.command: must be a list": {"kind": "command", "options": {"command": "page me"}},
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_entry_is_named(said: str) -> None:
    with pytest.raises(CommandError, match=r"notify\.0") as problem:
        validate({"notify": [WRONG[said]]}, "test")
    assert said.replace("unknown kind", "is unknown") in str(problem.value)


def test_the_service_looks_for_news_by_itself(store: DuckStore, tmp_path: Path) -> None:
    hook = {"kind": "command", "options": {"command": ["/bin/true"]}}
    quiet, reported = (
        Service(validate({"data": str(tmp_path), "notify": some}, "test"), store) for some in ([], [hook])
    )
    for running, jobs in ((quiet, 0), (reported, 1)):
        running.start()
        found = [job for job in running.scheduler.get_jobs() if job.func == running.dispatcher.round]
        running.stop()
        assert len(found) == jobs


@pytest.mark.parametrize(
    ("said", "address"),
    [({}, "http://127.0.0.1:8514"), ({"listen": "0.0.0.0:80"}, f"http://{gethostname()}:80"),
     ({"listen": "[::]:80", "public_url": "https://f.example/"}, "https://f.example")],
)  # fmt: skip
def test_links_lead_to_where_people_reach_the_pages(said: dict[str, Any], address: str) -> None:
    assert validate(said, "test").pages == address


def test_two_targets_need_two_names(store: DuckStore) -> None:
    hook = {"kind": "webhook", "options": {"url": "http://x"}}
    with pytest.raises(CommandError, match="two targets are called webhook"):
        validate({"notify": [hook, hook]}, "test")
    config = validate({"notify": [hook, {**hook, "name": "second"}], "public_url": "https://f.example/"}, "test")
    telling = dispatcher_of(config, store, list)
    assert [target.name for target in telling.targets] == ["webhook", "second"] and telling.link == "https://f.example"
