"""Randomly composed queries with large numbers in them: whatever they cost, the limits of one query hold.

``FAULTLINE_SEED`` selects others, ``FAULTLINE_RANDOM`` how many of each kind are sent.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator

import pytest

from queries.kql.probes import examples
from tests.measured import Measured
from tests.queries.attack import Attack
from tests.web.attacked_site import Site, attacked_site, judged

pytestmark = pytest.mark.long
SEED = os.environ.get("FAULTLINE_SEED", "6")
TIMES = int(os.environ.get("FAULTLINE_RANDOM", "60"))

GROWING = ["strcat(a, a)", "strrep(a, 9)", "replace_string(a, '0', a)", "url_encode(a)", "base64_encode_tostring(a)",
           "tostring(pack_array(a, a, a))", "strcat_delim(a, a, a)", "tostring(bag_pack('k', a, 'l', a))", "reverse(a)",
           "replace_regex(a, '(.)', '\\\\1\\\\1')", "tostring(range(1, strlen(a), 1))", "tostring(split(a, '0'))",
           "tostring(extract_all('(.)', a))", "tostring(parse_json(a))", "toupper(a)", "translate('0', a, a)"]  # fmt: skip
STEPS = ["| extend a = {0}", "| where strlen({0}) > 0", "| mv-expand b = split(a, '0')", "| summarize a = tostring(make_list(a))",
         "| summarize a = take_any(a) by x", "| join kind=inner (range x from 1 to 3000 step 1) on x", "| sort by a asc",
         "| extend x = x % 5", "| distinct a, x", "| union (range x from 1 to 1000 step 1 | extend a = tostring(x))"]  # fmt: skip


def growing(chance: random.Random) -> str:
    """Steps and functions whose answers are larger than their input."""
    query = f"range x from 1 to {10 ** chance.randint(0, 7)} step 1 | extend a = tostring(x)"
    for _ in range(chance.randint(2, 14)):
        query += "\n" + chance.choice(STEPS).format(chance.choice(GROWING))
    return query + "\n" + chance.choice(["| count", "| summarize max(strlen(a))", "| take 100", ""])


#: A column of each type under the names that the examples of ``probes`` use; random rows, letters and elements.
TABLE = (
    "let X = range L from 1 to {rows} step 1 | extend S = strrep(tostring(L), {letters}), R = L * 1.5, D = range(1, {elements}, 1),"
    " T = datetime(2026-01-01) + L * 1s, P = L * 1s, B = L % 2 == 0, G = guid(74be27de-1e4e-49d9-b579-fe0b331d3642),"
    " Host = tostring(L % 7), Time = datetime(2026-01-01) + L * 1s, ReceivedTime = datetime(2026-01-01) + L * 1s;\n"
)
_NUMBER = re.compile(r"(?<![\w'.-])\d+(?=[\s,)dhms]|$)")
ENDS = ["| count", "| summarize max(strlen(tostring(y)))", "| take 1000", "| sort by y desc | take 5", ""]


def _large(chance: random.Random, text: str) -> str:
    """Makes some numbers of a text large."""
    return _NUMBER.sub(lambda found: str(10 ** chance.randint(1, 12)) if chance.random() < 0.6 else found[0], text)


def any_word(chance: random.Random) -> str:
    """Every function, aggregate, operator and plugin of the language in turn, over random rows, texts and lists."""
    known = examples()
    table = TABLE.format(
        rows=10 ** chance.randint(0, 7), letters=10 ** chance.randint(0, 5), elements=10 ** chance.randint(0, 4)
    )
    query = "X"
    for group in ("functions", "functions", chance.choice(["aggregates", "operators", "plugins"])):
        example = known[group][chance.choice(sorted(known[group]))]
        if example is not None and "\nX | " not in example and example.startswith("X | "):
            query += "\n| " + _large(chance, example[4:])
    return table + query + "\n" + chance.choice(ENDS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from attacked_site(tmp_path_factory.mktemp("costs"))


@pytest.mark.parametrize("made", [growing, any_word])
def test_random_queries_keep_their_limits(site: Site, measured: Measured, made: object) -> None:
    assert callable(made)
    chance = random.Random(f"{SEED} {made.__name__}")
    attacks = [Attack(made.__name__, f"{SEED}.{n}", made(chance)) for n in range(TIMES)]
    reported: list[str] = []
    try:
        judged(site, attacks, reported.append)
    finally:
        measured(f"{made.__name__}, seed {SEED}: {reported[-1] if reported else 'nothing was sent'}")
