"""Heads of log lines as forms: the line's own columns determine the text before the message, so it need not be stored.

``<30>Jun  1 00:53:13 gpu-0093 systemd[19838]: `` is a timestamp, a host, a unit and a process ID with a few characters
between them. A *form* stores those characters and the format of the timestamp; thousands of lines share one, so a
dictionary-coded column of forms costs nearly nothing. ``forms`` finds them and verifies each: if the head that
``head_of`` reconstructs is not byte for byte the line's own, the form is the head itself, and if even that is
impossible, it is empty and the whole line must be stored.

A form is a list of texts separated by ``SEPARATOR``:

- the format of the timestamp (``STAMPS``; empty: none), the text before its fraction of a second, the number of digits
  of the fraction, and how many seconds the timestamp's clock was ahead of UTC (zones, daylight saving time);
- which columns follow, one letter each in this order: ``h`` host (``H`` in capitals), ``u`` unit, ``p`` process ID,
  ``q`` and ``m`` the number and microseconds of a /dev/kmsg record, ``k`` the kernel's seconds since boot, ``j`` job
  id;
- the text before the timestamp, after it, and after each of those columns.

All of it is SQL over columns, run by DuckDB on many lines at once.
"""

from __future__ import annotations

from collections.abc import Sequence

SEPARATOR = "\x1f"
#: Formats of a date and a time of day, as SQL over ``{t}``, a timestamp of the sender's clock.
STAMPS: dict[str, str] = {
    "m": "concat(strftime({t}, '%b '), lpad(day({t})::VARCHAR, 2, ' '), strftime({t}, ' %H:%M:%S'))",  # RFC 3164
    "M": "strftime({t}, '%b %d %H:%M:%S')",  # opensm
    "c": "concat(strftime({t}, '%b '), lpad(day({t})::VARCHAR, 2, ' '), strftime({t}, ' %Y %H:%M:%S'))",  # switches
    "C": "strftime({t}, '%b %d %Y %H:%M:%S')",  # Fabric Manager
    "T": "strftime({t}, '%Y-%m-%dT%H:%M:%S')",  # RFC 5424, Slurm
    "S": "strftime({t}, '%Y-%m-%d %H:%M:%S')",
}


def _entity_sql(entity: str) -> str:
    """SQL of an entity; most lines have none, and parsing JSON is expensive."""
    return f"CASE WHEN contains(entities, '\"{entity}\"') AND json_valid(entities) THEN json_extract_string(entities, '$.{entity}') END"


#: Columns that a head may contain: letter -> SQL of the text.
COLUMNS: dict[str, str] = {
    "h": "host",
    "u": "unit",
    "p": "CAST(pid AS VARCHAR)",
    "q": _entity_sql("kmsg_seq"),
    "m": _entity_sql("kmsg_usec"),
    "k": f"printf('%.6f', TRY_CAST({_entity_sql('uptime_s')} AS DOUBLE))",
    "j": "CAST(job_id AS VARCHAR)",
}
#: Number of parts of a form before the text after the timestamp; a text for each column follows.
_BEFORE, _AFTER = 6, 7

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
#: The timestamp begins within this many characters of the line's start; nanoseconds are the finest fraction in use.
_STAMP = (
    rf"(?s)^(.{{0,40}}?)(?:({_MONTHS}) ([ \d]\d) (?:(\d{{4}}) )?|(\d{{4}}-\d\d-\d\d)([T ]))(\d\d:\d\d:\d\d)"
    r"(?:([., ])(\d{1,9}))?(.*)$"
)
_GROUPS = "['before', 'month', 'day', 'year', 'date', 'mid', 'clock', 'mark', 'digits', 'rest']"
#: The timestamp as shown by the sender's clock; without a year, it gets that of the line's time.
_WRITTEN = """CASE WHEN stamp.date <> '' THEN TRY_CAST(concat(stamp.date, ' ', stamp.clock) AS TIMESTAMP)
    WHEN stamp.month <> '' THEN try_strptime(concat(coalesce(nullif(stamp.year, ''), CAST(year(time) AS VARCHAR)), ' ', stamp.month, ' ',
        trim(stamp.day), ' ', stamp.clock), '%Y %b %d %H:%M:%S') END"""
#: Seconds from the time to the timestamp; around New Year their years differ.
_AHEAD = """date_diff('second', date_trunc('second', time), CASE WHEN stamp.year <> '' OR stamp.date <> '' THEN written
    WHEN written > time + INTERVAL 183 DAY THEN written - INTERVAL 1 YEAR
    WHEN written < time - INTERVAL 183 DAY THEN written + INTERVAL 1 YEAR ELSE written END)"""
#: A timestamp farther from its line's time than any zone does not date the line.
_FARTHEST_S = 2 * 86_400
_KIND = """CASE WHEN stamp.date <> '' THEN CASE stamp.mid WHEN 'T' THEN 'T' ELSE 'S' END
    WHEN stamp.year <> '' THEN CASE stamp.day[1] WHEN '0' THEN 'C' ELSE 'c' END WHEN stamp.day[1] = '0' THEN 'M' ELSE 'm' END"""


def _fraction(digits: str) -> str:
    return f"substr(rpad(strftime(time, '%f'), 9, '0'), 1, {digits})"


