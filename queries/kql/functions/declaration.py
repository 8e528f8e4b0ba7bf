"""How a function of the language is declared: once, with everything that is known about it.

A function's value comes from one of three things: a :class:`Template` of SQL, a :class:`Body` in Python, or ``bind``, a
function that binds the call itself if the SQL depends on the arguments. The first two come with the kinds of their
arguments, one for each overload; the first that fits is used.

**Kinds of arguments**, one letter each, separated by blanks: ``s`` string, ``S`` any type as text, ``z`` string and
nothing else, ``x`` a regular expression, ``l`` long, ``n`` number, ``r`` real, ``i`` int, ``m`` decimal, ``b`` bool,
``t`` datetime, ``p`` timespan, ``g`` guid, ``d`` dynamic, ``D`` any type as dynamic, ``h`` the input of hash(), ``a``
any type unchanged, ``o`` any type that has an order, so neither dynamic nor guid, ``_`` anything, which is not used. ``k?`` may be
missing, ``k*`` repeats. Only in aggregates: ``c`` a condition.

**Aggregates** (``kind=Kind.AGGREGATE``): the SQL of a template aggregates, ``max({0}) - min({0})``; a body is called once
for each group, and each argument is the list of the group's values: a null is None, any other value as in a body of a
scalar function, except that dynamics are always Python values. It has at least one argument. Either may give null, but
for a template that is ``never_null``. SQL that depends on more than the types of the arguments is made by ``bind``.

**Functions of rows** (``kind=Kind.ROW``): a template says over which rows it goes, and ``{order}`` is their order:
``avg({0}) OVER (ORDER BY {order} ROWS 4 PRECEDING)``. A body is called once for each row, and each argument is the list of
the values of all rows up to this one, as in an aggregate; it has at least one argument. So its cost grows with the
square of the rows.

**Their forms with a condition**: a template says ``{if}`` where the rows are chosen, right behind the call that
aggregates: ``max({0}){if} - min({0}){if}``. :func:`conditional` makes ``maxif`` of ``max``, which takes the condition
behind the arguments that must be there, and ``evaluate pivot`` can then use ``max``. In ``max`` itself, ``{if}`` is nothing.

**Result**: a KQL type, or ``0`` for the type of the first argument. ``!`` after the type of a template: it may be null
although no argument is.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.stages import Scope
from queries.kql.values import Value

Bind = Callable[[Binder, ast.Call, Scope], Value]
_NAME = re.compile(r"[A-Za-z_]\w*")
_HOLE = re.compile(r"\{(\d+)\}")
_ARGUMENT = re.compile(r"(?:c|[sSzxlnrimbtpgdDhao_][?*]?)")
_IF = "{if}"
ORDER = "{order}"
_RESULTS = frozenset(
    {"0", "bool", "int", "long", "real", "decimal", "string", "datetime", "timespan", "guid", "dynamic"}
)
_CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")


class Cost(enum.Enum):
    """What a call may cost, by which the wall around queries decides where a statement runs."""

    LINEAR = "linear"  #: proportional to the arguments in time and answer: may run beside the store
    #: Bounded if the rows are few, for instance because all values of a group are handled in one call, which nothing
    #: interrupts: may run beside the store on few rows.
    FEW_ROWS = "few rows"
    WALL = "wall"  #: anything else: in its own process, which is killed at its limits


LINEAR = Cost.LINEAR


class Kind(enum.Enum):
    """Where a function can be called."""

    SCALAR = "scalar"  #: wherever a value is allowed
    AGGREGATE = "aggregate"  #: of the rows of a group: in summarize and similar
    ROW = "row"  #: of a row among the rows in their order: in extend and project


@dataclass(frozen=True, slots=True)
class Template:
    """An overload that SQL can express, in the spelling of ``engines/spelling.py``: ``lower({0})``.

    The arguments are in the holes ``{0}``, ``{1}``, ... and ``{*}``. What an engine spells differently is a word of its
    table (``queries/kql/engines/``); what its table lacks, it refuses by name.
    """

    arguments: str
    result: str
    sql: str
    never_null: bool = False  #: whatever the arguments, and over no rows


@dataclass(frozen=True, slots=True)
class Body:
    """An overload whose body is Python. DuckDB calls it; engines that cannot refuse it by name.

    Dynamics arrive as Python values and leave as them; timespans are ticks of 100 ns, datetimes naive in UTC. A null
    argument gives null and the body is not called, unless ``nulls`` is set. ``parts`` are the names and types of the
    values of a function that gives several, as an array. ``volatile``: the same arguments may give another answer.
    """

    arguments: str
    result: str
    run: Callable[..., Any]
    nulls: bool = False
    parts: tuple[tuple[str, str], ...] = ()
    volatile: bool = False


class Function:
    """One function: its name, what it does in a sentence, its overloads, its cost."""

    def __init__(
        self,
        name: str,
        doc: str,
        *overloads: Template | Body,
        bind: Bind | None = None,
        cost: Cost = Cost.WALL,
        kind: Kind = Kind.SCALAR,
        aliases: tuple[str, ...] = (),
        internal: bool = False,
        keeps_name: bool = False,
        wrong_number: str = "does not take {0} arguments",
        wrong_type: str = "does not take {0} for argument {1}",
    ) -> None:
        """``aliases``: other names of the same function. Raises ``ValueError`` for a declaration that cannot work.

        ``internal``: used by other functions or by an operator; no query can call it. ``keeps_name``: the column of an
        aggregate is named as its argument, unless an alias is called. ``wrong_number`` and ``wrong_type``: the message
        if no overload fits, behind the name of the function: the number of arguments, or the type and place of one.
        """
        self.name, self.doc, self.bind = name, doc, bind
        self.given = overloads  # as declared, with {if}
        self.overloads = tuple(_of_all_rows(overload) for overload in overloads)
        self.keeps_name, self.wrong_number, self.wrong_type = keeps_name, wrong_number, wrong_type
        self.cost, self.kind, self.aliases, self.internal = cost, kind, aliases, internal
        self._count()
        #: What the templates call, in lower case: a statement of linear functions may contain these words beside the
        #: store.
        self.words = frozenset(
            word.lower() for o in overloads if isinstance(o, Template) for word in _CALLED.findall(o.sql)
        )
        for words in (wrong_number, wrong_type):
            try:
                words.format("1", "1")
            except (IndexError, KeyError, ValueError):
                raise ValueError(f"{name}: {words!r} may hold {{0}} and {{1}} in braces, and nothing else") from None
        for spelling in (name, *aliases):
            if not _NAME.fullmatch(spelling):
                raise ValueError(f"'{spelling}' is no name of a function: letters, digits and _, not a digit first")
        if bool(overloads) == (bind is not None):
            raise ValueError(f"{name}: give ways to call it (Template, Body) or bind, not both")
        for overload in overloads:
            if reason := _wrong(overload) or _wrong_for(kind, overload):
                raise ValueError(f"{name}: {reason}")
        if cost is not Cost.WALL and any(isinstance(o, Body) for o in overloads):
            raise ValueError(f"{name}: a body in Python may take any time; its cost is WALL")

    def _count(self) -> None:
        """What the overloads say of the number and the places of the arguments."""
        every = [overload.arguments.split() for overload in self.overloads]
        #: The least and greatest number of arguments of each overload.
        self.numbers = tuple(
            (sum(len(kind) == 1 for kind in kinds), sys.maxsize if "*" in "".join(kinds) else len(kinds))
            for kinds in every
        )
        conditions = {kinds.index("c") if "c" in kinds else None for kinds in every}
        if len(conditions) > 1:
            raise ValueError(f"{self.name}: the condition is not in one place")
        self.condition = conditions.pop() if conditions else None  #: the place of the condition
        counts = {len(kinds) - 1 if kinds and kinds[-1] in ("_?", "_*") else None for kinds in every}
        self.used = counts.pop() if len(counts) == 1 else None  #: how many arguments are used; None: all

    def __repr__(self) -> str:
        return f"<{self.kind.value} function {self.name}>"


def conditional(
    function: Function, name: str, *, aliases: tuple[str, ...] = (), wrong_number: str = "takes a value and a condition"
) -> Function:
    """The form of an aggregate, made of templates, that takes a condition: ``sumif`` of ``sum``.

    Raises ``ValueError`` if a template does not say where the rows are chosen, or if not all need as many arguments.
    """
    made = [_of_some_rows(overload) for overload in function.given]
    chosen = [overload for overload in made if overload is not None]
    if len({overload.arguments.split().index("c") for overload in chosen}) > 1:
        raise ValueError(
            f"{name}: all ways to call {function.name} must need as many arguments: the condition comes next"
        )
    if not chosen or len(chosen) < len(made):
        raise ValueError(
            f"{name}: {function.name} has no form with a condition: each way to call it is a Template with {_IF}"
        )
    return Function(
        name, f"{function.doc.removesuffix('.')} of the rows for which a condition holds.", *chosen,
        cost=function.cost, kind=function.kind, aliases=aliases, keeps_name=function.keeps_name,
        wrong_number=wrong_number, wrong_type=function.wrong_type,
    )  # fmt: skip


def _of_all_rows(overload: Template | Body) -> Template | Body:
    """The overload without a condition."""
    if isinstance(overload, Body) or _IF not in overload.sql:
        return overload
    return replace(overload, sql=overload.sql.replace(_IF, ""))


def _of_some_rows(overload: Template | Body) -> Template | None:
    """The overload with a condition behind the arguments that must be there; None if it has no place for one."""
    if isinstance(overload, Body) or _IF not in overload.sql or "{*}" in overload.sql:
        return None
    kinds = overload.arguments.split()
    place = sum(len(kind) == 1 for kind in kinds)
    sql = _HOLE.sub(lambda hole: f"{{{int(hole[1]) + (int(hole[1]) >= place)}}}", overload.sql)
    return replace(
        overload,
        arguments=" ".join((*kinds[:place], "c", *kinds[place:])),
        sql=sql.replace(_IF, f" FILTER (WHERE {{{place}}})"),
    )


def _wrong(overload: Template | Body) -> str:
    """Why an overload cannot work; empty if it can."""
    kinds = overload.arguments.split()
    for kind in kinds:
        if not _ARGUMENT.fullmatch(kind):
            return (
                f"{kind!r} is no kind of argument; there is s S z x l n r i m b t p g d D h a o _, with ? or * behind it, and c; "
                "separate arguments by blanks"
            )
    if overload.result.removesuffix("!") not in _RESULTS:
        return f"{overload.result!r} is no type of a result; there is {', '.join(sorted(_RESULTS))}"
    if isinstance(overload, Template) and not any(kind.endswith("*") for kind in kinds):
        for hole in _HOLE.findall(overload.sql):
            if int(hole) >= len(kinds):
                return f"the hole {{{hole}}} is for argument {int(hole) + 1}, but there are {len(kinds)}"
    return ""


def _wrong_for(kind: Kind, overload: Template | Body) -> str:
    """Why an overload cannot work in a function of this kind; empty if it can."""
    if isinstance(overload, Body):
        if kind is not Kind.SCALAR and not overload.arguments.split():
            whose = "an aggregate's body" if kind is Kind.AGGREGATE else "the body of a function of rows"
            values = "the group's values" if kind is Kind.AGGREGATE else "the values up to the row"
            return f"{whose} needs an argument: it gets the list of {values}"
    elif kind is Kind.ROW and ORDER not in overload.sql:
        return (
            f"a template of a function of rows says that it goes over the rows in their order: OVER (ORDER BY {ORDER})"
        )
    elif kind is Kind.ROW and "{*}" in overload.sql:
        return "a template of a function of rows names its arguments: {0}, {1}, not {*}"
    elif kind is Kind.ROW and any(letters[1:] for letters in overload.arguments.split()):
        return (
            "a template of a function of rows has a form for each number of arguments: none may be missing or repeated"
        )
    elif kind is Kind.ROW and overload.result == "0" and not overload.arguments.split():
        return "its result is of the type of the first argument, and it has none"
    elif kind is not Kind.ROW and ORDER in overload.sql:
        return f"only a function of rows has {ORDER}"
    if kind is not Kind.AGGREGATE and (
        "c" in overload.arguments or (isinstance(overload, Template) and _IF in overload.sql)
    ):
        return "only an aggregate has a condition"
    return ""
