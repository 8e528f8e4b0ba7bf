"""The first attacks, tried on the code before it had the wall, by class."""

from __future__ import annotations

from tests.queries.attack import Attack


def doubling_union(times: int, tables: str = "Logs") -> str:
    lets = "".join(f"let t{n} = union t{n - 1}, t{n - 1};\n" for n in range(1, times + 1))
    return f"let t0 = {tables};\n{lets}t{times} | count"


def nested_lets(depth: int, calls: int) -> str:
    lets = "".join(
        f"let f{n} = (x:long) {{ {' + '.join(f'f{n - 1}(x + {c})' for c in range(calls))} }};\n"
        for n in range(1, depth)
    )
    return f"let f0 = (x:long) {{ x * 2 + 1 }};\n{lets}print f{depth - 1}(1)"


def _lets_of_strings(times: int) -> str:
    return (
        'let s0 = "0123456789";\n'
        + "".join(f"let s{n} = strcat(s{n - 1}, s{n - 1});\n" for n in range(1, times + 1))
        + f"print strlen(s{times})"
    )


def _extends(times: int, what: str, first: str = "Message") -> str:
    return f"Logs | extend a = {first}\n" + f"| extend a = {what}\n" * times + "| summarize max(strlen(tostring(a)))"


_R = "range x from 1 to {0} step 1"
_MANY = _R.format(100_000_000)
_SERIES = "print s = range(1, 200000, 1) | extend r = {0}"
_LIST = "range x from 1 to 3000000 step 1 | summarize l = make_list(x, 3000000)"

_SIXTY_A, _SIXTY_B = ", ".join("a" * 60), ", ".join("b" * 60)
_PRODUCT = _R.format(30_000) + " | extend k = 1 | join kind=inner (" + _R.format(30_000) + " | extend k = 1) on k"

