"""Runs on the controller of a mini cluster: asks the service every second, and keeps each change of an answer with its time.

``watching.py SERVER TOKEN_FILE FOLDER``: FOLDER/jobs names the runs, one a line; FOLDER/seen gets one JSON object a line.
"""

import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

#: Of an incident and a verdict, what a change is a change of.
OF_INCIDENT = ("id", "start", "end", "severity", "category", "root_cause", "hosts", "jobs")
OF_VERDICT = ("category", "final", "final_at", "root_cause", "summary", "incident_id")
NODES = "Drains | where Begin > ago(2h) | project Host, State, Actor, Owner, Reason, Begin, End, UndoneBy | order by Begin asc"


class Service:
    def __init__(self, address, token):
        self.address, self.token = address, token

    def ask(self, path, body=None):
        """The answer's JSON; None where there is none (yet)."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        asked = urllib.request.Request(self.address + path, json.dumps(body).encode() if body else None, headers)
        try:
            with urllib.request.urlopen(asked, timeout=20) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return None


def found(service, runs):
    """Each answer of this moment, by what it is about."""
    for one in (service.ask("/api/v1/incidents") or {}).get("incidents", ()):
        yield "incident", one["id"], {key: one.get(key) for key in OF_INCIDENT}
    for run in runs:
        one = service.ask(f"/api/v1/jobs/{urllib.parse.quote(run)}/verdict")
        if one:
            yield "verdict", run, {key: one.get(key) for key in OF_VERDICT}
    for row in (service.ask("/api/v1/query", {"query": NODES}) or {}).get("rows", ()):
        yield (
            "drain",
            f"{row[0]} {row[5]} {row[1]}",
            dict(zip(("host", "state", "actor", "owner", "reason"), row, strict=False)) | {"undone_by": row[7]},
        )


def main(server, token_file, folder):
    service, folder = Service(server, Path(token_file).read_text().strip()), Path(folder)
    known = {}
    with (folder / "seen").open("a", buffering=1) as seen:
        while True:
            begun = time.time()
            runs = (folder / "jobs").read_text().split()
            over = {run for (kind, run), answer in known.items() if kind == "verdict" and answer["final"]}
            for kind, name, answer in found(service, [run for run in runs if run not in over]):
                if known.get((kind, name)) != answer:
                    known[kind, name] = answer
                    seen.write(json.dumps({"at": time.time(), "kind": kind, "name": name, **answer}) + "\n")
            time.sleep(max(0.2, begun + 1 - time.time()))


if __name__ == "__main__":
    main(*sys.argv[1:])
