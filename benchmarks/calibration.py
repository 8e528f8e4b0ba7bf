"""Fits and checks the confidence of verdicts on situations with known causes.

    python benchmarks/calibration.py [--cases 8000] [--feedback answers.ndjson] [--write | --draw]

Each situation is judged with all sources, and with one, two and all of the optional ones away
(``simulators/coverage.py``); users' lies are among them. Half of the seeds are for fitting, the other half for the
printed reliability. ``--write`` replaces ``correlator/evidence/calibration.toml`` and the diagrams of
docs/correlation.md; ``--draw`` replaces the diagrams only, with what the shipped file says. ``--feedback`` counts operators' answers as cases to fit as well
(``GET /api/v1/feedback?format=ndjson``), and prints their number and effect.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.simulators.coverage import AWAY, cases
from benchmarks.simulators.situations import Situation, make
from correlator.edges import load as edge_files
from correlator.evidence.calibration import (
    FILE,
    UNLOGGED,
    Bin,
    Line,
    along,
    answered,
    calibrated_by,
    covered,
    expected_error,
    factors,
    family_of,
    fit,
    fit_left,
    reliability,
)
from correlator.evidence.calibration import lines as shipped_lines
from correlator.evidence.weigh import Weigher
from correlator.learning.feedback import standing
from correlator.verdicts.judge import judge
from correlator.verdicts.verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent
DIAGRAM, BY_COVERAGE = ROOT / "docs" / "reliability.svg", ROOT / "docs" / "reliability-coverage.svg"

#: The factors are those of verdicts that would be at least this sure with all witnesses: those below are unsure for other
#: reasons.
SURE = 0.95

#: One diagram per number of missing sources: its colour.
COLOURS = ("#3b82f6", "#16a34a", "#d97706", "#dc2626")


@dataclass(frozen=True)
class Judged:
    """The verdict on a situation with ``away`` sources missing.

    ``raw``: the confidence before calibration; ``at_most``: its limit after it; ``missing``: the witnesses that the
    verdict lacks. ``blames``: it blames the infrastructure for what was none of its.
    """

    away: int
    category: str
    raw: float
    at_most: float
    missing: int
    right: bool
    blames: bool
    unlogged: bool

    @property
    def family(self) -> str:
        return family_of(self.category)

    @property
    def line(self) -> str:
        """The name of its line."""
        return f"{self.family}_{UNLOGGED}" if self.unlogged else self.family


@dataclass(frozen=True)
class Fit:
    """The lines of the families, and the factors for missing witnesses."""

    lines: dict[str, Line]
    left: Sequence[float]

    def raw(self, one: Judged) -> float:
        """The confidence of a verdict if every witness had been asked."""
        return calibrated_by(self.lines, one.family, one.raw, unlogged=one.unlogged)

    def says(self, one: Judged) -> float:
        """The confidence that a verdict states."""
        return min(one.at_most, covered(self.raw(one), one.missing, self.left))


def judged(seeds: range) -> tuple[list[Judged], Counter[str]]:
    """The verdicts on all situations of some seeds, and the number of each kind of error."""
    edges, _ = edge_files.load()
    found, wrong = [], Counter[str]()
    for seed in seeds:
        for case in cases(seed):
            verdict = next(v for v in judge(case.world, Weigher(case.world, edges), raw=True) if v.run.key == "1")
            category, _ = case.situation.truth
            right = _is_right(case.situation, verdict)
            blames = verdict.category.startswith("infra.") and not category.startswith("infra.")
            found.append(
                Judged(
                    len(case.away), verdict.category, verdict.confidence, verdict.at_most, verdict.unwitnessed, right, blames, verdict.unlogged
                )
            )  # fmt: skip
            if not right:
                wrong[f"{case.situation.kind} -> {verdict.category}"] += 1
    return found, wrong


def plain(seeds: range) -> dict[str, list[tuple[float, bool]]]:
    """The cases to fit the lines of logged runs to: situations of sites as they are, with some lines and sources lost."""
    edges, _ = edge_files.load()
    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for seed in seeds:
        situation, where = make(seed)
        verdict = next(v for v in judge(where, Weigher(where, edges), raw=True) if v.run.key == "1")
        found[family_of(verdict.category)].append((verdict.confidence, _is_right(situation, verdict)))
    return found


def _is_right(situation: Situation, verdict: Verdict) -> bool:
    category, host = situation.truth
    return verdict.category == category and (host is None or verdict.root is None or verdict.root.host in (host, None))


def unlogged(learn: Iterable[Judged]) -> dict[str, list[tuple[float, bool]]]:
    """The cases to fit the lines of runs without any log of their nodes to."""
    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for one in learn:
        if one.unlogged and one.at_most >= 1.0:
            found[one.line].append((one.raw, one.right))
    return found


def fitted(learn: Sequence[Judged], pairs: dict[str, list[tuple[float, bool]]]) -> Fit:
    lines: dict[str, Line] = {family: fit(some) for family, some in sorted(pairs.items()) if len(some) >= 100}
    whole = Fit(lines, ())
    sure = (one for one in learn if one.family == "infra" and one.at_most >= 1.0 and whole.raw(one) >= SURE)
    return Fit(lines, fit_left((one.missing, one.right) for one in sure))


def draw(series: Sequence[Sequence[Bin]]) -> str:
    """The diagram as SVG: confidence to the right, share that was right upwards; a dot's area is its number of cases."""
    dots = ""
    for rows, colour in zip(series, COLOURS, strict=False):
        most = max((r.count for r in rows), default=1)
        dots += "".join(
            f'<circle cx="{30 + 250 * r.stated:.1f}" cy="{270 - 250 * r.right:.1f}" r="{3 + 9 * (r.count / most) ** 0.5:.1f}" fill="{colour}" fill-opacity=".65">'
            f"<title>stated {r.stated:.2f}, right {r.right:.2f}, {r.count} cases</title></circle>" for r in rows
        )  # fmt: skip
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 310 310" width="310" height="310" font-family="sans-serif" font-size="11">'
        '<rect width="310" height="310" fill="#fff"/><path d="M30 20V270H280" fill="none" stroke="#555"/>'
        '<path d="M30 270L280 20" stroke="#999" stroke-dasharray="4 4"/>'
        f'{dots}<text x="100" y="298">confidence stated</text><text transform="translate(14 210) rotate(-90)">share that was right</text>'
        '<text x="24" y="284">0</text><text x="272" y="284">1</text><text x="16" y="26">1</text></svg>\n'
    )


