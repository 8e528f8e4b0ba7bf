"""KQL text to syntax tree, with pyparsing: one pass, flat operand chains, no left recursion.

Packrat stays off and tokens are few and large: measured, that is three times faster than
`infix_notation`, which also has second-long worst cases.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pyparsing as pp

from queries.kql import syntax as ast
from queries.kql.elements import ByFirst, Later, Many, Maybe, P, Token, in_order
from queries.kql.errors import KqlSyntaxError, Span, nearest
from queries.kql.lexical import STRING, TIMESPAN, parse_datetime, timespan_ticks, unquote

MAX_OPERANDS = 2_000
MAX_DIGITS = 100  # of a whole number; leading zeros count

TYPES = {
    "bool": "bool", "boolean": "bool", "int": "int", "long": "long", "real": "real", "double": "real",
    "decimal": "decimal", "datetime": "datetime", "date": "datetime", "timespan": "timespan", "time": "timespan",
    "string": "string", "dynamic": "dynamic", "guid": "guid", "uuid": "guid", "uniqueid": "guid",
    "int32": "int", "int64": "long", "object": "dynamic",
}  # fmt: skip

NAME = r"(?:[A-Za-z_]\w*|\$[A-Za-z]\w*)"
BRACKETED = r"""\[\s*(?:@"(?:[^"\n]|"")+"|@'(?:[^'\n]|'')+'|"(?:\\.|[^"\\\n])+"|'(?:\\.|[^'\\\n])+')\s*\]"""


def _lit(text: str) -> P:
    return Token(re.escape(text))


def _kw(words: str) -> P:
    """One or more words in a row, as one pattern."""
    return Token(r"\s+".join(words.split()) + r"(?![\w-])")


def _plain_name(token: str) -> str:
    return token if token[0] != "[" else unquote(token[1:-1].strip())


def _action(element: P, build: Callable[[int, pp.ParseResults], Any]) -> P:
    """What ``build(loc, tokens)`` makes of the element."""
    return in_order(element, build)


def _token(pattern: str, build: Callable[[str, Span], Any]) -> P:
    return Token(pattern, build)


def _text(pattern: str) -> P:
    """A pattern whose text is needed."""
    return Token(pattern, lambda text, _span: text)


def _end(bracket: str) -> P:
    """A closing bracket; its token is the place behind it."""
    return Token(re.escape(bracket), lambda _text, span: span.end)


#: Words between expressions that Kusto takes for no name (its src/Kusto.Language/Syntax/SyntaxFacts.cs). Its page on logical
#: operators names a column ``print``, so the names of operators are names here.
KEYWORDS = frozenset({
    "and", "or", "in", "by", "as", "asc", "desc", "between", "contains", "has", "startswith", "endswith", "of", "on", "with", "to",
})  # fmt: skip


def _name_of(token: str, span: Span) -> str:
    """The name that a column is given."""
    if token in KEYWORDS:
        raise KqlSyntaxError(f"'{token}' is a keyword; as a name it is written ['{token}']", span)
    return _plain_name(token)


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
_DIGITS, _QUOTES = "0123456789", "\"'`~@"

name_text = _token(rf"{NAME}|{BRACKETED}", lambda text, _span: _plain_name(text))
identifier = _token(rf"{NAME}|{BRACKETED}", lambda text, span: ast.Name(_plain_name(text), span=span))
wildcard = _token(
    r"\w*\*[\w*]*", lambda text, span: ast.Star(span=span) if text == "*" else ast.Wildcard(text, span=span)
)
end_of_list = _end(")")
type_name = _token(r"[A-Za-z_]\w*", lambda text, span: _type(text, span))

expr: pp.Forward = Later()
tabular: pp.Forward = Later()
pipeline_tail: pp.Forward = Later()


def _type(text: str, span: Span) -> str:
    if text not in TYPES:
        raise KqlSyntaxError(f"unknown type '{text}'", span, suggestion=nearest(text, TYPES))
    return TYPES[text]


# ---------------------------------------------------------------- literals
def _string(tokens: str, span: Span) -> ast.Literal:
    return ast.Literal("".join(unquote(m[0]) for m in re.finditer(STRING, tokens)), "string", span=span)


