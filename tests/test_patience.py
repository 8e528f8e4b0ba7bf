"""The rule of docs/testing.md about waiting: a limit is two minutes or more, because it only ends a run that has failed.

What is looked for: a number below 120 as ``timeout`` of a call, as the time that a test waits for a thread, a process, an
event or a future, or as what is added to or compared with a clock. A look that repeats (``while not over.wait(0.2)``) is a
pace and no limit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax_trees import tree_of

TESTS = Path(__file__).parent
LEAST_S = 120
CLOCKS = ("monotonic", "perf_counter", "thread_time", "process_time")
#: A file with a limit in any form has one of these: most files need not be parsed.
SIGNS = re.compile(
    rf"\b(?:{'|'.join(CLOCKS)}|timeout|wait_for|create_connection)\b|patience|def until|\.(?:wait|join|result)\([\dA-Z]"
)
WAITS = ("wait", "join", "result")

#: Shorter on purpose: the file, the text of the call or comparison, and why no slow machine turns it red.
SHORTER = {
    # A time that is over is not a failure: the sender tries again, as the test wants it to.
    ("test_kill.py", "http.client.HTTPConnection('127.0.0.1', self.service.http, timeout=20)"),
    ("test_service_exhausted.py", "http.client.HTTPConnection('127.0.0.1', self.service.http, timeout=30)"),
    ("test_agent_loop.py", "Connection(url, lambda: 't', timeout=5.0, **{k: str(tmp_path / v) for k, v in files.items()})"),
    ("test_agent_delivery.py", "Connection(server.url, lambda: token, timeout=5.0)"),
    ("test_kill.py", "socket.create_connection(('127.0.0.1', self.port), 5)"),
    ("test_kill.py", "socket.create_connection(('127.0.0.1', self.service.ports['tcp']), 5)"),
    ("test_real_clients.py", "socket.create_connection(('127.0.0.1', port), 5)"),
    ("test_storm.py", "socket.create_connection(('127.0.0.1', port), 5)"),
    # How long something is done: a slow machine does less of it.
    ("test_service_exhausted.py", "time.monotonic() + 5.0"),
    ("test_service_exhausted.py", "time.monotonic() + 10.0"),
    ("test_agent_hardship.py", "time.monotonic() - begun < 3"),
    # The end of a process or a thread that has done its work. It is killed then, or ends with the tests.
    ("test_kill.py", "self.process.wait(10)"),
    ("test_real_clients.py", "process.wait(10)"),
    ("serving.py", "thread.join(10)"),
    ("provider.py", "thread.join(10)"),
    # Time that others get to come to a lock. Where they do not, the test shows less, and passes.
    ("test_compiled.py", "inside.wait(0.2)"),
    # CPU time of this thread, at least ten times what it takes, against work that grows with the square.
    ("test_few_rows.py", "time.thread_time() - began < 5"),
    ("test_hooks_artifacts.py", "time.thread_time() - begin < 10"),
}  # fmt: skip


def is_clock(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS


def number_of(node: ast.expr, names: dict[str, float]) -> float | None:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    return None


def numbers_named(tree: ast.Module) -> dict[str, float]:
    found: dict[str, float] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = number_of(node.value, {})
            if value is not None:
                found[node.targets[0].id] = value
    return found


def limits_of(call: ast.Call) -> Iterator[ast.expr]:
    yield from (word.value for word in call.keywords if word.arg in ("timeout", "patience_s"))
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    # ``host.wait`` turns the clock of a made host; nobody waits.
    if name in WAITS and call.args and ast.unparse(call.func) != "host.wait":
        yield call.args[0]
    if name == "wait_for" and len(call.args) > 1:
        yield call.args[1]
    if ast.unparse(call.func) == "until" and call.args:
        yield call.args[0]
    if name == "create_connection" and len(call.args) > 1:
        yield call.args[1]


def short_limits(tree: ast.Module) -> Iterator[tuple[int, str]]:
    names = numbers_named(tree)
    nodes = list(ast.walk(tree))
    paces = {id(call) for loop in nodes if isinstance(loop, ast.While) for call in ast.walk(loop.test)}
    for node in nodes:
        limits: list[ast.expr] = []
        if isinstance(node, ast.Call) and id(node) not in paces:
            limits = list(limits_of(node))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and is_clock(node.left):
            limits = [node.right]
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Sub):
            if is_clock(node.left.left) and isinstance(node.ops[0], ast.Lt | ast.LtE):
                limits = node.comparators
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.args[len(node.args.args) - len(node.args.defaults) :], *node.args.kwonlyargs]
            values = [*node.args.defaults, *node.args.kw_defaults]
            limits = [
                value for argument, value in zip(given, values, strict=True)
                if value is not None and argument.arg in ("timeout", "timeout_s", "patience_s", "patience", "seconds")
                and any(word in node.name for word in ("until", "wait", "request", "start"))
            ]  # fmt: skip
        for limit in limits:
            seconds = number_of(limit, names)
            if seconds is not None and seconds < LEAST_S:
                yield node.lineno, f"def {node.name}" if isinstance(node, ast.FunctionDef) else ast.unparse(node)


def test_no_limit_is_shorter_than_two_minutes() -> None:
    """Tests of a live Slurm cluster (tests/cluster) wait for Slurm's own timeouts and are left out."""
    used: set[tuple[str, str]] = set()
    wrong = []
    for path in sorted(TESTS.rglob("*.py")):
        place = path.relative_to(TESTS)
        if place.parts[0] in ("captures", "cluster") or not SIGNS.search(path.read_text("utf-8")):
            continue
        for line, code in short_limits(tree_of(path)):
            known = (path.name, code)
            used |= {known} & SHORTER
            if known not in SHORTER:
                wrong.append(f"{place}:{line}: {code[:120]}")
    assert not wrong
    assert not SHORTER - used, "listed, and in no test any more"


@pytest.mark.parametrize(
    "code",
    [
        "subprocess.run(command, timeout=60)",
        "asyncio.wait(halves, timeout=1)",
        "asyncio.wait_for(reader.read(), 60)",
        "thread.join(30)",
        "until = time.monotonic() + 60",
        "assert time.monotonic() - began < 60",
        "P = 60\nuntil = time.monotonic() + P",
        "def until(true, patience_s=60.0): pass",
    ],
)
def test_a_short_limit_is_seen_in_each_form(code: str) -> None:
    assert len(list(short_limits(ast.parse(code)))) == 1
    assert not list(short_limits(ast.parse(code.replace("60", "120").replace("30", "120").replace("=1)", "=120)"))))


@pytest.mark.parametrize("code", ["while not over.wait(0.2): pass", "host.wait(61)", "' '.join(x)"])
def test_a_pace_and_a_made_clock_are_no_limits(code: str) -> None:
    assert not list(short_limits(ast.parse(code)))