def head_of(form: str = "form") -> str:
    """SQL of the head that the column ``form`` describes, over the columns of a line (time, host, unit, ...)."""
    return _head([f"split_part({form}, chr(31), {number})" for number in range(1, _AFTER + len(COLUMNS) + 1)])


def _head(parts: Sequence[str]) -> str:
    """SQL of the head, from SQL of each part of its form."""
    kind, mark, digits, ahead, letters, before, *texts = parts
    # An empty part is not a number: the branches exclude it, but the engine may evaluate them early.
    moment = f"(time + to_seconds(TRY_CAST({ahead} AS BIGINT)))"
    ways = " ".join(f"WHEN '{name}' THEN {sql.format(t=moment)}" for name, sql in STAMPS.items())
    pieces = [
        before,
        f"CASE {kind} {ways} ELSE '' END",
        f"CASE WHEN {digits} <> '' THEN concat({mark}, {_fraction(f'TRY_CAST({digits} AS BIGINT)')}) ELSE '' END",
        texts[0],
    ]
    for (letter, value), text in zip(COLUMNS.items(), texts[1:], strict=True):
        capital = f"WHEN contains({letters}, 'H') THEN upper(host) " if letter == "h" else ""
        pieces += [f"CASE WHEN contains({letters}, '{letter}') THEN {value} {capital}ELSE '' END", text]
    return f"concat({', '.join(pieces)})"


def forms(source: str) -> str:
    """A SELECT of all columns of ``source`` (with the columns of ``raw.logs``) and ``form``, which is empty if a line
    must be stored whole: its message is not its end, or its head contains a separator. ``source`` is a table or a
    subquery of ours.

    ``form`` is never null: DuckDB 2.0 fails to compare ``split_part`` of a known null with a constant.
    """
    query = f"SELECT *, substr(raw, 1, msg_start) AS head FROM {source}"
    query = f"SELECT *, regexp_extract(head, '{_STAMP}', {_GROUPS}) AS stamp FROM ({query})"
    query = f"SELECT *, {_WRITTEN} AS written FROM ({query})"
    query = f"SELECT *, {_AHEAD} AS ahead FROM ({query})"
    query = f"""SELECT *, CASE WHEN ahead BETWEEN -{_FARTHEST_S} AND {_FARTHEST_S} THEN {_KIND} ELSE '' END AS kind,
        stamp.digits <> '' AND {_fraction("length(stamp.digits)")} = stamp.digits AS fine FROM ({query})"""
    query = f"""SELECT *, CASE WHEN kind = '' THEN head WHEN fine THEN stamp.rest
        ELSE concat(stamp.mark, stamp.digits, stamp.rest) END AS rest0 FROM ({query})"""
    for number, (letter, text) in enumerate(COLUMNS.items()):
        query = _cut(query, number, letter, text)
    count = len(COLUMNS)
    parts = [
        "kind",
        "CASE WHEN kind <> '' AND fine THEN stamp.mark END",
        "CASE WHEN kind <> '' AND fine THEN length(stamp.digits) END",
        "CASE WHEN kind <> '' THEN ahead END",
        f"concat({', '.join(f'letter{n}' for n in range(count))})",
        "CASE WHEN kind <> '' THEN stamp.before END",
        *(f"text{n}" for n in range(count)),
        f"rest{count}",
    ]
    named = [f"part{n}" for n in range(len(parts))]
    given = ", ".join(
        f"coalesce(CAST({part} AS VARCHAR), '') AS {name}" for part, name in zip(parts, named, strict=True)
    )
    query = f"SELECT *, {given} FROM ({query})"
    written_out = f"concat(repeat(chr(31), {_BEFORE - 1}), head, repeat(chr(31), {len(parts) - _BEFORE}))"
    scratch = "head, stamp, written, ahead, kind, fine, rest0, " + ", ".join(named)
    scratch += "".join(f", value{n}, place{n}, letter{n}, text{n}, rest{n + 1}" for n in range(count))
    return f"""SELECT * EXCLUDE ({scratch}), CASE WHEN head IS NULL OR contains(head, chr(31)) THEN ''
        WHEN {_head(named)} = head THEN concat({", chr(31), ".join(named)}) ELSE {written_out} END AS form FROM ({query})"""


def _cut(query: str, number: int, letter: str, text: str) -> str:
    """Splits the rest of the head at the first occurrence of the column's text; otherwise leaves it whole."""
    rest = f"rest{number}"
    value, name = f"({text})", f"'{letter}'"
    if letter == "h":  # some senders write upper case where all others do not
        value = f"CASE WHEN contains({rest}, host) THEN host ELSE upper(host) END"
        name = f"CASE WHEN contains({rest}, host) THEN 'h' ELSE 'H' END"
    query = f"SELECT *, {value} AS value{number} FROM ({query})"
    query = f"SELECT *, CASE WHEN value{number} <> '' THEN instr({rest}, value{number}) ELSE 0 END AS place{number} FROM ({query})"
    there = f"CASE WHEN place{number} > 0 THEN"
    return f"""SELECT *, {there} {name} ELSE '' END AS letter{number},
        {there} substr({rest}, 1, place{number} - 1) ELSE '' END AS text{number},
        {there} substr({rest}, place{number} + length(value{number})) ELSE {rest} END AS rest{number + 1} FROM ({query})"""