def _number(text: str, span: Span) -> ast.Literal:
    if text[:2] in ("0x", "0X"):
        return ast.Literal(int(text, 16), "long", span=span)
    if re.fullmatch(r"\d+", text):
        value = int(text) if len(text) <= MAX_DIGITS else None
        if value is None or value > 2**63 - 1:
            raise KqlSyntaxError(f"{text[:MAX_DIGITS]} does not fit a long", span)
        return ast.Literal(value, "long", span=span)
    return ast.Literal(float(text), "real", span=span)


def _timespan(text: str, span: Span) -> ast.Literal:
    ticks = timespan_ticks(text)
    if ticks is None:
        raise KqlSyntaxError(f"{text[:MAX_DIGITS]} is out of range for a timespan", span)
    return ast.Literal(ticks, "timespan", span=span)


def _typed(text: str, span: Span) -> ast.Node:
    head, _, body = text.partition("(")
    kind = TYPES[head.strip().lower()]
    body = body[:-1].strip()
    raw = body.strip("'\"")
    if raw.lower() == "null" or (raw == "" and kind != "string"):
        return ast.Literal(None, kind, span=span)
    try:
        return ast.Literal(_convert(kind, raw), kind, span=span)
    except ValueError:
        # Kusto: an invalid literal is the typed null for datetime() of a string, an error elsewhere.
        raise KqlSyntaxError(f"'{body}' is not a {kind} literal", span) from None


def _convert(kind: str, raw: str) -> Any:
    if kind == "datetime":
        value = parse_datetime(raw)
    elif kind == "timespan":
        value = timespan_ticks(raw)  # type: ignore[assignment]
    elif kind == "bool":
        return {"true": True, "false": False, "1": True, "0": False}.get(raw.lower()) if raw else None
    elif kind in ("int", "long"):
        return int(raw, 16) if raw.lower().startswith("0x") else int(raw)
    elif kind == "real":
        return float(raw.replace("+inf", "inf"))
    elif kind == "decimal":
        float(raw)
        return raw
    else:
        if not re.fullmatch(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}", raw):
            raise ValueError(raw)
        return str(UUID(raw))
    if value is None:
        raise ValueError(raw)
    return value


string = _token(rf"{STRING}(?:\s*{STRING})*", _string)
timespan = _token(TIMESPAN, lambda text, span: _timespan(text, span))
number = _token(r"0[xX][0-9a-fA-F]+|\d+\.(?!\.)(?:\d+)?(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+(?![\w])", _number)
boolean = _token(
    r"(?:true|false|True|False|TRUE|FALSE)\b(?!\s*\()",
    lambda text, span: ast.Literal(text.lower() == "true", "bool", span=span),
)
typed = _token(
    # Possessive: a run of blanks could be divided among three parts, and each way was tried.
    r"(?:datetime|date|timespan|time|guid|boolean|bool|int|long|real|double|decimal)\s*+\(\s*+"
    r"(?:\"[^\"()\n]*+\"|'[^'()\n]*+'|[\w.:+\- /,~]*+)\s*+\)",
    _typed,
)

# dynamic(...) holds JSON with Kusto's own literals in it.
json_value: pp.Forward = Later()
_comma = _lit(",")
json_array = _action(
    _lit("[") + Maybe(json_value + Many(_comma + json_value)) + Maybe(_comma) + _end("]"),
    lambda _loc, toks: _Holder([_unhold(v) for v in list(toks)[:-1]]),
)
json_pair = _action((string | name_text) + _lit(":") + json_value, lambda loc, toks: (_key(toks[0]), toks[1]))
json_bag = _action(
    _lit("{") + Maybe(json_pair + Many(_comma + json_pair)) + Maybe(_comma) + _end("}"),
    lambda _loc, toks: _Holder({k: _unhold(v) for k, v in list(toks)[:-1]}),
)


class _Holder:
    """A JSON list inside ParseResults, which would otherwise flatten it."""

    __slots__ = ("items",)

    def __init__(self, items: Any) -> None:
        self.items = items


def _key(token: Any) -> str:
    return str(token.value) if isinstance(token, ast.Literal) else str(token)


json_signed = _token(r"[-+]\s*\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", lambda text, span: _signed(text, span))
json_null = _token(r"null\b", lambda _text, span: ast.Literal(None, "dynamic", span=span))
json_value <<= json_null | boolean | typed | timespan | number | json_signed | string | json_array | json_bag


def _signed(text: str, span: Span) -> ast.Literal:
    body = text.replace(" ", "")
    value: Any = int(body) if re.fullmatch(r"[-+]\d+", body) else float(body)
    return ast.Literal(value, "long" if isinstance(value, int) else "real", span=span)


