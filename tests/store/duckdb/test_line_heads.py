"""Line heads as forms: every line is restored to the byte, and heads that follow from columns are not stored."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.record import frame
from store.duckdb.line_heads import COLUMNS, SEPARATOR, forms, head_of
from store.line_frames import logs_for_storage
from tests.examples import examples

NOON = datetime(2026, 6, 1, 12, 0, 0)


def through(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(form, restored line) of each row."""
    connection = duckdb.connect()
    connection.register("incoming", logs_for_storage(frame("logs", rows)).with_row_index("id").to_arrow())
    connection.execute(f"""CREATE TABLE made AS SELECT *, coalesce(message, substr(raw, msg_start + 1)) AS said,
        raw AS whole FROM ({forms("(SELECT * FROM incoming)")})""")
    return connection.execute(
        f"SELECT form, CASE WHEN form = '' THEN whole ELSE concat({head_of()}, said) END FROM made ORDER BY id"
    ).fetchall()


def line(head: str, message: str = "link is down", **columns: Any) -> dict[str, Any]:
    entities = columns.pop("entities", None)
    return {"time": NOON, "host": "gx01", "unit": "sshd", "pid": 4242, **columns, "raw": head + message, "message": message,
            "entities": json.dumps(entities) if entities else None}  # fmt: skip


def shown(form: str) -> str:
    """A form in readable notation: ``{kind of timestamp, fraction, seconds ahead}`` and ``{letter}`` of a column."""
    kind, mark, digits, ahead, letters, before, *texts = form.split(SEPARATOR)
    out = before + (f"{{{kind}{mark}{digits} {ahead}}}" if kind else "") + texts[0]
    for letter, text in zip(COLUMNS, texts[1:], strict=True):
        used = next((one for one in letters if one.lower() == letter), "")
        out += (f"{{{used}}}" if used else "") + text
    return out


TOLD = [
    (line("Jun  1 12:00:00 gx01 sshd[4242]: "), "{m 0} {h} {u}[{p}]: "),
    (line("Jun 01 12:00:00 gx01 sshd[4242]: "), "{M 0} {h} {u}[{p}]: "),
    (line("Jun 11 12:00:00 gx01 sshd[4242]: ", time=datetime(2026, 6, 11, 12)), "{m 0} {h} {u}[{p}]: "),
    (line("<30>Jun  1 12:00:00 gx01 sshd: ", pid=None), "<30>{m 0} {h} {u}: "),
    (line("<189>: 2026 Jun  1 12:00:00 UTC: ", host=None, unit=None, pid=None), "<189>: 2026 {m 0} UTC: "),
    (line("Jun  1 2026 12:00:00 gx01 sshd[4242]: "), "{c 0} {h} {u}[{p}]: "),
    (line("[Jun 01 2026 12:00:00] [INFO] ", unit=None, pid=None), "[{C 0}] [INFO] "),
    (line("<30>1 2026-06-01T12:00:00.123456Z gx01 sshd 4242 - - ", time=NOON + timedelta(microseconds=123456)),
     "<30>1 {T.6 0}Z {h} {u} {p} - - "),
    (line("2026-06-01T14:00:00.123+02:00 gx01 sshd[4242]: ", time=NOON + timedelta(milliseconds=123)),
     "{T.3 7200}+02:00 {h} {u}[{p}]: "),
    (line("2026-06-01 12:00:00.000000000 gx01 ", unit=None, pid=None), "{S.9 0} {h} "),
    (line("Jun  1 05:00:00 gx01 sshd[4242]: "), "{m -25200} {h} {u}[{p}]: "),
    (line("Jan  1 00:30:00 gx01 sshd[4242]: ", time=datetime(2025, 12, 31, 23, 30)), "{m 3600} {h} {u}[{p}]: "),
    (line("Dec 31 23:30:00 gx01 sshd[4242]: ", time=datetime(2026, 1, 1, 0, 30)), "{m -3600} {h} {u}[{p}]: "),
    (line("Jun  1 12:00:00 gx01.cluster.example sshd[4242]: "), "{m 0} {h}.cluster.example {u}[{p}]: "),
    (line("Jun  1 12:00:00 GX01 sshd[4242]: "), "{m 0} {H} {u}[{p}]: "),
    (line("[2026-06-01T12:00:00.083] [943931.batch] ", time=NOON + timedelta(milliseconds=83), job_id=943931, pid=None),
     "[{T.3 0}] [{j}.batch] "),
    (line("Jun  1 12:00:00 gx01 kernel: [   12.000345] ", unit="kernel", pid=None, entities={"uptime_s": 12.000345}),
     "{m 0} {h} {u}: [   {k}] "),
    (line("6,44384,2602740740832,-;", time=None, pid=None, entities={"kmsg_seq": 44384, "kmsg_usec": 2602740740832}),
     "6,{q},{m},-;"),
    (line("Jun 01 12:00:00 000345 [7F3A] 0x02 -> ", time=NOON + timedelta(microseconds=345)), "{M 6 0} [7F3A] 0x02 -> "),
    (line("no stamp at all: ", host=None, unit=None, pid=None), "no stamp at all: "),
]  # fmt: skip


