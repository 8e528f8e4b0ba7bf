"""Attacks of a red team, written from outside: what a user with read access would try, by class.

Each targets another mechanism: rows, plans, the text of the query, Python bodies, the answer as JSON, caches.
"""

from __future__ import annotations

import base64
import zlib

from tests.queries.attack import Attack


def _doubled(first: str, step: str, times: int, last: str) -> str:
    """``let``s that each use the one before: ``step`` names it ``T``."""
    lets = "".join(f"let t{n} = {step.replace('T', f't{n - 1}')};\n" for n in range(1, times + 1))
    return f"let t0 = {first};\n{lets}t{times} | {last}"


def _repeated(first: str, step: str, times: int, last: str) -> str:
    return first + f"\n| {step}" * times + f"\n| {last}"


def _listed(what: str, times: int, between: str = ", ") -> str:
    """``#`` is replaced by the number."""
    return between.join(what.replace("#", str(n)) for n in range(times))


def _zeros(megabytes: int) -> bytes:
    """``zlib.compress`` of that many zeros: one megabyte is compressed and repeated, since all test processes import
    this."""
    packer = zlib.compressobj(9)
    first = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)
    head, block, last = first[:2], first[2:], b"\x03\0"
    return head + block * megabytes + last + zlib.adler32(bytes(megabytes * 1_000_000)).to_bytes(4, "big")


_R = "range x from 1 to {0} step 1"
_COLUMNS = "Logs | extend " + _listed("c# = Line + #", 1500)
_BOMB = base64.b64encode(_zeros(60)).decode()
_LAUGHS = "<!DOCTYPE x [<!ENTITY a0 'ha'>" + "".join(
    f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 12)) + "]><x>&a11;</x>"  # fmt: skip
_HALF = "datetime(1970-01-01), datetime(2026-01-01)"
_TIMES = _R.format(2_000) + " | extend t = datetime(1970-01-01) + x * 10d"

