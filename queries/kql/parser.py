"""Parses the text of a query into a syntax tree, and reports where and why a text is invalid."""

from __future__ import annotations

import re
import sys

import pyparsing as pp

from queries.kql import syntax as ast
from queries.kql.errors import KqlError, KqlSyntaxError, Span
from queries.kql.grammar import ALL_BINARY
from queries.kql.hints import meant, unclosed_at_end
from queries.kql.kept import Kept
from queries.kql.lexical import STRING, UNCLOSED, blank_comments
from queries.kql.statements import BEHIND_A_TABLE, script

MAX_LENGTH = 100_000  # a page of text is 3,000; the longest public query seen is 31,000
MAX_NESTING = 60
MAX_WORDS = 25_000  # names, values and signs: some 100 microseconds each; the largest public query has 6,000
# A level of parentheses costs about 40 Python frames in pyparsing; 60 levels must fit.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 8_000))


_KEPT: Kept[ast.Script] = Kept()
_WORD = re.compile(rf"{STRING}|{UNCLOSED}|\w+|[^\w\s]")
_OPENS = {")": "(", "]": "[", "}": "{"}
_BRACKETS = rf"{STRING}|{UNCLOSED}|[(\[{{]|[)\]}}]"


def _bounded(text: str) -> None:
    """Refuses what would take seconds to parse before it is parsed."""
    words = sum(1 for _ in _WORD.finditer(text))
    if words > MAX_WORDS:
        raise KqlSyntaxError(
            f"the query has {words} words and signs; the limit is {MAX_WORDS}. Put long lists into a parameter: "
            "declare query_parameters(names:dynamic); ... where Host in (names)"
        )
    depth = 0
    for match in re.finditer(_BRACKETS, text):
        if match[0] in ("(", "[", "{"):
            depth += 1
            if depth > MAX_NESTING:
                raise KqlSyntaxError(
                    f"nested more than {MAX_NESTING} levels deep", Span(match.start(), match.start() + 1)
                )
        elif match[0] in (")", "]", "}"):
            depth -= 1


def _parse(text: str) -> ast.Script:
    clean = blank_comments(text)
    _bounded(clean)
    try:
        result: ast.Script = script.parse_string(clean, parse_all=True)[0]
    except pp.ParseBaseException as problem:
        raise _syntax_error(clean, problem) from None
    except RecursionError:
        raise KqlSyntaxError("nested too deeply") from None
    except KqlError:
        raise
    except (ValueError, ArithmeticError):  # a literal of thousands of digits
        raise KqlSyntaxError("a number, a time or a date of the query is too long to be read") from None
    return result


def parse(text: str) -> ast.Script:
    """Parses one text of statements; the answer is cached by text, because dashboards and rules repeat."""
    if len(text) > MAX_LENGTH:
        raise KqlSyntaxError(f"the query is {len(text)} characters long; the limit is {MAX_LENGTH}")
    known = _KEPT.get(text)
    if known is not None:
        return known
    try:
        made = _parse(text)
    except KqlError as problem:
        raise problem.locate(text)  # noqa: B904 - the same error, now with its text
    _KEPT.put(text, made)
    return made


def _syntax_error(text: str, problem: pp.ParseBaseException) -> KqlError:
    place = min(problem.loc, len(text))
    while place < len(text) and text[place].isspace():
        place += 1
    word = re.compile(r"[A-Za-z_!][\w-]*|\S").match(text, place)
    if not word:
        at = unclosed_at_end(text, _BRACKETS)
        if at is not None:
            return KqlSyntaxError(f"this '{text[at]}' is not closed", Span(at, at + 1))
        return KqlSyntaxError("the query ends too early", Span(max(0, len(text) - 1), len(text)))
    span = Span(word.start(), word.end())
    hint = meant(text, place, word[0], ALL_BINARY, BEHIND_A_TABLE)
    return _unclosed(text, place) or KqlSyntaxError(f"did not expect '{word[0]}' here", span, suggestion=hint)


def _unclosed(text: str, place: int) -> KqlError | None:
    """An unclosed quote or bracket, if that is what stopped the parser at or after it."""
    open_: list[tuple[str, int]] = []
    for match in re.finditer(rf"{STRING}|(?P<open>{UNCLOSED})|[(\[{{]|[)\]}}]", text):
        if match[0] in ("(", "[", "{"):
            open_.append((match[0], match.start()))
        elif match[0] in (")", "]", "}"):
            if open_ and open_[-1][0] == _OPENS[match[0]]:
                open_.pop()
        elif match["open"] and match.start() <= place:
            return KqlSyntaxError("the text that begins here has no end", Span(match.start(), match.start() + 1))
    if open_ and open_[-1][1] == place:
        return KqlSyntaxError(f"this '{open_[-1][0]}' is not closed", Span(place, place + 1))
    return None
