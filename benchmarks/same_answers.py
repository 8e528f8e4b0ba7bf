"""The answers of a checkout about every capture and scenario, and where two checkouts differ.

    python benchmarks/same_answers.py write OUT [--root DIR] [--only TEXT]    one JSON file a capture, of the checkout in DIR
    python benchmarks/same_answers.py compare OLD NEW                         exit code 1 where anything differs
    python benchmarks/same_answers.py explain OLD NEW [REASONS]               exit code 1 where a difference has no reason

A refactoring must change no answer. `write` loads each capture and scenario into its own store in memory, concludes,
and writes incidents and verdicts (corr-result/1), every report and the answers of the saved queries, in canonical form.
`--root` may be a worktree of an earlier commit, whose code runs with its own imports. `compare` names what differs.
`explain` counts the differences by the reasons that a TOML file gives for them, and names those without one.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
#: Saved queries contain "how long ago": all run at this moment, the day after the bundled captures.
NOW = datetime(2026, 11, 22, tzinfo=UTC)
#: Why answers differ from those of 391db37, from which the house was rebuilt.
REASONS = HERE / "benchmarks" / "answers_since_391db37.toml"
#: Sections of one file, in the order in which a difference is reported.
SECTIONS = ("verdicts", "incidents", "lemons", "queries", "reports")


def main() -> int:
    """Runs the command; the exit code is 1 where two folders differ, 2 where something is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="write the answers of a checkout")
    write.add_argument("out", type=Path)
    write.add_argument("--root", type=Path, default=HERE, help="the checkout whose code answers")
    write.add_argument("--only", default="", help="only captures whose name holds this text")
    write.add_argument("--missing", action="store_true", help="only captures that OUT does not have yet")
    compare = commands.add_parser("compare", help="compare two folders of answers")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    explain = commands.add_parser("explain", help="the reasons why two folders differ")
    explain.add_argument("old", type=Path)
    explain.add_argument("new", type=Path)
    explain.add_argument("reasons", type=Path, nargs="?", default=REASONS)
    explain.add_argument("--all", action="store_true", help="name each difference without a reason, not 40 of them")
    args = parser.parse_args()
    if args.command == "compare":
        return compare_folders(args.old, args.new)
    if args.command == "explain":
        return explain_folders(args.old, args.new, reasons_in(args.reasons), most=None if args.all else 40)
    root = str(args.root.resolve())
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets must not decide an answer, and may not make two runs of one checkout differ.
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": root}
        return subprocess.call([sys.executable, *sys.argv], env=environment)
    sys.path[0] = root  # in place of this folder, whose modules have the names of packages
    return write_folder(args.out, args.only, missing=args.missing)


def write_folder(out: Path, only: str, *, missing: bool = False) -> int:
    """Writes one file a capture. Prints each name as it is done, and at the end how many there are."""
    out.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, path in captures():
        place = out / f"{name.replace('/', '+')}.json"
        if only not in name or (missing and place.exists()):
            continue
        with tempfile.TemporaryDirectory() as folder:
            tree = unpacked(path, Path(folder)).resolve()
            text = json.dumps(answers_of(tree), indent=1, sort_keys=True)
        # Answers name files: where the capture lay must not make two runs differ.
        place.write_text(text.replace(str(tree), "/capture"), "utf-8")
        count += 1
        print(name, flush=True)
    print(f"{count} captures written to {out}")
    return 0 if count else 2


def captures() -> Iterator[tuple[str, Path]]:
    """Name and place of each capture in the repository, then of those beside it, if any."""
    own = HERE / "tests" / "captures"
    for path in sorted(own.glob("*/truth.json")):
        yield path.parent.name, path.parent
    for path in sorted(own.glob("endings/*/truth.json")):
        yield f"endings/{path.parent.name}", path.parent
    for path in sorted(own.glob("*/*.tar.xz")):
        yield f"{path.parent.name}/{path.name.removesuffix('.tar.xz')}", path
    beside = HERE.parent / "shared"
    for path in sorted(beside.glob("captures/*/truth.json")):
        yield f"shared/{path.parent.name}", path.parent
    for path in sorted(beside.glob("scenarios/*/logs.tar.xz")):
        yield f"scenarios/{path.parent.name}", path


