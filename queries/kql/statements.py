"""The grammar of statements and tabular operators, on top of the expressions of `grammar.py`.

An operator is one entry of OPERATORS: its name and its syntax.
"""

from __future__ import annotations

import re
from typing import Any

import pyparsing as pp

from queries.kql import grammar as g
from queries.kql import syntax as ast
from queries.kql.elements import Later, Many, Maybe, P, Token
from queries.kql.errors import CannotExpress, KqlSyntaxError, NotImplementedYet, Span, nearest
from queries.kql.grammar import _action, _comma, _kw, _lit, _text, _token
from queries.kql.hints import FOREIGN_OPERATORS, INSTEAD


def _role(role: str, element: P) -> P:
    """Everything `element` yields, as one list under `role`."""
    return _action(pp.And([element]), lambda loc, toks: ("part", role, tuple(toks)))


def _one(role: str, element: P) -> P:
    return _action(pp.And([element]), lambda loc, toks: ("part", role, toks[0]))


def _flag(role: str, words: str) -> P:
    return _action(pp.And([_kw(words)]), lambda loc, toks: ("part", role, True))


def _listed(element: P) -> P:
    return element + Many(_comma - element)


setting_value = (
    g.string
    | g.timespan
    | g.number
    | g.boolean
    | g.dynamic
    | _token(r"[\w.]+", lambda text, span: ast.Literal(text, "string", span=span))
)
SETTING_NAMES = (
    r"(?:hint\.[\w.]+|kind|decodeblocks|withsource|with_source|isfuzzy|bagexpansion|with_itemindex|with_match_id|flags|"
    r"pair_delimiter|kv_delimiter|quote|escape|greedy|regex|threshold|characters|datascope)"
)
setting = _action(
    _text(rf"{SETTING_NAMES}\s*=(?![=~])") + setting_value,
    lambda loc, toks: ("setting", toks[0].rstrip("= \t\r\n"), toks[1]),
)
settings = Many(setting + Maybe(_comma))

multi_named = _action(
    _text(rf"\(\s*(?:{g.NAME}|{g.BRACKETED})(?:\s*,\s*(?:{g.NAME}|{g.BRACKETED}))*\s*\)\s*=(?![=~])") + g.expr,
    lambda loc, toks: ast.Named(
        tuple(g._plain_name(n) for n in re.findall(rf"{g.NAME}|{g.BRACKETED}", toks[0])),
        toks[1],
        span=Span(loc, toks[1].span.end),
    ),
)
named = multi_named | g.named_arg | g.expr
named_list = _listed(named)
name_or_star = g.wildcard | g.identifier
sort_key = _action(
    Maybe(Token(rf"(?:{g.NAME}|{g.BRACKETED})\s*=(?![=~])"))  # Kusto takes a name here and ignores it
    + g.expr
    + Maybe(_token(r"(?:asc|desc)\b", lambda text, span: ("order", text == "asc")))
    + Maybe(_token(r"nulls\s+(?:first|last)\b", lambda text, span: ("nulls", text.endswith("first")))),
    lambda loc, toks: ast.SortKey(toks[0], dict(toks[1:]).get("order"), dict(toks[1:]).get("nulls"), span=toks[0].span),
)
by_list = _role("by", _kw("by") - named_list)
to_type = _kw("to") + Token(r"typeof\s*\(") - g.type_name + _lit(")")
expand = _action(
    named + Maybe(to_type),
    lambda loc, toks: ast.Expand(toks[0], toks[1] if len(toks) > 1 else None, span=toks[0].span),
)
limit = _one("limit", _kw("limit") - g.expr)
schema_column = _action(g.name_text + _lit(":") - g.type_name, lambda loc, toks: (toks[0], toks[1]))
schema = _action(
    _lit("(")
    + Maybe(_listed(schema_column | _action(_lit("*") + pp.Empty(), lambda loc, toks: ("*", ""))))
    + g.end_of_list,
    lambda loc, toks: ast.Schema(tuple(toks[:-1]), span=Span(loc, toks[-1])),
)

