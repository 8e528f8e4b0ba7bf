"""The compiled parser of plain headers and the formats agree on every line that both parse."""

from __future__ import annotations

import string
from datetime import datetime
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parsers import fast_headers
from parsers.engine import LineParser
from parsers.lines import LineBuffer, split
from parsers.record import Origin
from tests.examples import examples
from tests.line_parser import line_parser

PARSER = line_parser()
WHOLE = LineParser(header_entities=True)
NOBODY = Origin(reference=datetime(2026, 6, 1, 12), received=datetime(2026, 6, 2))
ORIGINS = (
    NOBODY,
    NOBODY.but(timezone="America/New_York", host="n1", boots=(datetime(2026, 5, 31),)),
    NOBODY.but(timezone="Europe/Berlin", timezone_known=True, source="slurmd"),
    NOBODY.but(source="job_stdout"),
    NOBODY.but(source="syslog"),
)
ORIGIN_IDS = ("nobody", "New York", "slurmd in Berlin", "job", "syslog")
STAMPS = (
    "Jun  1 12:00:00", "Jun 11 23:59:59", "Feb 29 00:00:01", "Feb 30 01:00:00", "Mar  8 02:30:00", "Nov  1 01:30:00",
    "Oct 25 02:30:00", "Jun  1 24:00:00", "Jun  1 12:00:60", "Jun 00 01:02:03", "Jun  1 1:02:03", "jun  1 01:02:03",
    "2026-06-01T12:00:00Z", "2026-06-01T12:00:00", "2026-06-01T12:00:00.1+00:00", "2026-06-01T12:00:00.123456789-05:30",
    "2026-06-01T12:00:00.1234567890Z", "2026-06-01T12:00:00,5Z", "2026-06-01T12:00:00.", "2026-06-01T12:00:00+0200",
    "2024-02-29T00:00:00.000001Z", "2026-02-29T00:00:00Z", "1969-12-31T23:59:59.5Z", "2026-13-01T00:00:00Z", "-",
    "2026-06-01 12:00:00", "2026-03-08T02:30:00", "2026-11-01T01:30:00.25", "2026-06-01T12:00:00 2026-06-01T11:59:59",
)  # fmt: skip
HEADS = (
    "{}",
    "<30>{}",
    "<191>{}",
    "<192>{}",
    "<0>{}",
    "<034>{}",
    "<1234>{}",
    "<>{}",
    "<30>1 {}",
    "<30>2 {}",
    "1 {}",
    "<30> {}",
    "[{}]",
)
TAILS = (
    " n1 sshd[42]: text", " n1 kernel: [  12.345678] igb 0000:02:00.0 eth0: igb: eth0 NIC Link is Down", " n1 sshd[42]: ",
    " n1 sshd[42]:", " n1 slurmd: error: text", " n1 slurmctld[7]: slurmctld: fatal: JobId=9 text", " n1 slurmstepd-n1[9]: debug7: x",
    " n1 kernel: [12.345678][ T12] a", " n1 kernel: [drm] a", " n1 kernel: [ 1 2.345678] a", " n1 kernel: [\u06611.234567] a", " n1 kernel: [ 1.234567] [ T\u06611] a",
    " n1 kernel: %a", " n1 %ETH-5-UP: a",
    " n1 10.0.0.1: a", " n1 rpd[1]: a", " re0.n1 rpd[1]: a", " re1-n1 rpd[1]: a", " n1 AEST: %SYS-5-X: a", " n1 syncd#x[1]: a", " n1: a", " n1 a b: c", " n1 a[b]: c", " n1 a[]: c", " n1 a[1]b: c",
    " n1 a[1]:c", " n1 a[12345678901]: c", "  n1 a: c", " n1  a: c", " 9n a: c", " ::1 a: c", " n\u00e4 a: c", " n1 \u00e4: c",
    " n1 a\tb: c", " " + "h" * 70 + " a: c", " n1 prog 42 - - text", " n1 prog 42 ID4 - text", ' n1 prog 42 I"\\D - text',
    " - - - - - text", " n1 prog 4x - - text", ' n1 prog 42 - [a@1 b="c"] text', ' n1 prog 42 M [a@1 b="c\\"]"][d] text', ' n1 prog 42 - [a@1 b="c"]text', ' n1 prog 42 - [a b="c" text',
    ' n1 prog 42 - [a b="ä"]', ' n1 prog 42 - [a] ', ' n1 prog 42 - []  text', ' n1 kernel - - [timeQuality tzKnown="1"] [ 5.000000] text', " n1 prog 42 - - ", " n1 prog 42 - -",
    " n1 prog 42 - -  text", " n1 prog 42 - - \ufefftext", " n1 kernel - - - [ 5.000000] text", " n1 prog 42 - - %X-1-Y: text",
    " error: text", " slurmd version 24 started", " [15.0] error: x", "  x", " 5: eth0: <UP> x", " Deleted 5: eth0: <UP> x",
    " Mon text", " debug5: a", " verbose: a", " error:a", "", " ", " n1 NOTICE syncd#SDK: a", " n1 WARNING a[1]: b",
    " n1 NOTICE a", " n1 INFO INFO a: b", " n1 ERR: b", " n1 Ebra: %ETH-5-UP: a", " n1 slurmd: %ETH-5-UP: a", " [15.batch] x", " [15_4.0+1] fatal: x",
    " [15] x", " [15.x] y", " [15.0]x", " [15.0]", " [] x", " daemon.info sshd: x", " n1 daemon.err sshd[3]: x", "\t",
)  # fmt: skip
UPTIMES = (
    "[    0.000000] a", "[12345.678901] NVRM: Xid (PCI:0000:01:00): 79, x", "[1.2] a", "[99999999999.123456] a", "[ 7.123456]a",
    "[ 7.123456] ", "[ 7.123456]", "[ 7.123456] [drm] a", "[ 7.123456] [ T1] a", "[ 7.123456] [   C12] a", "[ 7.123456] [ Tx] a", "[ 7.123456] [ T1", "[ 7.123456][ T1] a", "[ 7 .123456] a",
    "[.123456] a", "[      .123456] a", "<6>[ 7.123456] a", " [ 7.123456] a", "6,12,34,-;x", "6,12,34,c,caller=T1;[drm] x", "12345,1,2,-;x", "6,1,99999999999999999,-;x",
    "6,,3,-;x", "6,1,2;x", "191,1,2,-;%X-1-Y: z", "9999,1,2000000,-;x", "6,1,2,-;", "6,1,2,-", "6,1,2,;x", "6,1,2 ,-;x", "[-7.123456] a", "[ 7.12345x] a", "[ 7,123456] a",
    "[ 7.123456] n1 kernel: a", "[ 7.123456] n1 sshd[42]: a", "[ 7.123456] n1 s\u00e4[4]: a", "[ 7.123456] n1 s/[4]: a", "[ 7.123456] n/1 kernel: a", "[ 7.123456] n1 kernel:a",
)  # fmt: skip
FABRIC = (
    "Jun 01 12:00:00 123456 [7F3A] 0x02 -> x", "Jun  1 12:00:00 123456 [7F3A] 0x02 -> x", "Jun 30 12:00:00 123456 [7F3A] 0x02 -> x",
    "Jun 01 12:00:00 12345 [7F3A] 0x02 -> x", "Jun 01 12:00:00 123456 [7f3a] 0x02 -> x", "Jun 01 12:00:00 123456 [] 0x02 -> x",
    "Jun 01 12:00:00 999999 [7F3A] 0x01 -> ", "Jun 01 12:00:00 123456 [7F3A] 0x01 ->", "Jun 01 12:00:00 123456 [7F3A] 0xAB -> x",
    "Jun 01 12:00:00 123456 [" + "A" * 30 + "] 0x01 -> x", "Jun 02 11:59:59 999999 [7F3A] 0x80 -> x", "Jun 02 12:00:00 000001 [7F3A] 0x08 -> x",
    "Feb 30 12:00:00 123456 [7F3A] 0x02 -> x", "<30>Jun 01 12:00:00 123456 [7F3A] 0x02 -> x", "Jun 01 12:00:00 123456 [7F3A] 0x7f -> x",
    "[Jun 01 2026 12:00:00] [INFO] [tid 42] x", "[Jun 01 2026 12:00:00] [ERROR ] [tid 42] x", "[Jun  1 2026 12:00:00] [INFO] [tid 42] x",
    "[Jun 1 2026 12:00:00] [INFO] [tid 42] x", "[Feb 29 2026 12:00:00] [INFO] [tid 42] x", "[Feb 29 2024 12:00:00] [CRITICAL] [tid 42] ",
    "[Jun 01 2026 12:00:00] [ODD] [tid 42] x", "[Jun 01 2026 12:00:00] [info] [tid 42] x", "[Jun 01 2026 12:00:00] [INFO] [tid ] x",
    "[Jun 01 2026 12:00:00] [INFO] [tid 12345678901] x", "[Jun 01 2026 12:00:00.5] [INFO] [tid 42] x", "[Jun 01 1026 12:00:00] [INFO] [tid 42] x",
    "[Jun 01 2026 12:00:00] [INFO] [tid 42]", "[Mar 08 2026 02:30:00] [WARNING] [tid 42] x", "[Jun 01 2026 12:00:60] [INFO] [tid 42] x",
    "[Jun 01T2026 12:00:00] [INFO] [tid 42] x",
    "[Jun 01 2026 12:00:00] [IN FO] [tid 42] x", "[Jun 01 2026 12:00:00] [" + "A" * 20 + "] [tid 42] x", "[Jun 01 2026 12:00:00] [INFO", "[Jun 01 12:00:00] x",
    "<189>: 2026 Jun  1 12:00:00 UTC: %ETH-5-UP: x", "<189>: 2026 Jun 11 12:00:00 UTC: %a", "<189>: 2026 Jun  1 12:00:00 CET: %ETH-5-UP: x",
    ": 2026 Jun  1 12:00:00 UTC: %ETH-5-UP: x", "<192>: 2026 Jun  1 12:00:00 UTC: %ETH-5-UP: x", "<189>: 2026 Jun 1 12:00:00 UTC: %ETH-5-UP: x",
    "<189>: 2026 Feb 30 12:00:00 UTC: %ETH-5-UP: x", "<7>: 0026 Jun  1 12:00:00 UTC: %E", "<189>: 2026 Jun  1 12:00:00.5 UTC: %ETH-5-UP: x",
    "<189>: 2026 Jun  1 12:00:00 UTC: last message repeated 3 times", "<189>: 2026 jun  1 12:00:00 UTC: %ETH-5-UP: x", "<0>: 2026 Jun  1 12:00:00 UTC: %X-1",
)  # fmt: skip