def test_what_columns_show_is_not_kept() -> None:
    found = through([row for row, _ in TOLD])
    assert [back for _, back in found] == [row["raw"] for row, _ in TOLD]
    assert [shown(form) for form, _ in found] == [expected for _, expected in TOLD]


def test_odd_heads_come_back() -> None:
    rows = [
        line("Jun  1 11:59:07 gx01 sshd[4242]: ", time=datetime(2026, 6, 7)),  # the timestamp was not believed
        line("Feb 30 12:00:00 gx01 sshd[4242]: "),
        line("2026-06-01T12:00:60Z gx01 sshd[4242]: "),
        line("Jun  1 12:00:00.5 gx01 sshd[1]: "),  # neither fraction nor process id are the line's
        line("", message="nothing but a message"),
        line("h" * 1_000_000),
        line("Jun  1 12:00:00 gx01 a\x00b: "),
        line("Jün  1 12:00:00 gx01 \ufffd\ufffd🚀: ", message="🚀"),
        line("Jun  1 12:00:00 x ", host="", unit="", pid=None),
        line("[    1.000000] ", entities={"uptime_s": "soon"}),
    ]
    found = through(rows)
    assert [back for _, back in found] == [row["raw"] for row in rows] and all(form for form, _ in found)


def test_a_line_that_no_form_can_say_is_kept() -> None:
    rows = [line(f"Jun  1 12:00:00 g{SEPARATOR}x01: "), {**line(""), "raw": "one thing", "message": "another"}]
    rows.append(line("nothing but a head ", message=""))
    assert through(rows) == [("", row["raw"]) for row in rows]


WORDS = st.text(st.sampled_from([*"ab1[]:.-<>/ ", SEPARATOR, "é", "\x00", "🚀", "'", "%", "\\", "\n"]), max_size=6)
STAMPS = st.sampled_from(
    ["%b %d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S,%f000",
     "%b %d %H:%M:%S %f", "%b %d %Y %H:%M:%S", "%y%m%d %H%M%S", ""]
)  # fmt: skip
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(2099, 12, 30))


@st.composite
def wild_lines(draw: st.DrawFn) -> dict[str, Any]:
    """A line of a few columns and texts in any order, written in any zone."""
    time = draw(TIMES)
    host, unit = draw(st.one_of(st.none(), WORDS)), draw(st.one_of(st.none(), WORDS))
    pid, job = draw(st.one_of(st.none(), st.integers(-5, 99999))), draw(st.one_of(st.none(), st.integers(0, 999)))
    shift = timedelta(minutes=draw(st.sampled_from([0, 0, 60, 120, -420, 345, 5000])))
    stamp = (time + shift).strftime(draw(STAMPS))
    if draw(st.booleans()):
        stamp = stamp.replace(" 0", "  ", 1)
    pieces = [draw(WORDS), stamp, draw(WORDS), host or "", draw(WORDS), unit or "", draw(WORDS), str(pid), draw(WORDS)]
    if draw(st.booleans()):
        pieces = [p.upper() for p in pieces]
    message = draw(WORDS)
    entities = draw(st.sampled_from([None, '{"uptime_s": 12.5}', '{"kmsg_seq": 1, "kmsg_usec": 2}', '"uptime_s" {']))
    return {"time": draw(st.sampled_from([time, None])), "host": host, "unit": unit, "pid": pid, "job_id": job,
            "entities": entities, "message": message, "raw": "".join(pieces) + message + draw(st.sampled_from(["", "", " "]))}  # fmt: skip


@settings(max_examples=examples(8), deadline=None)
@given(st.lists(wild_lines(), min_size=1, max_size=25))
def test_any_line_comes_back(rows: list[dict[str, Any]]) -> None:
    assert [back for _, back in through(rows)] == [row["raw"] for row in rows]
