"""A batch is nothing but its lines: however many there are, in whatever order, wherever it is cut.

One line, a hundred and thousands are parsed by different code (Python or Polars, positions or regexes, one needle or an
automaton): all of them must agree.
"""

from __future__ import annotations

import random
from datetime import datetime
from itertools import product

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.formats import BUILT_IN
from parsers.formats.base import ByLine, conform
from parsers.lines import split
from parsers.record import Origin
from tests.examples import examples
from tests.line_parser import line_parser

ORIGIN = Origin(host="n1", reference=datetime(2026, 6, 1), received=datetime(2026, 6, 1), timezone="Europe/Berlin")
PARSER = line_parser()
FRAMES = (
    "{}", "Jun  1 00:00:01 gpu-01 {who}: {}", "<30>May 31 23:59:59 gpu-02.example.org {who}[42]: {}",
    "2026-05-31T10:00:00.5+02:00 gpu-03 {who}[7]: {}", "<11>1 2026-05-31T10:00:00Z gpu-04 {who} 9 ID [a b=\"c\"] {}",
    "[2026-05-31T10:00:00.123] {}", "[2026-05-31T10:00:00.123] [15.batch] {}", "[   12.345678] {}", "6,1,12345678,-;{}",
    '{{"MESSAGE": "x {who}", "PRIORITY": "3", "__REALTIME_TIMESTAMP": "1780000000000000"}}', "<189>: 2026 May 31 10:00:00 UTC: {}",
    "May 31 10:00:00 123456 [7F3A] 0x01 -> {}", "0: {}", "[2026-05-31 10:00:00,123] ERROR {}", "{}\x1b[0m", "\u00e9\u00fc {}",
)  # fmt: skip
TEXTS = [example.text for entry in PARSER.catalogue.entries for example in entry.examples] + [
    text for entry in PARSER.catalogue.entries for text in entry.counters
]


def lines_of(rng: random.Random, count: int) -> list[bytes]:
    """Catalogue lines in every framing, some with a byte changed, some that are nothing at all."""
    made = []
    for _ in range(count):
        text = rng.choice(TEXTS).replace("\n", " ")
        frame = rng.choice(FRAMES).replace("{who}", rng.choice(("kernel", "slurmd", "sshd", "syncd#x", "snmpd")))
        line = bytearray(frame.replace("{}", text).replace("{{", "{").replace("}}", "}").encode())
        if line and rng.random() < 0.3:
            line[rng.randrange(min(len(line), 60))] = rng.choice(b"\0\t :[]<>%{}09az\xc3\xff")
        made.append(bytes(line) if rng.random() > 0.02 else rng.randbytes(rng.randrange(40)).replace(b"\n", b""))
    return made


def test_thousands_hundreds_and_single_lines_are_read_alike() -> None:
    lines = lines_of(random.Random(5), 2_500)
    whole = PARSER.parse(lines, ORIGIN)
    at, parts = 0, []
    for size in (1_200, 700, 350, 120, 90, 30, 7, 1, 1, 1):
        parts.append(PARSER.parse(lines[at : at + size], ORIGIN, at + 1))
        at += size
    assert at == len(lines)
    for mine, theirs in zip(whole.iter_rows(named=True), pl.concat(parts).iter_rows(named=True), strict=True):
        assert mine == theirs, lines[mine["line"] - 1]


@pytest.mark.long
def test_a_message_that_comes_again_keeps_what_stands_around_it() -> None:
    """Equal messages are parsed once a batch; host, program, step and uptime are each line's own."""
    rng = random.Random(11)
    texts = [text.replace("\n", " ") for text in rng.sample(TEXTS, 40)]
    lines = [
        frame.replace("{who}", who).replace("{}", text).replace("{{", "{").replace("}}", "}").encode()
        for text in texts
        for frame in (*FRAMES, "[2026-05-31T10:00:00.123] [16.0] {}", "[   99.000001] {}")
        for who in ("kernel", "slurmd")
    ]
    rng.shuffle(lines)
    whole = PARSER.parse(lines, ORIGIN)
    assert whole.filter(pl.col("event").is_not_null()).height > len(lines) // 4
    for place in range(0, len(lines), 4):
        (alone,) = PARSER.parse([lines[place]], ORIGIN, place + 1).iter_rows(named=True)
        assert whole.row(place, named=True) == alone, lines[place]


