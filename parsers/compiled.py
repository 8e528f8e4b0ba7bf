"""Loops over bytes, written in Python and compiled to machine code when they are first called (package ``numba``).

For what has no vectorised form, or one that looks at every byte several times. The machine code is kept beside the source
(or in the user's cache folder, where the source cannot be written to), so that a process pays the compiler, some
seconds, only once per machine; where nothing can be written, once per process.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from numba import config, njit

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _folder() -> Path:
    """Where machine code is kept, under a name that follows from all sources: a function's code has in it that of the
    functions that it calls, and the compiler looks only at its own file. Code of other sources is removed."""
    room = Path(__file__).parent
    sources = hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(room.rglob("*.py"))))
    near = room / "__pycache__"
    kept = (
        near
        if os.access(near if near.exists() else room, os.W_OK)
        else Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"))
    )
    folder = kept.expanduser() / f"faultline-machine-code-{sources.hexdigest()[:16]}"
    if not folder.exists():
        for other in folder.parent.glob("faultline-machine-code-*"):
            shutil.rmtree(other, ignore_errors=True)
    return folder


if not config.CACHE_DIR:  # type: ignore[attr-defined]
    config.CACHE_DIR = str(_folder())  # type: ignore[attr-defined]


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``function`` as machine code. It runs without the interpreter's lock; indices are not checked and must be right.

    It may take and make only numbers and numpy arrays.
    """
    try:
        made: Callable[_P, _R] = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder that can be written to
        made = njit(nogil=True)(function)
    return made


_PART: dict[str, Any] = {"nogil": True, "forceinline": True, "_nrt": False}


def part(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A piece of compiled functions: it becomes part of the machine code of each that calls it.

    References to arrays are not counted in it (that took two thirds of the time), so it may make no arrays of its own.
    """
    made: Callable[_P, _R] = njit(**_PART)(function)
    return made
