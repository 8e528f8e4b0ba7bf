"""Where a command gets its data: from a store in this process, or from a running service.

``--data`` opens a store; ``--server`` (or FAULTLINE_SERVER) queries a service; with neither, a service on the default
address is queried if one runs there, else ``./faultline-data`` is opened.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from faultline import private
from faultline.defaults import DEFAULT_DATA, DEFAULT_LISTEN
from faultline.failure import CommandError
from faultline.remote import LONGEST_S, RefusedError, Service
from store import blocks, open_store, run_names
from store.door import Door
from store.errors import StoreError
from store.questions import runs


class Backend(Protocol):
    """The queries of commands. Times are naive UTC."""

    def result(self) -> dict[str, Any]:
        """corr-result/1 with all details."""

    def query(self, text: str, parameters: dict[str, Any], max_rows: int | None, timeout_s: float | None = None) -> Any:
        """A query's ``queries.kql`` Result."""

    def explain(self, text: str, parameters: dict[str, Any]) -> str:
        """The plan of a query, as text."""

    def report(self, name: str, since: datetime | None, until: datetime | None, form: str) -> str: ...

    def run_keys(self) -> list[dict[str, Any]]:
        """Every known run: run_key, job_id, state."""

    def run_named(self, key: str) -> str | None:
        """The name of the run that is called ``key``, as ``store.run_names.find`` finds it; None if there is none."""

    def sources(self, search: str | None, *, outputs: bool = False) -> dict[str, Any]:
        """The answer of ``GET /api/v1/sources``, all its pages as one; ``outputs``: with each file of job output."""

    def node(self, name: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
        """The answers of ``GET /api/v1/nodes/NAME/fitness`` and ``/api/v1/nodes/NAME``, and the node's rows of
        ``/api/v1/repairs``. Raises ``CommandError`` for an unknown node."""

    def line(self, file: str, number: int) -> dict[str, Any] | None:
        """The row of one line as ``GET /api/v1/lines`` has it; None if it is not stored."""

    def bundle(self, incident_id: str, *, redacted: bool) -> bytes:
        """The file of ``GET /api/v1/incidents/ID/bundle``. Raises ``CommandError`` for an unknown incident."""

    def attach_blocks(self, key: str, evidence: list[dict[str, Any]]) -> None:
        """Adds ``lines`` to each multi-line event in the evidence on run ``key``."""

    def since_last_good(self, key: str) -> dict[str, Any] | None:
        """What was otherwise in the last run of that name that ended well, as in the API."""

    def slowed(self, key: str) -> list[dict[str, Any]]:
        """What made a run slower, as ``slowed`` of ``GET /api/v1/jobs/KEY``."""

    def close(self) -> None: ...


def open_for_reading(data: Path) -> Door:
    """A store for reading. Raises ``CommandError`` (also for a store held by a service, with its address)."""
    try:
        return open_store(data, read_only=True)
    except StoreError as error:
        raise CommandError(str(error)) from error


def open_for_writing(data: Path) -> Door:
    """A store for writing, in a folder closed to others. Raises ``CommandError``."""
    for warning in private.begin(data):
        print(f"faultline: {warning}", file=sys.stderr)
    try:
        return open_store(data)
    except StoreError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{data}: cannot be made or opened: {error.strerror}") from error


def choose(data: Path | None, server: str | None) -> Backend:
    if data is not None and server is not None:
        raise CommandError("--data and --server exclude each other: one opens a store, the other asks a service")
    server = server or (None if data is not None else os.environ.get("FAULTLINE_SERVER"))
    if server:
        return Remote(server)
    if data is None and is_listening(DEFAULT_LISTEN):
        return Remote(f"http://{DEFAULT_LISTEN}", named=False)
    return Local(open_for_reading(data or DEFAULT_DATA))


def is_listening(address: str) -> bool:
    """Whether a service answers there."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=0.2):
            pass
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=1.0) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


class Local:
    """An embedded store, opened in this process for reading."""

    def __init__(self, store: Door) -> None:
        self.store = store

    def result(self) -> dict[str, Any]:
        from correlator.incidents.stored import result

        return result(self.store)

    def query(self, text: str, parameters: dict[str, Any], max_rows: int | None, timeout_s: float | None = None) -> Any:
        from queries import kql

        return self.store.run_kql(kql.Query(text, parameters, max_rows=max_rows, timeout_s=timeout_s))

    def explain(self, text: str, parameters: dict[str, Any]) -> str:
        from queries import kql

        return self.store.explain_kql(kql.Query(text, parameters))

    def report(self, name: str, since: datetime | None, until: datetime | None, form: str) -> str:
        from queries import reports

        try:
            return reports.render(reports.run(self.store, name, since=since, until=until), form)
        except reports.ReportFailed as error:
            raise CommandError(str(error)) from error

    def run_keys(self) -> list[dict[str, Any]]:
        return self.store.ask(runs.every_name(run_names.named_runs(self.store)))

    def run_named(self, key: str) -> str | None:
        found = run_names.find(self.store, key, "run_key")
        return None if found is None else str(found["run_key"])

    def sources(self, search: str | None, *, outputs: bool = False) -> dict[str, Any]:
        from web.reading import Reader
        from web.shaping import wire
        from web.sources import document

        found = document(None, Reader(self.store), search=search, limit=sys.maxsize, cursor=None, outputs=outputs)
        return dict(wire(found))

    def node(self, name: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
        from correlator.repairs.repairs import repairs
        from web import api, fitness
        from web.problems import ProblemError
        from web.reading import Reader
        from web.shaping import wire
        from web.timerange import Range

        read = Reader(self.store)
        try:
            found = fitness.from_store(read, name)
        except ProblemError as problem:
            raise CommandError(f"{problem.detail} {problem.do}".strip()) from problem
        listed = [wire(one.document()) for one in repairs(read).repairs if one.node == found["node"]]
        return found, api.node_document(read, name, Range()), listed

    def line(self, file: str, number: int) -> dict[str, Any] | None:
        from web.reading import Reader
        from web.shaping import wire

        rows: list[dict[str, Any]] = wire(Reader(self.store).around(file, number, 0))
        return rows[0] if rows else None

    def bundle(self, incident_id: str, *, redacted: bool) -> bytes:
        from web import pages
        from web.bundle.page import bundle
        from web.problems import ProblemError
        from web.reading import Reader

        try:
            return bundle(Reader(self.store), incident_id, pages.environment(), redacted=redacted)[1]
        except ProblemError as problem:
            raise CommandError(f"{problem.detail} {problem.do}".strip()) from problem

    def attach_blocks(self, key: str, evidence: list[dict[str, Any]]) -> None:
        blocks.attach(self.store, evidence)

    def since_last_good(self, key: str) -> dict[str, Any] | None:
        from web import job_environment, job_software
        from web.reading import Reader

        reader = Reader(self.store)
        run = reader.run(key)
        verdict = run["document"]
        software = (
            job_environment.document(reader, run, reader.attempts(run), verdict)
            or job_software.document(reader, run, verdict)
            or {}
        )
        return software.get("since_last_good")

    def slowed(self, key: str) -> list[dict[str, Any]]:
        from web.reading import Reader

        reader = Reader(self.store)
        return reader.slowdowns(reader.run(key))

    def close(self) -> None:
        self.store.close()


class Remote:
    """A running service, queried over HTTP."""

    def __init__(self, server: str, *, named: bool = True) -> None:
        self.service = Service(server, named=named)

    def result(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.service.ask("/api/v1/result"))
        return answer

    def query(self, text: str, parameters: dict[str, Any], max_rows: int | None, timeout_s: float | None = None) -> Any:
        from faultline.remote_result import RemoteResult

        body = {"query": text, "parameters": parameters, "max_rows": max_rows or 1_000_000}
        body["timeout_s"] = LONGEST_S if timeout_s is None else min(timeout_s, LONGEST_S)
        return RemoteResult(json.loads(self.service.ask("/api/v1/query", body)))

    def explain(self, text: str, parameters: dict[str, Any]) -> str:
        body = {"query": text, "parameters": parameters, "explain": True}
        return str(json.loads(self.service.ask("/api/v1/query", body))["plan"])

    def report(self, name: str, since: datetime | None, until: datetime | None, form: str) -> str:
        options = {"format": form} | {
            k: v.isoformat() for k, v in (("since", since), ("until", until)) if v is not None
        }
        return self.service.ask(
            f"/api/v1/reports/{urllib.parse.quote(name)}?{urllib.parse.urlencode(options)}"
        ).decode()

    def run_keys(self) -> list[dict[str, Any]]:
        verdicts: dict[str, Any] = self.result()["verdicts"]
        return [{"run_key": k, "job_id": None, "state": v.get("state")} for k, v in verdicts.items()]

    def run_named(self, key: str) -> str | None:
        try:
            run = json.loads(self.service.ask(f"/api/v1/jobs/{urllib.parse.quote(key, safe='')}"))
        except RefusedError as error:
            if error.code == 404:
                return None
            raise
        return str(run["run_key"])

    def sources(self, search: str | None, *, outputs: bool = False) -> dict[str, Any]:
        options = ({} if search is None else {"q": search}) | ({"outputs": "true"} if outputs else {})
        whole: dict[str, Any] = json.loads(self.service.ask(f"/api/v1/sources?{urllib.parse.urlencode(options)}"))
        while whole["next"]:
            asked = urllib.parse.urlencode({**options, "cursor": whole["next"]})
            page = json.loads(self.service.ask(f"/api/v1/sources?{asked}"))
            whole |= {"sources": whole["sources"] + page["sources"], "next": page["next"]}
        return whole

    def node(self, name: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
        path = f"/api/v1/nodes/{urllib.parse.quote(name, safe='')}"
        found, about = json.loads(self.service.ask(f"{path}/fitness")), json.loads(self.service.ask(path))
        asked = urllib.parse.urlencode({"q": about["host"], "limit": 500})
        listed = json.loads(self.service.ask(f"/api/v1/repairs?{asked}"))["repairs"]
        return found, about, [one for one in listed if one["node"] == found["node"]]

    def since_last_good(self, key: str) -> dict[str, Any] | None:
        run = json.loads(self.service.ask(f"/api/v1/jobs/{urllib.parse.quote(key, safe='')}"))
        found: dict[str, Any] | None = (run.get("environment") or run.get("software") or {}).get("since_last_good")
        return found

    def slowed(self, key: str) -> list[dict[str, Any]]:
        run = json.loads(self.service.ask(f"/api/v1/jobs/{urllib.parse.quote(key, safe='')}"))
        return run.get("slowed") or []

    def line(self, file: str, number: int) -> dict[str, Any] | None:
        asked = urllib.parse.urlencode({"file": file, "around_line": number, "limit": 1})
        rows: list[dict[str, Any]] = json.loads(self.service.ask(f"/api/v1/lines?{asked}"))["lines"]
        return next((row for row in rows if row["line"] == number), None)

    def bundle(self, incident_id: str, *, redacted: bool) -> bytes:
        path = f"/api/v1/incidents/{urllib.parse.quote(incident_id, safe='')}/bundle"
        return self.service.ask(path if redacted else f"{path}?redact=no")

    def attach_blocks(self, key: str, evidence: list[dict[str, Any]]) -> None:
        document = json.loads(self.service.ask(f"/api/v1/jobs/{urllib.parse.quote(key, safe='')}/verdict"))
        lines = {event["id"]: event["lines"] for event in document.get("evidence", ()) if event.get("lines")}
        for event in evidence:
            if event["id"] in lines:
                event["lines"] = lines[event["id"]]

    def close(self) -> None:
        pass
