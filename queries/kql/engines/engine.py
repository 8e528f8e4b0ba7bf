"""What an engine is to the compiler: a dialect, a table of words, the names of its types, and what it cannot do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from queries.kql.engines.spelling import Speller, Word


class Engine:
    """A database that compiled queries run on; `words` is its function table (see `spelling.py`)."""

    def __init__(
        self,
        name: str,
        dialect: Callable[[Engine], Any],
        words: Mapping[str, Word],
        *,
        types: Mapping[str, str] | None = None,
        cannot: Mapping[str, str] | None = None,
        out: Mapping[str, str] | None = None,
        tail: str = "",
    ) -> None:
        self.name = name
        self.words = words
        self.types = types  # type names of templates to its own; None if templates are in its spelling already
        self.cannot = cannot or {}  # words that it can never express, and why
        self.out = out or {}  # KQL type -> template that formats an output column
        self.tail = tail  # appended to every statement
        self._dialect = dialect
        speller = Speller(words, types, self.cannot)
        self.pieces = lru_cache(maxsize=8192)(lambda template: split(speller.spell(template)))

    def dialect(self) -> Any:
        """A new SQLAlchemy dialect: quoting and parameters.

        Once a statement is compiled, its ``called`` holds the declarations of the functions that the statement calls,
        and its ``parts`` the texts of its steps.
        """
        made = self._dialect(self)
        made.called = set()
        made.parts = {}
        return made


def split(template: str) -> tuple[str, ...]:
    """Fixed text and hole numbers in turn."""
    return tuple(re.split(r"\{(\d+|\*)\}", template))
