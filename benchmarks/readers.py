"""The value of our own byte readers: the whole way in with each of them, and with its replacement.

    python benchmarks/readers.py [--lines 20000] [--rounds 5] [--ways otlp-json,header-bsd,...]

A way is one form in which lines arrive. Its requests are received, spooled, decoded, parsed and stored in a fresh
store, once with our reader and once without it, in turn, in one process. A compiled reader of headers is replaced by
the formats alone (parsers/formats), the columns of collector/columnar by the reader of single records with orjson or
opentelemetry-proto, and in the ways that end in "-library" by the tightest loop over these that we can write
(library_readers.py). In "output" and "output-text" the compiled reader of program output alone (parsers/output_scanner.py)
is replaced by its formats, in "few" the formats' forms for one line (ByLine) by those for many. The output is the CPU time of both in microseconds a line (medians) and the ratio of the rounds:
median, minimum and maximum. Sockets and HTTP are left out, which favours our readers. A reader is kept if the ratio is
at least 1.3.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as in a worker

import numpy as np  # noqa: E402

from benchmarks import library_readers  # noqa: E402
from benchmarks.simulators.log_lines import HOSTS, Cluster, templates  # noqa: E402
from collector import decoding, pipeline  # noqa: E402
from collector.columnar import objects, otlp_json, otlp_protobuf  # noqa: E402
from collector.receivers import all_receivers, otlp  # noqa: E402
from collector.receivers.base import Receiver, Request  # noqa: E402
from collector.spool import Spool  # noqa: E402
from parsers import fast_headers, prefilter  # noqa: E402
from parsers.engine import LineParser  # noqa: E402
from parsers.formats.base import ByLine, Row  # noqa: E402
from parsers.patterns import load  # noqa: E402
from parsers.record import Origin  # noqa: E402
from store import open_store  # noqa: E402

#: Lines of a request.
A_REQUEST = 1_000
BEGUN = datetime(2026, 6, 1)
NANOS = int(BEGUN.replace(tzinfo=UTC).timestamp()) * 1_000_000_000
RECEIVED = NANOS // 1_000 + 7_200_000_000
PARSER = LineParser()
Patches = tuple[Any, ...]


class Sent(NamedTuple):
    """A request and the receiver that takes it."""

    kind: str
    request: Request


class Here:
    """A worker of the pipeline that runs in this process."""

    connection = None

    def __init__(self, *_: object) -> None:
        self._answers: list[Any] = []

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def give(self, jobs: Any) -> None:
        self._answers.append(decoding.work(jobs, PARSER))

    def take(self) -> Any:
        return self._answers.pop(0)


def way_in(sent: list[Sent]) -> tuple[float, int]:
    """CPU seconds from the first request until all lines are stored, and how many there are."""
    receivers = all_receivers()
    with (
        tempfile.TemporaryDirectory(prefix="faultline-readers-") as folder,
        mock.patch.object(pipeline, "Worker", Here),
        contextlib.closing(Spool(Path(folder) / "spool", min_free_bytes=0)) as spool,
        open_store(Path(folder) / "data") as store,
    ):
        running = pipeline.Pipeline(store, spool)
        begun = time.process_time()
        for kind, request in sent:
            route = next(one for one in receivers[kind].routes if re.fullmatch(one.pattern, request.path))
            batch = route.accept(request)
            assert batch.payload is not None
            waiting = spool.append(
                {"kind": kind, "received": RECEIVED, "peer": "10.0.0.1", **batch.meta}, batch.payload
            )
        waiting.result(60)
        running.start()
        assert running.drain(300), "the lines were not stored in five minutes"
        used = time.process_time() - begun
        running.stop()
        return used, int(store.rows("SELECT count(*) AS n FROM raw.logs")[0]["n"])


# -- forms of sending ----------------------------------------------------------------------------------------------


def post(kind: str, path: str, body: bytes, content_type: str) -> Sent:
    headers = {"content-type": content_type, "content-encoding": "gzip"}
    return Sent(kind, Request("POST", path, {}, headers, gzip.compress(body, 1)))


def parts(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    for at in range(0, len(lines), A_REQUEST):
        yield at, lines[at : at + A_REQUEST]


def otlp_requests(lines: list[str], as_json: bool) -> Iterator[Sent]:
    """As a collector's filelog receiver sends them."""
    from google.protobuf.json_format import MessageToJson
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    for first, part in parts(lines):
        request = ExportLogsServiceRequest()
        group = request.resource_logs.add()
        group.resource.attributes.add(key="host.name").value.string_value = "loghost"
        scope = group.scope_logs.add()
        for number, line in enumerate(part, first):
            record = scope.log_records.add(observed_time_unix_nano=NANOS + number)
            record.body.string_value = line
            record.attributes.add(key="log.file.name").value.string_value = "messages"
            record.attributes.add(key="log.record.number").value.int_value = number
        body = MessageToJson(request, indent=None).encode() if as_json else request.SerializeToString()
        yield post("otlp", "/v1/logs", body, "application/json" if as_json else "application/x-protobuf")


