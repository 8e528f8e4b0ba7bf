"""Arithmetic, comparison and text matching between two values."""

from __future__ import annotations

import re
from datetime import timedelta

from queries.kql.conversion import to_type
from queries.kql.edges import POSSIBLE_EDGE, SURE_EDGE, TERM_EDGE, UNDECIDED, Form, form_of_terms
from queries.kql.errors import NOWHERE, KqlBindError, Span
from queries.kql.failures import REFUSED
from queries.kql.hints import FOREIGN_COMPARISONS
from queries.kql.regex import complaint
from queries.kql.values import NUMERIC, Value, cast_number, constant, sql, text_of, widest

_GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def arithmetic(op: str, left: Value, right: Value, span: Span) -> Value:
    """`+ - * / %` on numbers, datetimes and timespans."""
    left, right = _dynamic_number(left, right), _dynamic_number(right, left)
    kinds = (left.type, right.type)
    if kinds == ("dynamic", "dynamic"):
        return _two_dynamics(op, left, right)
    if all(k in NUMERIC for k in kinds):
        return _numbers(op, left, right)
    if kinds == ("datetime", "datetime") and op == "-":
        return sql("((epoch_us({0}) - epoch_us({1})) * 10)", "timespan", left, right)
    if kinds == ("datetime", "timespan") and op in "+-":
        if left.is_constant and right.is_constant and left.constant and right.constant is not None:
            try:
                delta = timedelta(microseconds=right.constant // 10)
                return constant(left.constant + delta if op == "+" else left.constant - delta, "datetime")
            except OverflowError:
                raise KqlBindError("the date is out of range", span) from None
        # R9: ticks are 100 ns, DuckDB keeps microseconds.
        return sql(f"make_timestamp(epoch_us({{0}}) {op} {{1}} // 10)", "datetime", left, right)
    if kinds == ("timespan", "datetime") and op == "+":
        return arithmetic("+", right, left, span)
    if kinds == ("timespan", "timespan"):
        if op in "+-":
            return sql(f"({{0}} {op} {{1}})", "timespan", left, right)
        if op == "/":
            return sql("(CAST({0} AS DOUBLE) / {1})", "real", left, right)
        if op == "%":
            return sql("({0} % nullif({1}, 0))", "timespan", left, right, nullable=True)
    if kinds[0] == "timespan" and kinds[1] in NUMERIC and op in "*/":
        return sql(f"TRY_CAST(trunc(CAST({{0}} AS DOUBLE) {op} {{1}}) AS BIGINT)", "timespan", left, right, nullable=True) \
            if kinds[1] in ("real", "decimal") or op == "/" else sql("({0} * {1})", "timespan", left, right)  # fmt: skip
    if kinds[1] == "timespan" and kinds[0] in NUMERIC and op == "*":
        return arithmetic("*", right, left, span)
    if kinds == ("datetime", "timespan") and op == "%":
        return sql("((epoch_us({0}) * 10) % nullif({1}, 0))", "timespan", left, right, nullable=True)
    raise KqlBindError(f"'{op}' does not work between {left.type} and {right.type}", span)


def _two_dynamics(op: str, left: Value, right: Value) -> Value:
    """Whole numbers stay whole, other numbers are real, anything else gives null."""
    reals = _numbers(op, from_dynamic(left, "real"), from_dynamic(right, "real"))
    longs = _numbers(op, from_dynamic(left, "long"), from_dynamic(right, "long"))
    whole = "json_type({0}) IN ('BIGINT', 'UBIGINT') AND json_type({1}) IN ('BIGINT', 'UBIGINT')"
    template = f"CASE WHEN {whole} THEN to_json({{2}}) WHEN {{3}} IS NOT NULL THEN to_json({{3}}) END"
    return sql(template, "dynamic", left, right, longs, reals, nullable=True)


def _numbers(op: str, left: Value, right: Value) -> Value:
    kind = widest([left.type, right.type])
    kind = "long" if kind == "int" else kind
    left, right = cast_number(left, kind), cast_number(right, kind)
    if op == "/" and kind == "long":
        # Both truncate towards zero; Kusto gives null for x/0 where DuckDB fails.
        return sql("({0} // nullif({1}, 0))", "long", left, right, nullable=True)
    if op == "%":
        # R17: Kusto documents the never negative remainder; DuckDB's takes the dividend's sign.
        word = "(({0} % nullif({1}, 0)) + abs({1})) % abs({1})" if kind != "decimal" else "decimal_remainder({0}, {1})"
        return sql(f"({word})", kind, left, right, nullable=True)
    if kind == "decimal":
        wide = "CAST({0} AS DOUBLE) / nullif(CAST({1} AS DOUBLE), 0)" if op == "/" else f"{{0}} {op} {{1}}"
        return sql(f"CAST({wide} AS DECIMAL(38,12))", kind, left, right, nullable=True)
    return sql(f"({{0}} {op} {{1}})", kind, left, right)


def _dynamic_number(value: Value, other: Value) -> Value:
    """A dynamic beside a typed value is converted to that type."""
    if value.type != "dynamic" or other.type == "dynamic":
        return value
    return from_dynamic(value, other.type)


def from_dynamic(value: Value, kind: str) -> Value:
    """A dynamic converted to a type; null if it holds another one (R8)."""
    if kind == "string":
        return text_of(value)
    if kind in ("int", "long", "real", "decimal", "bool"):
        return to_type(value, kind)
    if kind in ("datetime", "timespan", "guid"):
        return to_type(text_of(value), kind)
    return value


def _converted(left: Value, right: Value) -> str | None:
    """A text beside another type, converted to that."""
    for text, other in ((left, right), (right, left)):
        if text.type == "string" and text.is_constant and other.type in ("datetime", "timespan", "guid", *NUMERIC):
            if other.type == "guid" and not _GUID.fullmatch(text.constant.lower()):
                return None
            return f"{other.type}({text.constant})"
    return None


def _as_guid(value: Value) -> Value:
    """A text that spells a guid in its canonical form, beside a guid.

    For other spellings the documentation does not say whether Kusto parses the text or formats the guid.
    """
    known = value.type == "string" and value.is_constant and _GUID.fullmatch(value.constant)
    return constant(value.constant, "guid") if known else value


def _comparable(left: Value, right: Value, op: str, span: Span, written: str = "") -> tuple[Value, Value]:
    left, right = _dynamic_number(left, right), _dynamic_number(right, left)
    if left.type in NUMERIC and right.type in NUMERIC:
        kind = widest([left.type, right.type])
        return cast_number(left, kind), cast_number(right, kind)
    if {left.type, right.type} <= {"bool", *NUMERIC} and left.type != right.type:
        widened = [sql("CAST({0} AS BIGINT)", "long", v) if v.type == "bool" else v for v in (left, right)]
        return _comparable(widened[0], widened[1], op, span, written)
    if op in ("==", "!=") and {left.type, right.type} == {"guid", "string"}:
        left, right = (_as_guid(v) for v in (left, right))
    if left.type != right.type:
        raise KqlBindError(
            f"'{written or op}' cannot compare {left.type} with {right.type}", span, suggestion=_converted(left, right)
        )
    if left.type == "dynamic":
        left, right = text_of(left), text_of(right)
    return left, right


def equal(op: str, left: Value, right: Value, span: Span, written: str = "") -> Value:
    """R2: equality is total: one null side is false, two are null. ``written`` is the operator in the query."""
    left, right = _comparable(left, right, op, span, written)
    first, second = "{0}", "{1}"
    if op in ("=~", "!~"):
        if left.type != "string":
            raise KqlBindError(f"'{written or op}' needs strings, not {left.type}", span)
        first, second = "lower({0})", "lower({1})"
    nulls = left.nullable + right.nullable
    if nulls == 2:
        template = f"CASE WHEN {{0}} IS NULL AND {{1}} IS NULL THEN NULL ELSE {first} IS NOT DISTINCT FROM {second} END"
    elif nulls == 1:
        template = f"coalesce({first} = {second}, false)"
    else:
        template = f"({first} = {second})"
    made = sql(template, "bool", left, right, nullable=nulls == 2)
    return sql("(NOT {0})", "bool", made) if op.startswith("!") else made


def compare(op: str, left: Value, right: Value, span: Span) -> Value:
    """`< <= > >=`: null if either side is (R2)."""
    left, right = _comparable(left, right, op, span)
    if left.type == "string":
        raise KqlBindError(f"'{op}' does not order strings; strcmp() does", span)
    if left.type in ("bool", "dynamic", "guid"):
        raise KqlBindError(f"'{op}' does not order {left.type}", span)
    return sql(f"({{0}} {op} {{1}})", "bool", left, right)


def negate_total(value: Value) -> Value:
    """R2: the negation of a match is true where the match is not."""
    return sql("(NOT coalesce({0}, false))" if value.nullable else "(NOT {0})", "bool", value, nullable=False)


def match(op: str, left: Value, right: Value, span: Span) -> Value:
    """The string operators; `!op` is the total negation (R2)."""
    negated, word = op.startswith("!"), op.lstrip("!")
    if left.type not in ("string", "dynamic"):
        raise KqlBindError(f"'{word}' needs a string on its left, not {left.type}; convert it with tostring()", span)
    if right.type not in ("string", "dynamic"):
        raise KqlBindError(f"'{word}' needs a string on its right, not {right.type}", span)
    left, right = text_of(left), text_of(right)
    sensitive = word.endswith("_cs") or word == "matches regex"
    base = word.removesuffix("_cs")
    if base == "matches regex":
        check_regex(right, right.span if right.span != NOWHERE else span)
        made = sql("regexp_matches({0}, {1})", "bool", left, right)
    elif base in ("has", "hasprefix", "hassuffix"):
        made = _term(base, left, right, sensitive)
    else:
        function = {"contains": "contains", "startswith": "starts_with", "endswith": "ends_with"}.get(base)
        if function is None:
            raise KqlBindError(
                f"'{word}' is not a KQL operator", span, suggestion=FOREIGN_COMPARISONS.get(word.lower())
            )
        pattern = _any_case(right) if base == "contains" and not sensitive else None
        template = f"{function}({{0}}, {{1}})" if sensitive else f"{function}(lower({{0}}), lower({{1}}))"
        made = sql(template if pattern is None else _FOUND, "bool", left, pattern or right)
    return negate_total(made) if negated else made


def check_regex(pattern: Value, span: Span) -> None:
    """Refuses by name what RE2 cannot do, instead of letting the engine complain."""
    if pattern.type not in ("string", "dynamic"):
        raise KqlBindError(f"a regular expression is a string, not {pattern.type}", span)
    if pattern.is_constant and isinstance(pattern.constant, str) and (problem := complaint(pattern.constant)):
        raise KqlBindError(problem, span)


def _term(base: str, left: Value, right: Value, sensitive: bool) -> Value:
    """R3: `has`, `hasprefix` and `hassuffix` match whole terms. A cheap substring test runs before the regular expression."""
    flag = "" if sensitive else "(?i)"
    rest: tuple[Value, ...] = ()
    test = _MATCHED
    if right.is_constant:
        whole, sure, possible = (
            constant(flag + _between(base, right.constant, edge), "string")
            for edge in (TERM_EDGE, SURE_EDGE, POSSIBLE_EDGE)
        )
        form = Form.LETTERS if whole.constant == sure.constant else form_of_terms()
        test = _TESTS[form]
        rest = {Form.ASCII_ROWS: (sure,), Form.ASCII_SIDES: (sure, possible), Form.LETTERS: (whole,)}[form]
    else:
        before = (
            ""
            if base == "hassuffix"
            else f"CASE WHEN regexp_matches({{0}}, '^[\\p{{L}}\\p{{N}}]') THEN '(?:^|{TERM_EDGE})' ELSE '' END"
        )
        after = (
            ""
            if base == "hasprefix"
            else f"CASE WHEN regexp_matches({{0}}, '[\\p{{L}}\\p{{N}}]$') THEN '(?:$|{TERM_EDGE})' ELSE '' END"
        )
        parts = [f"'{flag}'", before or "''", "regexp_escape({0})", after or "''"]
        rest = (sql("(" + " || ".join(parts) + ")", "string", right),)
    prefilter = "contains({0}, {1})" if sensitive else "contains(lower({0}), lower({1}))"
    if not sensitive and (letters := _any_case(right)) is not None:
        prefilter, right = _FOUND, letters
    return sql(f"({prefilter} AND {test})", "bool", left, right, *rest)


def _between(base: str, needle: str, edge: str) -> str:
    """The pattern of a term between edges, where letters or digits begin and end it."""
    before = f"(?:^|{edge})" if base != "hassuffix" and needle[:1].isalnum() else ""
    after = f"(?:$|{edge})" if base != "hasprefix" and needle[-1:].isalnum() else ""
    return before + re2_escape(needle) + after


_MATCHED = "regexp_matches({0}, {2})"
#: True with sure edges, false without possible ones; else the statement stops (``edges``).
_DECIDED = (
    "CASE WHEN regexp_matches({0}, {2}) THEN true WHEN regexp_matches({0}, {3}) "
    f"THEN error('{REFUSED}{UNDECIDED}') WHEN {{0}} IS NULL THEN NULL ELSE false END"
)
#: True with sure edges, false if all of it is ASCII: then bytes are characters.
_DECIDED_IF_ASCII = (
    "CASE WHEN regexp_matches({0}, {2}) THEN true WHEN strlen({0}) = length({0}) THEN false "
    f"WHEN {{0}} IS NULL THEN NULL ELSE error('{REFUSED}{UNDECIDED}') END"
)
_TESTS = {Form.ASCII_ROWS: _DECIDED_IF_ASCII, Form.ASCII_SIDES: _DECIDED, Form.LETTERS: _MATCHED}
_FOUND = "regexp_matches({0}, {1})"
#: The characters beyond ASCII that ``lower`` makes an ASCII letter of.
FOLDED = {"i": "\u0130", "k": "\u212a"}
#: The maximum length of a text that is searched as a pattern: a pattern of more than 200 characters is not known to be
#: cheap (``wall.judging``), and each letter becomes up to five.
MOST_LETTERS = 40


def _any_case(text: Value) -> Value | None:
    """A pattern that finds a constant text in any case, as ``contains(lower(...), lower(...))`` does in more time: that
    writes all texts in lower case first. None if there is none."""
    found = text.constant if text.is_constant else None
    if not isinstance(found, str) or not re.fullmatch(rf"[\w /=:,;.@#-]{{1,{MOST_LETTERS}}}", found, re.ASCII):
        return None
    return constant("".join(_either_case(sign) for sign in found.lower()), "string")


def _either_case(sign: str) -> str:
    return f"[{sign}{sign.upper()}{FOLDED.get(sign, '')}]" if sign.isalpha() else re2_escape(sign)


def re2_escape(text: str) -> str:
    """Quote for RE2, which refuses a backslash before a letter, digit, underscore or non-ASCII."""
    return "".join(ch if ch.isalnum() or ch == "_" or ord(ch) > 127 else "\\" + ch for ch in text)
