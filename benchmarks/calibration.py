"""Fits and checks the confidence of verdicts on situations with known causes.

    python benchmarks/calibration.py [--cases 4000] [--feedback answers.ndjson] [--write]

Half of the seeds are for fitting, the other half for the printed reliability. ``--write`` replaces
``correlator/evidence/calibration.toml`` and the diagram of docs/correlation.md. ``--feedback`` counts operators'
answers as cases to fit as well (``GET /api/v1/feedback?format=ndjson``), and prints their number and effect.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.simulators.situations import make
from correlator.edges import load as edge_files
from correlator.evidence.calibration import (
    FILE,
    Bin,
    Line,
    along,
    answered,
    expected_error,
    family_of,
    fit,
    reliability,
)
from correlator.evidence.weigh import Weigher
from correlator.learning.feedback import standing
from correlator.verdicts.judge import judge

ROOT = Path(__file__).resolve().parent.parent
DIAGRAM = ROOT / "docs" / "reliability.svg"


def cases(seeds: range) -> tuple[list[tuple[str, float, bool]], Counter[str]]:
    """(category, raw confidence, right) per situation, and the number of each kind of error."""
    edges, _ = edge_files.load()
    found, wrong = [], Counter[str]()
    for seed in seeds:
        situation, where = make(seed)
        verdict = next(v for v in judge(where, Weigher(where, edges), raw=True) if v.run.key == "1")
        category, host = situation.truth
        right = verdict.category == category and (host is None or verdict.root is None or verdict.root.host == host)
        found.append((verdict.category, verdict.confidence, right))
        if not right:
            wrong[f"{situation.kind} -> {verdict.category}"] += 1
    return found, wrong


def draw(rows: list[Bin]) -> str:
    """The diagram as SVG: confidence to the right, share that was right upwards; a dot's area is its number of cases."""
    most = max((r.count for r in rows), default=1)
    dots = "".join(
        f'<circle cx="{30 + 250 * r.stated:.1f}" cy="{270 - 250 * r.right:.1f}" r="{3 + 9 * (r.count / most) ** 0.5:.1f}" fill="#3b82f6" fill-opacity=".65">'
        f"<title>said {r.stated:.2f}, right {r.right:.2f}, {r.count} cases</title></circle>" for r in rows
    )  # fmt: skip
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 310 310" width="310" height="310" font-family="sans-serif" font-size="11">'
        '<rect width="310" height="310" fill="#fff"/><path d="M30 20V270H280" fill="none" stroke="#555"/>'
        '<path d="M30 270L280 20" stroke="#999" stroke-dasharray="4 4"/>'
        f'{dots}<text x="100" y="298">confidence said</text><text transform="translate(14 210) rotate(-90)">share that was right</text>'
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
            print(f"  raw confidence and what is said for it, without and with them: {', '.join(moved)}")
    return both


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--feedback", type=Path, help="operators' answers, one JSON object a line")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    half = options.cases // 2
    learn, _ = cases(range(half))
    by_family: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for category, raw, right in learn:
        by_family[family_of(category)].append((raw, right))
    lines: dict[str, Line] = {family: fit(pairs) for family, pairs in sorted(by_family.items()) if len(pairs) >= 100}
    if options.feedback:
        both = with_answers(by_family, options.feedback, lines)
        lines = {family: fit(pairs) for family, pairs in both.items() if len(pairs) >= 100}
    check, wrong = cases(range(1_000_000, 1_000_000 + half))
    before = [(raw, right) for _, raw, right in check]
    after = [(along(lines[f], raw) if (f := family_of(c)) in lines else raw, right) for c, raw, right in check]
    print(f"{len(check)} situations of other seeds: {sum(r for _, r in before) / len(before):.3f} right")
    print(f"expected calibration error: raw {expected_error(before):.3f}, calibrated {expected_error(after):.3f}")
    for row in reliability(after):
        print(f"  said {row.stated:.2f}  right {row.right:.2f}  {row.count:5d} cases")
    print("most frequent errors:", ", ".join(f"{name} {n}" for name, n in wrong.most_common(8)))
    if options.write:
        body = "\n".join(f"{name} = [{', '.join(f'[{x}, {y}]' for x, y in line)}]" for name, line in lines.items())
        answers = " and operators' answers" if options.feedback else ""
        FILE.write_text(
            f"# Made by benchmarks/calibration.py --cases {options.cases} --write{answers}. Do not edit.\n[line]\n{body}\n",
            encoding="utf-8",
        )
        DIAGRAM.write_text(draw(reliability(after)), encoding="utf-8")
        print(f"wrote {FILE.relative_to(ROOT)} and {DIAGRAM.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
