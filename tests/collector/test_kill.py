"""``kill -9`` of the service at any moment, under load from several senders: what was acknowledged is stored once.

FAULTLINE_KILLS=50 makes it the long version. Numbered lines distinguish loss from repetition; the tally is printed.

The senders are the real ones: the node agent as a process that follows a log, rsyslogd (if it is installed) with omfwd
over TCP and with omelasticsearch without ids, and the behaviour of an OpenTelemetry collector: the same body again
until it is answered. The guarantee: a batch answered with 200 is in the store exactly once, however often it was sent.
Plain syslog has no acknowledgement: every line of it is stored at most once, and all lines are stored that the service
had read and fsynced when it was killed (here: those that the test finds in the spool's files after the kill).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Running, free_port
from test_agent_to_service import Agent
from test_real_clients import MODULES, RSYSLOG

from collector.segment_file import FIRST_RECORD, payload_of, scan
from tests.measured import Measured

KILLS = int(os.environ.get("FAULTLINE_KILLS", "3"))
LINES = 40
OMELASTICSEARCH = MODULES / "omelasticsearch.so"


class Sender(threading.Thread):
    """Sends numbered lines until stopped; ``sure`` are those that must be stored."""

    name_of_lines = ""

    def __init__(self, service: Running) -> None:
        super().__init__(daemon=True)
        self.service, self.ending = service, threading.Event()
        self.sent = 0
        self.sure: set[int] = set()
        self.tries = 0

    def lines(self, first: int) -> list[str]:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        return [f"{stamp} gpu01 sshd[4]: {self.name_of_lines} {n:08d}" for n in range(first, first + LINES)]

    def close(self) -> None:
        """Ends what the sender started."""

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> bool:
        """True once the service answered 200; False if the sender was stopped."""
        while not self.ending.is_set():
            self.tries += 1
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.service.http, timeout=20)
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                answer.read()
                connection.close()
                if answer.status == 200:
                    return True
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.02)
        return False


class AgentSender(Sender):
    """``faultline agent`` as a process; this thread writes the log that it follows."""

    name_of_lines = "agent"

    def __init__(self, service: Running) -> None:
        super().__init__(service)
        self.agent = Agent(service.data.parent, service)

    def run(self) -> None:
        self.agent.start()
        while not self.ending.is_set():
            with self.agent.log.open("a") as file:
                file.writelines(f"{line}\n" for line in self.lines(self.sent))
            self.sure.update(range(self.sent, self.sent + LINES))
            self.sent += LINES
            time.sleep(0.02)

    def close(self) -> None:
        self.agent.kill()


class OpaqueSender(Sender):
    """Another client with its own keys: the same guarantee."""

    name_of_lines = "opaque"

    def run(self) -> None:
        while not self.ending.is_set():
            headers = {"Content-Type": "text/plain", "Idempotency-Key": f"batch {self.sent}"}
            if self.post("/api/v1/ingest", "\n".join(self.lines(self.sent)).encode(), headers):
                self.sure.update(range(self.sent, self.sent + LINES))
            self.sent += LINES
            time.sleep(0.01)


class OtlpSender(Sender):
    """As an OpenTelemetry collector: the same body again until it is answered, no key."""

    name_of_lines = "otlp"

    def run(self) -> None:
        while not self.ending.is_set():
            records = [
                {"timeUnixNano": str(time.time_ns()), "body": {"stringValue": f"{self.name_of_lines} {n:08d}"}}
                for n in range(self.sent, self.sent + LINES)
            ]
            resource = {"attributes": [{"key": "host.name", "value": {"stringValue": "gpu02"}}]}
            body = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": records}]}]}
            if self.post("/v1/logs", json.dumps(body).encode(), {"Content-Type": "application/json"}):
                self.sure.update(range(self.sent, self.sent + LINES))
            self.sent += LINES
            time.sleep(0.01)


class SyslogSender(Sender):
    """Like rsyslog's omfwd, if rsyslogd is not installed: octet-counted frames over one connection, each sent once."""

    name_of_lines = "syslog"

    def run(self) -> None:
        connection: socket.socket | None = None
        while not self.ending.is_set():
            try:
                connection = connection or socket.create_connection(("127.0.0.1", self.service.ports["tcp"]), 5)
                frames = [f"<86>{text}".encode() for text in self.lines(self.sent)]
                connection.sendall(b"".join(b"%d %b" % (len(f), f) for f in frames))
                self.sure.update(range(self.sent, self.sent + LINES))
            except OSError:
                connection = None
                time.sleep(0.05)
            self.sent += LINES  # never sent again: plain syslog does not know what arrived
            time.sleep(0.005)


