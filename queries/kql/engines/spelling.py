"""Parses a template: our SQL in which functions are words, so that an engine can spell each word its own way.

Templates are written once, in DuckDB's spelling plus a few words of our own (`time_text(x)`, `json_member(d, key)`). An
engine's table defines how it spells a word. The parser here finds calls, casts, lambdas and the operators that differ
between engines (`//`, `%`, `::`, `x[i]`), and leaves the rest unchanged. It parses our own templates only, never a
user's text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

Word = str | Callable[[list[str], str], str]
"""How a word is spelled: a text with holes `<0>`, `<1>`, `<*>` and `<tail>` (FILTER and OVER), or a function of both."""

_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")*")|(?P<hole>\{(?:\d+|\*)\})
    |(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(?P<word>[A-Za-z_]\w*)|(?P<sign>::|//|<>|<=|>=|\|\||->|.)""",
    re.X | re.S,
)
_PLACE = re.compile(r"<(?:\d|\*|tail)>")
# Words of SQL itself: a parenthesis after one of these is not a call.
_SQL_WORDS = frozenset(
    re.findall(
        r"\w+",
        """ALL AND ANTI AS ASC ASOF BETWEEN BY CASE CROSS CURRENT DESC DISTINCT ELSE END EXISTS FALSE FIRST FOLLOWING FROM
    GROUP GROUPING HAVING IN INNER IS JOIN LAST LEFT LIKE LIMIT MATERIALIZED NOT NULL NULLS ON OR ORDER OUTER PARTITION
    PRECEDING RECURSIVE RIGHT ROW ROWS SELECT SEMI SETS THEN TRUE UNBOUNDED UNION USING VALUES WHEN WHERE WITH""",
    )
)
_ALSO_CALLS = ("first", "left", "right")
_TIGHT = frozenset("*/%") | {"//"}


class Unspelled(LookupError):  # noqa: N818 - a word the engine's table lacks
    """The engine has no spelling for this word; `origin` is the call of the query that needs it."""

    origin: Any = None

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


def tokens(template: str) -> list[tuple[str, str]]:
    """(kind, text) of each token."""
    return [(m.lastgroup or "", m[0]) for m in _TOKEN.finditer(template)]


class Speller:
    """Spells templates for one engine."""

    def __init__(
        self, words: Mapping[str, Word], types: Mapping[str, str] | None, cannot: Collection[str] = ()
    ) -> None:
        self.words = words
        self.cannot = cannot
        self.types = types or {}
        self.closed = types is not None  # words that are not in the table are refused, operators and types translated
        self._own = re.compile(r"\b(?:" + "|".join(map(re.escape, words)) + r")\(") if words else None

    def spell(self, template: str) -> str:
        """The template in the engine's spelling."""
        if self.closed:
            template = template.replace("\\", "\\\\")  # it is an escape between quotes, the only place where one occurs
        if not self.closed and (self._own is None or not self._own.search(template)):
            return template  # nothing of ours in it
        return _Reader(self, tokens(template)).expression(frozenset())


def fill(word: Word, args: list[str], tail: str) -> str:
    """A word's spelling with its arguments in place."""
    if not isinstance(word, str):
        return word(args, tail)
    given = {"<*>": ", ".join(args), "<tail>": tail} | {f"<{place}>": arg for place, arg in enumerate(args)}
    out = _PLACE.sub(lambda m: given.get(m[0], ""), word)
    return out if "<tail>" in word else out + tail