def _unhold(value: Any) -> Any:
    return value.items if isinstance(value, _Holder) else value


dynamic = _action(
    Token(r"dynamic\s*\(") + json_value + end_of_list,
    lambda loc, toks: ast.Literal(_unhold(toks[0]), "dynamic", span=Span(loc, toks[1])),
)

# ---------------------------------------------------------------- operands
named_arg = _action(
    _text(rf"({NAME}|{BRACKETED})\s*=(?![=~])") + expr,
    lambda loc, toks: ast.Named(
        (_name_of(toks[0].rstrip("= \t\r\n"), Span(loc, loc + len(toks[0]))),),
        toks[1],
        span=Span(loc, toks[1].span.end),
    ),
)
typeof = _action(
    Token(r"typeof\s*\(") + type_name + end_of_list,
    lambda loc, toks: ast.TypeOf(toks[0], span=Span(loc, toks[1])),
)
star = _token(r"\*(?!\w)", lambda _text, span: ast.Star(span=span))
_value_starts = _LETTERS + _DIGITS + _QUOTES + "$[(+-*"
argument = ByFirst(("*", star), ("t", typeof), (_LETTERS + "$[", named_arg), (_value_starts, tabular))
call = _action(
    _text(rf"({NAME})\s*\(") + Maybe(argument + Many(_comma - argument)) + end_of_list,
    lambda loc, toks: ast.Call(toks[0][:-1].rstrip(), tuple(toks[1:-1]), span=Span(loc, toks[-1])),
)
parenthesis = _lit("(") + tabular + _lit(")")
member = _action(
    Token(r"\s*\.(?!\.)\s*") + (identifier | _action(_lit("[") + expr + _end("]"), lambda _l, t: (t[0], t[1]))),
    lambda loc, toks: ("index", *toks[0]) if isinstance(toks[0], tuple) else ("member", toks[0]),
)
index = _action(_lit("[") + expr + _end("]"), lambda loc, toks: ("index", toks[0], toks[1]))


def _postfix(_loc: int, toks: pp.ParseResults) -> ast.Node:
    node: ast.Node = toks[0]
    for what, key, *end in toks[1:]:
        if what == "colon":
            node = ast.Binary(":", node, key, span=Span(node.span.start, key.span.end))
        elif what == "member":
            node = ast.Member(node, key.name, span=Span(node.span.start, key.span.end))
        else:
            node = ast.Index(node, key, span=Span(node.span.start, end[0]))
    return node


# `Column:"term"` of search and find.
colon = _action(Token(r"\s*:(?=\s*[\"'@])") + string, lambda loc, toks: ("colon", toks[0]))
atom = ByFirst(
    (_QUOTES + "hH", string), (_DIGITS, timespan), (_DIGITS, number), ("d", dynamic), ("dtgbilr", typed), ("tTfF", boolean),
    (_LETTERS + "$", call), (_LETTERS + "$[", identifier), ("(", parenthesis),
)  # fmt: skip
postfixed = _action(atom + Many(ByFirst((".", member), ("[", index), (":", colon))), _postfix)
signed = _action(
    _text(r"[-+]") + postfixed,
    lambda loc, toks: ast.Unary(toks[0], toks[1], span=Span(loc, toks[1].span.end)),
)
operand = ByFirst((_value_starts.translate({ord(c): None for c in "+-*"}), postfixed), ("+-", signed), ("*", star))

# ---------------------------------------------------------------- chains
# R3: every match operator is its own word; nothing falls back to a weaker one.
MATCH_WORDS = [
    "hasprefix_cs",
    "hasprefix",
    "hassuffix_cs",
    "hassuffix",
    "has_cs",
    "has",
    "contains_cs",
    "contains",
    "startswith_cs",
    "startswith",
    "endswith_cs",
    "endswith",
    "like",
]
LIST_WORDS = ["has_any", "has_all", "in~", "in"]
_words = "|".join(MATCH_WORDS)
list_op = _token(
    r"!in~|!in\b|in~|in\b|has_any\b|has_all\b|!has_any\b|!has_all\b", lambda text, span: (text.lower(), span)
)
between_op = _token(r"!?between\b", lambda text, span: (text.lower(), span))
binary_op = _token(
    rf"matches\s+regex\b|!?(?:{_words})\b|and\b|or\b|==|=~|!=|!~|<>|<=|>=|<|>|\+|-|\*|/|%",
    lambda text, span: (re.sub(r"\s+", " ", text).lower(), span),
)
unknown_op = _token(r"!?[A-Za-z_]\w*~?(?=\s*[\"'@(])", lambda text, span: _unknown_operator(text, span))
ALL_BINARY = [*MATCH_WORDS, *LIST_WORDS, "between", "and", "or", "matches regex"]
CONTINUES = {"by", "on", "asc", "desc", "nulls", "with", "step", "from", "to", "in", "default", "limit", "of", "as", "kind",
             "typeof", "where", "extend", "project", "summarize", "output"}  # fmt: skip