def unpacked(path: Path, folder: Path) -> Path:
    """The tree of a capture; an archive is unpacked into ``folder``."""
    if path.is_dir():
        return path
    with tarfile.open(path) as packed:
        packed.extractall(folder, filter="data")
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def answers_of(tree: Path) -> dict[str, Any]:
    """All answers about one tree of logs."""
    from collector.ingest import Ingest
    from correlator.engine import correlate, result
    from queries import reports
    from store import open_store

    with open_store(None) as store:
        Ingest(store).run([tree])
        correlate(store)
        found = result(store)
        return {
            "verdicts": found["verdicts"],
            "incidents": {incident["id"]: incident for incident in found["incidents"]},
            "lemons": found["lemons"],
            "queries": {name: answer_of(store, name, found) for name in saved_names()},
            "reports": {
                report["name"]: json.loads(reports.render(reports.run(store, report["name"]), "json"))
                for report in reports.listing()
            },
        }


def saved_names() -> list[str]:
    from queries import saved

    return saved.names()


def answer_of(store: Any, name: str, found: dict[str, Any]) -> Any:
    """Columns and rows of a saved query, its rows in a fixed order; the error's text if it is refused."""
    from queries import saved
    from queries.kql import run
    from queries.kql.errors import KqlError

    one = saved.load(name)
    parameters: dict[str, Any] = {}
    if one.parameters.startswith("job:"):
        parameters["job"] = min(
            (int(number[0]) for key in found["verdicts"] if (number := re.match(r"\d+", key))), default=0
        )
    if one.parameters.startswith("incident:") and found["incidents"]:
        parameters["incident"] = found["incidents"][0]["id"]
    wanted = {"now": NOW.replace(tzinfo=None), "max_rows": 100_000, "timeout_s": None}
    known = inspect.signature(run).parameters
    more = {key: value for key, value in wanted.items() if key in known}
    try:
        answer = json.loads(run(cursor_of(store), one.text, parameters=parameters, **more).to_json())
    except KqlError as error:
        return {"error": str(error)}
    return {
        "columns": answer["columns"],
        "rows": sorted(json.dumps(row, sort_keys=True, default=str) for row in answer["rows"]),
    }


def cursor_of(store: Any) -> Any:
    """The cursor that a query runs on."""
    return store.cursor()


def compare_folders(old: Path, new: Path) -> int:
    """Prints every value that differs. Returns 1 if there is any."""
    found = compared(old, new)
    if found is None:
        return 2
    for capture, differences in found.items():
        for one in differences:
            print(f"{capture}: {one}")
    count = sum(map(len, found.values()))
    print(f"{len(found)} captures compared, {count} differences")
    return 1 if count else 0


def compared(old: Path, new: Path) -> dict[str, list[Difference]] | None:
    """The differences of each capture; None, and a line on standard error, where there are no answers."""
    names = sorted({path.name for folder in (old, new) for path in folder.glob("*.json")})
    if not names:
        print(f"{old}, {new}: no answers here; make them with `write`", file=sys.stderr)
        return None
    found: dict[str, list[Difference]] = {}
    for name in names:
        ours = found[name.removesuffix(".json")] = []
        if not (old / name).exists() or not (new / name).exists():
            ours.append(Difference(("capture",), (old / name).exists(), (new / name).exists()))
            continue
        before, after = (json.loads((folder / name).read_text("utf-8")) for folder in (old, new))
        for section in SECTIONS:
            ours += differences(before[section], after[section], (section,))
    return found