capture = _action(
    g.name_text + Maybe(_lit(":") - g.type_name),
    lambda loc, toks: ast.Capture(toks[0], toks[1] if len(toks) > 1 else "string", span=Span(loc, loc + len(toks[0]))),
)
pattern_item = g.string | g.star | capture
parse_body = settings + _one("value", g.expr) + _kw("with") - _role("pattern", pp.OneOrMore(pattern_item))

series = _action(
    named + Maybe(_kw("default") + _lit("=") - g.operand),
    lambda loc, toks: ast.Series(toks[0], toks[1] if len(toks) > 1 else None, span=toks[0].span),
)
axis_name = _action(
    _text(rf"({g.NAME}|{g.BRACKETED})\s*=(?![=~])") + g.operand,
    lambda loc, toks: ast.Named((g._plain_name(toks[0][:-1].rstrip()),), toks[1], span=Span(loc, toks[1].span.end)),
)
axis = (
    _one("on", _kw("on") - (axis_name | g.operand))
    + Maybe(
        _action(
            _kw("in") + Token(r"range\s*\(") - g.expr + _comma + g.expr + _comma + g.expr + _lit(")"),
            lambda loc, toks: [
                ("part", "from", toks[0]),
                ("part", "to", toks[1]),
                ("part", "step", toks[2]),
                ("part", "closed", True),
            ],
        )
    )
    + Maybe(_one("from", _kw("from") - g.expr))
    + Maybe(_one("to", _kw("to") - g.expr))
    + Maybe(_one("step", _kw("step") - g.expr))
)

subquery = _lit("(") + g.pipeline_tail + _lit(")")
branch = _action(
    Maybe(_text(rf"(?:{g.NAME}|{g.BRACKETED})\s*=(?![=~])")) + subquery,
    lambda loc, toks: (g._plain_name(toks[0].rstrip("= \t\r\n")) if len(toks) > 1 else "", toks[-1]),
)
join_right = _one("right", g.operand)
join_on = _role("on", _kw("on") - _listed(g.expr))
union_item = g.wildcard | g.operand
top_nested_clause = _action(
    Maybe(~_kw("of") + _one("count", g.operand)) + _kw("of") - _one("of", named)
    + Maybe(_one("others", _kw("with others") + _lit("=") - g.expr))
    + _one("by", _kw("by") - named) + Maybe(_token(r"(?:asc|desc)\b", lambda text, span: ("part", "asc", text == "asc"))),
    lambda loc, toks: _operator("top-nested", loc, toks),
)  # fmt: skip
scan_assign = _listed(g.named_arg)
scan_step = _action(
    _kw("step") - _one("name", g.name_text) + Maybe(_flag("optional", "optional"))
    + Maybe(_kw("output") + _lit("=") + _one("output", _text(r"all|last|none")))
    + _lit(":") + _one("when", g.expr) + Maybe(_lit("=>") - _role("assign", scan_assign)) + _lit(";"),
    lambda loc, toks: _operator("step", loc, toks),
)  # fmt: skip
declared = _action(
    g.name_text + _lit(":") + g.type_name + Maybe(_lit("=") + g.operand),
    lambda loc, toks: ast.Parameter(
        toks[0], toks[1], None, toks[2] if len(toks) > 2 else None, span=Span(loc, loc + 1)
    ),
)


def _operator(name: str, loc: int, toks: Any) -> ast.Operator:
    found: dict[str, Any] = {}
    chosen: dict[str, ast.Node] = {}
    for token in toks:
        if token[0] == "setting":
            chosen[token[1].lower()] = token[2]
        else:
            found[token[1]] = token[2]
    return ast.Operator(name, chosen, found, span=Span(loc, loc + len(name)))


