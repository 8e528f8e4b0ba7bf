"""Machine code is compiled once: by one process, for every input."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numba
import pytest

from parsers import compiled, engine
from parsers.compiled import FUNCTIONS

_SIGNATURES = """
import sys
from parsers import engine
from parsers.compiled import FUNCTIONS
from parsers.record import Origin

engine._use_all()
before = {made.__name__: list(made.dispatcher.signatures) for made in FUNCTIONS}
parser = engine.LineParser()
others = [b"", b"\\n", b"\\xff\\n" * 3, b"\\n" * 300, b"<30>x\\r\\n" * 300, b"[2026-01-15T10:00:01.123] [12.batch] done\\n" * 200]
for data in (*others, "é: NVRM: Xid\\n".encode() * 200, b"Jan 15 10:00:01 a b[1]: c\\n" * 2):
    for source in (None, "slurmctld", "job_stdout"):
        parser.parse_data(data, Origin(source=source))
        parser.parse(data.split(b"\\n"), Origin(source=source))
engine.LineParser(header_entities=True).parse([b"Jan 15 10:00:01 a b[1]: c"], Origin())
for made in FUNCTIONS:
    print(made.__name__, len(before[made.__name__]), len(made.dispatcher.signatures))
"""


@pytest.mark.long
def test_the_samples_need_every_function_and_no_other_line_needs_more() -> None:
    """Otherwise a process would compile when it is to parse: seconds, for the work of a fraction of a line."""
    done = subprocess.run(
        [sys.executable, "-c", _SIGNATURES], cwd=Path(engine.__file__).parents[1], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    reported = [line.split() for line in done.stdout.splitlines()]
    # Only this process's: other tests may have loaded receivers with machine code of their own.
    ours = [made for made in FUNCTIONS if made.__module__.startswith("parsers.")]
    assert len(reported) == len(ours) > 5
    assert [name for name, before, after in reported if not 0 < int(before) == int(after)] == []


def test_of_many_that_want_it_one_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "code"))
    monkeypatch.setattr(compiled, "_done", threading.Event())
    made: list[int] = []
    inside = threading.Event()

    def make() -> None:
        inside.wait(0.2)  # long enough for the others to reach the lock
        made.append(1)

    wanting = [threading.Thread(target=compiled.once, args=(make,)) for _ in range(4)]
    for thread in wanting:
        thread.start()
    for thread in wanting:
        thread.join()
    assert made == [1]
    monkeypatch.setattr(compiled, "_done", threading.Event())  # another process, later
    compiled.once(make)
    assert made == [1]


def test_where_nothing_can_be_kept_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file" / "code"))
    monkeypatch.setattr(compiled, "_done", threading.Event())
    made: list[int] = []
    compiled.once(lambda: made.append(1))
    assert made == [], "there is no folder to keep it in"


def test_what_fails_is_made_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "_done", threading.Event())

    def fails() -> None:
        raise ValueError("the compiler said no")

    with pytest.raises(ValueError, match="the compiler said no"):
        compiled.once(fails)
    made: list[int] = []
    compiled.once(lambda: made.append(1))
    assert made == [1]


_WRONG = """
import numpy as np
from parsers import compiled

@compiled.part
def behind(data, place):
    return data[np.uint64(place)]

def last(data):
    return behind(data, len(data))

try:
    compiled._Compiled(last, nogil=True)(np.zeros(3, np.int64))
except IndexError:
    print("found", compiled.folder().name)
"""


def test_a_wrong_index_is_found_where_indices_are_checked() -> None:
    """In every other process compiled code reads what lies there."""
    done = subprocess.run(
        [sys.executable, "-c", _WRONG], cwd=Path(engine.__file__).parents[1], capture_output=True, text=True,
        env={**{name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}, "NUMBA_BOUNDSCHECK": "1"},
    )  # fmt: skip
    assert done.stdout.split() == ["found", f"faultline-machine-code-{compiled.sources()}-checked"], done.stderr[
        -2_000:
    ]


def test_code_of_the_same_sources_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    plain = compiled._folder(checked=False)
    old = plain.with_name("faultline-machine-code-0123")
    for folder in (plain, old):
        folder.mkdir(parents=True)
    assert compiled._folder(checked=True) != plain
    assert plain.exists() and not old.exists()