@dataclasses.dataclass(frozen=True)
class Difference:
    """One value that differs between the two. ``steps``: the keys and list indexes that lead to it."""

    steps: tuple[str, ...]
    before: Any
    after: Any

    @property
    def subject(self) -> tuple[str, ...]:
        """The verdict or incident in which it lies; empty: none, or a whole one."""
        return self.steps[:2] if self.steps[0] in ("verdicts", "incidents") and len(self.steps) > 2 else ()

    @property
    def kind(self) -> str:
        """The path without what names a run, an incident, or a place in a list."""
        steps = (self.steps[0], "*", *self.steps[2:]) if self.steps[0] in ("verdicts", "incidents") else self.steps
        return ".".join("[]" if step.startswith("[") else step for step in steps)

    def __str__(self) -> str:
        return f"{'.'.join(self.steps)}: {_short(self.before)} -> {_short(self.after)}"


def differences(before: Any, after: Any, steps: tuple[str, ...]) -> Iterator[Difference]:
    """Every path at which two JSON values differ; lists are compared index by index."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), (*steps, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, (*steps, f"[{place}]"))
    elif before != after:
        yield Difference(steps, before, after)


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why values differ. ``paths`` are patterns of fnmatch for ``Difference.kind``; ``changes`` for "before -> after", both
    as JSON; ``captures`` for their names. With ``beside``, the same verdict or incident must differ at such a path as
    well, or the same capture if it is a whole one or lies in queries or reports: what is worded or counted from it
    follows."""

    why: str
    paths: tuple[str, ...]
    changes: tuple[str, ...] = ("*",)
    beside: tuple[str, ...] = ()
    captures: tuple[str, ...] = ("*",)

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Reason:
        """An entry of a file of reasons."""
        why = str(entry.pop("why"))
        return cls(why, **{name: tuple(patterns) for name, patterns in entry.items()})

    def holds(self, capture: str, one: Difference, kinds: dict[tuple[str, ...], set[str]]) -> bool:
        """Does it explain this difference? ``kinds``: of all differences of the capture, by ``Difference.subject``."""
        return (
            _any(self.paths, one.kind)
            and _any(self.captures, capture)
            and (self.changes == ("*",) or _any(self.changes, f"{_text(one.before)} -> {_text(one.after)}"))
            and (not self.beside or any(_any(self.beside, kind) for kind in kinds[one.subject]))
        )


def _any(patterns: Iterable[str], text: str) -> bool:
    # A list index is written as [], which is no set of characters here.
    return any(fnmatchcase(text.replace("[", "<"), pattern.replace("[", "<")) for pattern in patterns)


def reasons_in(path: Path) -> list[Reason]:
    """The reasons of a file, in order: the first that holds counts."""
    return [Reason.of(entry) for entry in tomllib.loads(path.read_text("utf-8"))["reason"]]


def explain_folders(old: Path, new: Path, reasons: list[Reason], *, most: int | None) -> int:
    """Prints how many differences each reason explains, and those that none does. Returns 1 if there are any."""
    found = compared(old, new)
    if found is None:
        return 2
    counts: dict[int, list[str]] = {place: [] for place in range(len(reasons))}
    unexplained: list[str] = []
    for capture, all_of_it in found.items():
        kinds: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for one in all_of_it:
            kinds[one.subject].add(one.kind)
            kinds[()].add(one.kind)
        for one in all_of_it:
            place = next((n for n, reason in enumerate(reasons) if reason.holds(capture, one, kinds)), None)
            if place is None:
                unexplained.append(f"{capture}: {one}")
            else:
                counts[place].append(capture)
    for place, reason in enumerate(reasons):
        print(f"{len(counts[place]):6} in {len(set(counts[place])):3} captures  {reason.why}")
    for line in unexplained[:most]:
        print(f"no reason: {line}")
    same = sum(not some for some in found.values())
    total = sum(map(len, found.values()))
    print(f"{len(found)} captures compared, {same} the same; {total} differences, {len(unexplained)} without a reason")
    return 1 if unexplained else 0


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _short(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


if __name__ == "__main__":
    sys.exit(main())
