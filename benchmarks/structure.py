"""Draws the import graph: a dot per module, a column per level, import cycles in red.

    python benchmarks/structure.py OUT.svg [--root DIR] [--room correlator]

The columns are the levels of the import graph: a module is to the right of everything that it imports. Colours are the
top-level folders, or with ``--room`` the folders of one package. Read from the syntax trees as in ``house.py``; nothing
is run.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from pathlib import Path
from xml.sax.saxutils import escape

sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of this folder, which has files named as the rooms

from benchmarks import house  # noqa: E402

COLUMN, ROW, MARGIN, HEAD = 34, 9, 24, 46
#: Distinguishable by hue and by lightness, on white and on black; red is reserved for cycles.
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00", "#6a51a3", "#888888",
    "#1b4965", "#b5651d", "#7fc97f", "#5f3b52", "#3fd0c9", "#b8a1d9", "#4d4d00", "#c4b000",
)  # fmt: skip
CIRCLE = "#d0021b"


def main() -> None:
    """Writes one picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--room", help="only this folder of the top level")
    args = parser.parse_args()
    root = args.root.resolve()
    trees = {p: ast.parse(p.read_text(encoding="utf-8")) for room in house.ROOMS for p in (root / room).rglob("*.py")}
    graph = house.imports(root, trees)
    if args.room:
        inside = {name for name in graph if name.split(".")[0] == args.room}
        graph = {name: targets & inside for name, targets in graph.items() if name in inside}
    args.out.write_text(drawing(graph, 1 if args.room else 0), encoding="utf-8")


def floors(graph: dict[str, set[str]]) -> tuple[dict[str, int], dict[str, int]]:
    """Module -> its level (0 imports nothing), and module -> the size of its cycle, 1 for none."""
    floor: dict[str, int] = {}
    size: dict[str, int] = {}
    for group in house.components(graph):  # imported modules come first
        below = [floor[target] for name in group for target in graph[name] if target not in group]
        for name in group:
            floor[name] = 1 + max(below, default=-1)
            size[name] = len(group)
    return floor, size


def drawing(graph: dict[str, set[str]], depth: int) -> str:
    """The picture as SVG text. ``depth``: the component of a module's name that gives its colour."""
    floor, size = floors(graph)
    folders = sorted({folder(name, depth) for name in graph})
    colour = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(folders)}
    columns: dict[int, list[str]] = defaultdict(list)
    for name in sorted(graph, key=lambda n: (folder(n, depth), n)):
        columns[floor[name]].append(name)
    at = {
        name: (MARGIN + f * COLUMN, HEAD + row * ROW) for f, names in columns.items() for row, name in enumerate(names)
    }
    width = max(2 * MARGIN + COLUMN * (len(columns) - 1), 560)
    height = HEAD + ROW * max(map(len, columns.values())) + MARGIN
    circles = sum(1 for group in house.components(graph) if len(group) > 1)
    title = f"{len(graph)} modules, {len(columns)} floors, "
    title += f"{circles} circles, the largest of {max(size.values())} files" if circles else "no circle"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif">',
        f"<title>{title}</title>",
        "<desc>A dot a module, a column a floor; lines are imports, red ones stand in a circle of imports.</desc>",
        "<style>text{fill:#222;font-size:10px}.b{fill:#fff}.l{stroke:#999}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.b{fill:#161616}.l{stroke:#777}}</style>",
        f'<rect class="b" width="{width}" height="{height}"/>',
        f'<text x="{MARGIN}" y="16">{title}</text>',
    ]
    for place, name in enumerate(folders):
        x = MARGIN + place * (width - 2 * MARGIN) / len(folders)
        out.append(
            f'<circle cx="{x:.0f}" cy="28" r="3" fill="{colour[name]}"/><text x="{x + 6:.0f}" y="31">{escape(name)}</text>'
        )
    for source in sorted(graph):
        for target in sorted(graph[source]):
            (x, y), (u, v) = at[source], at[target]
            red = size[source] > 1 and floor[source] == floor[target]
            style = f'stroke="{CIRCLE}" stroke-opacity=".7"' if red else 'class="l" stroke-opacity=".13"'
            out.append(f'<path d="M{x} {y}L{u} {v}" fill="none" stroke-width=".6" {style}/>')
    for name, (x, y) in at.items():
        ring = f' stroke="{CIRCLE}" stroke-width="1.5"' if size[name] > 1 else ""
        out.append(
            f'<circle cx="{x}" cy="{y}" r="3" fill="{colour[folder(name, depth)]}"{ring}><title>{name}</title></circle>'
        )
    return "\n".join([*out, "</svg>", ""])


def folder(name: str, depth: int) -> str:
    """The folder that gives a module its colour; files outside any folder have that of the package."""
    parts = name.split(".")
    return parts[depth] if len(parts) > depth + 1 or depth == 0 else parts[0]


if __name__ == "__main__":
    main()
