"""The syntax tree: frozen nodes, each with the span of text it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from queries.kql.errors import NOWHERE, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Anything with a position in the text."""

    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A bare or bracketed identifier."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A scalar constant with its KQL type; value None is the typed null."""

    value: Any
    type: str


@dataclass(frozen=True, slots=True)
class Star(Node):
    """`*`."""


@dataclass(frozen=True, slots=True)
class Wildcard(Node):
    """A name with `*` in it, as in `project-away tmp*`."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Member(Node):
    """`object.name`."""

    object: Node
    name: str


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`object[key]`."""

    object: Node
    key: Node


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`name(args)`."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """A sign before an operand."""

    op: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """`left op right`, op in lower case."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logical(Node):
    """A flat run of `and` or of `or`, so a thousand terms do not nest a thousand deep."""

    op: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Between(Node):
    """`operand [!]between (low .. high)`."""

    negated: bool
    operand: Node
    low: Node
    high: Node


@dataclass(frozen=True, slots=True)
class InList(Node):
    """`operand in|!in|in~|has_any|has_all (items)`."""

    op: str
    operand: Node
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Named(Node):
    """`name = value`, or `(a, b) = value` with several names."""

    names: tuple[str, ...]
    value: Node


@dataclass(frozen=True, slots=True)
class TypeOf(Node):
    """`typeof(type)`."""

    type: str


@dataclass(frozen=True, slots=True)
class Pipeline(Node):
    """A source and the operators after it."""

    source: Node
    operators: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Schema(Node):
    """`(name:type, ...)`, or `(*)` for a table of any shape."""

    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    """One parameter of a user function."""

    name: str
    type: str
    schema: Schema | None = None
    default: Node | None = None


@dataclass(frozen=True, slots=True)
class Lambda(Node):
    """`(parameters) { statements; result }`."""

    parameters: tuple[Parameter, ...]
    statements: tuple[Node, ...]
    is_view: bool = False


@dataclass(frozen=True, slots=True)
class Let(Node):
    """`let name = value`."""

    name: str
    value: Node


@dataclass(frozen=True, slots=True)
class Ignored(Node):
    """A statement that has no effect here, such as `set notruncation`."""

    text: str
    settings: dict[str, Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Declare(Node):
    """`declare query_parameters(name:type = default, ...)`."""

    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class SortKey(Node):
    """One key of `sort` or `top`; None means Kusto's default."""

    value: Node
    ascending: bool | None = None
    nulls_first: bool | None = None


@dataclass(frozen=True, slots=True)
class Reordered(Node):
    """Columns of `project-reorder`, and the word for their order if one was given: asc, desc, granny-asc, granny-desc."""

    value: Node
    order: str = ""


@dataclass(frozen=True, slots=True)
class Expand(Node):
    """One column of mv-expand or mv-apply."""

    value: Node
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Series(Node):
    """One aggregate of make-series, with its default."""

    value: Node
    default: Node | None = None


@dataclass(frozen=True, slots=True)
class Capture(Node):
    """A named hole in a parse pattern."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Operator(Node):
    """One tabular operator: its name, its settings (`kind=inner`), its operands by role.

    One shape for all of them keeps the grammar a table; each operator's builder in `operators/` defines which roles it
    uses.
    """

    name: str
    settings: dict[str, Node] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    def nodes(self, role: str) -> tuple[Node, ...]:
        """The list of nodes in a role, empty when absent."""
        found: tuple[Node, ...] = self.parts.get(role, ())
        return found

    def node(self, role: str) -> Node | None:
        """The single node in a role, None when absent."""
        found: Node | None = self.parts.get(role)
        return found


@dataclass(frozen=True, slots=True)
class Script(Node):
    """The statements of one text."""

    statements: tuple[Node, ...]
