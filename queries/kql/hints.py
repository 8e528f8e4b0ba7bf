"""What was probably meant: frequent mistakes of users of SQL, Splunk or C, and what is often forgotten.

A hint is a pattern of the text before the position where parsing stopped, one of the text from there on, and the
message; `{}` in it is the word at that position. The first that fits is given.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from queries.kql.errors import nearest

#: Operators of other languages, and KQL's.
FOREIGN_OPERATORS = {
    "select": "project", "group": "summarize ... by", "groupby": "summarize ... by", "orderby": "sort by", "stats": "summarize",
    "head": "take", "eval": "extend", "fields": "project", "rename": "project-rename", "dedup": "distinct", "table": "project",
    "grep": "where Message has", "timechart": "summarize ... by bin(Time, 5m)", "having": "where", "tail": "top 10 by Time",
}  # fmt: skip
#: Alternatives for what is not answered here. Of the plugins, Kusto's pages do not define how the first windows are
#: counted (`activity_engagement`) or show a chart only (`session_count`).
INSTEAD = {
    "session_count": "sort by ... | extend row_window_session(...), then summarize dcount()",
    "activity_engagement": "sliding_window_counts for each of the two windows",
    "funnel_sequence": "sequence_detect or scan", "funnel_sequence_completion": "sequence_detect or scan",
    "make-graph": "join, once for each edge", "graph-match": "join, once for each edge", "graph-to-table": "join, once for each edge",
    "graph-shortest-paths": "join, once for each edge", "graph-mark-components": "join, once for each edge", "graph": "join, once for each edge",
    "macro-expand": "union withsource=...", "externaldata": "datatable, or `faultline ingest` of the file",
    "external_table": "datatable, or `faultline ingest` of the file", "reduce": "evaluate autocluster()",
    "database": "the table's name alone: there is one database", "current_database": "the table's name alone: there is one database",
    "current_cluster_endpoint": "the column Cluster", "cluster": "the column Cluster", "map": "bag_pack", "labels": "bag_keys",
    "geo_point_in_polygon": "geo_point_in_circle", "geo_point_to_s2cell": "geo_point_to_geohash", "geo_point_to_h3cell": "geo_point_to_geohash",
    "passthrough": "take_any",
}  # fmt: skip
#: Kusto's functions for tables of other databases and clusters.
ELSEWHERE = frozenset({"database", "cluster", "workspace", "app"})
#: Comparison operators of other languages, and KQL's.
FOREIGN_COMPARISONS = {"like": "contains", "ilike": "contains", "rlike": "matches regex", "is": "isnull() or isempty()"}
_WORDS = "and|or|not|by|in|between|has|contains|where|summarize|asc|desc|true|false"
_LISTS = r"\|\s*(?:project|extend|distinct|summarize|project-\w+)\b[^|;]*[\w\])\"']\s+$"
#: A query that begins with an operator lacks its table.
_BEGINS = re.compile(r"\s*([a-z][a-z-]*)\b[^|;]*\Z")
_NO_TABLE = "Logs | ...; a query begins with its table"
_HINTS = tuple(
    (re.compile(before, re.S), re.compile(after), hint)
    for before, after, hint in (
        (r"^\s*$", r"(?i)select\b", "Logs | project ...; a query begins with its table"),
        (r"(?i)^\s*select\b.*$", r"", "Logs | project ...; a query begins with its table"),
        (r"\bcluster\s*\([^()]*\)\s*\.\s*database\s*$", r"\(", "the table's name alone: there is one database"),
        (r"", r"&&", "and"),
        (r"", r"[\u201c\u201d\u201e\u2018\u2019\u201a]", "plain quotes, \" or '"),
        (r"", r"~\s*[\"'\w]", "=~"),
        (r"", r"is\s+(?:not\s+)?null\b", "isnull() or isempty(), or not( ... ) of them"),
        (r"", r"!?in~?\s*\[", "in ( ... )"),
        (r"\bcount\s*$", r"\(\s*distinct\b", "dcount( ... )"),
        (r"\|\s*$", r"\|", "one |, or the word 'or'"),
        (r"", r"=>", ">="),
        (r"", r"=<", "<="),
        (r"[=!<>]=\s*$", r"=", "=="),
        (r"", r"=", "=="),
        (r"", r"!", "not()"),
        (r"\bnot\s+$", r"", "not( ... )"),
        (r"\blet\s+\w+\s*=[^;|]*\n\s*$", r"[A-Za-z]", "; at the end of the line before"),
        (r"\|\s*(?:sort|order)\s+$", r"", "by {}"),
        (r"\|\s*top\s+\S+\s+$", r"", "by {}"),
        (r"\bbetween\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*$", r",", ".. between the two ends"),
        (r"\b\w+\s*$", r"\(\s*\d+(?:\.\d+)?\s*[A-Za-z]", "a timespan such as 30s, 5m, 1h or 2d"),
        (r"", rf"(?=[A-Z])(?i:{_WORDS})\b", "{lower}"),
        (r"^\s*[A-Za-z_]\w*\s+$", r"[a-z]", "| {}"),
        (_LISTS, r"[A-Za-z_]", ", before {}"),
    )
)


#: This many characters before a position are searched: the patterns try each of them, and some read on from there.
NEAR = 2_000


def meant(text: str, place: int, word: str, comparisons: list[str], operators: Collection[str]) -> str | None:
    """The message about a word that is invalid at a position. ``operators``: those that are only valid after a table."""
    before = text[max(0, place - NEAR) : place]
    begins = _BEGINS.match(text, 0, place)
    if begins and begins[1] in operators:
        return _NO_TABLE
    for behind, ahead, hint in _HINTS:
        if ahead.match(text, place) and behind.search(before):
            return hint.replace("{}", word).replace("{lower}", word.lower())
    close = nearest(word, comparisons)
    return close if close != word else None


def unclosed_at_end(text: str, pairs: str) -> int | None:
    """The position of the bracket that is still open at the end of a text; ``pairs`` matches strings and brackets."""
    open_: list[int] = []
    for match in re.finditer(pairs, text):
        if match[0] in ("(", "[", "{"):
            open_.append(match.start())
        elif match[0] in (")", "]", "}") and open_:
            open_.pop()
    return open_[-1] if open_ else None
