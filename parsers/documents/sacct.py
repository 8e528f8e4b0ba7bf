"""``sacct`` with a header: any columns in any order, any delimiter (``-p``, ``-P``), fields with line breaks, and its
fixed-width output without a delimiter."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass

from parsers.documents import fields
from parsers.documents.document import Document, Gathered, Line, Row, split_lines
from parsers.hostlist import expand
from parsers.job_states import JOB_STATES
from parsers.record import Origin, Parsed

_DELIMITER = re.compile(r"^[A-Za-z]\w*(?:%-?\d+)?([^A-Za-z0-9_% ]{1,4})")
#: The line below the column names in sacct's fixed-width output.
_RULE = re.compile(r"-{2,}(?: +-{2,})+")
_RESOURCE = re.compile(r"(?:cpu|mem|node|billing|energy|vmem|pages|disk|gres/[^=,]+|fs/\w+|bb/\w+|license/[^=,]+)=")
#: Columns that identify a header of sacct, beside JobID.
_COLUMNS = frozenset(
    [
        "jobidraw",
        "state",
        "exitcode",
        "start",
        "end",
        "submit",
        "nodelist",
        "elapsed",
        "user",
        "jobname",
        "account",
        "partition",
        "alloctres",
        "cluster",
    ]
)
#: Free text columns, which may contain the delimiter and line breaks.
_FREE_TEXT = ("submitline", "comment", "admincomment", "systemcomment", "jobname", "workdir", "extra")


@dataclass
class _Record:
    lines: list[Line]
    values: dict[str, str]


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    lines = split_lines(data)
    ruled = next((index for index, line in enumerate(lines[1:20]) if _RULE.fullmatch(line.text.rstrip())), None)
    start = next((index for index, line in enumerate(lines) if _header(line.text)), None) if ruled is None else ruled
    if start is None:
        raise ValueError("no header with JobID; run sacct without --noheader")
    for line in lines[:start]:
        gathered.keep_unread(line)
    gathered.keep(lines[start])
    if ruled is not None:
        _read_columns(lines[start:], gathered)
        return gathered.parsed()
    for record in _records(lines[start:], gathered):
        _take(record, gathered)
    return gathered.parsed()


def _read_columns(lines: list[Line], gathered: Gathered) -> None:
    """``sacct`` without ``-p``: columns as wide as the dashes below their names, truncated with a "+"."""
    spans = [found.span() for found in re.finditer("-+", lines[1].text)]
    names = [lines[0].text[start:stop].strip().lower() for start, stop in spans]
    gathered.keep(lines[1])
    for line in lines[2:]:
        cells = {name: line.text[start:stop].strip() for name, (start, stop) in zip(names, spans, strict=True)}
        state = cells.get("state", "")
        if state.endswith("+"):
            whole = [name for name in JOB_STATES if name.startswith(state[:-1])]
            cells["state"] = whole[0] if len(whole) == 1 else state[:-1]
        # A truncated name is still useful; a truncated node list or path would be wrong.
        row = {name: text for name, text in cells.items() if name == "jobname" or not text.endswith("+")}
        if _sound(row):
            _take(_Record([line], row), gathered)
        else:
            gathered.keep_unread(line, f"no record of a job: {line.text[:60]!r}")


def _cut(text: str, delimiter: str) -> list[str]:
    """The fields of a line. With a comma as delimiter, the commas of host lists, trackable resources and quoted fields
    stay inside."""
    if delimiter != ",":
        return text.split(delimiter) if delimiter else [text]
    if '"' in text and "\n" not in text:
        return next(csv.reader([text]))
    cells: list[str] = []
    for cell in re.split(r",(?![^\[\]]*\])", text):
        if cells and _RESOURCE.match(cell) and _RESOURCE.match(cells[-1]):
            cells[-1] += "," + cell
        else:
            cells.append(cell)
    return cells


def _header(text: str) -> tuple[str, list[str]] | None:
    """(delimiter, lower-case column names) if the line is a header of sacct."""
    found = _DELIMITER.match(text)
    if not found:
        return ("", [text.strip().lower()]) if text.strip().lower() in ("jobid", "jobidraw") else None
    delimiter = found[1]
    names = [name.strip().partition("%")[0].lower() for name in text.split(delimiter)]
    return (delimiter, names) if {"jobid", "jobidraw"} & set(names) else None


def is_header(lines: list[str]) -> bool:
    """Whether a file that begins with ``lines`` is sacct's. The columns of squeue are in upper case."""
    text = lines[0] if lines else ""
    names = {name.partition("%")[0] for name in re.split(r"[^A-Za-z0-9_%]+", text.lower())}
    if "=" in text or "[" in text or text.isupper() or "nodename" in names or not names & {"jobid", "jobidraw"}:
        return False
    if len(lines) > 1 and _RULE.fullmatch(lines[1].rstrip()):
        return True
    return _header(text) is not None and ("|" in text or bool(names & _COLUMNS))