_AT = '"__REALTIME_TIMESTAMP": "1780315200123456"'
JOURNAL = (
    '{' + _AT + ', "_HOSTNAME": "n1", "SYSLOG_IDENTIFIER": "sshd", "_PID": "42", "PRIORITY": "6", "SYSLOG_FACILITY": "3", "MESSAGE": "text"}',
    '{"MESSAGE":"text",' + _AT + ',"_BOOT_ID":"b0","_SYSTEMD_UNIT":"sshd.service","UNIT":"u","_COMM":"sshd","x":"\\u00e4\\n"}',
    '{"MESSAGE": "NVRM: Xid (PCI:0000:01:00): 79, x", ' + _AT + ', "_TRANSPORT": "kernel", "PRIORITY": "3"}',
    '{"MESSAGE": "JobId=12_3(15) x", ' + _AT + ', "SYSLOG_IDENTIFIER": "slurmd", "UNIT": "slurmd.service", "SYSLOG_PID": "9"}',
    '{' + _AT + ', "_SOURCE_REALTIME_TIMESTAMP": "1780315200000001", "SYSLOG_IDENTIFIER": "", "_COMM": "k\u00e4", "MESSAGE": "\u00e4"}',
    '{' + _AT + ', "_HOSTNAME": "", "_COMM": "", "MESSAGE": ""}', '{' + _AT + ', "MESSAGE": "a", "MESSAGE": "b"}',
    '{' + _AT + ', "MESSAGE": "a\\"b"}', '{' + _AT + ', "MESSAGE": "%ETH-5-UP: a"}', '{' + _AT + ', "MESSAGE": [97, 98]}',
    '{' + _AT + ', "MESSAGE": "a", "y": "\\x"}', '{' + _AT + ', "MESSAGE": "a", "y": "\t"}', '{' + _AT + ', "MESSAGE": "a", "y": 1}',
    '{' + _AT + ', "MESSAGE": "a", "PRIORITY": "8"}', '{' + _AT + ', "MESSAGE": "a", "PRIORITY": "06"}', '{' + _AT + ', "MESSAGE": "a", "PRIORITY": ""}',
    '{' + _AT + ', "MESSAGE": "a", "SYSLOG_FACILITY": "23"}', '{' + _AT + ', "MESSAGE": "a", "SYSLOG_FACILITY": "24", "PRIORITY": "1"}',
    '{' + _AT + ', "MESSAGE": "a", "_PID": "", "SYSLOG_PID": "7"}', '{' + _AT + ', "MESSAGE": "a", "_PID": "123456789012345678"}',
    '{' + _AT + ', "MESSAGE": "a", "SYSLOG_PID": "7", "_PID": "8"}', '{' + _AT + ', "MESSAGE": "a", "kmsg_us": "7", "text": "t"}',
    '{"__REALTIME_TIMESTAMP": "x", "MESSAGE": "a"}', '{"__REALTIME_TIMESTAMP": "99999999999999999", "MESSAGE": "a"}',
    '{"PRIORITY": "4", "MESSAGE": "a"}', '{"MESSAGE": "a"}', '{' + _AT + '}', '{' + _AT + ', "MESSAGE": "a"} ', ' {' + _AT + ', "MESSAGE": "a"}',
    '{' + _AT + ', "MESSAGE": "a",}', '{' + _AT + ', "MESSAGE": "a"', '{}', '{' + _AT + ' "MESSAGE": "a"}', '<30>{' + _AT + ', "MESSAGE": "a"}',
)  # fmt: skip

