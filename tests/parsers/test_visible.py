"""Characters that steer a terminal or hide in a text are shown as escapes."""

import json
import unicodedata

from parsers.visible import visible


def test_no_sign_of_control_or_format_stays() -> None:
    """All of Unicode: controls, formats, line separators, surrogates; tab and newline are harmless."""
    every = "".join(map(chr, range(0x110000)))
    kept = visible(every)
    turning = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    assert [s for s in kept if unicodedata.category(s) in ("Cc", "Zl", "Zp", "Cs") and s not in "\t\n"] == []
    assert [s for s in kept if unicodedata.bidirectional(s) in turning] == []
    assert not any(
        unicodedata.category(sign)[0] == "C" and sign not in "\t\n"
        for sign in visible("\x00\x1b\x7f\x9b\u202e\u200b\ufeff\ud800\U000e0041")
    )
    assert "\n" not in visible(every, lines=False) and "\t" not in visible(every, lines=False)


def test_an_escape_means_the_same_sign_in_json() -> None:
    for sign in ("\x1b", "\x9b", "\u202e", "\U000e0041"):
        assert json.loads(f'"{visible(sign)}"') == sign


def test_words_of_people_stay() -> None:
    for text in ("plain", "Größe 漢字 العربية עברית 😀", "a\tb\nc", r"C:\u001b"):
        assert visible(text) == text