KNOWN = [
    # unions
    Attack("unions", "doubling 2^21", doubling_union(21), True),
    Attack("unions", "doubling 2^11", doubling_union(11)),
    Attack("unions", "of 400 ranges", "union " + ", ".join(f"({_R.format(1000 + n)})" for n in range(400)) + " | count"),
    Attack("unions", "everything, twelve times", "union " + ", ".join(["(union *)"] * 12) + " | count"),
    Attack("unions", "joins doubled", "let t0 = Logs | project Host;\n" + "".join(
        f"let t{n} = t{n - 1} | join kind=inner t{n - 1} on Host | project Host;\n" for n in range(1, 9)) + "t8 | count"),
    # lets
    Attack("lets", "functions in functions 8^7", nested_lets(8, 8), True),
    Attack("lets", "functions in functions 2^30", nested_lets(30, 2)),
    Attack("lets", "a doubled text 2^30", _lets_of_strings(30)),
    Attack("lets", "tables in functions 3^12", "let f0 = () { Logs };\n" + "".join(
        f"let f{n} = () {{ union (f{n - 1}()), (f{n - 1}()), (f{n - 1}()) }};\n" for n in range(1, 12)) + "f11() | count"),
    Attack("lets", "materialized 30 deep", "let t0 = Logs;\n" + "".join(
        f"let t{n} = materialize(union t{n - 1}, t{n - 1});\n" for n in range(1, 30)) + "t29 | count"),
    # strings
    Attack("strings", "strrep of 1e9", "print strlen(strrep('A', 1000000000))", True),
    Attack("strings", "repeat of 1e9", "print array_length(repeat('A', 1000000000))", True),
    Attack("strings", "strrep, then replace_string",
           "print a = strrep('A', 100000) | extend b = strlen(replace_string(a, 'A', strrep('B', 100000)))", True),
    Attack("strings", "strrep of each row", _R.format(1_000_000) + " | extend a = strrep('A', 1000000 + x) | summarize sum(strlen(a))"),
    Attack("strings", "strcat doubled 30 times", _extends(30, "strcat(a, a)"), True),
    Attack("strings", "replace_regex grows", _extends(12, "replace_regex(a, '.', 'xxxxxxxx')")),
    Attack("strings", "url_encode of itself", _extends(30, "url_encode(a)")),
    Attack("strings", "base64 of itself", _extends(60, "base64_encode_tostring(a)")),
    Attack("strings", "tohex of a billion digits", "print strlen(tohex(255, 1000000000))"),
    Attack("strings", "strcat_delim", f"print a = strrep('A', 1000000) | extend b = strcat_delim(a, {_SIXTY_A}) | extend c = strcat_delim(b, {_SIXTY_B}) | project strlen(c)"),
    Attack("strings", "translate", _R.format(3000) + " | extend a = translate('A', 'B', strrep('A', 1000000 + x)) | summarize sum(strlen(a))"),
    Attack("strings", "split into letters", "print a = strrep('a,', 50000000) | extend b = array_length(split(a, ','))"),
    # answers
    Attack("answers", "1,000,000 x 3 kB", _R.format(1_000_000) + " | extend a = strrep('A', 3000 + x % 7)", True, {"max_rows": 1_000_000}),
    Attack("answers", "one cell of 200 MB", "print strrep('A', 200000000)", False, {"max_rows": 1_000_000}),
    Attack("answers", "a thousand columns", _R.format(1_000_000) + " | extend " + ", ".join(f"c{n} = x + {n}" for n in range(900)), False, {"max_rows": 1_000_000}),
    Attack("answers", "sorted texts", _R.format(5_000_000) + " | extend a = hash_sha256(tostring(x)) | sort by a asc", False, {"max_rows": 1_000_000}),
    # regexes
    Attack("regexes", "nested {0,900}", r"Logs | extend a = extract_all(@'((?:(?:a{0,30}){0,30}b?){0,30})', strcat(Message, strrep('a', 100000))) | count", True),
    Attack("regexes", "where, nested", r"Logs | where Message matches regex @'((.{0,30}){0,30}x){0,1}y{900}z' | count"),
    Attack("regexes", "a thousand branches", "Logs | where Message matches regex '" + "|".join(f"(.*a{n}.*b)" for n in range(400)) + "' | count"),
    Attack("regexes", "Unicode", r"Logs | where Message matches regex @'(\pL{1,30}\pN{1,30}){20}' | count"),
    Attack("regexes", "from the rows", "Logs | extend p = strcat('(', replace_string(tostring(Line), '1', 'a{900}'), '){1}') | where Message matches regex p | count"),
    Attack("regexes", "trim of alternatives", _R.format(200_000) + " | extend a = trim('(a|aa|aaa)*', strrep('a', 5000 + x)) | summarize sum(strlen(a))"),
    Attack("regexes", "parse with gaps", "Logs | extend m = strrep(Message, 500) | parse m with a 'e' b 'e' c 'e' d 'e' f 'e' g 'zzz' h | count"),
    # lists
    Attack("lists", "make_list of everything", _R.format(100_000_000) + " | summarize make_list(x, 100000000) | count", True),
    Attack("lists", "make_set of texts", _R.format(50_000_000) + " | summarize array_length(make_set(hash_md5(tostring(x)), 100000000))"),
    Attack("lists", "make_bag", _R.format(20_000_000) + " | summarize b = make_bag(bag_pack(tostring(x), x)) | project strlen(tostring(b))"),
    Attack("lists", "expanded thrice", _R.format(1000) + " | extend l = range(1, 1000, 1) | mv-expand a = l | mv-expand b = l | mv-expand c = l | summarize sum(x)"),
    Attack("lists", "array_concat doubled", "print l = range(1, 1000, 1)\n" + "| extend l = array_concat(l, l)\n" * 25 + "| project array_length(l)"),
    Attack("lists", "sets of long lists", f"{_LIST} | project array_length(set_union(l, l))"),
    Attack("lists", "sorted by a body", f"{_LIST} | project array_length(array_sort_asc(l))"),
    Attack("lists", "mv-apply", _R.format(100_000) + " | extend l = range(1, 1000, 1) | mv-apply l on (summarize s = sum(tolong(l))) | summarize sum(s)"),
    # ranges
    Attack("ranges", "operator", _MANY + "00 | summarize sum(x)", True),
    Attack("ranges", "function", "print array_length(range(1, 1000000000, 1))"),
    Attack("ranges", "dates by tick", "range t from datetime(1970-01-01) to datetime(2026-01-01) step 1us | summarize count()"),
    Attack("ranges", "groups", _MANY + " | summarize count() by x | count"),
    Attack("ranges", "serialized", _MANY + " | serialize n = row_number() | extend p = prev(x) | summarize sum(p)"),
    # joins
    Attack("joins", "on 1 == 1", _R.format(300_000) + " | extend k = 1 | join kind=inner (" + _R.format(300_000) + " | extend k = 1) on k | summarize sum(x)", True),
    Attack("joins", "lines with lines", "Logs | extend k = 1 | join kind=inner (Logs | extend k = 1) on k | join kind=inner (Logs | extend k = 1) on k | summarize dcount(Message)"),
    Attack("joins", "sorted product", _PRODUCT + " | extend h = hash_md5(tostring(x * x1)) | sort by h asc | take 5000000 | count"),
    # series
    Attack("series", "make-series by second over years", "Logs | make-series count() on Time from datetime(1990-01-01) to datetime(2026-01-01) step 1ms by Host | count", True),
    Attack("series", "decompose", _SERIES.format("series_decompose(s)") + " | count"),
    Attack("series", "fir of long filters", _SERIES.format("series_fir(s, range(1, 100000, 1))") + " | count"),
    Attack("series", "outliers", _SERIES.format("series_outliers(s)") + " | count"),
    # JSON
    Attack("JSON", "deep", "print d = parse_json(strcat(strrep('[', 5000000), strrep(']', 5000000))) | project strlen(tostring(d))", True),
    Attack("JSON", "packed into itself", "print b = bag_pack('a', 1)\n" + "| extend b = bag_pack('x', b, 'y', b)\n" * 28 + "| project strlen(tostring(b))"),
    Attack("JSON", "bag_merge of many", _R.format(2_000_000) + " | extend b = bag_merge(bag_pack('a', x), bag_pack(tostring(x), x)) | summarize sum(array_length(bag_keys(b)))"),
    Attack("JSON", "bag_unpack of many names", _R.format(50_000) + " | extend b = bag_pack(strcat('k', x), x) | evaluate bag_unpack(b) | count"),
    Attack("JSON", "treepath", "print b = bag_pack('a', range(1, 300000, 1)) | project array_length(treepath(b))"),
    # plugins
    Attack("plugins", "pivot", _R.format(100_000) + " | extend n = strcat('c', x) | evaluate pivot(n, count()) | count", True),
    Attack("plugins", "basket", _R.format(300_000) + " | extend " + ", ".join(f"c{n} = x % {n + 2}" for n in range(14)) + " | evaluate basket(0.001) | count"),
    Attack("plugins", "autocluster", _R.format(300_000) + " | extend " + ", ".join(f"c{n} = x % {n + 2}" for n in range(14)) + " | evaluate autocluster(0.1) | count"),
    Attack("plugins", "sequence_detect", _R.format(100_000) + " | extend t = datetime(2026-01-01) + x * 1s, k = 1 | evaluate sequence_detect(t, 1d, 1d, a = (x > 0), b = (x > 0), k) | count"),
    Attack("plugins", "scan", _R.format(10_000_000) + " | scan declare (n:long = 0) with (step s: true => n = n + 1;) | summarize max(n)"),
    # time zones, formats
    Attack("zones", "of each row", _R.format(10_000_000) + " | extend t = datetime_utc_to_local(datetime(2026-01-01) + x * 1s, 'Europe/Berlin') | summarize max(t)", True),
    Attack("zones", "format_datetime", _R.format(10_000_000) + " | extend t = format_datetime(datetime(2026-01-01) + x * 1s, strrep('yyyy-MM-dd ', 1000)) | summarize max(t)"),
    # texts of queries
    Attack("texts", "deep parentheses", "print " + "(" * 3000 + "1" + ")" * 3000, True),
    Attack("texts", "parentheses at the limit", "print " + " + ".join(["(" * 55 + "1" + ")" * 55] * 300)),
    Attack("texts", "5 MB", "print '" + "a" * 5_000_000 + "'", True),
    Attack("texts", "99 kB of operands", "print " + " + ".join(["1"] * 1900) + ", ".join([""] + ["a = 1"] * 8000)),
    Attack("texts", "99 kB of brackets", "print dynamic(" + "[" * 40 + ",".join(["1"] * 40_000) + "]" * 40 + ")"),
    Attack("texts", "5,000 values, twenty times", "Logs | where " + " or ".join(["Host in (" + ",".join(f"'h{n}'" for n in range(400)) + ")"] * 30) + " | count"),
    # parameters
    Attack("parameters", "a large one", "declare query_parameters(p:string); print strlen(strcat(p, p, p, p))", True, {"parameters": {"p": "x" * 4_000_000}}),
    Attack("parameters", "as a pattern", "declare query_parameters(p:string); Logs | where Message matches regex p | count", False, {"parameters": {"p": "(((a{0,30}){0,30}){0,30}b)"}}),
    Attack("parameters", "as a count", "declare query_parameters(n:long); print strlen(strrep('A', n))", False, {"parameters": {"n": 5_000_000_000}}),
    # asked otherwise
    Attack("explain", "of a doubling union", doubling_union(11), False, {"explain": True}),
    Attack("validate", "of a pivot", _R.format(5_000_000) + " | extend n = hash_md5(tostring(x)) | evaluate pivot(n, count())", True, {"validate_only": True}),
    Attack("validate", "of nested lets", nested_lets(8, 8), False, {"validate_only": True}),
]  # fmt: skip
