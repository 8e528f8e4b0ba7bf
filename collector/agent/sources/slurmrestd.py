"""Slurm's REST API: jobs and node states where the commands are not installed, or as a second witness beside them.

slurmrestd listens on a socket (``unix:/run/slurmrestd/slurmrestd.socket``; the socket authenticates the caller) or on
TCP (``http://ctl:6820``, with a JSON web token: ``scontrol token username=faultline lifespan=...`` writes one). Each
answer covers the whole cluster; new or changed rows go to the service, reduced to the fields it reads. Formats differ
between API versions (v0.0.36 of Slurm 21.08 to v0.0.44 of 25.11): fields are forwarded unchanged, and the service reads
all of them (``parsers/documents/slurm_json.py``).
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from collector.agent import wire
from collector.agent.failure import Denied, Missing
from collector.agent.source import Context, Reading, SourceKind

#: Paths that the daemon offers, from its own description: "/slurm/v0.0.38/jobs"; JSON may write "\/" for "/".
_OFFERED = re.compile(rb'"/(slurm(?:db)?)/(v\d+\.\d+\.\d+)/(jobs|nodes)/?"')
#: The fields that the service reads of a job in slurmctld, and those whose change is reported.
_JOB = (
    "account", "array", "array_job_id", "array_task_id", "cluster", "current_working_directory", "derived_exit_code",
    "end_time", "exit_code", "failed_node", "flags", "job_id", "job_state", "name", "nodes", "partition", "qos",
    "requeue", "required_nodes", "restart_cnt", "resv_name", "standard_error", "standard_output", "start_time", "state_description",
    "state_reason", "submit_time", "time_limit", "tres_alloc_str", "user_id", "user_name",
)  # fmt: skip
_NODE = (
    "boot_time", "cluster_name", "name", "reason", "reason_changed_at", "reason_set_by_user", "slurmd_start_time",
    "state", "state_flags",
)  # fmt: skip
#: The same for a job in slurmdbd; its steps count as part of it.
_RECORD = (
    "array", "association", "account", "cluster", "db_index", "derived_exit_code", "exit_code", "failed_node",
    "flags", "job_id", "kill_request_user", "name", "nodes", "partition", "qos", "reservation", "restart_cnt", "state", "stderr",
    "stderr_expanded", "stdout", "stdout_expanded", "steps", "submit_line", "time", "tres", "user",
    "working_directory",
)  # fmt: skip
#: slurmdbd learns of a job's end late: each poll overlaps the last one by this many seconds.
_OVERLAP_S = 900.0
#: Everything is reported once a day, so that a late reader learns nodes that never change.
_EVERYTHING_S = 86_400.0
#: A checksum is kept of reported rows; beyond this many, all are forgotten and reported again, harmlessly.
_REMEMBERED = 100_000
#: ESLURM_REST_EMPTY_RESULT: no row matches the query (22.05 calls that an error).
_EMPTY = 9003
#: "Nothing changed since update_time" in newer daemons.
_NOT_MODIFIED = 304


@dataclass(frozen=True)
class Question:
    """One list of the API: ``kind`` is the service's name for the document, ``key`` identifies a row."""

    api: str
    name: str
    kind: str
    key: tuple[str, ...]
    fields: tuple[str, ...]


_QUESTIONS = (
    Question("slurm", "jobs", "rest_jobs", ("job_id", "submit_time"), _JOB),
    Question("slurm", "nodes", "rest_nodes", ("name",), _NODE),
    Question("slurmdb", "jobs", "sacct_json", ("job_id", "db_index", "time"), _RECORD),
)