#: omfwd handles one message at a time: in a batch, rsyslog repeats what preceded the failed message, and that would be
#: stored twice, as with any receiver of plain syslog.
RSYSLOG_CONF = """
global(workDirectory="{folder}")
module(load="imtcp")
module(load="omelasticsearch")
template(name="bulk" type="list" option.json="on") {{
  constant(value="{{\\"timestamp\\":\\"") property(name="timereported" dateFormat="rfc3339")
  constant(value="\\",\\"host\\":\\"") property(name="hostname")
  constant(value="\\",\\"message\\":\\"") property(name="msg" position.from="2") constant(value="\\"}}")
}}
input(type="imtcp" port="{listen}" address="127.0.0.1" ruleset="to_{name}")
ruleset(name="to_syslog") {{
  action(type="omfwd" target="127.0.0.1" port="{tcp}" protocol="tcp" TCP_Framing="octet-counted" template="RSYSLOG_SyslogProtocol23Format"
         action.resumeRetryCount="-1" action.resumeInterval="1" queue.type="LinkedList" queue.size="1000000" queue.dequeueBatchSize="1")
}}
ruleset(name="to_bulk") {{
  action(type="omelasticsearch" server="127.0.0.1" serverport="{http}" bulkmode="on" searchType="" template="bulk"
         action.resumeRetryCount="-1" action.resumeInterval="1" queue.type="LinkedList" queue.size="1000000" queue.dequeueBatchSize="200")
}}
"""


class RsyslogSender(Sender):
    """rsyslogd itself, fed over TCP; it passes lines on as ``name_of_lines`` names them."""

    def __init__(self, service: Running, name: str) -> None:
        super().__init__(service)
        self.name_of_lines = name
        folder = service.data.parent / f"rsyslog-{name}"
        folder.mkdir()
        self.port = free_port()
        conf = folder / "rsyslog.conf"
        conf.write_text(
            RSYSLOG_CONF.format(folder=folder, listen=self.port, name=name, tcp=service.ports["tcp"], http=service.http)
        )
        assert RSYSLOG is not None
        command = [RSYSLOG, "-n", "-f", str(conf), "-i", str(folder / "pid")]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def run(self) -> None:
        connection: socket.socket | None = None
        while connection is None and not self.ending.is_set():
            with contextlib.suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", self.port), 5)
        assert connection is not None
        with connection:
            while not self.ending.is_set():
                text = "".join(f"<86>{line}\n" for line in self.lines(self.sent))
                connection.sendall(text.encode())
                self.sure.update(range(self.sent, self.sent + LINES))
                self.sent += LINES
                time.sleep(0.05)

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "data").start()
    yield running
    running.stop()


def numbers(service: Running, name: str) -> list[int]:
    rows = service.query(
        f'Logs | where Message startswith "{name} " | project Number = toint(substring(Message, {len(name) + 1}))'
    )
    return [row[0] for row in rows]


def spooled(folder: Path) -> set[int]:
    """Numbers of syslog lines that are whole in the spool."""
    found: set[int] = set()
    for path in folder.glob("*.seg"):
        for record in scan(path, 1, FIRST_RECORD, path.stat().st_size):
            if record.meta["kind"] == "syslog":
                try:
                    payload = payload_of(record.path, record.payload_offset, record.payload_bytes, record.payload_crc)
                except ValueError:  # torn by the kill: never acknowledged
                    continue
                found |= {int(n) for n in re.findall(rb"syslog (\d{8})", payload)}
    return found


def senders_of(service: Running) -> list[Sender]:
    made = [AgentSender(service), OpaqueSender(service), OtlpSender(service)]
    if RSYSLOG is None or not OMELASTICSEARCH.exists():
        return [*made, SyslogSender(service)]
    return [*made, RsyslogSender(service, "syslog"), RsyslogSender(service, "bulk")]


def all_there(service: Running, senders: list[Sender], on_disk: set[int]) -> bool:
    """Can everything that is guaranteed be read?"""
    for sender in senders:
        wanted = on_disk if sender.name_of_lines == "syslog" else sender.sure
        if wanted - set(numbers(service, sender.name_of_lines)):
            return False
    return True


@pytest.mark.long
def test_every_acknowledged_line_is_stored_exactly_once(service: Running, measured: Measured) -> None:
    chance = random.Random(7)
    senders = senders_of(service)
    on_disk: set[int] = set()
    try:
        for sender in senders:
            sender.start()
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.05, 2.0))
            service.kill()
            on_disk |= spooled(service.data / "spool")
            service.start()
        for sender in senders:
            sender.ending.set()
        for sender in senders:
            sender.join(120)
        # Agent and rsyslog still hold what they could not deliver while the service was down.
        until = time.monotonic() + 180
        while not all_there(service, senders, on_disk) and time.monotonic() < until:
            time.sleep(1.0)
    finally:
        for sender in senders:
            sender.close()
    tally = []
    for sender in senders:
        stored = numbers(service, sender.name_of_lines)
        twice = len(stored) - len(set(stored))
        missing = sender.sure - set(stored)
        promised = on_disk - set(stored) if sender.name_of_lines == "syslog" else missing
        tally.append(
            (sender.name_of_lines, sender.sent, len(sender.sure), len(stored), len(promised), twice, len(missing))
        )
    measured(f"{KILLS} x SIGKILL: sender, lines sent, acknowledged or handed over, stored, lost, stored twice")
    for name, sent, sure, stored_n, lost, twice, missing_n in tally:
        more = f" ({missing_n:,} not read yet at a kill)" if name == "syslog" else ""
        measured(f"{name:8} {sent:8,} {sure:8,} {stored_n:8,} {lost:4} {twice:4}{more}")
    for name, _sent, sure, _stored, lost, twice, _missing in tally:
        assert sure > 0 and lost == 0 and twice == 0, name
    assert service.query("Logs | where Message has 'agent' | summarize count() by File") != []
    leftover = service.get("/api/v1/sources")[1]["intake"]
    assert leftover["quarantined"] == 0