def _unknown_operator(text: str, span: Span) -> None:
    close = nearest(text.lower().lstrip("!"), ALL_BINARY)
    if text.lower() in CONTINUES or close is None:
        raise pp.ParseException("", span.start, "not an operator")
    negated = "!" if text.startswith("!") else ""
    raise KqlSyntaxError(f"unknown operator '{text}'", span, suggestion=negated + close)


items = _action(
    _lit("(") + Maybe(tabular + Many(_comma + tabular)) + Maybe(_comma) + end_of_list,
    lambda _loc, toks: ("items", tuple(toks[:-1]), toks[-1]),
)
# A list in parentheses is tried once: as a value, too, each level of nesting would double the time.
list_operand = ByFirst(("(", items), (_value_starts.replace("(", ""), operand))
bounds = _action(
    _lit("(") + expr + _lit("..") + expr + end_of_list, lambda loc, toks: ("bounds", toks[0], toks[1], toks[2])
)
PRECEDENCE = {"or": 1, "and": 2, "+": 4, "-": 4, "*": 5, "/": 5, "%": 5}


def _chain(_loc: int, toks: pp.ParseResults) -> ast.Node:
    """Folds operand, operator, operand, ... by precedence; `and` and `or` stay flat."""
    if len(toks) == 1:
        only: ast.Node = toks[0]
        return only
    if len(toks) > 2 * MAX_OPERANDS:
        raise KqlSyntaxError(f"more than {MAX_OPERANDS} operands in one expression", toks[0].span)
    values: list[Any] = [toks[0]]
    pending: list[tuple[str, Span]] = []
    for place in range(1, len(toks), 2):
        op, right = toks[place], toks[place + 1]
        level = PRECEDENCE.get(op[0], 3)
        while pending and PRECEDENCE.get(pending[-1][0], 3) >= level:
            _fold(values, pending)
        pending.append(op)
        values.append(right)
    while pending:
        _fold(values, pending)
    result: ast.Node = values[0]
    return result


def _fold(values: list[Any], pending: list[tuple[str, Span]]) -> None:
    op, place = pending.pop()
    right, left = values.pop(), values.pop()
    if isinstance(left, tuple):
        raise KqlSyntaxError(f"'{op}' cannot follow a list or a range", place)
    if isinstance(right, tuple):
        span = Span(left.span.start, right[-1])
        if right[0] == "bounds":
            values.append(ast.Between(op.startswith("!"), left, right[1], right[2], span=span))
        else:
            values.append(ast.InList(op, left, right[1], span=span))
        return
    span = Span(left.span.start, right.span.end)
    if op in ("and", "or"):
        flat = left.operands if isinstance(left, ast.Logical) and left.op == op else (left,)
        values.append(ast.Logical(op, (*flat, right), span=span))
    else:
        values.append(ast.Binary("!=" if op == "<>" else op, left, right, span=span))


expr <<= _action(
    operand
    + Many(
        ByFirst(
            ("=!<>+-*/%" + _LETTERS, binary_op - (operand)),
            ("!bB", between_op - bounds),
            ("!ihIH", list_op + list_operand),
            ("!" + _LETTERS, unknown_op),
        )
    ),
    lambda loc, toks: _chain(loc, _lists_made_items(toks)),
)


def _lists_made_items(toks: pp.ParseResults) -> Any:
    """`x in name` without parentheses is `x in (name)`."""
    out = list(toks)
    for place in range(1, len(out), 2):
        if out[place][0].lstrip("!") in ("in", "in~", "has_any", "has_all") and isinstance(out[place + 1], ast.Node):
            out[place + 1] = ("items", (out[place + 1],), out[place + 1].span.end)
    return out
