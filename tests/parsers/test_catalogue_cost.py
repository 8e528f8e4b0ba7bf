"""What a pattern may cost.

A regex without a required text is tried on every line with one of its pattern's literals; one with more than 32
alternatives counts as such (parsers/required.py). One like that once made parsing a third slower.
"""

from __future__ import annotations

from parsers.patterns import load
from parsers.required import needs


def test_every_built_in_regex_needs_a_text() -> None:
    open_ones = [(entry.id, regex.pattern) for entry in load().entries for regex in entry.regexes if not needs(regex)]
    assert open_ones == []
