"""The shape of the code in figures: size, import cycles, long files and functions, spread of a kind of fact, SQL texts, dead names.

    python benchmarks/house.py                  this checkout
    python benchmarks/house.py --root DIR       another one, such as a worktree of an earlier commit
    python benchmarks/house.py --beside DIR     DIR in a first column, this one in a second
    ... --beside DIR --markdown                 as a table of docs/measurements.md

Everything is read from the syntax trees; nothing of the project is imported or run. Dead names need vulture
(``pip install -e '.[dev]'``), and what a person read of its report (``dead_names.toml``).
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(
        Path(__file__).resolve().parents[1]
    )  # in place of this folder, which has files named as the rooms

from benchmarks import dead_names, replaced_code

ROOMS = ("parsers", "store", "collector", "correlator", "queries", "web", "faultline")
#: Longer than this, a function is usually two things.
LONG_FUNCTION = 60
#: The beginning of a text that an SQL engine is to run.
_SQL = re.compile(
    r"\s*(?:WITH\s+\w+\s+AS\b|SELECT\s|INSERT\s+(?:OR\s+\w+\s+)?INTO\s|UPDATE\s+\w|DELETE\s+FROM\s"
    r"|CREATE\s+(?:OR\s+REPLACE\s+|TEMP\s+)*(?:TABLE|VIEW|MACRO|INDEX|SCHEMA|SEQUENCE)\s|DROP\s+(?:TABLE|VIEW)\s"
    r"|ALTER\s+TABLE\s|ATTACH\s|COPY\s|CHECKPOINT\b|PRAGMA\s)"
)
#: The form of a kind of fact: `Kind("gpu.xid", ...)` in its declaration (`Fact("gpu.xid", ...)` in earlier detectors),
#: `cause = ["gpu.xid"]` in an edge.
_KIND = re.compile(r"^[a-z_]+\.[a-z_]+$")


def main() -> None:
    """Prints the figures of one checkout, or of two beside each other, one a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--beside", type=Path, metavar="DIR", help="an earlier checkout, for the first column")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    root = args.root.resolve()
    trees = trees_of(root)
    columns = [figures(root, trees) + replaced_code.now(root, trees)]
    if args.beside:
        other = args.beside.resolve()
        columns.insert(0, figures(other, trees_of(other)) + replaced_code.before(other))
    rows = [(name, *(str(column[place][1]) for column in columns)) for place, (name, _) in enumerate(columns[0])]
    if args.markdown:
        print("| |" + " before | now |" * (len(columns) - 1) + " |" * (2 - len(columns)))
        print("|---" * (len(columns) + 1) + "|")
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
        return
    width = max(len(row[1]) for row in rows) + 2
    for name, *values in rows:
        print(f"{name:<62} {''.join(f'{value:<{width}}' for value in values)}".rstrip())


def trees_of(root: Path) -> dict[Path, ast.Module]:
    """The syntax trees of the product's files."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8")) for room in ROOMS for path in (root / room).rglob("*.py")
    }
    if not trees:
        sys.exit(f"{root}: no room of Faultline here; give the root of a checkout")
    return trees


def figures(root: Path, trees: dict[Path, ast.Module]) -> list[tuple[str, object]]:
    """The figures in the order of the output."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    largest = max(lines, key=lambda path: lines[path])
    kinds = spread(root, trees)
    widest = sorted(kinds.items(), key=lambda item: -len(item[1]))[:3]
    sql = {path: count for path, tree in trees.items() if (count := sql_texts(tree))}
    outside = {p: n for p, n in sql.items() if p.relative_to(root).parts[:1] != ("store",) and "kql" not in p.parts}
    unused = dead_names.dead(root, (*ROOMS, "docs"))
    return [
        ("files (Python, of the product)", len(trees)),
        ("lines (Python, of the product)", sum(lines.values())),
        ("lines of a file, mean", f"{sum(lines.values()) / len(trees):.0f}"),
        ("largest file", f"{largest.relative_to(root)} ({lines[largest]})"),
        (f"functions above {LONG_FUNCTION} lines", len(long_functions(trees))),
        *shape_of_imports(root, trees),
        ("files flat in correlator/", len(list((root / "correlator").glob("*.py")))),
        ("kinds of facts", len(kinds)),
        ("files that write a kind's name, mean", f"{sum(map(len, kinds.values())) / max(len(kinds), 1):.1f}"),
        ("kinds written in most files", ", ".join(f"{kind} {len(files)}" for kind, files in widest)),
        ("SQL texts outside store/ and queries/kql/", f"{sum(outside.values())} in {len(outside)} files"),
        ("files outside store/ and queries/kql/ that import duckdb", importers(root, trees, "duckdb")),
        (
            "dead names (vulture, read by a person), or of tests only",
            "vulture is not installed" if unused is None else len(unused),
        ),
    ]