class _Reader:
    """Walks the tokens of one template once, from left to right."""

    def __init__(self, speller: Speller, found: list[tuple[str, str]]) -> None:
        self.speller = speller
        self.found = found
        self.place = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        """The token here, past blanks."""
        place = self.place
        while place < len(self.found) and (self.found[place][0] == "space" or ahead):
            ahead -= self.found[place][0] != "space"
            place += 1
        return self.found[place] if place < len(self.found) else ("end", "")

    def expression(self, stop: frozenset[str]) -> str:
        """Parses up to one of the stopping signs at this level, which is not consumed."""
        out: list[str] = []
        operand = -1  # where the last operand begins in `out`
        chain = -1  # where the run of * / % // around it begins
        after = ""  # the previous word, for `AS v(...)`
        while self.place < len(self.found):
            kind, text = self.found[self.place]
            if text in stop and kind in ("sign", "word"):
                break
            if kind == "space":
                out.append(text)
                self.place += 1
                continue
            if self.speller.closed and kind == "sign" and operand >= 0 and text in ("::", "//", "%", "["):
                begin = chain if text in ("//", "%") else operand
                left = "".join(out[begin:]).strip()
                self.place += 1
                out[begin:] = [self._operator(text, left), ""]
                operand, after = begin, ""
                continue
            if kind == "sign" and text not in ("(", "[", "{"):
                out.append(text)
                self.place += 1
                if text not in _TIGHT and text != ".":
                    chain = -1
                if text != ".":
                    operand = -1
                after = text
                continue
            if kind == "word" and text in self.speller.cannot:
                raise Unspelled(text)
            if kind == "word" and text.upper() in _SQL_WORDS and not (text in _ALSO_CALLS and self.peek(1)[1] == "("):
                out.append(text)
                self.place += 1
                operand = chain = -1
                after = text.upper()
                if after in ("END", "TRUE", "FALSE", "NULL"):
                    operand = chain = len(out) - 1
                if after == "CASE":
                    self.place -= 1
                    out[-1:] = [self._case()]
                    operand = chain = len(out) - 1
                continue
            joined = after == "."
            begin = operand if joined and operand >= 0 else len(out)
            out.append(self._operand(after))
            operand = begin
            chain = begin if chain < 0 else chain
            after = text if kind == "word" else ""
        return "".join(out)

    def _case(self) -> str:
        """CASE ... END as one operand."""
        self.place += 1
        body = self.expression(frozenset(["END"]))
        self.place += 1
        return f"CASE{body}END"

    def _operator(self, sign: str, left: str) -> str:
        if sign == "::":
            return self._cast("cast", left, self._type())
        if sign == "[":
            low = self.expression(frozenset([":", "]"]))
            if self.found[self.place][1] == ":":
                self.place += 1
                high = self.expression(frozenset(["]"]))
                self.place += 1
                return self.word("list_slice", [left, low.strip(), high.strip()], "")
            self.place += 1
            return self.word("list_extract", [left, low], "")
        while self.peek()[0] == "space" or self.found[self.place][0] == "space":
            self.place += 1
        right = self._operand("")
        while self.place < len(self.found) and self.found[self.place][1] in ("::", "["):
            inner = self.found[self.place][1]
            self.place += 1
            right = self._operator(inner, right)
        return self.word({"//": "divide", "%": "remainder"}[sign], [left, right], "")

    def _type(self) -> str:
        """A type after `::`."""
        parts = [self.found[self.place][1]]
        self.place += 1
        if self.peek()[1] == "(" and parts[0] == "DECIMAL":
            while parts[-1] != ")":
                parts.append(self.found[self.place][1])
                self.place += 1
        while self.place + 1 < len(self.found) and [t for _, t in self.found[self.place : self.place + 2]] == [
            "[",
            "]",
        ]:
            parts.append("[]")
            self.place += 2
        return "".join(parts)

    def _operand(self, after: str) -> str:
        kind, text = self.found[self.place]
        self.place += 1
        if kind == "word" and self.peek()[1] == "(" and after not in ("AS", "."):
            return self._call(text)
        if text == "(":
            return "(" + self._until(")") + ")"
        if text == "[":
            items = self._arguments("]")
            return self.word("list_value", items, "") if self.speller.closed else f"[{', '.join(items)}]"
        if text == "{" and self.speller.closed:
            raise Unspelled("a struct")
        return text

    def _until(self, close: str) -> str:
        body = self.expression(frozenset([close]))
        self.place += 1
        return body

    def _arguments(self, close: str) -> list[str]:
        """Comma-separated expressions up to and including the closing sign."""
        args: list[str] = []
        while True:
            while self.place < len(self.found) and self.found[self.place][0] == "space":
                self.place += 1
            body = self._lambda() if self.peek()[1] == "lambda" else self.expression(frozenset([",", close]))
            if body.strip() or args:
                args.append(body.strip())
            sign = self.found[self.place][1]
            self.place += 1
            if sign == close:
                return args

    def _lambda(self) -> str:
        self.place += 1
        names = self.expression(frozenset([":"])).strip()
        self.place += 1
        body = self.expression(frozenset([",", ")"])).strip()
        return f"({names}) -> {body}" if self.speller.closed else f"lambda {names}: {body}"

    def _call(self, name: str) -> str:
        while self.found[self.place][0] == "space":
            self.place += 1
        self.place += 1
        if name.upper() in ("CAST", "TRY_CAST"):
            value = self.expression(frozenset(["AS"])).strip()
            self.place += 1
            while self.found[self.place][0] == "space":
                self.place += 1
            kind = self._type()
            self.place += 1
            return self._cast(name.lower(), value, kind)
        args = self._arguments(")")
        return self.word(name, args, self._tail())

    def _tail(self) -> str:
        """FILTER (...) and OVER (...) belong to the call before them."""
        tail = ""
        while self.peek()[1] in ("FILTER", "OVER") and self.peek(1)[1] == "(":
            word = self.peek()[1]
            while self.found[self.place][1] != "(":
                self.place += 1
            self.place += 1
            tail += f" {word} ({self._until(')')})"
        return tail

    def word(self, name: str, args: list[str], tail: str) -> str:
        """A call as this engine spells it."""
        found = self.speller.words.get(name)
        if found is not None:
            return fill(found, args, tail)
        if self.speller.closed:
            raise Unspelled(name)
        return f"{name}({', '.join(args)}){tail}"

    def _cast(self, how: str, value: str, kind: str) -> str:
        if not self.speller.closed:
            return f"{how.upper()}({value} AS {kind})"
        if kind not in self.speller.types:
            raise Unspelled(f"the type {kind}")
        return self.word(
            f"{how} {kind}" if f"{how} {kind}" in self.speller.words else how, [value, self.speller.types[kind]], ""
        )