#: What precedes the timestamp of a program, timestamps, what follows them, texts.
BEFORE = (
    "", "[", "[INFO] ", "INFO ", "INFO:", "[NeMo I ", "[NeMo X ", "ERROR:    ", "3: ", "[rank0]: ", "[rank12]:", "[default3]:", "[rank1]: [default0]: ",
    "[80746] ", "gpu01:12:34 [5] ", "[gpu01:123:0] ", " ", "\t", "\x1b[31m", "12: m", "[W601 ", "WARNING: ", "[WARN]: ", "INFO",
)  # fmt: skip
WRITTEN = (
    "", "2026-06-01 12:00:00", "2026-06-01 12:00:00,123", "2026-06-01T12:00:00.123456", "2026/06/01 12:00:00", "2026-06-01 12:00:00.5 UTC", "2026-06-01 12:00:00Z",
    "2026-06-01 12:00:00+02:00", "2026-06-01 12:00:00 +0200", "2026-06-01 12:00:60", "2026-02-30 12:00:00", "2026-03-29 02:30:00", "2026-10-25 02:30:00,5", "06/01 12:00:00.1",
    "06-01 12:00:00", "2026-06-01 12:00:00,1234567890", "2026-06-01 12:00:00.", "0026-06-01 12:00:00", "601 12:00:00.123456",
)  # fmt: skip
BETWEEN = ("", "] ", " - ", " ", ": ", "-", "][", "]", " Z")
PRINTED = (
    "INFO - text", "a.b - [WARNING] text", "healthagent.x - INFO - y", "INFO - WARNING - z", "[INFO] text", "WARNINGS: x", "NeMo E x", "gpu01:1:2 [3] NCCL WARN x", "[gpu01:123] x",
    "node7 rank 3 step", "node7 rank x", "text", "", "FATAL", "error: x", "debug7: a", "\u2588 50%| x", "a\rb 10%|", "DEBUG_x", "12345678901:1:1 [2] x",
    "h:123456789012:1 [2] x", "h:1:1 [12345678901] x",
)  # fmt: skip
#: Messages that only jobs print, and lines without any header.
SAID = (
    "gpu01:12:34 [5] NCCL INFO Channel 0", "gpu01:12:34 [5] x.cc:7 NCCL WARN a", "1gpu:12:34 [5] NCCL a", "12:13:14 [5] NCCL a", "gpu01:12:34 [5]NCCL a",
    "[rank3]: Traceback", "[rank3]:[E601 a", "[rank3]", "[rank3|1]: a",
    "[rank12345678901]: a", "[trainer0]: a", "[a_b_7]: torch.a", "[a7b]: torch.a", "[_7]: torch.a", "[n1:77] *** a", "[n1:77:1 :2] *** a", "[core.py:33] torch.a", "[n1:77] torch.a",
    "n-1.a rank5 torch.a",
    "srun: error: n1: task 0: Killed", "12: srun: a", "12:srun: a", "  srun: a", "slurmstepd-n1: error: a",
    "Traceback (most recent call last):", "ValueError: a", "x ValueError: a", "n1 rank0 torch.a", "n1 rank 0 torch.a", "torch.cuda.OutOfMemoryError",
    "50%|###|", "a\tb", "kernel: [ 1.5] a", "kernel: a", "<a", "<5 a", "<-1>a", "<>a", "fatal: a",
    "verbose: a", "debug12: a", "\u00e4", "", "  a", "step 5 | loss 0.1", "date=2026", "x %A", ": last message repeated 2 times",
)  # fmt: skip


