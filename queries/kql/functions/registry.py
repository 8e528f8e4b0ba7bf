"""All functions by name: those of Faultline and those that installed packages declare.

Both go through one function, :func:`_admit`. A package's functions are entry points of the group
``faultline.kql_functions``, each a :class:`declaration.Function` or a tuple of them (docs/extending.md shows one). A
package cannot take an existing name, in whatever case; what does not load is left out and named in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType

from parsers import extensions
from queries.kql.functions import (
    aggregates,
    arrays,
    bags,
    conversions,
    dynamic,
    encoding,
    geo,
    hostlists,
    ip,
    key_values,
    logic,
    numbers,
    parsing,
    percentiles,
    query,
    rows,
    series,
    slurm_states,
    statistics,
    text,
    text_search,
    time,
    units,
)
from queries.kql.functions.declaration import Body, Function, Kind

GROUP = "faultline.kql_functions"
SUBJECTS: tuple[ModuleType, ...] = (
    text, text_search, numbers, logic, time, conversions, dynamic, bags, arrays, series, statistics, units, ip, hostlists, slurm_states,
    geo, encoding, parsing, key_values, query, rows, aggregates, percentiles,
)  # fmt: skip


@dataclass(frozen=True)
class Registry:
    """Functions by name. One name can be an aggregate and a function of another kind; the context of the call decides."""

    functions: dict[str, Function] = field(default_factory=dict)  # scalar, of rows, and internal ones
    aggregates: dict[str, Function] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    site: dict[str, Function] = field(default_factory=dict)  # those of installed packages

    def name_of(self, name: str) -> str:
        """The canonical name of a function."""
        return self.aliases.get(name, name)

    def callable(self) -> dict[str, Function]:
        """The functions that a query can call outside of summarize."""
        return {name: function for name, function in self.functions.items() if not function.internal}

    def names(self, kind: Kind) -> list[str]:
        """The names of one kind that a query can call, without aliases."""
        found = self.aggregates if kind is Kind.AGGREGATE else self.callable()
        return [name for name, function in found.items() if function.kind is kind]


@cache
def registry() -> Registry:
    """All functions; found once, because listing what is installed reads files."""
    made = Registry()
    for module in SUBJECTS:
        _admit(made, module.FUNCTIONS)

    def admit(offered: object, extension: extensions.Extension) -> None:
        found = _functions_in(offered)
        _admit(made, found)
        extensions.claim(extension, (n.casefold() for one in found for n in (one.name, *one.aliases)), ())
        made.site.update({function.name: function for function in found})

    extensions.load(GROUP, admit)
    return made


def _functions_in(found: object) -> tuple[Function, ...]:
    """The functions of an entry point. Raises ``TypeError``."""
    several = found if isinstance(found, (tuple, list)) else (found,)
    for one in several:
        if not isinstance(one, Function):
            raise TypeError(f"{one!r} is no queries.kql.functions.declaration.Function")
    return tuple(several)


def _has_body(function: Function) -> bool:
    return any(isinstance(overload, Body) for overload in function.overloads)


def _admit(into: Registry, functions: Iterable[Function]) -> None:
    """Adds all of these or none. Raises ``ValueError`` if a name is taken; SQL ignores case."""
    functions = tuple(functions)
    taken = {name.casefold() for name in (*into.functions, *into.aliases)}
    taken_aggregates = {name.casefold() for name in (*into.aggregates, *into.aliases)}
    with_body = (f for f in (*into.functions.values(), *into.aggregates.values()) if _has_body(f))
    bodies = {function.name.casefold(): function.kind for function in with_body}
    for function in functions:
        there = taken_aggregates if function.kind is Kind.AGGREGATE else taken
        for name in (function.name, *function.aliases):
            if name.casefold() in there:
                owner = extensions.brought_by(GROUP, name.casefold())
                raise ValueError(f"the name '{name}' is taken" + (f" by {owner}" if owner else ""))
            there.add(name.casefold())
        if _has_body(function) and bodies.setdefault(function.name.casefold(), function.kind) is not function.kind:
            raise ValueError(f"the name '{function.name}' is taken: SQL calls the bodies of both by one name")
    for function in functions:
        of_kind = into.aggregates if function.kind is Kind.AGGREGATE else into.functions
        of_kind[function.name] = function
        into.aliases.update(dict.fromkeys(function.aliases, function.name))
