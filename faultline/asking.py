"""``query`` and ``why``: a question, its answer, and an honest exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from faultline.access import Access, choose
from faultline.failure import CommandError


def ask(
    text: str,
    data: Path | None,
    server: str | None,
    form: str,
    parameters: list[str],
    max_rows: int | None,
    explain: bool,
) -> int:
    from queries import kql
    from queries.kql import format as printing

    values: dict[str, Any] = {}
    for item in parameters:
        name, equals, value = item.partition("=")
        if not equals:
            raise CommandError(f"--parameter {item}: write NAME=VALUE")
        values[name] = value
    try:
        if explain:
            print(kql.explain(text))
            return 0
        access = choose(data, server)
        try:
            answer = access.query(text, values, max_rows)
        finally:
            access.close()
    except kql.KqlError as error:
        sys.stderr.write(f"faultline: {error}\n")
        return 2
    shown = printing.render(answer, form)
    if isinstance(shown, bytes):
        sys.stdout.buffer.write(shown)
    else:
        sys.stdout.write(shown)
    if answer.truncated:
        sys.stderr.write(f"faultline: truncated after {len(answer.rows)} rows; raise --max-rows\n")
    return 0


def explain_job(access: Access, key: str, form: str) -> int:
    """Exit 0 with a verdict, 1 if the job ended well or its verdict is unknown to us, 2 if no such job is known."""
    from faultline import terminal

    found = access.result()
    verdict = found["verdicts"].get(key)
    if verdict is None:
        runs = [r for r in access.run_keys() if r["run_key"] == key or r["run_key"].split("#")[0].split("@")[0] == key]
        others = [k for k in found["verdicts"] if k.split("#")[0].split("@")[0] == key.split("#")[0]]
        if others and not any(r["run_key"] == key for r in runs):
            raise CommandError(f"job {key}: no such run; there are verdicts on {', '.join(others)}")
        if not runs:
            raise CommandError(f"job {key}: not known to this store; was its accounting or slurmctld.log ingested?")
        states = ", ".join(f"{r['run_key']} {r['state'] or 'not ended'}" for r in runs)
        if form == "json":
            print(json.dumps({"job_id": key, "verdict": None, "runs": runs}))
        else:
            print(f"Job {key} needs no explanation: {states}.")
        return 1
    incident = next((i for i in found["incidents"] if i["id"] == verdict["incident_id"]), None)
    if form == "json":
        print(json.dumps({"job_id": key, "verdict": verdict, "incident": incident}, indent=1, sort_keys=True))
    else:
        terminal.why(key, verdict, incident)
    return 0