def with_answers(
    made: dict[str, list[tuple[float, bool]]], path: Path, before: dict[str, Line]
) -> dict[str, list[tuple[float, bool]]]:
    """Simulated cases and those that operators answered; prints what the answers change."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    reported = answered(standing(rows))
    both = {family: [*made.get(family, ()), *reported.get(family, ())] for family in sorted({*made, *reported})}
    for family, pairs in sorted(reported.items()):
        confirmed = sum(right for _, right in pairs)
        print(
            f"{family}: {len(pairs)} answers of operators, {confirmed} confirmed, beside {len(made.get(family, ()))} made cases"
        )
        if family in before:
            now = fit(both[family])
            moved = [f"{x:.2f}: {along(before[family], x):.3f} -> {along(now, x):.3f}" for x in (0.5, 0.7, 0.85, 0.95)]
            print(f"  raw confidence and what is stated for it, without and with them: {', '.join(moved)}")
    return both


def report(check: Sequence[Judged], found: Fit) -> None:
    """Prints how often verdicts were right, and how far that is from the confidence they stated, by what was collected."""
    before = [(one.raw, one.right) for one in check]
    after = [(found.says(one), one.right) for one in check]
    print(f"{len(check)} verdicts on other seeds: {sum(r for _, r in before) / len(before):.3f} right")
    print(f"expected calibration error: raw {expected_error(before):.3f}, calibrated {expected_error(after):.3f}")
    for count in AWAY:
        ours = [one for one in check if one.away == count]
        infra = [one for one in ours if one.family == "infra"]
        error, of_infra = (expected_error((found.says(one), one.right) for one in some) for some in (ours, infra))
        print(
            f"  {count} sources away: {sum(one.right for one in ours) / len(ours):.3f} right, error {error:.3f}; "
            f"infrastructure {len(infra)}, {sum(one.right for one in infra) / max(1, len(infra)):.3f} right, error {of_infra or 0.0:.3f}, "
            f"blamed for nothing {sum(one.blames for one in ours)}, of these above 0.9 {sum(one.blames and found.says(one) > 0.9 for one in ours)}"
        )
    for missing in sorted({one.missing for one in check if one.family == "infra"}):
        ours = [one for one in check if one.family == "infra" and one.missing == missing and one.at_most >= 1.0]
        if ours:
            stated, right = (sum(values) / len(ours) for values in zip(*((found.says(one), one.right) for one in ours), strict=True))  # fmt: skip
            print(f"  {missing} witnesses missing: stated {stated:.3f}, right {right:.3f}, {len(ours)} verdicts")
    for row in reliability(after):
        print(f"  stated {row.stated:.2f}  right {row.right:.2f}  {row.count:5d} cases")


def new_fit(seeds: int, feedback: Path | None) -> Fit:
    """A fit to so many situations, and to operators' answers."""
    learn, _ = judged(range(seeds))
    pairs = {**plain(range(seeds)), **unlogged(learn)}
    found = fitted(learn, pairs)
    return fitted(learn, with_answers(pairs, feedback, found.lines)) if feedback else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cases", type=int, default=8000, help="situations; each is judged with four sets of sources")
    parser.add_argument("--feedback", type=Path, help="operators' answers, one JSON object a line")
    for name in ("--write", "--draw"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    half = options.cases // 2
    found = Fit(dict(shipped_lines()), factors()) if options.draw else new_fit(half, options.feedback)
    check, wrong = judged(range(1_000_000, 1_000_000 + half))
    report(check, found)
    print("factors for missing witnesses:", ", ".join(map(str, found.left)))
    print("most frequent errors:", ", ".join(f"{name} {n}" for name, n in wrong.most_common(8)))
    if options.write:
        body = "\n".join(
            f"{name} = [{', '.join(f'[{x}, {y}]' for x, y in line)}]" for name, line in found.lines.items()
        )
        answers = " and operators' answers" if options.feedback else ""
        FILE.write_text(
            f"# Made by benchmarks/calibration.py --cases {options.cases} --write{answers}. Do not edit.\n[line]\n{body}\n\n"
            f"[witnesses]\nleft = [{', '.join(map(str, found.left))}]\n",
            encoding="utf-8",
        )
        print(f"wrote {FILE.relative_to(ROOT)}")
    if options.write or options.draw:
        whole = [(found.says(one), one.right) for one in check if not one.away]
        DIAGRAM.write_text(draw([reliability(whole)]), encoding="utf-8")
        by_coverage = [
            reliability((found.says(one), one.right) for one in check if one.away == count) for count in AWAY
        ]
        BY_COVERAGE.write_text(draw(by_coverage), encoding="utf-8")
        print(f"wrote {DIAGRAM.relative_to(ROOT)} and {BY_COVERAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
