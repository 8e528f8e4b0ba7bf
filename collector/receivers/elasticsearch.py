"""The part of Elasticsearch's API that shippers write to: ``_bulk`` and single documents.

rsyslog's omelasticsearch, Fluent Bit, Vector, Filebeat, Logstash; and Slurm's own ``jobcomp/elasticsearch``, whose
documents become job runs. Index names are kept as the stream's name. A bulk request whose documents all have an ``_id``
is stored once however often it is sent; for one without IDs, :mod:`collector.repeats` distinguishes a repeat from an
equal request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from collector.columnar import objects as columns
from collector.columnar import otlp_tables as t
from collector.columnar.objects import Objects
from collector.columnar.otlp_tables import Array
from collector.receivers import wrapped
from collector.receivers.base import (
    Answer,
    Batch,
    Decoded,
    Payload,
    Receiver,
    Request,
    Route,
    Run,
    answer_json,
    moment_of,
)
from collector.receivers.refusals import Poison, Refused
from collector.receivers.wrapped import Wrapped, loads
from collector.receivers.wrapped_columns import WrappedColumns, plain_wrappers
from parsers import documents
from parsers.documents.jobcomp_json import is_record
from parsers.lines import codes
from parsers.record import Origin

#: Clients check this before they write: a version whose protocol they know.
_VERSION = "8.17.0"
_HEADER = (("x-elastic-product", "Elasticsearch"),)
#: Actions of the bulk API and the status of each: nothing is ever updated or deleted.
_ACTIONS = {"index": 201, "create": 201, "update": 400, "delete": 404}
_KEPT = ("index", "create")
#: The maximum number of documents of one request. Real ones have 100 bytes and more: 64 MiB of those are fewer.
MOST_DOCUMENTS = 500_000


class _Action(NamedTuple):
    """One action line of a bulk request, and its item of the answer."""

    verb: str
    stream: str
    identity: str | None
    item: str


def _action(line: bytes, index: str) -> _Action:
    """Parses an action line. Raises ``Refused`` if it is not an action."""
    try:
        ((verb, target),) = loads(line).items()
        if verb not in _ACTIONS or not isinstance(target, dict):
            raise ValueError(f"{verb!r} is no action, or names no target")
    except (ValueError, AttributeError) as error:
        raise Refused(400, f"not an action of the bulk API: {line[:80]!r}") from error
    name, identity = str(target.get("_index") or index), target.get("_id")
    item: dict[str, Any] = {"_index": name or "faultline", "_id": identity or "", "status": _ACTIONS[verb]}
    if item["status"] == 201:
        item |= {"_version": 1, "result": "created", "_shards": {"total": 1, "successful": 1, "failed": 0}}
    elif verb == "update":
        item["error"] = {"type": "illegal_argument_exception", "reason": "documents are never changed here"}
    return _Action(verb, name, str(identity) if identity else None, json.dumps({verb: item}))


def _pairs(body: bytes, index: str) -> Iterator[tuple[_Action, bytes]]:
    """Each action with its document; empty after ``delete``. Most senders repeat one action a thousand times."""
    known: dict[bytes, _Action] = {}
    lines = iter(body.split(b"\n"))
    for line in lines:
        action = known.get(line)
        if action is None:
            if not line or line.isspace():
                continue
            action = known[line] = _action(line, index)
        if action.verb == "delete":
            yield action, b""
            continue
        document = next(lines, b"")
        while not document or document.isspace():
            try:
                document = next(lines)
            except StopIteration:
                raise Refused(400, "the body ends behind an action without its document") from None
        yield action, document


def _bulk(request: Request) -> Batch:
    index = request.path.removeprefix("/elasticsearch").strip("/").rpartition("/")[0].partition("/")[0]
    body = request.plain()
    actions = [action for action, _ in islice(_pairs(body, index), MOST_DOCUMENTS + 1)]
    if len(actions) > MOST_DOCUMENTS:
        raise Refused(413, f"more than {MOST_DOCUMENTS:,} documents", "Send smaller batches.")
    wanted = [action for action in actions if action.verb in ("index", "create")]
    failed = "true" if any(action.verb == "update" for action in actions) else "false"
    text = f'{{"took": 1, "errors": {failed}, "items": [{", ".join([action.item for action in actions])}]}}'
    answer = Answer(200, text.encode(), headers=_HEADER)
    key = None
    if wanted and all(action.identity for action in wanted):
        key = f"es {index} {_digest(body)}"  # by content, too: an ID may come again with another document
    meta = {"form": "bulk", "index": index, **request.packing(body, len(wanted))}
    key = request.headers.get("idempotency-key") or key
    return Batch(request.body if wanted else None, answer, meta, key, lambda: list(parts_of(request.plain())))


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def parts_of(body: bytes) -> Iterator[bytes]:
    """Each document with its action."""
    lines = iter([line for line in body.split(b"\n") if line.strip()])
    for line in lines:
        ((verb, _),) = json.loads(line).items()
        yield line + b"\n" + (b"" if verb == "delete" else next(lines, b"") + b"\n")


def is_dated(part: bytes) -> bool:
    """Whether the document has a timestamp: two equal documents with the same timestamp are one."""
    try:
        return wrapped.is_dated(loads(part.split(b"\n")[1]))
    except (ValueError, IndexError, AttributeError):
        return False


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
    key = f"es {parts[0]}/{identity} {_digest(body)}" if identity else None
    return Batch(request.body, answer, {"form": "single", "index": parts[0], **request.packing(body)}, key)


def _hello(_request: Request) -> Batch:
    answer = {
        "name": "faultline",
        "cluster_name": "faultline",
        "version": {"number": _VERSION},
        "tagline": "You Know, for Search",
    }
    return Batch(None, Answer(200, json.dumps(answer).encode(), headers=_HEADER))


def _health(_request: Request) -> Batch:
    return Batch(None, answer_json({"cluster_name": "faultline", "status": "green", "timed_out": False}))


def _license(_request: Request) -> Batch:
    """Filebeat and Logstash only write to a server with an active license."""
    answer = {"license": {"uid": "faultline", "type": "basic", "mode": "basic", "status": "active"}}
    return Batch(None, Answer(200, json.dumps(answer).encode(), headers=_HEADER))


def _arrangement(request: Request) -> Batch:
    """Accepts templates, policies, pipelines, data streams and aliases, which shippers set up before they write, and
    ignores them: shippers refuse to start otherwise. ``note`` says so."""
    if request.method in ("PUT", "POST"):
        index = request.path.rpartition("/")[2]
        answer = {
            "acknowledged": True,
            "shards_acknowledged": True,
            "index": index,
            "note": "accepted and not used: documents are kept as they come",
        }
        return Batch(None, Answer(200, json.dumps(answer).encode(), headers=_HEADER))
    return Batch(None, _problem(404, "none is kept here: documents are stored as they come"))


def _problem(status: int, text: str, _content_type: str = "") -> Answer:
    kind = {429: "es_rejected_execution_exception", 413: "content_too_long_exception"}.get(status, "exception")
    body = {"error": {"type": kind, "reason": text, "root_cause": [{"type": kind, "reason": text}]}, "status": status}
    return Answer(status, json.dumps(body).encode(), headers=_HEADER)


# -- decoding ------------------------------------------------------------------------------------------------------


def _decode(payload: Payload, into: Decoded) -> None:
    body = payload.unpacked()
    index = str(payload.meta.get("index") or "")
    lines = WrappedColumns(payload, into, "elasticsearch")
    if payload.meta.get("form") == "single":
        _document(body, index, payload, into, lines)
    else:
        try:
            found = columns.on_lines(body, loads)
            actions = _actions(found, index) if found is not None else None
            if found is not None and actions is not None:
                _documents(found, actions, payload, into, lines)
            else:
                for action, document in _pairs(body, index):
                    if action.verb in _KEPT:
                        _document(document, action.stream, payload, into, lines)
        except Refused as refusal:
            raise Poison(refusal.text) from refusal
    lines.done()


class _BulkActions(NamedTuple):
    """The actions of a bulk request, each a line before its document: ``streams[which[i]]`` is where document ``i``
    goes, None for one that is not stored."""

    streams: list[str | None]
    which: Array


def _actions(found: Objects, index: str) -> _BulkActions | None:
    """None if the lines of a request are not all pairs; then they are read one by one. Raises ``Refused``."""
    rows = np.arange(0, len(found), 2)
    stream_numbers: dict[str | None, int] = {}
    which = np.full(len(rows), -1, np.int64)
    if len(found) % 2:
        return None
    for verb in ("index", "create"):
        of_verb = found.with_any(
            [top == verb and name != top for name, top in zip(found.names, found.tops, strict=True)]
        )
        named = found.slots((f"{verb}._index",)).get(f"{verb}._index", np.full(len(found), -1))[rows]
        others = found.with_any([top != verb or name == top for name, top in zip(found.names, found.tops, strict=True)])
        plain = (of_verb & ~others & ~found.marked())[rows] & np.isin(found.kinds(named), (t.NULL, t.TEXT))
        if not plain.any():
            continue
        names = codes(found.texts(np.where(found.kinds(named) == t.TEXT, named, -1)[plain]))
        numbers = [stream_numbers.setdefault(name or index, len(stream_numbers)) for name in names.names.to_list()]
        which[plain] = np.array(numbers)[names.which]
    known: dict[bytes, _Action] = {}
    for at in np.flatnonzero(which < 0).tolist():
        line = found.text(2 * at)
        action = known[line] if line in known else known.setdefault(line, _action(line, index))
        if action.verb == "delete":
            return None
        which[at] = stream_numbers.setdefault(action.stream if action.verb in _KEPT else None, len(stream_numbers))
    return _BulkActions(list(stream_numbers), which)


def _documents(found: Objects, actions: _BulkActions, payload: Payload, into: Decoded, lines: WrappedColumns) -> None:
    """Adds the documents of a bulk request: most of them at once, unusual ones one by one."""
    rows = np.arange(1, len(found), 2)
    kept = np.array([stream is not None for stream in actions.streams])[actions.which]
    fits = (plain_wrappers(found) & ~found.with_any([top == "jobid" for top in found.tops]))[rows]
    for at in np.flatnonzero(kept & ~fits).tolist():
        lines.row = 2 * at + 1
        _document(found.text(lines.row), str(actions.streams[actions.which[at]]), payload, into, lines)
    streams = [f"elasticsearch:{stream}" for stream in actions.streams]
    lines.add_all(found, rows[kept & fits], streams, actions.which[kept & fits])


def _document(line: bytes, index: str, payload: Payload, into: Decoded, lines: Wrapped) -> None:
    try:
        found = loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # A template without quoting produces such lines: the text is kept unchanged, and its neighbours are not
        # delayed.
        host = payload.peer or "?"
        run = Run(1, payload.received, payload.peer, f"elasticsearch:{index}/{host}", transport="elasticsearch")
        into.add([line.removesuffix(b"\r")], run)
        return
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
    lines.add(found, f"elasticsearch:{index}")


#: The whole API is also available under this prefix, for clients that request ``/`` for the version and would get the
#: web pages.
_AT = r"(?:/elasticsearch)?"
_INDEX = r"/[^/_][^/]*"
_ARRANGED = "(?:_index_template|_component_template|_template|_ilm/policy|_data_stream|_alias|_ingest/pipeline)"
RECEIVER = Receiver(
    "elasticsearch", "Elasticsearch's bulk API and single documents; Slurm's jobcomp/elasticsearch", _decode,
    (
        Route(("POST", "PUT"), rf"{_AT}(?:{_INDEX}(?:/[^/]+)?)?/_bulk", _bulk, _problem),
        Route(("POST", "PUT"), rf"{_AT}{_INDEX}/(?:_doc|_create|jobcomp)(?:/[^/]+)?", _single, _problem),
        Route(("GET", "HEAD"), rf"{_AT}/(?:_cluster/health|_cat/health|_nodes/http)", _health, _problem),
        Route(("GET", "HEAD"), rf"{_AT}/(?:_license|_xpack)", _license, _problem),
        Route(("GET", "HEAD", "PUT", "POST"), rf"{_AT}/{_ARRANGED}/[^/]+", _arrangement, _problem),
        # An index or an alias, also with a date in its name. Only under the prefix, since other paths at the root
        # belong to pages.
        Route(("GET", "HEAD", "PUT"), rf"/elasticsearch(?:{_INDEX}|/<[^>]+>)", _arrangement, _problem),
        Route(("GET", "HEAD"), r"/elasticsearch/?|(?:/elasticsearch)?/_cluster/state/version", _hello, _problem),
    ),
)  # fmt: skip
