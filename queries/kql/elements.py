"""pyparsing's elements as the grammar of KQL uses them, each of which does its work in one call.

pyparsing parses an element in a general method that calls a special one, and makes a list of results in each. Most of
the time of parsing a query went into that. These elements match the same texts and make the same tokens.
"""

# ruff: noqa: N803 - names of pyparsing's own hook
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyparsing as pp

from queries.kql.budget import look
from queries.kql.errors import Span

P = pp.ParserElement
Results = pp.ParseResults
_SPACE = frozenset(" \n\t\r")


def _behind_space(text: str, place: int) -> int:
    """The place of the next character that is no white space."""
    while text[place : place + 1] in _SPACE:
        place += 1
    return place


class Token(pp.Regex):
    """A pattern and what is built of its text; without ``build``, the pattern only has to be there."""

    def __init__(self, pattern: str, build: Callable[[str, Span], Any] | None = None) -> None:
        super().__init__(pattern)
        self._build = build

    def _parse(self, instring: str, loc: int, do_actions: bool = True, callPreParse: bool = True) -> Any:
        if callPreParse:
            loc = _behind_space(instring, loc)
        match = self.re_match(instring, loc)
        if match is None:
            raise pp.ParseException(instring, loc, self.errmsg, self)
        end = match.end()
        if self._build is None:
            return end, Results()
        if not do_actions:
            return end, Results(match[0])
        look()
        return end, Results(self._build(match[0], Span(loc, end)))


class ByFirst(pp.MatchFirst):
    """Alternatives in order, each tried only if one of its first characters comes next.

    A try that fails costs as much as one that succeeds, and most of them fail.
    """

    def __init__(self, *choices: tuple[str, P]) -> None:
        super().__init__([element for _, element in choices])
        self._after: dict[str, list[P]] = {}
        for first, element in choices:
            for character in first:
                self._after.setdefault(character, []).append(element)

    def _parse(self, instring: str, loc: int, do_actions: bool = True, callPreParse: bool = True) -> Any:
        """The first alternative that fits; the failure of the one that got furthest."""
        loc = _behind_space(instring, loc)
        furthest: pp.ParseException | None = None
        for element in self._after.get(instring[loc : loc + 1], ()):
            try:
                return element._parse(instring, loc, do_actions, False)
            except pp.ParseException as problem:
                if furthest is None or problem.loc > furthest.loc:
                    furthest = problem
        raise furthest or pp.ParseException(instring, loc, self.errmsg, self)


class InOrder(pp.And):
    """Elements one after the other, and what is built of their tokens, if anything."""

    def __init__(self, elements: Sequence[P], build: Callable[[int, Results], Any] | None = None) -> None:
        super().__init__([one for one in elements if type(one) is not pp.And._ErrorStop])
        self._build = build
        self._with_stops = elements
        if build is not None:
            # Not called: pyparsing dissolves a sequence without an action into the sequence around it.
            self.parseAction = [build]

    def streamline(self) -> P:
        """Makes errors after ``-`` final, as pyparsing does in the elements that it streamlines: those that it reaches
        from the whole grammar. Operators behind a pipe are looked up by name, so it does not reach them."""
        if not self.streamlined:
            self.exprs = list(self._with_stops)
        return super().streamline()

    def _parse(self, instring: str, loc: int, do_actions: bool = True, callPreParse: bool = True) -> Any:
        if callPreParse and self.skipWhitespace:
            loc = _behind_space(instring, loc)
        start = loc
        loc, tokens = self.exprs[0]._parse(instring, loc, do_actions, False)
        is_certain = False
        for element in self.exprs[1:]:
            if type(element) is pp.And._ErrorStop:
                is_certain = True
                continue
            try:
                loc, more = element._parse(instring, loc, do_actions)
            except pp.ParseException as problem:
                if not is_certain:
                    raise
                problem.__traceback__ = None
                raise pp.ParseSyntaxException._from_exception(problem) from None
            tokens += more
        if self._build is None or not do_actions:
            return loc, tokens
        look()
        made = self._build(start, tokens)
        return loc, tokens if made is None else Results(made)


class Many(pp.ZeroOrMore):
    """An element as often as it fits."""

    def __init__(self, element: P) -> None:
        super().__init__(in_order(element))

    def _parse(self, instring: str, loc: int, do_actions: bool = True, callPreParse: bool = True) -> Any:
        if callPreParse and self.skipWhitespace:
            loc = _behind_space(instring, loc)
        tokens, parse = Results(), self.expr._parse
        try:
            while True:
                loc, more = parse(instring, loc, do_actions)
                tokens += more
        except pp.ParseException:
            return loc, tokens


class Maybe(pp.Opt):
    """An element, or nothing."""

    def __init__(self, element: P) -> None:
        super().__init__(in_order(element))

    def _parse(self, instring: str, loc: int, do_actions: bool = True, callPreParse: bool = True) -> Any:
        if callPreParse and self.skipWhitespace:
            loc = _behind_space(instring, loc)
        try:
            return self.expr._parse(instring, loc, do_actions, False)
        except pp.ParseException:
            return loc, Results()


class Later(pp.Forward):
    """An element that is given later."""

    def _parse(self, instring: str, loc: int, do_actions: bool = True, callPreParse: bool = True) -> Any:
        assert self.expr is not None
        return self.expr._parse(instring, loc, do_actions, callPreParse)


def in_order(element: P, build: Callable[[int, Results], Any] | None = None) -> P:
    """A sequence of pyparsing's as one of ours; any other element only if something is built of it."""
    if _is_plain(element):
        return InOrder(_flat(element), build)
    return element if build is None else InOrder([element], build)


def _is_plain(element: P) -> bool:
    return type(element) is pp.And and not element.parseAction and not element.resultsName


def _flat(sequence: Any) -> list[P]:
    """The elements of nested pairs, as ``+`` makes them; pyparsing flattens its own in the same way."""
    found: list[P] = list(sequence.exprs)
    if len(found) != 2:
        return found
    return [part for one in found for part in (_flat(one) if _is_plain(one) else [one])]