find_column = _action(
    g.name_text + Maybe(_lit(":") - g.type_name),
    lambda loc, toks: ast.Capture(toks[0], toks[1] if len(toks) > 1 else "", span=Span(loc, loc + len(toks[0]))),
)
find_pack = _action(_text(r"pack\s*\(\s*\*\s*\)"), lambda loc, toks: ast.Call("pack", (), span=Span(loc, loc + 4)))
find_body = (
    settings + Maybe(_kw("in") + _lit("(") - _role("tables", _listed(union_item)) + _lit(")"))
    + Maybe(_kw("where")) + _one("value", g.expr)
    + Maybe(_kw("project-smart") | (_kw("project") - _role("columns", _listed(find_pack | find_column))))
)  # fmt: skip
OPERATORS: dict[str, P] = {
    "where": _one("value", g.expr),
    "project": Maybe(_role("columns", named_list)),
    "extend": _role("columns", named_list),
    "project-away": _role("columns", _listed(name_or_star)),
    "project-keep": _role("columns", _listed(name_or_star)),
    "project-rename": _role("columns", _listed(g.named_arg)),
    "project-reorder": _role("columns", _listed(_action(
        name_or_star + Maybe(_text(r"(?:asc|desc|granny-asc|granny-desc)\b")),
        lambda loc, toks: ast.Reordered(toks[0], toks[1] if len(toks) > 1 else "", span=toks[0].span)))),
    "summarize": settings + ((Token(r"(?=by\s+[\w\['\"(])") + by_list)
    | (Maybe(_role("columns", named_list)) + Maybe(by_list))),
    "distinct": _role("columns", _listed(g.star | named)),
    "count": Maybe(_one("as", _kw("as") - g.name_text)),
    "take": _one("limit", g.expr),
    "sample": _one("limit", g.expr),
    "sample-distinct": _one("limit", g.expr) + _kw("of") - _one("of", named),
    "sort": settings + _kw("by") - _role("keys", _listed(sort_key)),
    "top": settings + _one("limit", g.expr) + _kw("by") - _role("keys", _listed(sort_key)),
    "top-hitters": _one("limit", g.expr) + _kw("of") - _one("of", g.expr) + Maybe(by_list),
    "join": settings + join_right + Maybe(join_on),
    "lookup": settings + join_right + join_on,
    "union": settings + _role("tables", _listed(union_item)),
    "mv-expand": settings + _role("columns", _listed(expand)) + Maybe(limit),
    "mv-apply": settings + _role("columns", _listed(expand)) + Maybe(limit) + _kw("on") - _one("body", subquery),
    "parse": parse_body,
    "parse-where": parse_body,
    "parse-kv": _one("value", g.expr) + _kw("as") - _one("schema", schema)
    + Maybe(_kw("with") - _lit("(") + settings + _lit(")")),
    "make-series": settings + _role("columns", _listed(series)) + axis + Maybe(by_list),
    "find": find_body,
    "top-nested": _action(
        top_nested_clause + Many(_comma + Token(r"top-nested") - top_nested_clause),
        lambda loc, toks: ("part", "levels", tuple(toks))),
    "scan": settings + Maybe(_kw("declare") + _lit("(") - _role("declare", _listed(declared)) + _lit(")"))
    + _kw("with") + _lit("(") - _role("steps", pp.OneOrMore(scan_step)) + _lit(")"),
    "partition": settings + _kw("by") - _one("by", g.identifier)
    + (_one("body", subquery) | (_lit("{") - _one("query", g.tabular) + _lit("}"))),
    "evaluate": settings + _one("call", g.call) + Maybe(_lit(":") - _one("schema", schema)),
    "invoke": _one("call", g.call),
    "serialize": Maybe(_role("columns", named_list)),
    "getschema": pp.Empty(),
    "consume": settings,
    "fork": _role("branches", pp.OneOrMore(branch)),
    "facet": _kw("by") - _role("columns", _listed(g.identifier)) + Maybe(_kw("with") - _one("body", subquery)),
    "as": settings + _one("name", g.name_text),
    "render": _one("kind", g.identifier) + Maybe(
        _role("properties", _kw("with") - _lit("(") + Maybe(_listed(g.named_arg | g.expr)) + _lit(")")
              | pp.OneOrMore(g.named_arg + Maybe(_comma)))),
    "search": settings + Maybe(_kw("in") + _lit("(") - _role("tables", _listed(union_item)) + _lit(")"))
    + _one("value", g.expr),
    "reduce": settings + _kw("by") - _one("value", g.expr) + Maybe(
        _kw("with") - settings),
    "assert-schema": _one("schema", schema),
    "project-by-names": _role("columns", _listed(g.expr)),
    # Nouns of the cluster, extensions of ours: operators/nouns.py.
    **{name: _lit("(") + _role("args", Maybe(_listed(g.argument))) + g.end_of_list.suppress()
       for name in ("during_job", "within", "followed_by")},
}  # fmt: skip
ALIASES = {"filter": "where", "limit": "take", "order": "sort", "mvexpand": "mv-expand", "mvapply": "mv-apply"}
#: Operators that begin no query; the others are sources, too.
BEHIND_A_TABLE = frozenset({*OPERATORS, *ALIASES} - {"union", "search", "find"})
KNOWN_NOT_YET = ("graph-match", "make-graph", "graph-to-table", "graph-shortest-paths",
                 "externaldata", "macro-expand", "graph-mark-components")  # fmt: skip


