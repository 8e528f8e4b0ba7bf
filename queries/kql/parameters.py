"""Values that come with a query: `declare query_parameters`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from queries.kql import syntax as ast
from queries.kql.errors import KqlBindError
from queries.kql.values import Value


def kind_of(value: Any) -> str:
    """The type of a value that came with the query."""
    kinds = {bool: "bool", int: "long", float: "real", str: "string", datetime: "datetime"}
    return kinds.get(type(value), "dynamic")


#: The spelling of a parameter given as text; datetimes and timespans are parsed like literals.
_SPELLED = {
    **dict.fromkeys(("long", "int"), r"\s*[-+]?\d+\s*|0[xX][0-9a-fA-F]+"),
    **dict.fromkeys(("real", "decimal"), r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*"),
    "bool": r"(?i)\s*(?:true|false|[01])\s*",
}


def check_given(parameter: ast.Parameter, given: Any, value: Value) -> None:
    """Refuses what the type cannot hold: it would be null, and answer another question. Raises ``KqlBindError``."""
    spelling = _SPELLED.get(parameter.type)
    wrong = isinstance(given, str) and spelling is not None and not re.fullmatch(spelling, given)
    if wrong or (given is not None and value.is_constant and value.constant is None):
        message = f"the query parameter '{parameter.name}' is no {parameter.type}: {str(given)[:60]!r}"
        raise KqlBindError(message, parameter.span)
