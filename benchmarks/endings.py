"""Verdicts on the captures of tests/captures/endings beside the truth that was written before each run.

    python benchmarks/endings.py [NAME...] [--runs FILE]

One line a group: how many runs were judged how. A quarter of the captures (``was_held_out``) was held out from whoever changes the
correlator until 2026-11-30; since then neither line says what to expect of other faults. ``--runs`` writes one line a run, columns apart by tabs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
sys.path[0] = str(HERE)
CAPTURES = HERE / "tests" / "captures" / "endings"
#: Who is to blame, if no machine is.
_PEOPLE = ("user program", "user submission", "user", "nobody")
#: Held out until somebody who changed the correlator read its logs, by mistake (docs/measurements.md, 2026-11-30).
_READ = frozenset({"storage_hangs_silently"})
#: Below this, a verdict blames nobody.
_BLAMES = 0.5


def main() -> int:
    """Judges and prints; 2 where no capture has such a name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--runs", type=Path, help="a file for one line a run")
    args = parser.parse_args()
    places = [p.parent for p in sorted(CAPTURES.glob("*/truth.json")) if not args.names or p.parent.name in args.names]
    if not places:
        print(f"no such capture in {CAPTURES}", file=sys.stderr)
        return 2
    counts = {False: Counter[str](), True: Counter[str]()}
    lines = []
    for place in places:
        for outcome, *rest in judged(place):
            counts[was_held_out(place.name)][outcome] += 1
            lines.append("\t".join(map(str, (outcome, place.name, *rest))))
    if args.runs:
        args.runs.write_text("\n".join(lines) + "\n", "utf-8")
    for held_out, outcomes in counts.items():
        print(
            "held out until 2026-11-30:" if held_out else "looked at before:",
            ", ".join(f"{n} {name}" for name, n in outcomes.most_common()),
        )
    return 0


def was_held_out(name: str) -> bool:
    """Was the capture among those that nobody who changed the correlator had read until 2026-11-30?

    Chosen by the name's digest, not by anybody. A half of those once held out was opened on 2026-11-28, and these on 2026-11-30, with
    14 of 49 verdicts not right. What others make and nobody here has seen measures generality now (tests/captures/second to fourth).
    """
    digest = hashlib.sha1(name.encode()).digest()
    return name not in _READ and digest[0] % 2 == 1 and digest[1] % 2 == 1


def judged(place: Path) -> Iterator[tuple[str, str, str, str, str, float, str, str]]:
    """Outcome, job, state, who is to blame, category, confidence, the root's host and the summary of each run."""
    from collector.ingest import Ingest
    from correlator.engine import correlate, result
    from store import open_store

    with open_store(None) as store:
        Ingest(store).run([place])
        correlate(store)
        verdicts = result(store)["verdicts"]
    for truth_of in json.loads((place / "truth.json").read_text())["jobs"]:
        # What really happened, where the run went another way than was written before it.
        job = truth_of | truth_of.get("corrected", {})
        keys = [key for key in verdicts if key.split("#")[0] == str(job["id"])]
        if not keys:
            yield "without a verdict", str(job["id"]), "", job["blame"], "", 0.0, "", ""
        for key in keys:
            verdict = verdicts[key]
            host = (verdict.get("root_cause") or {}).get("host") or ""
            yield (
                outcome_of(job, verdict, host), key, verdict["state"], job["blame"], verdict["category"],
                verdict["confidence"], host, verdict["summary"],
            )  # fmt: skip


def outcome_of(job: dict[str, Any], verdict: dict[str, Any], host: str) -> str:
    """The verdict beside the truth, in words."""
    category, blame = verdict["category"], job["blame"]
    if category == "unknown":
        return "unknown"
    if not category.startswith("infra"):
        people = blame in _PEOPLE or (blame == "administrator" and "cancel" in (category + verdict["summary"]).lower())
        return "right" if people else "wrong, nobody blamed"
    if blame in _PEOPLE:
        return "blamed for nothing" if verdict["confidence"] >= _BLAMES else "right, but for a doubt"
    if host in job["not_to_blame"] and verdict["confidence"] >= _BLAMES:
        return "the wrong node"
    if blame == "storage":
        return "right" if category == "infra.storage" else "another cause"
    if blame.startswith(("node", "network")):
        return "right" if host in blame.split()[1:] else "right, no node named"
    return "right" if category == "infra.scheduler" else "another cause"


if __name__ == "__main__":
    sys.exit(main())
