"""A catalogue that follows its site's files: a pattern added to ``patterns.d`` is used without a restart.

New files replace the old catalogue as a whole, and only if they have no problem: a half-written file or a pattern whose
example does not match changes nothing, and :attr:`WatchedCatalogue.problems` gives the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from parsers.patterns import Catalogue, Problem, load

#: The shortest interval between checks of the files, in seconds: a stat of a few files costs nothing, a thousand a
#: second would.
LOOK_S = 2.0
_Signature = tuple[tuple[str, int, int, int], ...]


class WatchedCatalogue:
    """The current catalogue of the built-in patterns and ``paths`` (files, or folders of ``*.toml``).

    At first, valid entries are used even if others are not: a service must start.
    """

    def __init__(self, paths: Sequence[Path], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = tuple(paths)
        self._clock = clock
        self._seen = self._signature()
        self._looked = clock()
        # Without files to follow it is loaded on first use: a service that only watches files never needs it, and it is
        # a third of a second of regular expressions.
        self._catalogue: Catalogue | None = load(self._paths) if self._paths else None
        #: Problems of the current files; while there are any, older files are in use.
        self.problems: list[Problem] = self.catalogue.check() if self._paths else []

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue in use."""
        if self._catalogue is None:
            self._catalogue = load()
        return self._catalogue

    def refresh(self) -> bool:
        """Whether :attr:`catalogue` has changed. Cheap to call before every batch."""
        if not self._paths or self._clock() - self._looked < LOOK_S:
            return False
        self._looked = self._clock()
        seen = self._signature()
        if seen == self._seen:
            return False
        self._seen = seen
        found = load(self._paths)
        self.problems = found.check()
        if self.problems:
            return False
        self._catalogue = found
        return True

    def _signature(self) -> _Signature:
        """A value that changes when a file is written, replaced, added or removed."""
        found = []
        for path in self._paths:
            for file in [path, *sorted(path.glob("*.toml"))] if path.is_dir() else [path]:
                try:
                    known = file.stat()
                except OSError:
                    continue
                found.append((str(file), known.st_mtime_ns, known.st_size, known.st_ino))
        return tuple(found)
