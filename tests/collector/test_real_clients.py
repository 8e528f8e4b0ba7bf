"""The real senders against the real service: rsyslog, syslog-ng, systemd-journal-upload, OpenTelemetry's SDK,
node_exporter.

Each is skipped with the reason if it is not installed (tests/prepare.sh installs them where it may).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import Running, free_port

#: A service of their own and seven programs, half of them of other projects.
pytestmark = pytest.mark.long

RSYSLOG = shutil.which("rsyslogd", path="/usr/sbin:/usr/bin:/sbin")
#: Where tests/prepare.sh puts syslog-ng: as a package it would remove rsyslog.
ASIDE = Path("/opt/faultline-tests/syslog-ng")
SYSLOG_NG = shutil.which("syslog-ng", path=f"/usr/sbin:/usr/bin:/sbin:{ASIDE}/usr/sbin")
UPLOAD = Path("/lib/systemd/systemd-journal-upload")
JOURNAL_REMOTE = Path("/lib/systemd/systemd-journal-remote")
MODULES = Path("/usr/lib/x86_64-linux-gnu/rsyslog")
N = 200
#: Where the service expects node_exporter from its start on, and finds it in one test.
EXPORTER_PORT = free_port()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("service")
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt")],
        capture_output=True,
    )  # fmt: skip
    kinds = ("tcp", "udp", "tls") if made.returncode == 0 else ("tcp", "udp")
    target = f'[[scrape]]\nurl = "http://127.0.0.1:{EXPORTER_PORT}/metrics"\nhost = "n45"\ninterval_s = 1\n'
    running = Running(folder / "data", syslog=kinds, extra=target).start()
    yield running
    running.stop()


@contextmanager
def daemon(*command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def expect(service: Running, word: str, count: int = N) -> list[int]:
    """The numbers after ``word`` in stored messages, once all are there."""
    rows = service.until(
        f'Logs | where Message has "{word}" | project N = toint(extract("{word} ([0-9]+)", 1, Message))', count
    )
    return sorted(row[0] for row in rows)


RSYSLOG_FORWARD = {
    "udp": 'action(type="omfwd" target="127.0.0.1" port="{udp}" protocol="udp" template="RSYSLOG_ForwardFormat")',
    "plain": 'action(type="omfwd" target="127.0.0.1" port="{tcp}" protocol="tcp" TCP_Framing="traditional" template="RSYSLOG_SyslogProtocol23Format")',
    "octets": 'action(type="omfwd" target="127.0.0.1" port="{tcp}" protocol="tcp" TCP_Framing="octet-counted" template="RSYSLOG_ForwardFormat")',
    "tls": 'action(type="omfwd" target="127.0.0.1" port="{tls}" protocol="tcp" StreamDriver="ossl" StreamDriverMode="1" '
           'StreamDriverAuthMode="anon" TCP_Framing="octet-counted" template="RSYSLOG_SyslogProtocol23Format")',
    "elasticsearch": 'action(type="omelasticsearch" server="127.0.0.1" serverport="{http}" bulkmode="on" searchType="" template="es" errorfile="{folder}/es.err")',
}  # fmt: skip
ES_TEMPLATE = """template(name="es" type="list" option.json="on") {
  constant(value="{\\"timestamp\\":\\"") property(name="timereported" dateFormat="rfc3339")
  constant(value="\\",\\"host\\":\\"") property(name="hostname") constant(value="\\",\\"severity\\":\\"") property(name="syslogseverity-text")
  constant(value="\\",\\"syslogtag\\":\\"") property(name="syslogtag") constant(value="\\",\\"message\\":\\"") property(name="msg") constant(value="\\"}")
}
module(load="omelasticsearch")
"""


@pytest.mark.parametrize("way", list(RSYSLOG_FORWARD))
def test_rsyslog(way: str, service: Running, tmp_path: Path) -> None:
    if RSYSLOG is None:
        pytest.skip("rsyslogd is not installed")
    module = {"tls": "lmnsd_ossl.so", "elasticsearch": "omelasticsearch.so"}.get(way)
    if module and not (MODULES / module).exists():
        pytest.skip(f"rsyslog's {module} is not installed")
    if way == "tls" and "tls" not in service.ports:
        pytest.skip("openssl is not installed")
    ports = {**service.ports, "http": service.http, "folder": tmp_path}
    port, word = free_port(), f"rsyslog-{way}"
    extra = ES_TEMPLATE if way == "elasticsearch" else ""
    if way == "tls":
        extra = f'global(DefaultNetstreamDriverCAFile="{service.data.parent}/server.crt")\n'
    config = tmp_path / "rsyslog.conf"
    config.write_text(
        f'global(workDirectory="{tmp_path}" maxMessageSize="64k")\nmodule(load="imtcp")\n{extra}'
        f'input(type="imtcp" port="{port}" address="127.0.0.1")\n{RSYSLOG_FORWARD[way].format(**ports)}\n'
    )
    with daemon(RSYSLOG, "-n", "-f", str(config), "-i", str(tmp_path / "pid"), log=tmp_path / "log") as process:
        _feed(port, word, process, tmp_path / "log")
        found = expect(service, word)
    assert found == list(range(N)), (tmp_path / "log").read_text()
    (row,) = service.query(
        f'Logs | where Message has "{word} 7" | where Message endswith " 7" | project Host, Severity, Unit'
    )
    assert row[0] == "n42" and row[1] == "error", row


def _feed(port: int, word: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import socket

    until = time.monotonic() + 120
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), 5)
            break
        except OSError:
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.05)
    with connection:
        for number in range(N):
            connection.sendall(f"<27>Nov 21 16:00:00 n42 app[7]: {word} {number}\n".encode())


@pytest.mark.parametrize("way", ["bsd-udp", "ietf-tcp"])
def test_syslog_ng(way: str, service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if SYSLOG_NG is None:
        pytest.skip("syslog-ng is not installed")
    port, word = free_port(), f"syslogng-{way}"
    to = (
        f'network("127.0.0.1" port({service.ports["udp"]}) transport(udp))' if way == "bsd-udp"
        else f'syslog("127.0.0.1" port({service.ports["tcp"]}) transport(tcp))'
    )  # fmt: skip
    config = tmp_path / "syslog-ng.conf"
    config.write_text(
        f'@version: 3.38\noptions {{ keep-hostname(yes); stats-freq(0); }};\nsource s {{ network(ip("127.0.0.1") port({port}) transport(tcp)); }};\n'
        f"destination d {{ {to}; }};\nlog {{ source(s); destination(d); }};\n"
    )
    files = [
        "--persist-file",
        str(tmp_path / "p"),
        "--pidfile",
        str(tmp_path / "pid"),
        "--control",
        str(tmp_path / "c"),
    ]
    if SYSLOG_NG.startswith(str(ASIDE)):
        libraries = ASIDE / "usr/lib/syslog-ng"
        others = [ASIDE / "usr/lib/x86_64-linux-gnu", ASIDE / "lib/x86_64-linux-gnu"]
        monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(map(str, [libraries, *others])))
        files += ["--module-path", str(next(libraries.glob("[0-9]*")))]
    with daemon(SYSLOG_NG, "-F", "-f", str(config), *files, log=tmp_path / "log") as process:
        _feed(port, word, process, tmp_path / "log")
        found = expect(service, word)
    assert found == list(range(N)), (tmp_path / "log").read_text()


def test_systemd_journal_upload_sends_again_and_nothing_is_stored_twice(service: Running, tmp_path: Path) -> None:
    if not (UPLOAD.exists() and JOURNAL_REMOTE.exists()):
        pytest.skip("systemd-journal-remote (with systemd-journal-upload) is not installed")
    export = "".join(
        f"__REALTIME_TIMESTAMP={1_795_255_200_000_000 + n}\n__MONOTONIC_TIMESTAMP={1000 + n}\n_BOOT_ID={'ab' * 16}\n_MACHINE_ID={'cd' * 16}\n"
        f"_HOSTNAME=n43\nSYSLOG_IDENTIFIER=app\nPRIORITY=3\nMESSAGE=upload {n}\n\n" for n in range(N)
    )  # fmt: skip
    journal = tmp_path / "made.journal"
    made = subprocess.run([str(JOURNAL_REMOTE), "-o", str(journal), "-"], input=export.encode(), capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"no journal could be made here: {made.stderr.decode()[-200:]}")
    command = [str(UPLOAD), f"--url=http://127.0.0.1:{service.http}", f"--file={journal}", "--follow=no"]
    for _ in range(2):  # without its state file the second run resends everything
        done = subprocess.run(command, capture_output=True, timeout=240)
        assert done.returncode == 0, done.stderr.decode()
        assert expect(service, "upload") == list(range(N))
    assert service.query(
        'Logs | where Message has "upload 7" | where Message endswith " 7" | project Host, Severity, File'
    ) == [["n43", "error", "journal:n43"]]


#: An instrumented program: the SDK with one of the two HTTP exporters, compressed, logs and metrics.
OTEL_PROGRAM = """
import sys, time
form, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
if form == "json":
    from opentelemetry.exporter.otlp.common.http import Compression
    from opentelemetry.exporter.otlp.json.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.json.http.metric_exporter import OTLPMetricExporter
else:
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
at, about = f"http://127.0.0.1:{port}/v1/", Resource.create({"host.name": "n44", "service.name": "trainer"})
logs = LoggerProvider(resource=about)
logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(endpoint=at + "logs", compression=Compression("gzip"))))
logger = logs.get_logger("test")
for number in range(count):
    logger.emit(timestamp=time.time_ns(), severity_number=SeverityNumber.ERROR, body=f"otel{form} {number}", attributes={"rank": number})
meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=at + "metrics"), export_interval_millis=60000)], about)
meters.get_meter("test").create_gauge(f"otel.{form}.loss").set(0.25, {"gpu": "3"})
assert logs.force_flush() and meters.force_flush()
logs.shutdown(); meters.shutdown()
"""
#: Where tests/prepare.sh puts the JSON exporter: its releases need other versions of packages than the protobuf one's.
OTLP_JSON = Path("/opt/faultline-tests/otlp-json")


@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_the_opentelemetry_sdk(form: str, service: Running) -> None:
    pytest.importorskip("opentelemetry.sdk._logs", reason="the OpenTelemetry SDK is not installed")
    if form == "json" and not OTLP_JSON.is_dir():
        pytest.skip("opentelemetry-exporter-otlp-json-http is not installed (tests/prepare.sh)")
    environment = {**os.environ, **({"PYTHONPATH": str(OTLP_JSON)} if form == "json" else {})}
    command = [sys.executable, "-c", OTEL_PROGRAM, form, str(service.http), str(N)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0 and "Failed to export" not in done.stderr, done.stderr
    assert expect(service, f"otel{form}") == list(range(N))
    assert service.query(f'Logs | where Message == "otel{form} 7" | project Host, Unit, Severity, Rank = toint(Fields.rank)') == [
        ["n44", "trainer", "error", 7]
    ]  # fmt: skip
    samples = service.until(f'Metrics | where Metric == "otel.{form}.loss" | distinct Host, Device, Value', 1)
    assert samples == [["n44", "3", 0.25]]


def test_node_exporter_of_prometheus_is_scraped(service: Running, tmp_path: Path) -> None:
    exporter = shutil.which("prometheus-node-exporter", path="/usr/sbin:/usr/bin")
    if exporter is None:
        pytest.skip("prometheus-node-exporter is not installed")
    command = [
        exporter,
        f"--web.listen-address=127.0.0.1:{EXPORTER_PORT}",
        "--collector.disable-defaults",
        "--collector.loadavg",
        "--collector.uname",
    ]
    with daemon(*command, log=tmp_path / "log"):
        rows = service.until('Metrics | where Metric == "node_load1" | project Host, Value', 2)
    assert len(rows) >= 2 and {row[0] for row in rows} == {"n45"}, (tmp_path / "log").read_text()


def test_logger_of_util_linux(service: Running) -> None:
    if shutil.which("logger") is None:
        pytest.skip("logger is not installed")
    for at, options in enumerate((["--udp", "--rfc3164"], ["--tcp", "--rfc5424"], ["--tcp", "--octet-count"])):
        port = service.ports["udp" if "--udp" in options else "tcp"]
        subprocess.run(
            ["logger", "-n", "127.0.0.1", "-P", str(port), *options, "-p", "user.err", f"utillinux {at}"], check=True
        )
    assert expect(service, "utillinux", 3) == [0, 1, 2]


def test_incident_within_seconds(service: Running) -> None:
    """A link that went down and a node that did not answer, posted: the event appears by itself."""
    lines = [
        "2026-11-21T16:29:24.000000+00:00 gpu07 kernel: igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down",
        "2026-11-21T16:29:25.000000+00:00 ctl slurmctld[9]: error: Nodes gpu07 not responding",
    ]
    begun = time.monotonic()
    assert service.post("/api/v1/ingest", "\n".join(lines).encode(), content_type="text/plain")[0] == 200
    events = service.until('Events | where Host == "gpu07" | project Event', 1)
    print(json.dumps({"seconds_to_event": round(time.monotonic() - begun, 2)}))
    assert ["nic.link_down"] in events