@given(st.randoms(use_true_random=False), st.integers(1, 400), st.integers(0, 400))
@settings(max_examples=examples(6), deadline=None)
def test_order_and_cuts_change_nothing(rng: random.Random, count: int, cut: int) -> None:
    lines = lines_of(rng, count)
    whole = PARSER.parse(lines, ORIGIN)
    parts = [PARSER.parse(part, ORIGIN, first) for part, first in ((lines[:cut], 1), (lines[cut:], cut + 1)) if part]
    assert pl.concat(parts).equals(whole)
    order = rng.sample(range(count), count)
    shuffled = PARSER.parse([lines[at] for at in order], ORIGIN).drop("line")
    assert shuffled.equals(whole[order].drop("line"))


@given(st.randoms(use_true_random=False), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
@settings(max_examples=examples(6), deadline=None)
def test_bytes_and_their_lines_are_the_same(rng: random.Random, end: bytes, ended: bool) -> None:
    data = end.join(lines_of(rng, rng.randrange(150))) + (end if ended else b"")
    lines = split(data).lines
    got = PARSER.parse_data(data, ORIGIN, 7)
    assert got.equals(PARSER.parse(lines, ORIGIN, 7))
    assert [
        exact if exact is not None else raw.encode() for raw, exact in zip(got["raw"], got["raw_bytes"], strict=True)
    ] == lines


@pytest.mark.parametrize("source", [None, "job_stderr", "jetpack"])
def test_readers_of_single_lines_and_of_many_say_the_same(source: str | None) -> None:
    """Few lines are parsed one by one."""
    before = (
        "",
        "[",
        "3: ",
        "12:",
        "[rank3]: ",
        "[default1]:",
        "[7] ",
        "INFO ",
        "[NeMo W ",
        "\x1b[1m",
        "gpu01:1:2 [3] ",
        "99999999999999999999: ",
        "[rank99999999999999999999]",
    )
    stamps = ("2026-05-31 10:00:00,5", "2026/05/31T10:00:00 +02:00", "2026-05-31 25:00:00",
        "E531 10:00:00.25", "0531 10:00:00", "12-31 10:00:00", "13/31 10:00:00", "05/31/2026, 10:00:00", "srun: ", "torch.")  # fmt: skip
    behind = (
        "", "] n1:22:33 [4] x", " - a.b - [WARN] x", "|ERROR|x", " [n1:5:0] x", ": n1 rank 3 x", "]x", " healthagent - INFO - x", " n1:99999999999999999999:1 [99999999999999999999] x",
        " step\r 50%|##| x", "x",
    )  # fmt: skip
    texts = ["".join(parts) for parts in product(before, stamps, behind)]
    texts += [
        '{"message": "<30>a: b", "level": "warn"}',
        '{"MESSAGE": "a", "PRIORITY": "3"}',
        '{"t": "2026-05-31T10:00:00Z", "node": "n1"}',
        "{}",
        "{",
        "[]",
    ]
    prefixes = ("", "\ufeff", "\0\0", "\x1e", "(raylet) ", "[pod/a/b] ", "[1,3]<stdout>: ", "[u@1,3]<stderr>:\ufeff")
    inside = (
        "", "x", "kernel: [ 12.5] x", "kernel: error: x", "fatal: x", "<-1>x", "<>x", "  x", "Traceback (most recent call last):",
        "[rank3]: RuntimeError: x", "2026-05-31 25:00:00,5 x", "[7] 2026-05-31 10:00:00 x", "Jun  1 00:00:01 n1 kernel: x",
        '{"message": "x", "rank": 1}', "level=warn msg=x", "I0531 10:00:00.123456       1 a.go:5] x",
    )  # fmt: skip
    texts += ["".join(parts) for parts in product(prefixes, inside)]
    frame = pl.DataFrame({"i": pl.Series(range(len(texts)), dtype=pl.UInt32), "text": texts})
    origin = ORIGIN.but(source=source)
    asked = [form for form in BUILT_IN if isinstance(form.read, ByLine) and form.read.of_many is not None]
    assert len(asked) >= 7
    for form in asked:
        assert isinstance(form.read, ByLine) and form.read.of_many is not None
        many = conform(form.read.of_many(frame, origin)).sort("i")
        few = [form.read(frame.slice(at, 100), origin) for at in range(0, len(frame), 100)]
        for mine, theirs in zip(
            pl.concat(few).sort("i").iter_rows(named=True), many.iter_rows(named=True), strict=True
        ):
            assert mine == theirs, (form.why, texts[mine["i"]])
