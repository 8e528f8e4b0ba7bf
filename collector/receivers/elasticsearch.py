"""The part of Elasticsearch's API that shippers write to: ``_bulk`` and single documents.

rsyslog's omelasticsearch, Fluent Bit, Vector, Filebeat, Logstash; and Slurm's own ``jobcomp/elasticsearch``, whose
documents become job runs. Index names are kept as the stream's name. A bulk request whose documents all have an ``_id``
is stored once however often it is sent; of one without ids :mod:`collector.repeats` tells a repeat from an equal one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from collector.receivers.base import (
    Answer,
    Batch,
    Decoded,
    Payload,
    Poison,
    Receiver,
    Refused,
    Request,
    Route,
    Run,
    answer_json,
    micros,
    moment_of,
)  # fmt: skip
from parsers import documents
from parsers.documents.jobcomp_json import is_record
from parsers.recognise import recognise
from parsers.record import Origin

#: What clients look at before they write: a version they know how to speak to.
_VERSION = "8.17.0"
_HEADER = (("x-elastic-product", "Elasticsearch"),)
_TEXT = ("message", "msg", "log", "MESSAGE", "body", "rawmsg")
_TIME = ("@timestamp", "timestamp", "time", "ts", "timereported", "date")
_HOST = ("host", "hostname", "host.name", "_HOSTNAME", "fromhost")
_PATH = ("log.file.path", "path", "file", "filename")
_UNIT = ("syslogtag", "programname", "app-name", "ident", "SYSLOG_IDENTIFIER", "program", "app", "service.name")
_SEVERITY = ("syslogseverity-text", "severity", "level", "log.level", "PRIORITY")
_FACILITY = ("syslogfacility-text", "facility")
_WORDS = {
    "err": "error", "warn": "warning", "panic": "emerg", "fatal": "crit", "critical": "crit", "information": "info",
    **{name: name for name in ("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug")},
    **dict(zip("01234567", ("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug"), strict=True)),
}  # fmt: skip
_ACTIONS = ("index", "create", "update", "delete")


def _bulk(request: Request) -> Batch:
    index = request.path.removeprefix("/elasticsearch").strip("/").rpartition("/")[0].partition("/")[0]
    items: list[dict[str, Any]] = []
    identities: list[str] = []
    failed, documents_wanted = False, 0
    body = request.plain()
    lines = iter([line for line in body.split(b"\n") if line.strip()])
    for line in lines:
        try:
            action = json.loads(line)
            ((verb, target),) = action.items()
            assert verb in _ACTIONS and isinstance(target, dict)
        except (ValueError, AttributeError, AssertionError) as error:
            raise Refused(400, f"not an action of the bulk API: {line[:80]!r}") from error
        status = 201
        if verb == "delete":
            status = 404
        elif next(lines, None) is None:
            raise Refused(400, "the body ends behind an action without its document")
        elif verb == "update":
            status = 400
        else:
            documents_wanted += 1
            if target.get("_id"):
                identities.append(f"{target.get('_index', index)}/{target['_id']}")
        item: dict[str, Any] = {
            "_index": target.get("_index") or index or "faultline",
            "_id": target.get("_id") or "",
            "status": status,
        }
        if status == 201:
            item |= {"_version": 1, "result": "created", "_shards": {"total": 1, "successful": 1, "failed": 0}}
        elif status == 400:
            failed = True
            item["error"] = {"type": "illegal_argument_exception", "reason": "documents are never changed here"}
        items.append({verb: item})
    answer = Answer(200, json.dumps({"took": 1, "errors": failed, "items": items}).encode(), headers=_HEADER)
    key = None
    if identities and len(identities) == documents_wanted:
        key = "es " + hashlib.blake2b("\n".join(identities).encode(), digest_size=16).hexdigest()
    meta = {"form": "bulk", "index": index, **request.packing(body)}
    key = request.headers.get("idempotency-key") or key
    return Batch(request.body if documents_wanted else None, answer, meta, key, lambda: list(parts_of(request.plain())))


def parts_of(body: bytes) -> Iterator[bytes]:
    """Each document with its action."""
    lines = iter([line for line in body.split(b"\n") if line.strip()])
    for line in lines:
        ((verb, _),) = json.loads(line).items()
        yield line + b"\n" + (b"" if verb == "delete" else next(lines, b"") + b"\n")


def is_dated(part: bytes) -> bool:
    """Whether the document says when: two that say the same of the same moment are one."""
    try:
        flat = _flat(json.loads(part.split(b"\n")[1]))
    except (ValueError, IndexError, AttributeError):
        return False
    return any(micros(flat.get(name)) is not None for name in _TIME)


def _single(request: Request) -> Batch:
    parts = request.path.removeprefix("/elasticsearch").strip("/").split("/")
    identity = parts[2] if len(parts) > 2 else ""
    body = request.plain()
    try:
        found = json.loads(body)
        if not isinstance(found, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise Refused(400, f"the document is not JSON: {error}") from error
    document = {"_index": parts[0], "_id": identity, "_version": 1, "result": "created",
                "_shards": {"total": 1, "successful": 1, "failed": 0}}  # fmt: skip
    answer = Answer(201, json.dumps(document).encode(), headers=_HEADER)
    key = f"es {parts[0]}/{identity}" if identity else None
    return Batch(request.body, answer, {"form": "single", "index": parts[0], **request.packing(body)}, key)


def _hello(_request: Request) -> Batch:
    said = {
        "name": "faultline",
        "cluster_name": "faultline",
        "version": {"number": _VERSION},
        "tagline": "You Know, for Search",
    }
    return Batch(None, Answer(200, json.dumps(said).encode(), headers=_HEADER))


def _health(_request: Request) -> Batch:
    return Batch(None, answer_json({"cluster_name": "faultline", "status": "green", "timed_out": False}))


def _problem(status: int, text: str) -> Answer:
    kind = {429: "es_rejected_execution_exception", 413: "content_too_long_exception"}.get(status, "exception")
    body = {"error": {"type": kind, "reason": text, "root_cause": [{"type": kind, "reason": text}]}, "status": status}
    return Answer(status, json.dumps(body).encode(), headers=_HEADER)


# -- decoding ------------------------------------------------------------------------------------------------------


def _decode(payload: Payload, into: Decoded) -> None:
    body = payload.unpacked()
    index = str(payload.meta.get("index") or "")
    if payload.meta.get("form") == "single":
        _document(body, index, payload, into)
        return
    lines = iter([line for line in body.split(b"\n") if line.strip()])
    for line in lines:
        ((verb, target),) = json.loads(line).items()
        if verb == "delete":
            continue
        document = next(lines, b"")
        if verb != "update":
            _document(document, str(target.get("_index") or index), payload, into)


def _document(line: bytes, index: str, payload: Payload, into: Decoded) -> None:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise Poison(f"a document is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Poison("a document is not an object")
    if is_record(found):
        received = moment_of(payload.received)
        origin = Origin(
            path=f"elasticsearch:{index}",
            cluster=found.get("cluster"),
            host=payload.peer,
            received=received,
            reference=received,
        )
        into.parsed.append(documents.read("jobcomp_json", line.replace(b"\n", b" "), origin))
        return
    wrapped(found, f"elasticsearch:{index}", "elasticsearch", payload, into)


def is_wrapped(found: dict[str, Any]) -> bool:
    """Whether an object is a shipper's wrapper around a line, as it goes over any protocol."""
    return any(isinstance(found.get(name), str) for name in _TEXT)