def _host(number: int) -> str:
    return HOSTS[number // A_REQUEST % 50]


def shipped(line: str, number: int) -> dict[str, Any]:
    """As Vector's file source makes it."""
    stamp = f"2026-06-01T00:00:{number // 1_000 % 60:02d}.{number % 1_000:03d}Z"
    return {"file": "/var/log/messages", "host": _host(number), "message": line, "source_type": "file", "timestamp": stamp, "offset": number * 100}  # fmt: skip


def beat(line: str, number: int) -> dict[str, Any]:
    """As Filebeat makes it."""
    return {
        "@timestamp": f"2026-06-01T00:00:00.{number % 1_000:03d}Z", "message": line, "host": {"name": _host(number)}, "ecs": {"version": "8.0.0"},
        "log": {"file": {"path": "/var/log/messages"}, "offset": number * 100}, "agent": {"type": "filebeat", "version": "8.17.0"},
    }  # fmt: skip


def wired(line: str, number: int) -> dict[str, Any]:
    """A record of the agent's wire."""
    return {"host": _host(number), "path": "/var/log/messages", "raw": line, "offset": number * 100, "time": NANOS // 1_000 + number}  # fmt: skip


def on_lines(lines: list[str], made: Callable[[str, int], dict[str, Any]]) -> Iterator[Sent]:
    for first, part in parts(lines):
        body = b"".join(json.dumps(made(line, number)).encode() + b"\n" for number, line in enumerate(part, first))
        yield post("ingest", "/api/v1/ingest", body, "application/x-ndjson")


def in_a_list(lines: list[str]) -> Iterator[Sent]:
    for first, part in parts(lines):
        body = json.dumps([shipped(line, number) for number, line in enumerate(part, first)]).encode()
        yield post("ingest", "/api/v1/ingest", body, "application/json")


def bulk(lines: list[str]) -> Iterator[Sent]:
    action = b'{"create":{"_index":"filebeat-8"}}\n'
    for first, part in parts(lines):
        documents = (json.dumps(beat(line, number)).encode() + b"\n" for number, line in enumerate(part, first))
        yield post("elasticsearch", "/_bulk", b"".join(action + one for one in documents), "application/x-ndjson")


def as_text(lines: list[str]) -> Iterator[Sent]:
    for _, part in parts(lines):
        yield post("ingest", "/api/v1/ingest", "".join(f"{line}\n" for line in part).encode(), "text/plain")


# -- lines of one header -------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """The values that a header is written around."""

    number: int
    at: datetime
    host: str
    message: str

    @property
    def program(self) -> str:
        return self.message.partition(": ")[0]

    @property
    def text(self) -> str:
        return self.message.partition(": ")[2]


def _journal(line: Line) -> str:
    return json.dumps({
        "__REALTIME_TIMESTAMP": str(NANOS // 1_000 + line.number), "_HOSTNAME": line.host, "SYSLOG_IDENTIFIER": line.program, "_PID": "42",
        "PRIORITY": "6", "SYSLOG_FACILITY": "3", "_BOOT_ID": "b" * 32, "_TRANSPORT": "syslog", "MESSAGE": line.text,
    })  # fmt: skip


#: By name: whose lines, and how the header is written.
HEADERS: dict[str, tuple[str, Callable[[Line], str]]] = {
    "bsd": ("node", lambda x: f"<30>{x.at:%b} {x.at.day:2d} {x.at:%H:%M:%S} {x.host} {x.program}[42]: {x.text}"),
    "iso": ("node", lambda x: f"{x.at:%Y-%m-%dT%H:%M:%S.%f}+00:00 {x.host} {x.program}[42]: {x.text}"),
    "rfc5424": ("node", lambda x: f"<30>1 {x.at:%Y-%m-%dT%H:%M:%S.%f}Z {x.host} {x.program} 42 - - {x.text}"),
    "slurm": ("slurmctld", lambda x: f"[{x.at:%Y-%m-%dT%H:%M:%S}.123] {x.message}"),
    "step": ("stepd", lambda x: f"[{x.at:%Y-%m-%dT%H:%M:%S}.123] [{x.number}.batch] {x.message}"),
    "opensm": ("fabric", lambda x: f"{x.at:%b %d %H:%M:%S} {x.at.microsecond:06d} [7F3A] 0x02 -> {x.message}"),
    "nxos": ("kernel", lambda x: f"<189>: {x.at:%Y %b} {x.at.day:2d} {x.at:%H:%M:%S} UTC: %AAA-6-X: {x.message}"),
    "journald": ("node", _journal),
}


def of_header(name: str, lines: list[str]) -> Iterator[Sent]:
    """As many lines as ``lines`` with one header, of texts that are no events."""
    who, written = HEADERS[name]
    stated = [text.replace("{n}", "7").replace("{m}", "4711").replace("{h}", "gpu-0007").replace("{x}", "3f2a") for text in templates(load())[0][who]]  # fmt: skip
    made = [
        Line(number, BEGUN + timedelta(milliseconds=5 * number), HOSTS[number * 7 % len(HOSTS)], stated[number % len(stated)])
        for number in range(len(lines))
    ]  # fmt: skip
    return as_text([written(line) for line in made])


# -- output of programs --------------------------------------------------------------------------------------------


def _stamped(number: int) -> str:
    return f"{BEGUN + timedelta(milliseconds=5 * number):%Y-%m-%d %H:%M:%S},123 - trainer.loop - INFO - step {number} loss 1.23"


def _nccl(number: int) -> str:
    return f"gpu{number % 90:03d}:{1000 + number % 7000}:{2000 + number % 7000} [{number % 8}] NCCL INFO Channel {number % 16:02d}/0 : 0[0] -> 1[1]"


def _rank(number: int) -> str:
    return f"[rank{number % 64}]: iteration {number} took 1.2 s"


def _bare(number: int) -> str:
    return f"Loading shard {number} of 4711, which is the next one on this rank's list"


def _glog(number: int) -> str:
    at = BEGUN + timedelta(milliseconds=5 * number)
    return f"[E{at:%m%d %H:%M:%S.%f} ProcessGroupNCCL.cpp:616] [Rank {number % 64}] Watchdog caught collective operation timeout"


def _srun(number: int) -> str:
    return f"{number % 64}: srun: error: gpu{number % 90:03d}: task {number % 64}: Exited with exit code 1"


def _coloured(number: int) -> str:
    return f"\x1b[32m2026-06-01 00:00:{number % 60:02d},123\x1b[0m - trainer - INFO - step {number}"


#: In turn: what the compiled reader takes, and what it leaves to the formats.
PLAIN_OUTPUT = (_stamped, _bare, _nccl, _rank)
ODD_OUTPUT = (_glog, _srun, _coloured)
#: Lines of one file in a request where each has few.
FEW = 20


def of_output(count: int, forms: Sequence[Callable[[int], str]], a_request: int = A_REQUEST) -> Iterator[Sent]:
    """As the agent sends what jobs write, each request from one file."""
    for first in range(0, count, a_request):
        file = f"/home/u/slurm-{4711 + first // a_request}.out"
        made = (
            wired(forms[n % len(forms)](n), n) | {"path": file} for n in range(first, min(first + a_request, count))
        )
        yield post(
            "ingest",
            "/api/v1/ingest",
            b"".join(json.dumps(one).encode() + b"\n" for one in made),
            "application/x-ndjson",
        )


# -- their replacements --------------------------------------------------------------------------------------------


def _formats_alone(buffer: Any, _origin: Any, *, header: bool = False) -> Any:
    del header
    found = fast_headers.none_taken(buffer)
    if len(buffer):
        found.formats[:] = prefilter.formats_of(buffer, np.arange(len(buffer)))
    return found


def without_output() -> Patches:
    return (mock.patch.object(fast_headers, "read_output", lambda *_: None),)


def without_line_forms() -> Patches:
    """Each format reads frames, also of few lines; one that has no form for many keeps its own."""
    own = ByLine.rows

    def rows(form: ByLine, numbers: list[int], texts: list[str], origin: Origin) -> tuple[list[Row], list[int]]:
        return own(form, numbers, texts, origin) if form.of_many is None else ([], numbers)

    return (mock.patch.object(ByLine, "rows", rows),)


def _left(_body: bytes) -> None:
    """A request that is left to the reader of single records."""


def without_fast_headers() -> Patches:
    return (mock.patch.object(fast_headers, "read", _formats_alone),)


def without_otlp_columns() -> Patches:
    return (
        mock.patch.object(otlp_json, "tables", _left), mock.patch.object(otlp_protobuf, "tables", _left),
        mock.patch.object(otlp_json, "is_request", lambda _body: False),
    )  # fmt: skip


@contextlib.contextmanager
def _decoding(receiver: Receiver, decode: Callable[[Any, Any], None]) -> Iterator[None]:
    """A receiver that decodes in another way."""
    own = receiver.decode
    object.__setattr__(receiver, "decode", decode)
    try:
        yield
    finally:
        object.__setattr__(receiver, "decode", own)


def by_otlp_libraries() -> Patches:
    """The tightest loop over what libraries read, in place of the reader of single records."""
    return (
        mock.patch.object(otlp_json, "is_request", library_readers.is_request),
        _decoding(otlp.RECEIVER, library_readers.decode),
    )


def without_object_columns() -> Patches:
    return (mock.patch.object(objects, "FEWEST", 1 << 40),)


Way = tuple[Callable[[list[str]], Iterator[Sent]], Callable[[], Patches]]
WAYS: dict[str, Way] = {
    "otlp-protobuf": (lambda lines: otlp_requests(lines, False), without_otlp_columns),
    "otlp-json": (lambda lines: otlp_requests(lines, True), without_otlp_columns),
    "otlp-protobuf-library": (lambda lines: otlp_requests(lines, False), by_otlp_libraries),
    "otlp-json-library": (lambda lines: otlp_requests(lines, True), by_otlp_libraries),
    "objects": (lambda lines: on_lines(lines, shipped), without_object_columns),
    "objects-list": (in_a_list, without_object_columns),
    "wire": (lambda lines: on_lines(lines, wired), without_object_columns),
    "bulk": (bulk, without_object_columns),
    "output": (lambda lines: of_output(len(lines), PLAIN_OUTPUT), without_output),
    "output-text": (lambda lines: as_text([PLAIN_OUTPUT[n % len(PLAIN_OUTPUT)](n) for n in range(len(lines))]), without_output),
    "few": (lambda lines: of_output(len(lines), ODD_OUTPUT, FEW), without_line_forms),
    "headers": (as_text, without_fast_headers),
    **{f"header-{name}": ((lambda lines, name=name: of_header(name, lines)), without_fast_headers) for name in HEADERS},
}  # fmt: skip


def compare(name: str, lines: list[str], rounds: int) -> str:
    """One way with our reader and without it, in turn; the first round of both is not counted."""
    make, without = WAYS[name]
    sent = list(make(lines))
    ours, theirs = [], []
    for _ in range(rounds + 1):
        mine, count = way_in(sent)
        with contextlib.ExitStack() as stack:
            for patch in without():
                stack.enter_context(patch)
            other, same = way_in(sent)
        assert count == same == len(lines), f"{name}: {count} and {same} lines of {len(lines)} were stored"
        ours.append(mine)
        theirs.append(other)
    ratios = sorted(other / mine for mine, other in zip(ours[1:], theirs[1:], strict=True))
    each = [statistics.median(times[1:]) / len(lines) * 1e6 for times in (ours, theirs)]
    return (
        f"{name:16} with {each[0]:6.2f} us a line, without {each[1]:6.2f}; "
        f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    lines = [line.decode() for line in Cluster(load()).lines(options.lines)]
    PARSER.prepare()
    print(
        f"{len(lines):,} lines, {A_REQUEST:,} a request; CPU time; {options.rounds} rounds in turn; {datetime.now(UTC):%Y-%m-%d}"
    )
    for name in options.ways.split(","):
        print(compare(name, lines, options.rounds), flush=True)


if __name__ == "__main__":
    main()