class _Dispatch(pp.Token):
    """The operator after a pipe, looked up by name so that an unknown one is reported with the nearest known one."""

    _word = re.compile(r"[A-Za-z_][\w-]*")

    def _generateDefaultName(self) -> str:  # noqa: N802 - pyparsing's own hook
        return "operator"

    def parseImpl(self, instring: str, loc: int, do_actions: bool = True) -> Any:  # noqa: N802
        """Looks the word up and parses what must follow it."""
        word = self._word.match(instring, loc)
        if not word:
            raise pp.ParseSyntaxException(instring, loc, "expected an operator", self)
        name = ALIASES.get(word[0].lower(), word[0].lower())
        element = OPERATORS.get(name)
        span = Span(loc, word.end())
        if element is None:
            if name in KNOWN_NOT_YET:
                raise NotImplementedYet(
                    f"the operator '{name}' is not implemented yet", span, suggestion=INSTEAD.get(name)
                )
            close = FOREIGN_OPERATORS.get(name.lower()) or nearest(name, [*OPERATORS, *ALIASES])
            raise KqlSyntaxError(f"unknown operator '{word[0]}'", span, suggestion=close)
        end, toks = element._parse(instring, word.end(), do_actions)
        made = _operator(name, loc, toks)
        return end, ast.Operator(name, made.settings, made.parts, span=span)


dispatch = _Dispatch()
g.pipeline_tail <<= _action(
    dispatch + Many(_lit("|") - dispatch),
    lambda loc, toks: ast.Pipeline(ast.Star(), tuple(toks), span=Span(loc, loc + 1)),
)


# ---------------------------------------------------------------- sources that start with a word
def _source(word: str, name: str, body: P) -> P:
    return _action(Token(word) - body, lambda loc, toks: _operator(name, loc, toks))


datatable = _source(
    r"datatable\s*(?=\()", "datatable",
    _one("schema", schema) + settings + _lit("[") + _role(
        "values", Maybe(g.operand + Many(_comma + g.operand) + Maybe(_comma))) + _lit("]"),
)  # fmt: skip
range_source = _source(
    rf"range\s+(?={g.NAME}|\[)", "range",
    _one("name", g.name_text) + _kw("from") + _one("from", g.expr) + _kw("to") + _one("to", g.expr)
    + _kw("step") + _one("step", g.expr),
)  # fmt: skip
print_source = _source(r"print\b(?!\s*=)", "print", _role("columns", named_list))
union_source = _source(r"union\b(?=\s+[\w(*\[])", "union", OPERATORS["union"])
search_source = _source(r"search\b(?=\s+[\w(*\"'@])", "search", OPERATORS["search"])
find_source = _source(r"find\b(?=\s+[\w(*\"'@])", "find", find_body)
external = _action(_text(r"externaldata\s*\(|external_table\s*\("), lambda loc, toks: _external(loc))