def _records(lines: list[Line], gathered: Gathered) -> Iterator[_Record]:
    """Joins physical lines into records by counting delimiters, and yields each with its named values."""
    header = _header(lines[0].text)
    assert header is not None
    delimiter, names = header
    wanted = len(names)
    held: list[Line] = []
    last: _Record | None = None

    def refuse() -> None:
        for line in held:
            gathered.keep_unread(line, f"{line.text.count(delimiter) + 1} fields, header has {wanted}")
        held.clear()

    behind = 1
    for at, line in enumerate(lines[1:], start=1):
        if at < behind:
            continue
        values = _cut(line.text, delimiter)
        if held and len(values) >= wanted and (found := _around(held, lines, at, names, delimiter)):
            # What looks like a record is inside another job's name: text of that job's user.
            behind, whole = found
            if last:
                yield last
            last = _Record([*held, *lines[at:behind]], whole)
            held.clear()
            continue
        if len(values) >= wanted:
            refuse()
        elif not held and last and len(values) == 1 and line.text.strip() and names[-1] in _FREE_TEXT:
            # The last column contained a line break: the record looked complete already.
            last.values[names[-1]] += "\n" + line.text
            last.lines.append(line)
            continue
        elif not held and not line.text.strip():
            gathered.keep(line)
            continue
        held.append(line)
        if len(held) > 1:
            values = _cut("\n".join(piece.text for piece in held), delimiter)
        row = _named(values, names, delimiter)
        if row is not None:
            if last:
                yield last
            last = _Record(list(held), row)
            held.clear()
        elif len(values) > wanted and (len(held) > _WITHIN or fields.job_id(_cut(held[0].text, delimiter)[0]) is None):
            refuse()  # before that, a name with delimiters and line ends may go on, with what looks like another's record
    refuse()
    if last:
        yield last


#: A name has at most a thousand characters, so that few whole records fit into it.
_WITHIN = 32


def _around(
    held: list[Line], lines: list[Line], at: int, names: list[str], delimiter: str
) -> tuple[int, dict[str, str]] | None:
    """(next line, values) of a record that began with the lines ``held`` and continues after whole ones at ``at``."""
    for end in range(at + 1, min(at + _WITHIN, len(lines))):
        fragment = _cut(lines[end].text, delimiter)
        if not 1 < len(fragment) < len(names):
            continue
        text = "\n".join(piece.text for piece in (*held, *lines[at : end + 1]))
        row = _named(_cut(text, delimiter), names, delimiter)
        if row is not None:
            return end + 1, row
        if fields.job_id(fragment[0]) is not None:  # the start of the next record
            return None
    return None


def _named(values: list[str], names: list[str], delimiter: str) -> dict[str, str] | None:
    """Column -> value, or None if the record is incomplete or ambiguous."""
    surplus = len(values) - len(names)
    if surplus < 0:
        return None
    if surplus == 0:
        row = dict(zip(names, values, strict=True))
        return row if _sound(row) else None
    for column in _FREE_TEXT:
        if column in names:
            at = names.index(column)
            merged = [*values[:at], delimiter.join(values[at : at + surplus + 1]), *values[at + surplus + 1 :]]
            row = dict(zip(names, merged, strict=True))
            if _sound(row):
                return row
    return None


def _sound(row: dict[str, str]) -> bool:
    """Whether the values are in the right columns: the ID is one, the state is one, the times are times."""
    if fields.job_id(row.get("jobid") or row.get("jobidraw") or "") is None:
        return False
    state = fields.state(row.get("state"))[0]
    if state and state not in JOB_STATES:
        return False
    return all(
        not row.get(name) or fields.present(row[name]) is None or fields.local_time(row[name]) is not None
        for name in ("submit", "start", "end")
    )


def _take(record: _Record, gathered: Gathered) -> None:
    row, first, zone = record.values, record.lines[0], gathered.origin.timezone
    number = fields.job_id(row.get("jobid") or row.get("jobidraw") or "", row.get("jobidraw"))
    assert number is not None
    submit, begin, end = (fields.local_time(row.get(name), zone) for name in ("submit", "start", "end"))
    for line in record.lines:
        gathered.keep(line, end or begin or submit, number.raw)
    if number.raw is None:
        gathered.warn(f"array task {row.get('jobid')} without JobIDRaw: its own job id is not known", first.number)
    state, cancelled_by = fields.state(row.get("state"))
    code, signal = fields.exit_pair(row.get("exitcode"))
    node_list = fields.present(row.get("nodelist"))
    shared: Row = {
        "cluster": fields.present(row.get("cluster")), "job_id": number.raw,
        "db_index": fields.integer(row.get("dbindex")), "submit": submit, "start": begin, "end": end, "state": state,
        "exit_code": code, "exit_signal": signal, "name": row.get("jobname") or None,
        "nodes": list(expand(node_list)) if node_list else None,
    }  # fmt: skip
    shared["node_list"] = node_list if shared["nodes"] else None
    if number.step is not None:
        gathered.add("steps", shared | {"step_id": number.step}, first.number)
        return
    gathered.add("jobs", shared | _job_only(row) | {
        "array_job_id": number.array_job, "array_task_id": number.array_task, "cancelled_by": cancelled_by,
    }, first.number)  # fmt: skip


def _job_only(row: dict[str, str]) -> Row:
    minutes = fields.integer(row.get("timelimitraw"))
    flags = fields.present(row.get("flags"))
    return {
        "restarts": fields.integer(row.get("restarts") or row.get("restartcnt")),
        "user": row.get("user") or None, "uid": fields.integer(row.get("uid")), "account": row.get("account") or None,
        "partition": row.get("partition") or None, "qos": fields.present(row.get("qos")),
        "reason": fields.present(row.get("reason")), "derived_exit_code": row.get("derivedexitcode") or None,
        "time_limit_s": minutes * 60 if minutes is not None else fields.duration_s(row.get("timelimit")),
        "gpus": fields.gpus(row.get("alloctres")), "tres": fields.tres(row.get("alloctres")), "work_dir": row.get("workdir") or None,
        "std_out": fields.present(row.get("stdout")), "std_err": fields.present(row.get("stderr")),
        "submit_line": row.get("submitline") or None, "failed_node": fields.present(row.get("failednode")),
        "reservation": fields.present(row.get("reservation")), "flags": flags,
    }  # fmt: skip


DOCUMENT = Document(kinds=("sacct",), read=_read)