def shape_of_imports(root: Path, trees: dict[Path, ast.Module]) -> list[tuple[str, object]]:
    """Cycles and floors. A cycle hides floors, so there are three figures: it counts as one; as many as it has files,
    which no order of its files exceeds; and without the imports that a module does not need to be loaded."""
    graph = imports(root, trees)
    cycles = [group for group in components(graph) if len(group) > 1]
    return [
        ("imports between files, per file", f"{sum(map(len, graph.values())) / len(graph):.1f}"),
        ("import cycles, TYPE_CHECKING and function-local included", len(cycles)),
        ("files in the largest of them", max(map(len, cycles), default=0)),
        ("floors of the longest import path, a cycle as one", floors(graph)),
        ("the same, a cycle as all its files (no order has more)", floors(graph, opened=True)),
        ("the same, of the imports that run when a module is loaded", floors(imports(root, trees, loading=True))),
    ]


def long_functions(trees: dict[Path, ast.Module]) -> list[str]:
    """Names of functions longer than :data:`LONG_FUNCTION` lines."""
    return [
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or node.lineno) - node.lineno + 1 > LONG_FUNCTION
    ]


def statements(tree: ast.AST, *, loading: bool = False) -> Iterator[ast.AST]:
    """All statements under a node, in functions and classes too; expressions, which hold none, are not visited.

    ``loading``: only those that run when the module is loaded, so none in functions or for type checkers.
    """
    todo = [tree]
    while todo:
        node = todo.pop()
        if loading and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if loading and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, block, ())
            todo += inner if isinstance(inner, list) else ()  # a conditional expression's are no lists
        if isinstance(node, ast.stmt):
            yield node


def imports(root: Path, trees: dict[Path, ast.Module], *, loading: bool = False) -> dict[str, set[str]]:
    """Module -> modules of ours that it imports anywhere in its text, or ``loading``: when it is loaded."""
    names = {module_name(root, path): path for path in trees}
    graph: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for node in statements(trees[path], loading=loading):
            wanted: list[str] = []
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                # `from correlator import edges` is an import of the module, if there is one of that name.
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    wanted.append(full if full in names else node.module)
            graph[name].update(target for target in wanted if target in names and target != name)
    return graph


def module_name(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def components(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components (Tarjan); importing components come after the imported ones."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    sys.setrecursionlimit(10_000)

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            group = []
            while True:
                group.append(stack.pop())
                if group[-1] == name:
                    break
            found.append(group)

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def floors(graph: dict[str, set[str]], *, opened: bool = False) -> int:
    """The number of modules in the longest import path; a cycle counts as one, or ``opened``: as all its files."""
    groups = components(graph)
    of = {name: number for number, group in enumerate(groups) for name in group}

    @cache
    def height(number: int) -> int:
        below = {of[target] for name in groups[number] for target in graph[name]} - {number}
        return (len(groups[number]) if opened else 1) + max(map(height, below), default=0)

    return max(map(height, range(len(groups))), default=0)


def spread(root: Path, trees: dict[Path, ast.Module]) -> dict[str, set[str]]:
    """Kind of fact -> files (Python and TOML of the correlator, and any Python) in which its name is written."""
    kinds = {
        node.args[0].value
        for path, tree in trees.items()
        if "correlator" in path.relative_to(root).parts
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Fact", "Kind")
        and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
        and _KIND.match(node.args[0].value)
    }  # fmt: skip
    files: defaultdict[str, set[str]] = defaultdict(set)
    texts = [*trees, *(root / "correlator").rglob("*.toml")]
    for path in texts:
        text = path.read_text(encoding="utf-8")
        for kind in kinds:
            if f'"{kind}"' in text or f"'{kind}'" in text:
                files[kind].add(str(path.relative_to(root)))
    return dict(files)


def sql_texts(tree: ast.Module) -> int:
    """Texts in a module that an SQL engine is to run; an f-string is one text."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            first = node.values[0] if node.values else None
            text = first.value if isinstance(first, ast.Constant) else ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        count += bool(_SQL.match(str(text)))
    return count


def importers(root: Path, trees: dict[Path, ast.Module], library: str) -> int:
    """Files outside the store and the KQL engine that import ``library``."""
    return sum(
        any(
            (isinstance(node, ast.Import) and any(a.name.split(".")[0] == library for a in node.names))
            or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == library)
            for node in ast.walk(tree)
        )
        for path, tree in trees.items()
        if path.relative_to(root).parts[0] != "store" and "kql" not in path.relative_to(root).parts
    )


if __name__ == "__main__":
    main()
