"""Loops over bytes, written in Python and compiled to machine code when they are first called (package ``numba``).

For what has no vectorised form, or one that looks at every byte several times. The machine code is kept beside the source
(or in the user's cache folder, where the source cannot be written to), so that a process pays the compiler, a second or
so, only once per machine; where nothing can be written, once per process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from numba import njit

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``function`` as machine code. It runs without the interpreter's lock; indices are not checked and must be right.

    It may take and make only numbers and numpy arrays.
    """
    try:
        made: Callable[_P, _R] = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder that can be written to
        made = njit(nogil=True)(function)
    return made