def _external(loc: int) -> None:
    message = "externaldata would fetch from outside; queries here read the store only"
    raise CannotExpress(message, Span(loc, loc + 12), suggestion=INSTEAD["externaldata"])


source = datatable | range_source | print_source | union_source | search_source | find_source | external | g.expr


def _pipeline(_loc: int, toks: pp.ParseResults) -> ast.Node:
    head: ast.Node = toks[0]
    if len(toks) == 1 and not isinstance(head, ast.Operator):
        return head
    return ast.Pipeline(head, tuple(toks[1:]), span=Span(head.span.start, toks[-1].span.end))


g.tabular <<= _action(source + Many(_lit("|") - dispatch), _pipeline)

# ---------------------------------------------------------------- statements
default = Maybe(_lit("=") - g.operand)
parameter = _action(
    g.name_text + _lit(":") - (schema | g.type_name) + default,
    lambda loc, toks: ast.Parameter(
        toks[0],
        "table" if isinstance(toks[1], ast.Schema) else toks[1],
        toks[1] if isinstance(toks[1], ast.Schema) else None,
        toks[2] if len(toks) > 2 else None,
        span=Span(loc, loc + len(toks[0])),
    ),
)
statement: pp.Forward = Later()
let_statement: pp.Forward = Later()
semicolon = _lit(";")
lambda_body = _lit("{") - Many(let_statement + semicolon) + Maybe(g.tabular + Maybe(semicolon)) + _lit("}")
function = _action(
    Maybe(_token(r"view\b", lambda text, span: True)("view"))
    + Token(r"\((?=\s*(?:\)|(?:[\w]+|\['[^']*'\])\s*:))")
    + _action(Maybe(_listed(parameter)) + _lit(")"), lambda loc, toks: ("parameters", tuple(toks)))
    + _action(pp.And([lambda_body]), lambda loc, toks: ("body", tuple(toks))),
    lambda loc, toks: ast.Lambda(
        next(t[1] for t in toks if isinstance(t, tuple) and t[0] == "parameters"),
        next(t[1] for t in toks if isinstance(t, tuple) and t[0] == "body"),
        toks[0] is True,
        span=Span(loc, loc + 1),
    ),
)
let_statement <<= _action(
    Token(r"let\s+") + g.identifier + _lit("=") - (function | g.tabular),
    lambda loc, toks: ast.Let(toks[0].name, toks[1], span=toks[0].span),
)
# Possessive: blanks behind the sign could be divided among its parts, and each way was tried.
ignored = _token(r"(?:set\s++\w++(?:\s*+=[^;|]++)?|(?:alias|restrict|pattern)\s++\w[^;]*+)(?=\s*(?:;|$))",
                 lambda text, span: _ignored(text, span))  # fmt: skip
declare = _action(
    Token(r"declare\s+query_parameters\s*\(") - Maybe(_listed(parameter)) + _lit(")"),
    lambda loc, toks: ast.Declare(tuple(toks), span=Span(loc, loc + 7)),
)


def _ignored(text: str, span: Span) -> ast.Ignored:
    if not text.startswith("set"):
        raise NotImplementedYet(f"the statement '{text.split()[0]}' is not implemented yet", span)
    name, _, value = text[3:].partition("=")
    settings: dict[str, ast.Node] = {}
    if value.strip() and name.strip().startswith("query_bin_auto"):
        settings[name.strip()] = g.expr.parse_string(value.strip(), parse_all=True)[0]
    return ast.Ignored(text, settings, span=span)


statement <<= let_statement | declare | ignored | g.tabular
script = _action(
    Many(semicolon) + Maybe(statement + Many(pp.OneOrMore(semicolon) + Maybe(statement))),
    lambda loc, toks: ast.Script(tuple(toks), span=Span(0, 0)),
)
