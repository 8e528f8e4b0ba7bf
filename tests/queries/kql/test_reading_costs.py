"""What parsing and binding a query may cost: it is refused before, or aborted, and leaves nothing behind."""

from __future__ import annotations

import re

import pytest

from queries.kql import KqlError, budget, parser
from queries.kql.catalog import CATALOG
from queries.kql.compile import compile_script
from queries.kql.kept import MOST_CHARACTERS, MOST_TEXTS, Kept
from queries.kql.lexical import STRING, UNCLOSED, blank_comments

TOO_MUCH = [
    ("print " + "+".join(["1"] * 40_000), r"80000 words and signs; the limit is \d+"),
    ("union " + ", ".join(["Logs"] * 3000) + " | count", "union of 3000 tables; at most 500"),
    ("print " + "9" * 99_000, "does not fit a long"),
    ("print long(" + "9" * 9_000 + ")", "is not a long literal"),
    ("print totimespan('" + "9" * 9_000 + "d')", None),
    ("print now() - 999999999999d", "out of range"),
    ("Logs | extend " + ", ".join(f"c{n} = Line" for n in range(1500)) + "| project-reorder *" * 300, "unfolds into"),
    ("union " + ", ".join(f"(print a{n} = 1)" for n in range(400)), "unfolds into"),
    ("let t0 = Logs;" + "".join(f"let t{n} = t{n - 1} | join t{n - 1} on Host;" for n in range(1, 20)) + "t19", "unfolds into"),
]  # fmt: skip


#: Two that unfold, which cost most; a third is quick.
LONG = (6, 8)


@pytest.mark.parametrize(
    ("kql", "said"),
    [pytest.param(*one, id=one[0][:30], marks=pytest.mark.long if n in LONG else ()) for n, one in enumerate(TOO_MUCH)],
)
def test_what_costs_too_much_to_read_is_refused(kql: str, said: str | None) -> None:
    if said is None:
        assert compile_script(kql, CATALOG)
        return
    with pytest.raises(KqlError, match=said) as refused:
        compile_script(kql, CATALOG)
    assert "hole in the checks" not in refused.value.message


@pytest.mark.parametrize("kql", [
    "Logs | where Host in (" + ", ".join(f"'h{n}'" for n in range(500)) + ")",
    "Logs | extend " + ", ".join(f"c{n} = Line + {n}" for n in range(300)),
    "union " + ", ".join(["Logs"] * 200) + " | count",
])  # fmt: skip
def test_reading_ends_when_its_work_is_used_up(kql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the work is: the clock of the thread is read throughout."""
    assert compile_script(kql, CATALOG)
    monkeypatch.setattr(budget, "MOST_CPU_S", 0.0)
    parser._KEPT.__init__()  # type: ignore[misc]
    with pytest.raises(KqlError, match="takes more than 0 s to read"):
        compile_script(kql, CATALOG)


@pytest.mark.parametrize("opening", ["'", '"', "@'", '@"', "h'", "```", "~~~"])
def test_a_text_without_an_end_is_looked_at_once(opening: str) -> None:
    """Each of its quotes could begin a string; trying each to the end took a minute, in which no request was served."""
    text = f"print {opening}" + ("\\'" if opening == "'" else "x") * 1_000
    for pattern in (re.compile(f"{STRING}|{UNCLOSED}"), parser._WORD, re.compile(parser._BRACKETS)):
        assert [m[0] for m in pattern.finditer(text) if m[0] != "print"] == [text[6:]]
    assert blank_comments(text + " // not a comment") == text + " // not a comment"
    with pytest.raises(KqlError) as refused:
        compile_script(text, CATALOG)
    assert "has no end" in refused.value.message or "did not expect" in refused.value.message


def test_what_is_kept_of_texts_is_bounded() -> None:
    kept: Kept[int] = Kept(longest=2_000)
    for n in range(3_000):
        kept.put(f"{n:02000}", n)
        kept.put(f"{n:02000}", n)  # again
    assert kept.get(f"{2999:02000}") == 2999 and kept.get(f"{0:02000}") is None
    assert kept.characters <= MOST_CHARACTERS
    kept.put("x" * 2_001, 1)
    assert kept.get("x" * 2_001) is None
    for n in range(3_000):
        kept.put(str(n), n)
    assert sum(kept.get(str(n)) is not None for n in range(3_000)) <= MOST_TEXTS and kept.characters < 5 * MOST_TEXTS


@pytest.mark.parametrize(("kql", "said"), [
    ("print datetime(" + " " * 90_000 + "x'", "is not closed"),
    ("set a =" + " " * 90_000 + "| print 1", "did not expect"),
    ("Logs | parse kind=regex Message with @'\\Q[" + "\\" * 90_000 + "' x", None),
    ("print extract_all(@'\\Q[" + "\\" * 90_000 + "', 'x')", "capture group"),
    ("print " + "a in (" * 58 + "1 x", "did not expect"),
], ids=["blanks of a literal", "blanks of a setting", "backslashes of a parsed pattern", "backslashes of a pattern", "lists"])  # fmt: skip
def test_a_text_is_read_in_one_way_only(kql: str, said: str | None) -> None:
    """Each way to divide blanks among the parts of an expression was tried: hours, in which no request was served."""
    if said is None:
        assert compile_script(kql, CATALOG)
        return
    with pytest.raises(KqlError, match=said):
        compile_script(kql, CATALOG)
