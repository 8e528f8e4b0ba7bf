"""Loops over bytes, written in Python and compiled to machine code at the first call (package ``numba``).

For code that has no vectorised form, or only one that reads every byte several times. The machine code is cached beside
the source (or in the user's cache folder if the source folder is read-only), so that compilation, some seconds, happens
once per machine (:func:`once`); if nothing can be written, once per process.

The compiler itself (0.2 s of CPU to import) is loaded with the first call of a compiled function: a command that parses
nothing, and the service's process until data arrives, do without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: Every compiled function.
FUNCTIONS: list[_Compiled] = []
_NOTICE = "faultline: compiling the parsers, once on this machine (about half a minute)\n"
#: madvise's advice for pages that are not needed at the moment (mmap.MADV_DONTNEED does not exist on every system).
_DONTNEED = 4
_done = threading.Event()


def sources() -> str:
    """A name derived from all sources of this package."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _folder(*, checked: bool) -> Path:
    """The cache folder of the machine code, named after all sources: a function's code includes that of the functions
    it calls, but the compiler checks only its own file. Code of other sources is removed. ``checked``: of code that
    checks its indices."""
    room = Path(__file__).parent
    near = room / "__pycache__"
    kept = (
        near
        if os.access(near if near.exists() else room, os.W_OK)
        else Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"))
    )
    name = f"faultline-machine-code-{sources()}"
    folder = kept.expanduser() / (f"{name}-checked" if checked else name)
    if not folder.exists():
        for other in folder.parent.glob("faultline-machine-code-*"):
            if not other.name.startswith(name):
                shutil.rmtree(other, ignore_errors=True)
    return folder


def _compiler() -> Any:
    """The package ``numba``, which caches machine code in our folder unless the environment names another."""
    import numba  # see the module's docstring

    if not numba.config.CACHE_DIR:  # type: ignore[attr-defined]
        checked = bool(numba.config.BOUNDSCHECK)  # type: ignore[attr-defined]
        numba.config.CACHE_DIR = str(_folder(checked=checked))  # type: ignore[attr-defined]
    return numba


def folder() -> Path:
    """Where the machine code is cached."""
    return Path(_compiler().config.CACHE_DIR)


class _Compiled:
    """A function that the compiler takes over at its first call, or at the first call of a function that calls it."""

    def __init__(self, function: Callable[..., Any], *, cache: bool = False, **options: bool) -> None:
        update_wrapper(self, function)
        self._function, self._cache, self._options = function, cache, options

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher(*arguments)

    @cached_property
    def dispatcher(self) -> Any:
        """The compiler's own object for the function."""
        njit = _compiler().njit
        if self._cache:
            with contextlib.suppress(RuntimeError):  # no writable folder
                return njit(cache=True, **self._options)(self._function)
        return njit(**self._options)(self._function)

    @property
    def _numba_type_(self) -> Any:
        """Read by the compiler where compiled code names this object: the function is called without the wrapper."""
        return self.dispatcher._numba_type_


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``function`` as machine code. It runs without the GIL; indices are not checked and must be right. With
    NUMBA_BOUNDSCHECK=1 in the environment, as in ``make fuzz``, a wrong one is an ``IndexError``.

    It may take and return only numbers and numpy arrays.
    """
    made = _Compiled(function, cache=True, nogil=True)
    FUNCTIONS.append(made)
    return cast("Callable[_P, _R]", made)


def once(make: Callable[[], object]) -> None:
    """Calls ``make``, which must call every compiled function, unless their machine code is already cached.

    One process per machine does it; others wait and load the result. If nothing can be cached, ``make`` is not called:
    each function is compiled when it is needed.
    """
    if _done.is_set():
        return
    from llvmlite import binding  # type: ignore[import-untyped]  # with the compiler

    numba = _compiler()
    kept = folder()
    made_for = (
        numba.__version__,
        f"{sys.implementation.cache_tag}-{sys.hexversion:x}",
        binding.get_host_cpu_name(),
        sources(),
    )
    mark = kept / "-".join(("complete", *map(str, made_for)))
    if not mark.exists():
        with contextlib.suppress(OSError):
            kept.mkdir(parents=True, exist_ok=True)
            with _alone(kept):
                if not mark.exists():
                    make()
                    mark.touch()
    _done.set()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Excludes other processes meanwhile; explains the delay if a terminal is attached."""
    with (folder / "lock").open("w") as lock:
        if sys.stderr.isatty():
            sys.stderr.write(_NOTICE)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def release() -> None:
    """Returns the memory of the compiler's own code, some 50 MB, to the system: for a long-lived process whose
    functions are loaded. Pages needed again are reloaded from the compiler's file automatically."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, rights, *_ = line.split(maxsplit=2)
            # Only read-only mappings: writes to anything else would be lost.
            if rights == "r-xp" and Path(line).name.startswith("libllvmlite"):
                begin, end = (int(edge, 16) for edge in place.split("-"))
                advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONTNEED)


_PART: dict[str, bool] = {"nogil": True, "forceinline": True, "_nrt": False}


def part(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Marks a function that is inlined into the machine code of each compiled function that calls it.

    Array references are not counted in it (counting took two thirds of the time), so it may not create arrays.
    """
    return cast("Callable[_P, _R]", _Compiled(function, **_PART))


def seldom(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Like :func:`part`, for rare paths, where a call costs less than inlining into common code."""
    return cast("Callable[_P, _R]", _Compiled(function, **{**_PART, "forceinline": False}))
