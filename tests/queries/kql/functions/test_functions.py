"""Functions whose bodies are Python, and less common operators, by values that can be checked by hand."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from queries.kql import KqlRuntimeError, run
from queries.kql.functions.encoding import xxh64
from queries.kql.operations import FOLDED

STEPS = "let T = datatable(Host:string, Ms:long)['a', 1, 'a', 4, 'b', 2, 'b', 8, 'b', 3];\n"


def rows(text: str) -> list[list[Any]]:
    """The rows of a query that needs no stored table."""
    return run(duckdb.connect(), text).rows


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("parse_url('https://u:p@h:8443/a/b?k=v&w=1#f')['Query Parameters'].k", "v"),
        ("parse_url('https://u:p@h:8443/a/b').Port", "8443"),
        ("parse_version('26.05.1')", "26000000050000000100000000"),
        ("parse_csv('a,\"b,c\",')", ["a", "b,c", ""]),
        ("parse_xml('<n s=\"1\">t</n>').n['@s']", "1"),
        ("parse_path('/var/log/slurm/slurmctld.log').Filename", "slurmctld.log"),
        ("parse_command_line('srun -n 2 \"a b\"', 'windows')", ["srun", "-n", "2", "a b"]),
        ("ipv6_is_in_any_range('fe80::1', dynamic(['fe80::/10']))", True),
        ("has_ipv4_prefix('peer 10.12.0.7 lost', '10.12.')", True),
        ("ipv4_range_to_cidr_list('10.0.0.0', '10.0.0.5')", ["10.0.0.0/30", "10.0.0.4/31"]),
        ("array_index_of(dynamic(['x', 'y', 'x']), 'x', 1)", 2),
        ("array_split(dynamic([1, 2, 3]), -1)", [[1, 2], [3]]),
        ("bag_remove_keys(dynamic({'a': {'b': 1, 'c': 2}}), dynamic(['$.a.b'])).a", {"c": 2}),
        ("series_fill_linear(dynamic([null, 1, null, 5, null]))", [1, 1, 3, 5, 5]),
        ("series_fir(dynamic([2, 4, 6]), dynamic([1, 1]), false)", [2, 6, 10]),
        ("series_fit_line_dynamic(dynamic([1, 3, 5])).slope", 2.0),
        ("series_stats_dynamic(dynamic([3, 1, 2])).min_idx", 1),
        ("series_pearson_correlation(dynamic([1, 2, 3]), dynamic([6, 4, 2]))", -1.0),
        ("datetime_utc_to_local(datetime(2026-07-01), 'Europe/Berlin')", "2026-07-01T02:00:00.000000Z"),
        ("gzip_decompress_from_base64_string(gzip_compress_to_base64_string('Xid 79'))", "Xid 79"),
        ("format_bytes(1536, 1)", "1.5 KB"),
        ("convert_length(1, 'Mile', 'Kilometer')", 1.609344),
        ("indexof('abcabc', 'c', 3)", 5),
        ("erf(0)", 0.0),
        ("gamma(5)", 24.0),
        # Two lines: none better than the first split of a steady series; the break where it is.
        ("series_fit_2lines_dynamic(dynamic([5, 5, 5, 5, 5, 5])).split_idx", 2),
        ("series_fit_2lines_dynamic(dynamic([0, 0, 0, 0, 8, 9, 10, 11])).split_idx", 4),
        ("series_fit_2lines_dynamic(dynamic([0, 0, 0, 0, 8, 9, 10, 11])).right.slope", 1.0),
        ("series_seasonal(dynamic([1, 5, 1, 5, 1, 5, 1, 5, 1, 5]))", [1, 5] * 5),
        ("series_seasonal(dynamic([7, 7, 7, 7, 7, 7, 7, 7]))", [0] * 8),
        # The edges of series, bags and sets.
        ("series_fill_linear(dynamic([null, 10, null, null, 17]))", [10, 10, 12, 14, 17]),
        ("series_fill_linear(dynamic([10, null, 17.0]))", [10, 13.5, 17.0]),
        ("series_fir(dynamic([1, 2, 4]), dynamic([1, -1]))", [1.0, 1.0, 2.0]),
        ("series_fir(dynamic([1, 2, 4]), dynamic([1, 1]))", [0.5, 1.5, 3.0]),
        ("bag_zip(dynamic(['a', 8, 'b']), dynamic([1, '2', 2.5]))", {"a": 1, "b": 2.5}),
        ("bag_zip(dynamic(['a', 3]), dynamic(7))", {"a": None}),
        ("bag_zip(dynamic('a'), dynamic([1]))", None),
        # Characters as pairs of surrogates, and a single one.
        (r"'\ud83d\ude00'", "\U0001f600"),
        (r"'a\ud800b'", "a\ufffdb"),
        # Timespans that are too long.
        ("totimespan('10675200.00:00:00')", None),
        (f"totimespan('{'9' * 5_000}.00:00:00')", None),
        (f"totimespan('{'9' * 400}')", None),
        ("totimespan('-10675199.00:00:00')", "-10675199.00:00:00"),
    ],
)
def test_function(call: str, value: Any) -> None:
    (row,) = rows(f"print {call}")
    assert row == [pytest.approx(value) if isinstance(value, float) else value]


@pytest.mark.parametrize(
    "call",
    [
        "datetime_local_to_utc(datetime(9999-12-31 23:59:59), 'America/New_York')",
        "datetime_local_to_utc(datetime(0001-01-01 00:00:01), 'Asia/Tokyo')",
        "datetime_utc_to_local(datetime(9999-12-31 23:59:59), 'Asia/Tokyo')",
    ],
)
def test_a_time_beyond_the_calendar_is_none(call: str) -> None:
    with pytest.raises(KqlRuntimeError, match="a value cannot be computed"):
        rows(f"print {call}")


def test_xxh64_is_the_published_one() -> None:
    # From the test vectors of the specification.
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"abc") == 0x44BC2CF5AD770999


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("T | scan declare (Sum:long = 0) with (step s: true => Sum = Ms + s.Sum;) | project Sum", [[1], [5], [7], [15], [18]]),
        ("T | serialize | scan declare (H:string = '') with (step s: true => H = iff(Ms > 3, Host, s.H);) | project H",
         [[""], ["a"], ["a"], ["b"], ["b"]]),
        ("T | partition by Host (top 1 by Ms | project Host, Ms) | sort by Host asc", [["a", 4], ["b", 8]]),
        ("T | top-nested 1 of Host with others = 'rest' by s = sum(Ms) | sort by s desc", [["b", 13], ["rest", 5]]),
        ("T | top-hitters 1 of Host", [["b", 3]]),
        ("T | evaluate pivot(Host, max(Ms))", [[4, 8]]),
        ("T | summarize d = make_list(Ms) by Host | mv-apply m = d to typeof(long) on (summarize t = sum(m)) "
         "| project Host, t | sort by Host asc", [["a", 5], ["b", 13]]),
        ("T | serialize | extend r = row_rank_min(Host) | project r", [[1], [1], [3], [3], [3]]),
        ("T | summarize percentilew(Ms, Ms, 50)", [[4]]),
        ("print t = 'a=1; b=two' | parse-kv t as (a:long, b:string) with (pair_delimiter='; ', kv_delimiter='=') | project a, b",
         [[1, "two"]]),
        ("print t = 'GET /x 200' | parse kind=regex t with @'[A-Z]+ ' Path @' (?:\\d)' * | project Path", [["/x"]]),
        ("print d = dynamic({'b': 1, 'a': 'x'}) | evaluate bag_unpack(d)", [["x", 1]]),
        ("find in (T) where Ms > 7 project Ms", [["T", 8]]),
        ("T | where * has 'a' | count", [[2]]),
        ("let pattern = T; pattern | count", [[5]]),
        (r"print ['\ud800'] = 1 | extend n = ['\ufffd']", [[1, 1]]),
        ("print t = 'a(b' | parse kind=regex t with @'\\Qa(\\E(b)' Rest | project Rest", [[""]]),
    ],
)  # fmt: skip
def test_operator(text: str, answer: list[list[Any]]) -> None:
    assert rows(STEPS + text) == answer


def test_innerunique_takes_a_left_row_that_the_filter_behind_it_keeps() -> None:
    text = STEPS + "T | join (print Host = 'b') on Host | where Ms == 3 | project Ms"
    assert rows(text) == [[3]]


def test_contains_finds_every_character_that_lower_makes_a_letter_of() -> None:
    """It searches for a pattern of both cases, and answers as a comparison in lower case does, for all characters."""
    con = duckdb.connect()
    characters = "(SELECT chr(i::INTEGER) AS c FROM range(1, 1114112) AS t(i) WHERE i NOT BETWEEN 55296 AND 57343)"
    folded = con.execute(
        f"SELECT lower(c), c FROM {characters} WHERE ascii(c) > 127 AND ascii(lower(c)) < 128"
    ).fetchall()
    assert dict(folded) == FOLDED
    for text, needle in [
        ("KELVIN", "kelvin"),
        ("\u212aelvin", "KELVIN"),
        ("\u0130P", "ip"),
        ("no\u017fe", "nose"),
        ("a.b", "A.B"),
        ("axb", "A.B"),
    ]:
        table = f"datatable(t: string)['{text}']"
        expected = con.execute("SELECT contains(lower($1), lower($2))", [text, needle]).fetchall()
        assert run(con, f"{table} | project t contains '{needle}'").rows == [list(expected[0])], (text, needle)