RED_TEAM = [
    # joins
    Attack("joins", "rows squared by lets",
           _doubled("Logs | project Host", "T | join kind=inner T on Host | project Host", 5, "count")),
    Attack("joins", "plan doubled 2^20",
           _doubled("Logs | project Host", "T | join kind=inner T on Host | project Host", 20, "count"), True),
    Attack("joins", "rows squared, materialized",
           _doubled("Logs | project Host", "materialize(T | join kind=inner T on Host | project Host)", 8, "count")),
    Attack("joins", "a hundred wide ones", _repeated("Logs", "join kind=inner (Logs) on Host", 100, "count")),
    Attack("joins", "fullouter of all with all",
           f"{_R.format(20_000_000)} | join kind=fullouter ({_R.format(20_000_000)} | extend x = -x) on x | count"),
    Attack("joins", "a long list for each row",
           f"let l = toscalar({_R.format(1_000_000)} | summarize make_list(x));\n{_R.format(1_000_000)}"
           f" | extend l = l | summarize sum(array_length(l))"),
    # unions
    Attack("unions", "of 3,000 operands", "union " + _listed("Logs", 3000) + " | count"),
    Attack("unions", "no column twice", "union " + _listed("(print a# = 1, b# = 2)", 450) + " | count"),
    Attack("unions", "answers put together",
           _R.format(3) + " | extend a = strrep('A', 9000000) | fork "
           + "(where x > 0) " * 16, False, {"max_rows": 1_000_000}),
    Attack("answers", "three hundred statements",
           f"{_R.format(300_000)}; " * 300, False, {"max_rows": 1_000_000}),
    # texts: what reading and binding costs
    Attack("texts", "40,000 operands", "print " + _listed("1", 40_000, "+"), True),
    Attack("texts", "columns, put in order again and again", _COLUMNS + "\n| project-reorder *" * 300),
    Attack("texts", "columns times steps", _COLUMNS + " | extend z = c1" * 450),
    Attack("texts", "12,000 values", "Logs | where Host in (" + _listed("'#'", 12_000, ",") + ") | count"),
    Attack("texts", "case of 3,500",
           "Logs | extend a = case(" + _listed("Line == #, #", 3_500) + ", 0) | count"),
    Attack("texts", "iff in iff, forty-nine times",
           _repeated("Logs", "extend a = " + "iff(Line == 1, 1, " * 50 + "0" + ")" * 50, 49, "count")),
    Attack("texts", "iff doubled by lets", "let f0 = (x:long) { x };\n" + "".join(
        f"let f{n} = (x:long) {{ iff(f{n - 1}(x) > 1, f{n - 1}(x + 1), f{n - 1}(x + 2)) }};\n" for n in range(1, 14)) + "print f13(1)"),
    Attack("texts", "a value doubled by lets",
           "let a0 = 1;" + "".join(f"let a{n} = a{n - 1} + a{n - 1};" for n in range(1, 3000)) + "print a2999"),
    Attack("texts", "a datatable of 6,000 rows",
           "datatable(a:long, b:string)[" + _listed("#, 'x'", 6_000) + "] | summarize make_set(b) | count"),
    Attack("texts", "a dynamic of 45,000 numbers",
           "print d = dynamic([" + _listed("1", 45_000, ",") + "]) | mv-expand d | count"),
    Attack("texts", "a number of 99,000 digits", "print " + "9" * 99_000, True),
    Attack("texts", "a name of 90,000 letters", "Logs | where " + "a" * 90_000 + " == 1", True),
    Attack("texts", "5,000 names that nobody knows", "Logs | project-away " + _listed("Hoost#", 5_000)),
    Attack("texts", "nothing but quotes", "print '" + "\\'" * 49_000, True),
    Attack("texts", "blanks of a literal", "print datetime(" + " " * 90_000 + "x'", True),
    Attack("texts", "blanks of a setting", "set a =" + " " * 90_000 + "| print 1"),
    Attack("texts", "backslashes of a pattern", "Logs | parse kind=regex Message with @'\\Q[" + "\\" * 90_000 + "' x | count"),
    Attack("texts", "a list in a list, and a mistake", "print " + "a in (" * 58 + "1 x"),
    Attack("texts", "members of members", "print a" + ".a" * 12_000),
    Attack("texts", "30,000 comments", "//'\n" * 24_000 + "print 1", True),
    Attack("texts", "a pattern of 90,000 letters",
           "Logs | where Message matches regex '" + _listed("(a#|b#)?", 6_000, "") + "' | count"),
    # lists
    Attack("lists", "packed twice into itself",
           _repeated("print a = pack_array(1, 2, 3)", "extend a = pack_array(a, a)", 30, "project strlen(tostring(a))")),
    Attack("lists", "pack_all, again and again",
           _repeated("print a = 'x', b = 'y'", "extend p# = pack_all()".replace("#", ""), 30, "project strlen(tostring(p))")),
    Attack("lists", "a tower of mv-expand",
           _R.format(10) + _listed(" | extend l# = range(1, 100, 1) | mv-expand l# to typeof(long)", 6, "")
           + " | summarize sum(x)"),
    Attack("lists", "mv-apply in mv-apply",
           _R.format(300) + " | extend l = range(1, 300, 1)"
           " | mv-apply a = l on (mv-apply b = l on (mv-apply c = l on (summarize s = count()))) | count"),
    Attack("lists", "sets of sets",
           _R.format(3_000_000)
           + " | summarize s = make_set(x, 3000000) by k = x % 2"
           " | extend s = set_union(s, array_concat(s, s)) | summarize make_set(s, 10000000) | count"),
    Attack("lists", "bags of bags",
           _R.format(300_000) + " | extend b = bag_pack(tostring(x), range(1, 50, 1))"
           " | summarize m = make_bag(b) by k = x % 3 | summarize m = make_bag(m)"
           " | project array_length(bag_keys(m))"),
    Attack("lists", "windows of every row",
           _R.format(300_000) + " | serialize | extend p = prev(x, 100000), n = next(x, 100000)"
           " | extend c = row_cumsum(x) | summarize l = make_list(pack_array(p, n, c))"
           " | project strlen(tostring(l))"),
    Attack("lists", "letters of a long text",
           "print a = strrep('abcdefghij', 10000000) | project array_length(unicode_codepoints_from_string(a))"),
    # regular expressions
    Attack("regexes", "parse-where, kind=regex",
           "Logs | extend m = strrep(Message, 800)"
           " | parse-where kind=regex m with '(.*)(.*)(.*)' a '(l|lo|los)*' b 'zzzz' | count"),
    Attack("regexes", "matches of nothing",
           "print a = strrep('a', 5000000) | project array_length(extract_all(@'(b*)', a))"),
    Attack("regexes", "replaced by its groups",
           _repeated("print a = strrep('ab', 1000)", r"extend a = replace_regex(a, @'(.)(.)', @'\1\2\1\2\1\2')", 12, "project strlen(a)")),
    Attack("regexes", "counted, overlapping", "print n = countof(strrep('a', 300000), 'a{1,500}', 'regex')"),
    Attack("regexes", "split, trim and count",
           "Logs | extend m = strrep(Message, 2000)"
           " | extend a = array_length(split(m, 'e')), b = strlen(trim_end('[a-z ]+', m)), c = countof(m, 's') | summarize sum(a), sum(b), sum(c)"),
    # series
    Attack("series", "two lines through 200,000 points",
           "print s = range(1, 200000, 1) | extend f = series_fit_2lines(s) | count"),
    Attack("series", "periods",
           "print s = range(1, 200000, 1) | extend f = series_periods_detect(s, 2.0, 100000.0, 1000) | count"),
    Attack("series", "by the tick",
           "Logs | make-series n = count() on Time from datetime(2026-01-01) to datetime(2026-03-01) step 1tick by Host | count"),
    Attack("series", "a polynomial of each row",
           _R.format(2_000) + " | extend s = range(1, 5000, 1) | extend f = series_fit_poly(s, 15) | count"),
    Attack("series", "drawn",
           _R.format(5_000_000) + " | extend y = x * 2 | render timechart", False, {"max_rows": 1_000_000}),
    # what the service makes of an answer
    Attack("answers", "a bit a cell, six bytes of text",
           _R.format(1_000_000) + " | extend " + _listed("c# = x % 2 == 0", 400), False, {"max_rows": 1_000_000}),
    Attack("answers", "nothing but nulls",
           _R.format(1_000_000) + " | extend " + _listed("c# = int(null)", 400), False, {"max_rows": 1_000_000}),
    Attack("answers", "letters that JSON writes as six",
           _R.format(1_000_000) + " | extend a = strrep(make_string(1), 300"
           " + x % 2)", False, {"max_rows": 1_000_000}),
    Attack("answers", "dates",
           _R.format(1_000_000) + " | extend " + _listed("t# = datetime(2026-01-01)"
           " + x * 1s", 12), False, {"max_rows": 1_000_000}),
    Attack("answers", "small dynamics",
           _R.format(1_000_000) + " | extend " + _listed("d# = dynamic([{}])", 40), False, {"max_rows": 1_000_000}),
    Attack("answers", "lines and groups beside the store",
           "Logs | as a | union a, a, a, a | summarize n = count() by Message, Line, Time"
           " | project Message, n", False, {"max_rows": 1_000_000}),
    # unpacking
    Attack("unpacking", "a zlib bomb", f"print a = strlen(zlib_decompress_from_base64_string('{_BOMB}'))"),
    Attack("unpacking", "a zlib bomb as a parameter",
           "declare query_parameters(p:string); range x from 1 to 1000 step 1"
           " | extend a = zlib_decompress_from_base64_string(strcat(p, ''))"
           " | summarize sum(strlen(a))", False, {"parameters": {"p": _BOMB}}),
    Attack("unpacking", "a billion laughs",
           "print strlen(tostring(parse_xml(@\"" + _LAUGHS.replace('"', '""') + "\")))"),
    Attack("unpacking", "a long line of CSV", "print array_length(parse_csv(strrep('a,', 20000000)))"),
    Attack("unpacking", "an address's every network",
           _R.format(1_000_000)
           + " | extend c = ipv4_range_to_cidr_list('0.0.0.1', '255.255.255.254') | summarize sum(array_length(c))"),
    # plugins and operators with states
    Attack("plugins", "sliding windows of a second over 56 years",
           f"{_TIMES} | evaluate sliding_window_counts(x, t, {_HALF}, 365d, 1s) | count"),
    Attack("plugins", "active users by the second",
           f"{_TIMES} | evaluate active_users_count(x, t, {_HALF}, 10000d, 1s, 1, 1s) | count"),
    Attack("plugins", "metrics by the second",
           f"{_TIMES} | evaluate activity_counts_metrics(x, t, {_HALF}, 1s) | count"),
    Attack("plugins", "rolling percentile",
           _R.format(200_000) + " | serialize | extend t = datetime(2026-01-01)"
           " + x * 1s | evaluate rolling_percentile(x, 50, t, 1s, 100000) | count"),
    Attack("plugins", "diffpatterns",
           _R.format(300_000) + " | extend s = iff(x % 2 == 0, 'a', 'b'), " + _listed("c# = tostring(x % (#"
           " + 2))", 12) + " | evaluate diffpatterns(s, 'a', 'b') | count"),
    Attack("operators", "a part for each value",
           _R.format(60_000) + " | partition by x (top 1 by x) | count"),
    Attack("operators", "top-nested 60 deep",
           "Logs | top-nested 100 of Line by count()" + ", top-nested 100 of Message by count()" * 60),
    Attack("operators", "four hundred branches", "Logs | fork " + "(summarize count() by Message) " * 400),
    Attack("operators", "facets of everything", "Logs | facet by " + _listed("Host", 300)),
    Attack("operators", "reduce",
           _R.format(3_000_000)
           + " | extend a = strcat(tostring(x), ' ', hash_md5(tostring(x)), ' ', tostring(x * 7))"
           " | reduce by a | count"),
    Attack("operators", "scan that keeps all",
           _R.format(3_000_000)
           + " | scan declare (l:dynamic = dynamic([])) with (step s: true => l = array_concat(s.l, pack_array(x));) | summarize max(array_length(l))"),
    Attack("operators", "search of everything", "search " + _listed("'line#'", 1_000, " or ")),
    Attack("operators", "sample of all",
           _R.format(100_000_000) + " | sample-distinct 100000000 of x | count"),
    Attack("operators", "distinct sketches",
           _R.format(20_000_000) + " | summarize h = hll(x) by x | summarize dcount_hll(hll_merge(h))"),
    # what is no query of this store
    Attack("refused", "externaldata", "externaldata(a:string)[@'file:///etc/passwd'] | count", True),
    Attack("refused", "a file as a table", "union ['/etc/passwd'] | count", True),
    Attack("refused", "Python",
           _R.format(3) + " | evaluate python(typeof(*), 'import os; os.system(\"id\")')", True),
    Attack("refused", "http_request", "evaluate http_request('http://127.0.0.1:1/')", True),
    Attack("refused", "sql_request", "evaluate sql_request('x', 'SELECT 1')", True),
    Attack("refused", "another cluster", "cluster('x').database('y').Logs | count", True),
    Attack("refused", "a command", ".drop table Logs", True),
    # parameters
    Attack("parameters", "a list of 400,000",
           "declare query_parameters(p:dynamic); Logs | where Host in (p)"
           " | count", False, {"parameters": {"p": [f"h{n}" for n in range(400_000)]}}),
    Attack("parameters", "50,000 of them",
           "print 1", False, {"parameters": {f"p{n}": n for n in range(50_000)}}),
    Attack("parameters", "expanded",
           "declare query_parameters(p:dynamic); range x from 1 to 100000 step 1 | extend p = p | mv-expand p"
           " | count", False, {"parameters": {"p": list(range(100_000))}}),
]  # fmt: skip