@dataclass
class Slurmrestd:
    """``version`` empty: the newest that the daemon offers."""

    context: Context
    url: str
    token_file: str
    user: str
    version: str
    most_mb: float
    first_hours: float
    timeout_s: float
    interval: float
    _offered: set[tuple[str, str]] = field(default_factory=set)
    _sent: dict[str, int] = field(default_factory=dict)
    _everything_at: float = float("-inf")
    _updated: dict[str, int] = field(default_factory=dict)
    _until: float | None = None

    def open(self, positions: Mapping[str, Any]) -> None:
        if not self.url:
            raise Missing('no url is configured ([sources.slurmrestd] url = "unix:/run/slurmrestd/slurmrestd.socket")')
        self._until = (positions.get("slurmrestd") or {}).get("until")
        described = self._get("/openapi/v3")
        if described is None:
            raise OSError(f"{self.url}: does not describe itself (GET /openapi/v3)")
        found = [m.groups() for m in _OFFERED.finditer(described.replace(rb"\/", b"/"))]
        offered = {(api.decode(), version.decode(), name.decode()) for api, version, name in found}
        versions = {version for _, version, _ in offered}
        if not versions or (self.version and self.version not in versions):
            known = ", ".join(sorted(versions, key=_number)) or "none with jobs or nodes"
            raise OSError(f"{self.url}: version {self.version or '(any)'} of the API is not offered; it has {known}")
        # slurmdbd's API may be missing; if both exist, they have the same versions.
        self.version = self.version or max(versions, key=_number)
        self._offered = {(api, name) for api, version, name in offered if version == self.version}

    def poll(self) -> Iterator[Reading]:
        now, monotonic = self.context.now(), self.context.monotonic()
        if monotonic - self._everything_at >= _EVERYTHING_S or len(self._sent) > _REMEMBERED:
            self._everything_at = monotonic
            self._sent.clear()
            self._updated.clear()
        for question in _QUESTIONS:
            if (question.api, question.name) not in self._offered:
                continue
            answer = self._ask(question, now)
            fresh = [row for row in answer.get(question.name) or () if self._is_news(question, row)]
            positions: dict[str, Any] = {}
            if question.api == "slurmdb":
                self._until = now
                positions = {"slurmrestd": {"until": now}}
            if not fresh and not positions:
                continue
            body = b""
            if fresh:
                rows = [{name: row[name] for name in question.fields if name in row} for row in fresh]
                # The daemon's description of itself tells the service which version wrote the rows.
                shown = {"meta": answer.get("meta"), question.name: rows}
                text = json.dumps(shown, separators=(",", ":"))
                body = wire.document(question.kind, text, "slurmrestd", now, timezone="UTC")
            yield Reading(body, len(fresh), positions)

    def _ask(self, question: Question, now: float) -> dict[str, Any]:
        """One list. ``update_time`` is the daemon's own: if nothing has changed, it then answers at once."""
        place = f"{question.api}/{question.name}"
        asked: dict[str, str] = {}
        if question.api == "slurmdb":
            since = now - self.first_hours * 3600 if self._until is None else min(self._until, now) - _OVERLAP_S
            asked = {"start_time": f"uts{int(since)}"}
        elif place in self._updated:
            asked = {"update_time": str(self._updated[place])}
        # Every version accepts the trailing slash.
        path = f"/{question.api}/{self.version}/{question.name}/" + (f"?{urlencode(asked)}" if asked else "")
        data = self._get(path)
        if data is None:
            return {}
        answer = json.loads(data)
        if not isinstance(answer, dict):
            raise OSError(f"{self.url}{path}: the answer is not an object")
        for problem in answer.get("errors") or ():
            if not answer.get(question.name) and _code(problem) != _EMPTY:
                raise OSError(f"{self.url}{path}: {_error_text(problem)}")
        updated = answer.get("last_update")
        updated = updated.get("number") if isinstance(updated, dict) else updated
        if isinstance(updated, int) and updated > 0:
            self._updated[place] = updated
        return answer

    def _is_news(self, question: Question, row: Any) -> bool:
        if not isinstance(row, dict):
            return False
        shown = {name: row[name] for name in question.fields if name in row}
        identity = [shown.get(name) for name in question.key]
        if question.api == "slurmdb":
            identity[-1] = (row.get("time") or {}).get("submission")
        key = f"{question.kind}{json.dumps(identity)}"
        checksum = zlib.crc32(json.dumps(shown, sort_keys=True).encode())
        if self._sent.get(key) == checksum:
            return False
        self._sent[key] = checksum
        return True

    # -- HTTP ----------------------------------------------------------------------------------------------------

    def _get(self, path: str) -> bytes | None:
        """The body; None if nothing changed. Raises ``Missing`` if nobody listens, ``Denied`` for a bad token."""
        headers = {"Accept": "application/json"}
        if self.token_file:
            # Read at every request: tokens live for minutes to hours and a timer rewrites them.
            token = Path(self.token_file).read_text(encoding="ascii").strip()
            headers["X-SLURM-USER-TOKEN"] = token.removeprefix("SLURM_JWT=")
        if self.user:
            headers["X-SLURM-USER-NAME"] = self.user
        asked = self._connection()
        most = int(self.most_mb * 1024 * 1024)
        try:
            asked.request("GET", path, headers=headers)
            answer = asked.getresponse()
            data = answer.read(most + 1)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise Missing(f"{self.url}: nobody listens there ({error.strerror})") from error
        except http.client.HTTPException as error:
            raise OSError(f"{self.url}{path}: {type(error).__name__}: {error}") from error
        finally:
            asked.close()
        if answer.status == _NOT_MODIFIED:
            return None
        if answer.status in (401, 403, 511):  # 22.05 and later answer 511 to a request without a token
            raise Denied(f"{self.url}: HTTP {answer.status}: {_first_line(data)}; check token_file and user")
        if answer.status != 200:
            raise OSError(f"{self.url}{path}: HTTP {answer.status}: {_first_line(data)}")
        if len(data) > most:
            raise OSError(f"{self.url}{path}: more than {self.most_mb:g} MB; raise most_mb, or read sacct and scontrol")
        return data

    def _connection(self) -> http.client.HTTPConnection:
        if self.url.startswith("unix:"):
            return _UnixConnection(self.url.removeprefix("unix:").removeprefix("//"), self.timeout_s)
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname or "127.0.0.1", parts.port or 6820, timeout=self.timeout_s)

    def close(self) -> None:
        """Nothing is held open."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _number(version: str) -> tuple[int, ...]:
    """ "v0.0.41" -> (0, 0, 41)."""
    return tuple(int(part) for part in version.removeprefix("v").split("."))


def _first_line(data: bytes) -> str:
    """The text of a refusal: the first error of a JSON answer, else its first line."""
    text = data[:4000].decode("utf-8", "replace").strip()
    try:
        return _error_text(json.loads(text)["errors"][0])
    except (ValueError, KeyError, IndexError, TypeError):
        return text.partition("\n")[0][:120]


def _error_text(problem: Any) -> str:
    return str(problem.get("description") or problem.get("error")) if isinstance(problem, dict) else str(problem)


def _code(problem: Any) -> Any:
    return problem.get("error_number") if isinstance(problem, dict) else None


def _make(context: Context, options: Mapping[str, Any]) -> Slurmrestd:
    return Slurmrestd(
        context, options["url"], options["token_file"], options["user"], options["version"], options["most_mb"],
        options["first_hours"], options["timeout_s"], options["every_s"],
    )  # fmt: skip


SOURCE = SourceKind(
    "slurmrestd", _make,
    {"url": "", "token_file": "", "user": "", "version": "", "most_mb": 16.0, "first_hours": 48.0, "timeout_s": 60.0, "every_s": 60.0},
    reads="jobs, node states and reasons, and slurmdbd's job records from slurmrestd, over a Unix socket or TCP with a token",
    costs="two or three requests per minute; 4 KB per job and 1 KB per node of slurmctld's memory, each time they change",
    blind_to="a state that came and went between two polls; jobs older than MinJobAge if slurmrestd has no slurmdbd",
    role="controller",
)  # fmt: skip