def wrapped(found: dict[str, Any], stream: str, transport: str, payload: Payload, into: Decoded,
            cluster: str | None = None, timezone: str | None = None) -> None:  # fmt: skip
    """An object around a line, as shippers make it: its text is the line, the usual names fill what the text leaves out."""
    flat = _flat(found)
    text = next((flat[name] for name in _TEXT if isinstance(flat.get(name), str)), None)
    used = {*_TEXT, *_TIME, *_HOST, *_PATH, *_UNIT, *_SEVERITY, *_FACILITY}
    fields = {name: value for name, value in flat.items() if name not in used} if text is not None else {}
    if text is None:
        text = json.dumps(found, ensure_ascii=False)
    host, path = _first(flat, _HOST), _first(flat, _PATH)
    host = host.split(".")[0] if host and not host.replace(".", "").isdigit() else host
    unit = _first(flat, _UNIT)
    source, job = None, None
    if path:
        known = recognise(path, text.encode("utf-8", "replace"))
        source, job = known.source, known.job_id
    elif unit:
        source = source_named(unit)
    time = next((at for name in _TIME if (at := micros(flat.get(name))) is not None), None)
    program, _, rest = (unit or "").partition("[")
    number = rest.partition("]")[0]
    run = Run(
        1, payload.received, host or payload.peer, f"{host or payload.peer or '?'}:{path}" if path else f"{stream}/{host or payload.peer or '?'}",
        time, None, _WORDS.get((_first(flat, _SEVERITY) or "").lower()), program.rstrip(":") or None,
        int(number) if number.isdigit() else None, _first(flat, _FACILITY),
        json.dumps(fields, ensure_ascii=False, sort_keys=True, default=str) if fields else None, None, transport,
    )  # fmt: skip
    into.add([text.encode("utf-8", "surrogatepass")], run, source=source, cluster=cluster, timezone=timezone,
             job_id=job if source == "job_stdout" else None)  # fmt: skip


def source_named(unit: str) -> str | None:
    """What a syslog tag says about the lines' source: "slurmd[3]:" -> slurmd."""
    from parsers.formats.base import source_of_program

    return source_of_program(unit.partition("[")[0].rstrip(":"))


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    """Nested objects as dotted names, two deep: what shippers use; the rest stays an object."""
    flat: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            for inner, held in value.items():
                if isinstance(held, dict):
                    flat.update({f"{name}.{inner}.{last}": item for last, item in held.items()})
                else:
                    flat[f"{name}.{inner}"] = held
        else:
            flat[name] = value
    return flat


def _first(flat: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((str(flat[name]) for name in names if isinstance(flat.get(name), str | int) and str(flat[name])), None)


#: The whole API also stands under this: clients that ask ``/`` for the version meet the pages there otherwise.
_AT = r"(?:/elasticsearch)?"
_INDEX = r"/[^/_][^/]*"
RECEIVER = Receiver(
    "elasticsearch", "Elasticsearch's bulk API and single documents; Slurm's jobcomp/elasticsearch", _decode,
    (
        Route(("POST", "PUT"), rf"{_AT}(?:{_INDEX}(?:/[^/]+)?)?/_bulk", _bulk, _problem),
        Route(("POST", "PUT"), rf"{_AT}{_INDEX}/(?:_doc|_create|jobcomp)(?:/[^/]+)?", _single, _problem),
        Route(("GET", "HEAD"), rf"{_AT}/(?:_cluster/health|_cat/health|_nodes/http)", _health, _problem),
        Route(("GET", "HEAD"), r"/elasticsearch/?", _hello, _problem),
    ),
)  # fmt: skip
