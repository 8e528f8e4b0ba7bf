"""How often Python's garbage collector runs while a command loads its modules.

Loading makes some hundred thousand objects that all stay; searching them for garbage again and again is a seventh of
the CPU time of a start.
"""

from __future__ import annotations

import gc

_DEFAULT = gc.get_threshold()
#: New objects between two collections while modules are loaded.
_WHILE_LOADING = 20_000


def seldom() -> None:
    """For commands, which load modules throughout and end soon."""
    gc.set_threshold(_WHILE_LOADING, *_DEFAULT[1:])


def as_by_default() -> None:
    """For a service that has started: garbage of its requests is freed as early as in any Python program."""
    gc.set_threshold(*_DEFAULT)