def both(lines: list[bytes], origin: Origin, parser: LineParser = PARSER) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Parsed by the engine, and by the engine with the formats alone."""
    quick = parser.parse(lines, origin)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_headers, "read", _nothing_is_plain)
        return quick, parser.parse(lines, origin)


def _nothing_is_plain(buffer: LineBuffer, origin: Origin, *, header: bool) -> fast_headers.FastHeaders:
    return fast_headers.none_taken(buffer)


def assert_same(lines: list[bytes], origin: Origin, parser: LineParser = PARSER) -> None:
    quick, slow = both(lines, origin, parser)
    if not quick.equals(slow):
        for line, mine, theirs in zip(lines, quick.iter_rows(named=True), slow.iter_rows(named=True), strict=True):
            assert mine == theirs, line
    assert quick.equals(slow)


def every_part() -> list[bytes]:
    return [(head.format(stamp) + tail).encode() for head, stamp, tail in product(HEADS, STAMPS, TAILS)]


@pytest.mark.parametrize("origin", ORIGINS, ids=ORIGIN_IDS)
def test_every_part_with_every_other(origin: Origin) -> None:
    few = every_part()[ORIGINS.index(origin) :: 3 * len(ORIGINS)]  # others with each origin: a third of them with one
    assert_same(
        few + [line.encode() for line in (*UPTIMES, *FABRIC, *JOURNAL)], origin, PARSER if origin.source else WHOLE
    )


@pytest.mark.parametrize("origin", ORIGINS, ids=ORIGIN_IDS)
def test_what_programs_print(origin: Origin) -> None:
    lines = ["".join(parts).encode() for parts in product(BEFORE, WRITTEN, BETWEEN, PRINTED)]
    few = lines[ORIGINS.index(origin) :: 58]  # others with each origin
    assert_same(few + [line.encode() for line in SAID], origin, PARSER if origin.source else WHOLE)


def with_escapes() -> list[bytes]:
    """Lines with an escape at the beginning, the timestamp, the text and the end."""
    tails = [f"Jun  1 12:00:00{tail}" for tail in TAILS]
    lines = [*tails, *(f"<30>1 2026-06-01T12:00:00Z{tail}" for tail in TAILS), *UPTIMES, *FABRIC, *JOURNAL, *SAID]
    escapes = ["\x1b[0m", "\x1b[31m", "\x1b", "\x1b[", "\x1b]0;title\x07"]
    places = (0, 4, 30, None)
    return [
        f"{line[:place]}{escape}{line[place:] if place is not None else ''}".encode()
        for escape in escapes
        for line in lines
        for place in places
    ]


@pytest.mark.parametrize("origin", ORIGINS, ids=ORIGIN_IDS)
def test_escapes_of_a_terminal_anywhere(origin: Origin) -> None:
    """A colour reset after a line once hid its event: the fast parser kept it as part of the text."""
    assert_same(with_escapes()[ORIGINS.index(origin) :: 3 * len(ORIGINS)], origin)  # others with each origin


@pytest.mark.long
@pytest.mark.parametrize("origin", ORIGINS, ids=ORIGIN_IDS)
def test_every_line_with_every_origin(origin: Origin) -> None:
    assert_same(every_part(), origin, PARSER if origin.source else WHOLE)
    assert_same(with_escapes(), origin)


def test_a_line_means_the_same_with_and_without_colours() -> None:
    text = "Jun  1 12:00:00 n1 kernel: [  12.345678] igb 0000:02:00.0 eth0: igb: eth0 NIC Link is Down"
    rows = PARSER.parse([text.encode(), f"{text}\x1b[0m".encode()], NOBODY)
    assert rows["event"].to_list() == ["nic.link_down", "nic.link_down"]
    assert rows["message"][0] == rows["message"][1]


def test_seconds_since_boot_are_the_nearest_double() -> None:
    """As JSON would parse the text; a product with a millionth is not."""
    rows = PARSER.parse([b"6,3967,206764314,-;nvidia-nvswitch2: open (major=510)"] * 2, NOBODY)
    assert rows["entities"].to_list() == ['{"uptime_s": 206.764314}'] * 2


def test_plain_headers_are_taken() -> None:
    """The slow path is right as well, but most lines must not need it."""
    plain = [
        *("Jun  1 12:00:00" + tail for tail in TAILS[:3]), "<30>Jun  1 12:00:00 n1 slurmd: error: text",
        "2026-06-01T12:00:00.123456+02:00 n1.example.org systemd-logind[42]: text", "[2026-06-01T12:00:00.123] error: text",
        "<30>1 2026-06-01T12:00:00Z n1 prog 42 - - text", "<30>1 2026-06-01T12:00:00.5Z n1 kernel - ID4 - [ 5.000000] text",
        "[2026-06-01T12:00:00.123] [15.batch] error: text", "Jun  1 12:00:00 sw1 NOTICE syncd#SDK[5]: text",
        "Jun  1 12:00:00 sw1 Ebra: %ETH-5-UP: text", "[ 7.123456] [drm] a", "6,12,34,-;text", *SAID[:2], "no header", FABRIC[0], "<189>: 2026 Jun  1 12:00:00 UTC: %ETH-5-UP: text", *JOURNAL[:5],
    ]  # fmt: skip
    taken = fast_headers.read(LineBuffer.of_lines([line.encode() for line in plain]), NOBODY).taken
    assert taken.all(), [line for line, fine in zip(plain, taken, strict=True) if not fine]


_PIECES = st.sampled_from([
    *STAMPS, *(h.replace("{}", "") for h in HEADS), *TAILS, *UPTIMES, *FABRIC, *JOURNAL, *BEFORE, *WRITTEN, *BETWEEN, *PRINTED, *SAID,
])  # fmt: skip
_NEARLY = st.tuples(
    st.lists(_PIECES, min_size=1, max_size=4).map("".join), st.integers(0, 150), st.sampled_from(string.printable + "\u00e9\0")
).map(lambda parts: (parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + 1 :]).replace("\n", "").encode())  # fmt: skip


@given(st.lists(_NEARLY, min_size=1, max_size=40), st.sampled_from(ORIGINS))
@example([b"Jun  1 12:00:00 h\xff a: x", b"\xff", b"Jun  1 12:00:00 h a: x"], NOBODY)
@settings(max_examples=examples(15), deadline=None)
def test_one_byte_changed_anywhere(lines: list[bytes], origin: Origin) -> None:
    assert_same(lines, origin)


@given(
    st.lists(
        st.one_of(st.binary(max_size=30), st.sampled_from([b"\n", b"\r\n", b"\r", b"\xc3", b"a\n", b"\0"])), max_size=12
    )
)
@settings(max_examples=examples(25), deadline=None)
def test_a_buffer_has_the_lines_that_split_makes(parts: list[bytes]) -> None:
    data = b"".join(parts)
    want = split(data).lines
    for buffer in (LineBuffer.of_data(data), LineBuffer.of_lines(want)):
        texts, exact = buffer.lines().to_list(), buffer.unfit().to_list()
        assert [raw if raw is not None else text.encode() for text, raw in zip(texts, exact, strict=True)] == want
        assert texts == [line.decode(errors="replace") for line in want]


def test_texts_are_views_with_nulls_and_short_ones() -> None:
    buffer = LineBuffer.of_lines([b"0123456789abcdef\xc3\xa9"])
    starts, lengths = np.full(5, 16), np.array([-1, 0, 12, 13, 18])
    assert buffer.texts(starts, lengths).to_list() == [
        None,
        "",
        "0123456789ab",
        "0123456789abc",
        "0123456789abcdef\u00e9",
    ]
    assert buffer.texts(starts, lengths).filter(pl.Series([True] * 5)).n_unique() == 5
