"""``faultline why JOBID`` of a running service: the same answer from the full and from the bare package.

Standard library only. A user who is known by Slurm's identity sees her own jobs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any
from urllib.parse import quote

from collector.agent.arguments import Parser
from faultline import printing, why_text
from faultline.failure import CommandError
from faultline.remote import RefusedError, Service


def named_run(text: str) -> str:
    """A run in the notations of log lines, squeue and people: JobId=15, 15.batch and 15.0 (its steps) are 15."""
    bare = re.sub(r"^job(?:id)?[ =:]*", "", text.strip(), flags=re.IGNORECASE)
    return re.sub(r"\.(?:\d+|batch|extern|interactive)$", "", bare)


def explain(service: Service, key: str, form: str, out: why_text.Out) -> int:
    """Exit 0 with a verdict, 1 if the job ended well or its verdict is unknown. Raises ``CommandError``, also for a job
    that is not there or is somebody else's."""
    key = named_run(key)
    run = _job(service, key)
    verdict = run["verdict"]
    if not verdict:
        _needs_none(key, run, form)
        return 1
    verdict |= {"cluster": run["cluster"]}
    incident = _incident(service, verdict.get("incident_id"))
    software = run.get("environment") or run.get("software") or {}  # an older service has none
    differs, slowed = software.get("since_last_good"), run.get("slowed") or []
    if form == "json":
        print(as_json(run["run_key"], verdict, incident, differs, slowed))
    else:
        why_text.why(out, run["run_key"], verdict, incident, differs, slowed)
    return 0


def as_json(
    key: str, verdict: dict[str, Any], incident: dict[str, Any] | None, differs: dict[str, Any] | None, slowed: list[dict[str, Any]]
) -> str:  # fmt: skip
    """The answer for programs; ``since_last_good`` is there only if something differs, ``slowed`` if something made it slower."""
    more: dict[str, Any] = ({"since_last_good": differs} if differs else {}) | ({"slowed": slowed} if slowed else {})
    return json.dumps({"job_id": key, "verdict": verdict, "incident": incident, **more}, indent=1, sort_keys=True)


def _job(service: Service, key: str) -> dict[str, Any]:
    try:
        return _answer(service, f"/api/v1/jobs/{quote(key, safe='')}")
    except RefusedError as error:
        if error.code != 404:
            raise
        near = [str(one["text"]).removeprefix("job ") for one in error.document.get("suggestions") or ()]
        meant = f"; did you mean {', '.join(near[:3])}?" if near else ""
        raise CommandError(
            f"job {key}: {service.server} knows no such job that you may see{meant or '; was its accounting collected?'}"
        ) from error


def _answer(service: Service, path: str) -> dict[str, Any]:
    try:
        found = json.loads(service.ask(path))
    except ValueError as error:
        raise CommandError(f"{service.server}{path}: the answer is no JSON; is that Faultline?") from error
    if not isinstance(found, dict):
        raise CommandError(f"{service.server}{path}: not an answer of Faultline")
    return found


def _needs_none(key: str, run: dict[str, Any], form: str) -> None:
    runs = [{name: one[name] for name in ("run_key", "job_id", "state")} for one in run["runs"]]
    slowed = run.get("slowed") or []  # an older service has none
    if form == "json":
        print(json.dumps({"job_id": key, "verdict": None, "runs": runs} | ({"slowed": slowed} if slowed else {})))
        return
    judged = [one["run_key"] for one in run["runs"] if one.get("category")]
    earlier = f" For the run that did not end well: faultline why '{judged[-1]}'" if judged else ""
    print(" ".join([why_text.without_verdict(key, runs) + earlier, *why_text.slowed_in_words(slowed)]))


def _incident(service: Service, name: str | None) -> dict[str, Any] | None:
    if not name:
        return None
    try:
        return _answer(service, f"/api/v1/incidents/{quote(name, safe='')}")
    except RefusedError as error:
        if error.code == 404:  # it was concluded anew meanwhile
            return None
        raise


class _Plain:
    """Standard output without colours."""

    @property
    def columns(self) -> int | None:
        return os.get_terminal_size().columns if sys.stdout.isatty() else None

    def line(self, *parts: tuple[str, str]) -> None:
        print("".join(text for text, _ in parts))


def main(arguments: list[str]) -> int:
    """The command in the bare package. Exit codes: 0 a verdict, 1 none is needed, 2 failure."""
    parser = Parser(
        prog="faultline why", epilog="Example: faultline why 812345, or: faultline why '812345#1' for its first restart",
        description="The verdict on one job run, its evidence, and why rival causes were rejected: of a service, to which you are "
        "known by munge, a Slurm token, or the token in FAULTLINE_ACCESS_TOKEN.",
    )  # fmt: skip
    parser.add_argument("jobid", metavar="JOBID[#RESTART]")
    parser.add_argument("--server", help="Ask this service (or FAULTLINE_SERVER).")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args(arguments)
    with printing.guarded():
        try:
            server = given.server or os.environ.get("FAULTLINE_SERVER", "").strip()
            if not server:
                raise CommandError("which service? give --server https://HOST:8514, or set FAULTLINE_SERVER")
            return explain(Service(server), given.jobid, given.format, _Plain())
        except CommandError as error:
            sys.stderr.write("faultline: " + " ".join(str(error).split()) + "\n")
            return 2
        except BrokenPipeError:  # the reader (`| head`) has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 0
