"""Half of a surrogate pair in JSON is U+FFFD, in every form that a line or a document has. All lines are made up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from parsers import documents, regexes
from parsers.json_text import loads
from parsers.record import Origin
from tests.line_parser import line_parser

PARSER = line_parser()
HALF = r"\ud800"
JOURNAL = '"__REALTIME_TIMESTAMP":"1768471201000000","_HOSTNAME":"n1"'
LINES = (
    '{"message":"HALF","level":"info"}', '{"message":"x","host":"HALF"}', '{"HALF":1,"message":"x HALF"}', '{"id":["HALF"]}',
    f'{{"MESSAGE":"HALF",{JOURNAL}}}', f'{{"MESSAGE":"ok",{JOURNAL},"_BOOT_ID":"HALF"}}', f'{{"MESSAGE":["HALF"],{JOURNAL}}}',
    f'{{"MESSAGE":"ok","PRIORITY":"6","SYSLOG_IDENTIFIER":"sshd",{JOURNAL},"X":"HALF"}}',  # read by the compiled scanner
    f'{{"MESSAGE":"ok","PRIORITY":"6","SYSLOG_IDENTIFIER":"HALF",{JOURNAL}}}',
    '{"log":"{\\"message\\":\\"HALF\\"}","stream":"HALF","time":"2026-01-15T10:00:01Z"}',
    '{"log":"{\\"message\\":\\"\\HALF\\"}","stream":"stdout"}',
    '{"kmsg_us":1,"text":"HALF","read_at":1768471201.5,"seq":"HALF"}', '{"t":"2026-01-15T10:00:01Z","node":"HALF","state":"x"}',
    '{"_source":{"message":"HALF"}}', '{"streams":[{"stream":{"host":"HALF"},"values":[["1","HALF"]]}]}',
    '{"timeUnixNano":"1768471201000000000","body":{"stringValue":"HALF"},"severityText":"HALF"}',
    '{"short_message":"HALF","timestamp":1768471201.1,"level":3}', '{"event":{"original":"HALF"},"@timestamp":"2026-01-15T10:00:01Z"}',
    'time="2026-01-15T10:00:01Z" level=warning msg="HALF"', 'time="2026-01-15T10:00:01Z" level=info msg="x" error="HALF"',
    '2026-01-15T10:00:01Z stdout F {"message":"HALF"}', '2026-01-15T10:00:01Z {host="HALF"} {"message":"HALF"}',
    '[1,0]<stdout>: {"message":"HALF"}', f'data: {{"MESSAGE":"HALF",{JOURNAL}}}', 'Jan 15 10:00:01 n1 app[3]: {"message":"HALF"}',
    'Jan 15 10:00:01 n1 prog: @cee: {"msg":"HALF","pid":"HALF"}', '2026-01-15 10:00:01.000000000 +0000 tag: {"message" => "HALF"}',
)  # fmt: skip


SOURCES = (None, "job_stdout", "slurmd")


def by_itself_and_many() -> Iterator[Any]:
    """Each line by itself from each source, and so often that expressions search all at once; the latter in ``make test``
    from one of the sources, in turn."""
    for (number, line), (turn, source) in product(enumerate(LINES), enumerate(SOURCES)):
        yield pytest.param(line, 1, source)
        yield pytest.param(line, 2 * regexes.MANY, source, marks=pytest.mark.long if (number - turn) % 3 else ())


@pytest.mark.parametrize(("line", "count", "source"), list(by_itself_and_many()))
def test_no_line_is_refused(line: str, count: int, source: str | None) -> None:
    raw = line.replace("HALF", HALF)
    rows = PARSER.parse([raw.encode()] * count, Origin(source=source))
    assert rows["raw"].to_list() == [raw] * count
    # The entities are JSON themselves: whoever reads them must not get a half either.
    assert all("\\ud8" not in entities for entities in rows["entities"] if entities)


def test_only_halves_are_replaced() -> None:
    for text in (r'"\\ud800"', r'"\ud83d\ude00"', r'"\\\\\ud83d\ude00\n"', '{"a": [1.5, null, "é"]}'):
        assert loads(text) == loads(text.encode()) == json.loads(text)
    assert loads(r'"\ud800\ud83d\ude00 \uDFFF\\\ud800"') == "\ufffd😀 \ufffd\\\ufffd"
    assert loads(r'{"\ud800": 1}') == {"\ufffd": 1}
    assert loads(b'"\xed\xa0\x80"') == "\ufffd"  # encoded: json.loads makes a half of it
    assert loads(b"\xef\xbb\xbf{}") == {}
    assert loads(b'["\xed\xa0\x80", "\\ud83d\\ude00", "\\udfff", "\xc3\xa9"]') == ["\ufffd", "😀", "\ufffd", "é"]
    assert loads('"é😀"'.encode("utf-16")) == loads('"é😀"'.encode("utf-32-le")) == "é😀"
    assert loads('"\ud800"'.encode("utf-16-le", "surrogatepass")) == "\ufffd"
    for broken in ("{", b'"\xff"'):
        with pytest.raises(ValueError):
            loads(broken)


def test_only_text_that_has_halves_is_searched_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes a third of the time that a large document takes."""
    monkeypatch.setattr("parsers.json_text._HALF", None)
    monkeypatch.setattr("parsers.json_text._ESCAPE", None)
    for text in ('{"a": "\\u00e9 é 😀 \\n"}', "[]"):
        assert loads(text.encode()) == json.loads(text)


JOB = '{"jobs":[{"job_id":7,"job_state":["FAILED"],"name":"HALF","user_name":"zoe","nodes":"n1","partition":"p"}]}'
NEIGHBOUR = '{"lldp":{"interface":{"eth0":{"via":"LLDP","chassis":{"leaf1":{"descr":"HALF"}},"port":{"id":{"value":"HALF"},"descr":"HALF"}}}}}'


@pytest.mark.parametrize(
    ("kind", "text", "table"),
    [
        ("rest_jobs", JOB, "jobs"),
        ("lldpctl_json", NEIGHBOUR, "links"),
        ("node_polls", '{"t":"2026-01-15T10:00:01Z","node":"n1","state":"HALF"}', "node_states"),
        ("journal_pretty", '{\n\t"__REALTIME_TIMESTAMP" : "1768471201000000",\n\t"MESSAGE" : "HALF"\n}\n', "logs"),
        ("log_search", '{"data":{"resultType":"streams","result":[{"stream":{"host":"n1"},"values":[["1768471201000000000","HALF"]]}]}}', "logs"),
    ],
)  # fmt: skip
def test_a_document_with_half_a_character_is_read(kind: str, text: str, table: str) -> None:
    """Before, its reader raised, and its lines were kept without their meaning."""
    parsed = documents.read(kind, text.replace("HALF", HALF).encode(), Origin(host="n1"))
    assert parsed.warnings == []
    assert parsed.tables[table].height and "\ufffd" in repr(parsed.tables[table].rows())
