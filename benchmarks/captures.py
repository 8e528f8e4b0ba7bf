"""The table of all captures of a real cluster: each run, the truth that was written before it, the verdict and its confidence.

    python benchmarks/captures.py [--kinds endings,second] [--out FILE]

One line a run, columns apart by tabs. Captures beside the repository are judged as well. ``benchmarks/endings.py`` says how many
verdicts are right; of most other captures the tests do (tests/correlator/engine/test_captures.py, test_second_party.py).
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parents[1]
sys.path[0] = str(HERE)
CAPTURES = HERE / "tests" / "captures"
COLUMNS = ("kind", "capture", "run", "state", "truth", "category", "root cause", "host", "device", "confidence")


def main() -> int:
    """Prints the table, and on stderr how many runs of each kind have which category."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kinds", help="only these kinds, apart by commas")
    parser.add_argument("--out", type=Path, help="a file in place of stdout")
    args = parser.parse_args()
    kinds = places()
    if args.kinds:
        kinds = {name: kinds[name] for name in args.kinds.split(",") if name in kinds}
    if not any(kinds.values()):
        print(f"no capture of these kinds in {CAPTURES}", file=sys.stderr)
        return 2
    lines, counts = ["\t".join(COLUMNS)], Counter[tuple[str, str]]()
    for kind, found in kinds.items():
        for place in found:
            for row in judged(place):
                counts[kind, str(row[3])] += 1
                lines.append("\t".join(map(str, (kind, place.name.removesuffix(".tar.xz"), *row))))
    text = "\n".join(lines) + "\n"
    if args.out:
        args.out.write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
    for kind in kinds:
        some = [(name, n) for (of, name), n in sorted(counts.items()) if of == kind]
        print(
            f"{kind}: {sum(n for _, n in some)} runs: {', '.join(f'{n} {name}' for name, n in some)}", file=sys.stderr
        )
    return 0


def places() -> dict[str, list[Path]]:
    """Folders and archives by kind."""
    found = {"captures": sorted(p.parent for p in CAPTURES.glob("*/truth.json"))}
    for folder in sorted(p for p in CAPTURES.iterdir() if p.is_dir() and not (p / "truth.json").exists()):
        found[folder.name] = sorted([*folder.glob("*.tar.xz"), *(p.parent for p in folder.glob("*/truth.json"))])
    return found | {"beside": sorted(p.parent for p in (HERE.parent / "shared" / "captures").glob("*/truth.json"))}


@contextmanager
def unpacked(place: Path) -> Iterator[Path]:
    """The folder of a capture: the one in its archive, or all of the archive."""
    if place.is_dir():
        yield place
        return
    with TemporaryDirectory() as folder, tarfile.open(place) as packed:
        packed.extractall(folder, filter="data")
        inside = [p for p in Path(folder).iterdir() if p.is_dir()]
        yield inside[0] if len(inside) == 1 else Path(folder)


def judged(place: Path) -> Iterator[tuple[Any, ...]]:
    """The columns of each run from ``run`` on; category "none" for one without a verdict."""
    from collector.ingest import Ingest
    from correlator.engine import correlate, result
    from store import open_store

    with unpacked(place) as folder:
        with open_store(None) as store:
            Ingest(store).run([folder])
            correlate(store)
            verdicts = result(store)["verdicts"]
        jobs = json.loads((folder / "truth.json").read_text("utf-8"))["jobs"]
    for truth in jobs:
        job = truth | truth.get("corrected", {})
        cause = job.get("cause") or "ended well"
        keys = [key for key in verdicts if key.split("#")[0] == str(job["id"])]
        if not keys:
            yield (job["id"], job.get("expected") or "", cause, "none", "", "", "", "")
        for key in sorted(keys):
            verdict = verdicts[key]
            root = verdict["root_cause"] or {}
            found = (root.get(name) or "" for name in ("event", "host", "device"))
            yield (key, verdict["state"], cause, verdict["category"], *found, round(verdict["confidence"], 4))


if __name__ == "__main__":
    sys.exit(main())
