"""Job output: timestamps of its own, prefixes of srun and torchrun, colours, progress bars.

A timestamp may have many positions and spellings; the prefix before it (``srun -l``'s task, torchrun's ``[rank3]:``,
NCCL's ``host:pid:tid [gpu]``) identifies the writer. A job's clock is its node's local time, so only an explicit zone
is certain.
"""

from __future__ import annotations

import json
import re

import polars as pl

from parsers import regexes
from parsers.formats.base import JOB_SOURCES, LATER, SEVERITY_WORDS, ByLine, Format, Row, groups, timed
from parsers.header_grammar import Run, either, header, named
from parsers.record import Origin

#: What colours a terminal, or names its window.
COLOUR = r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07"
#: One state of a progress bar (tqdm, rich), which the next one overwrites.
_PROGRESS = r"[^\r]*(?:\d{1,3}%\|?|\d+/\d+ \[|it/s|s/it)[^\r]*\r+"
#: "12: " of srun -l, "[80746] " of a launcher, "[rank3]:" and "[default0]:" of torchrun.
RANK_HEADER = header(
    "[", named("role", Run("letter", 1, 1), Run("role", 0)), named("number", either(r"\d+", Run("digit", 1, 10))),
    either(r"(?:\|\d+)?\]:? ?", "]"),
)  # fmt: skip
_WHO = rf"^\s{{0,6}}(?:(?P<task>\d{{1,6}}): ?)?(?:\[(?P<launcher>\d+)\] )?(?:{RANK_HEADER.regex})*"
_BARE_WHO = re.sub(r"\?P<\w+>", "?:", _WHO)
_CLOCK = r"\d\d:\d\d:\d\d"
_ISO = rf"\d{{4}}[-/]\d\d[-/]\d\d[T ]{_CLOCK}(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
#: Level words of Python's loggers, and the letters that NeMo writes after its name.
LEVEL_NAMES = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL")
NEMO_LEVELS = {"D": "debug", "I": "info", "W": "warning", "E": "error"}
LEVEL = rf"(?:{'|'.join(LEVEL_NAMES)}|NeMo [{''.join(NEMO_LEVELS)}])"
#: "2026-02-06 16:10:24,123 - INFO - text", "[2026-02-06 16:10:24] node:pid...", "INFO:2026-02-06 ..."
_STAMPED = _WHO + rf"(?:\[?(?P<word>{LEVEL})\]?[ :]{{1,3}})?\[?(?P<iso>{_ISO})\]?(?P<rest>[ ,:|\]-].*)?$"
#: "[E206 16:10:24.987654 file.cpp:12] text" (month and day in one number), "02/06 16:10:24", "02/06/2026 16:10:24",
#: vLLM's "INFO 02-06 16:10:24", UCX's epoch seconds.
_SHORT = (
    _WHO
    + rf"(?:\[?(?P<letter>[DIWEF])(?P<month_day>\d{{3,4}}) |(?:(?P<word>{LEVEL}) )?\[?(?P<month>\d\d)[/-](?P<day>\d\d)(?:/(?P<year>\d{{4}}))?,? )"
    rf"(?P<clock>{_CLOCK})(?:[.,](?P<fraction>\d+))?(?P<rest>[ ,:|\]-].*)?$"
)
_EPOCH = r"^\[(?P<epoch>1\d{9})\.(?P<fraction>\d{6})\] (?P<rest>\[.*)$"
#: NCCL writes "host:pid:tid [gpu]", UCX and Open MPI "[host:pid...]".
NCCL_HEADER = header(
    named("host", Run("host")), ":", named("pid", Run("digit")), ":", Run("digit"), " [", named("gpu", Run("digit")), "] ",
)  # fmt: skip
MPI_WRITER = r"\[(?P<mpi_host>[A-Za-z][\w.-]*):(?P<mpi_pid>\d+)(?::\d+)*(?: :\d+)?\]"
_WRITER = f"^(?:{NCCL_HEADER.regex}|{MPI_WRITER})"
#: A source location, ``[core.py:33]``, has the form of a writer but is not one.
_SOURCE_FILE = r"\.(?:py|cc?|cpp|cu|hp{0,2}|go|rs|java)$"
#: "gpu01 rank0 step 50": the node that a rank states for itself.
OWN = r"([A-Za-z][\w.-]*) rank ?\d+ "
#: Separators between timestamp, level and text: "- LEVEL - text", "- name - LEVEL - text", "[LEVEL] text".
BETWEEN = " ,:|]-"
_WORD = rf"^[ ,:|\]-]*\[?({LEVEL})\b"
LOGGER_HEADER = header(named("logger", Run("dotted")), " - ")
_NAMED = rf"^[ ,:|\]-]+{LOGGER_HEADER.regex}\[?(?P<level>{LEVEL})\b"
_TASK = re.compile(r"^\s*\d{1,6}: ?")
_HEALTHAGENT = re.compile(r"healthagent\b")
#: Larger numbers stay in the text only.
_MOST = 2**63 - 1
#: srun and slurmstepd on a job's stderr, NCCL, PyTorch, UCX, Open MPI, a shell's report of a dead child.
_MARKS = (
    _BARE_WHO + r"(?:srun: |slurmstepd(?:-[\w.-]+)?: |salloc: |sbatch: |s(?:info|queue|control|acct): |"
    r"[\w.-]+:\d+:\d+ \[\d+\] (?:[^ ]+ )?NCCL |[\w.-]+:\d+:\d+ \[\d+\] \S+:\d+ NCCL |\[rank\d+\]|\[(?:default|trainer|worker)\d+\]:|"
    r"\[[\w.-]+:\d+(?::\d+:\d+)?\] |Traceback \(most|terminate called|mpirun|mpiexec|ORTE |prterun|\S+: line \d+: +\d+ |"
    r"torch\.|[A-Z]\w*(?:Error|Exception)(?::|$)|RuntimeError: |CUDA (?:error|kernel errors)|Abort\(\d+\) on node |"
    r"Compile with `TORCH|enroot-|pyxis: |libfabric:\d+:|MPICH ERROR|Fatal Python error)"
)
_LETTERS = {**NEMO_LEVELS, "F": "crit"}
_WORDS = {
    **{name.upper(): level for name, level in SEVERITY_WORDS.items()}, **_LETTERS,
    **{f"NeMo {letter}": level for letter, level in _LETTERS.items()},
}  # fmt: skip
_MONTHS = dict(
    zip(
        (f"{n:02d}" for n in range(1, 13)),
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
        strict=True,
    )
)


def _cleaned(frame: pl.DataFrame) -> pl.DataFrame:
    """Texts as a terminal finally shows them: no colours, and of a progress bar only what follows it."""
    text = pl.col("text")
    odd = text.str.contains("\x1b", literal=True) | text.str.contains("\r", literal=True)
    if not frame.select(odd.any()).item():  # mostly true, and each expression below is built anew every time
        return frame
    shown = text.str.replace_all(COLOUR, "").str.strip_chars_end("\r").str.replace_all(_PROGRESS, "")
    return frame.with_columns(
        pl.when(odd).then(shown.str.strip_chars("\r").str.replace_all("\r+", "\n")).otherwise(text)
    )


def _who(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Adds what a line reveals about its writer. ``frame`` has message, and _WHO's groups if there are any."""
    messages = frame["message"]
    found = frame.with_columns(regexes.groups(messages, _WRITER))
    own = regexes.extract(messages, f"^{OWN}")
    named = ~pl.col("mpi_host").str.contains(_SOURCE_FILE)
    found = found.with_columns(pl.when(named).then(name).alias(name) for name in ("mpi_host", "mpi_pid"))
    found = found.with_columns(
        pl.coalesce("host", "mpi_host", own).alias("host"), pl.coalesce("pid", "mpi_pid").alias("pid")
    )
    names = set(found.columns)
    numbers = {"pid": pl.col("pid"), "gpu": pl.col("gpu")}
    if "role" in names:
        is_rank = pl.col("role") == "rank"
        numbers["rank"] = pl.when(is_rank).then("number").otherwise(pl.col("task"))
        numbers["local_rank"] = pl.when(~is_rank).then("number")
    parts = [
        pl.when(value.is_not_null()).then(pl.concat_str(pl.lit(f'"{name}": '), value.cast(pl.Int64, strict=False).cast(pl.String)))
        for name, value in numbers.items()
    ]  # fmt: skip
    listed = pl.concat_str(parts, separator=", ", ignore_nulls=True)
    # A service's own file (jetpack.log) comes from the same logging libraries as job output.
    service = origin.source is not None and origin.source not in JOB_SOURCES
    source = pl.lit(origin.source or "job_stdout")
    if "logger" in names:
        source = pl.when(pl.col("logger").str.contains(r"^healthagent\b")).then(pl.lit("healthagent")).otherwise(source)
    return found.with_columns(
        pl.when(listed != "").then(pl.concat_str(pl.lit("{"), listed, pl.lit("}"))).alias("extra"),
        pl.col("pid").cast(pl.Int64, strict=False), source.alias("source"),
        pl.coalesce("logger" if "logger" in names else pl.lit(None, pl.String), pl.lit(origin.source if service else None)).alias("unit"),
    ).with_columns(
        pl.when(pl.col("source").is_in(JOB_SOURCES)).then(pl.lit("job_output")).otherwise(pl.lit("stamped")).alias("format")
    )  # fmt: skip


def _read_stamped(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(_cleaned(frame), _STAMPED).filter(pl.col("iso").is_not_null())
    if found.is_empty():
        return found
    found = found.with_columns(pl.col("iso").alias("stamp"), pl.col("iso").str.replace_all("/", "-", literal=True))
    return _who(_levelled(timed(found, origin)), origin)


def _levelled(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds message, severity and the logger's name: "- LEVEL - text", "- name - LEVEL - text", "[LEVEL] text", a glog
    letter."""
    rest = frame["rest"].fill_null("")
    named = regexes.groups(rest, _NAMED)
    word = pl.coalesce(
        regexes.extract(rest, _WORD), named["level"],
        *(name for name in ("letter", "word") if name in frame.columns),
    )  # fmt: skip
    severity = word.replace_strict(_WORDS, default=None, return_dtype=pl.String)
    return frame.with_columns(
        severity.alias("severity"), named["logger"], rest.str.strip_chars_start(BETWEEN).alias("message")
    )


def _read_short(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(_cleaned(frame), _SHORT).filter(pl.col("clock").is_not_null())
    if found.is_empty():
        return found
    both = pl.col("month_day").str.zfill(4)
    month = pl.coalesce(both.str.slice(0, 2), "month")
    stamp = pl.concat_str(pl.coalesce("month_day", pl.concat_str("month", pl.lit("/"), "day")), pl.lit(" "), "clock")
    found = found.with_columns(
        month.replace_strict(_MONTHS, default=None, return_dtype=pl.String).alias("month"),
        pl.coalesce(both.str.slice(2, 2), "day").alias("day"), stamp.alias("stamp"),
    ).filter(pl.col("month").is_not_null())  # fmt: skip
    if found.is_empty():
        return found
    return _who(_levelled(timed(found, origin)), origin)


def _read_epoch(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _EPOCH)
    micros = pl.col("epoch").cast(pl.Int64) * 1_000_000 + pl.col("fraction").cast(pl.Int64)
    found = found.with_columns(
        micros.cast(pl.Datetime("us")).alias("time"), pl.lit("line").alias("quality"), pl.lit(1, pl.Int64).alias("resolution_us"),
        pl.concat_str("epoch", pl.lit("."), "fraction").alias("stamp"), pl.col("rest").alias("message"),
    )  # fmt: skip
    return _who(found, origin)


def _read_marked(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    if origin.source not in (*JOB_SOURCES, None):
        return frame.clear()
    cleaned = _cleaned(frame)
    found = cleaned.with_columns(regexes.groups(cleaned["text"], _WHO))
    message = pl.col("text")
    if found["task"].null_count() < len(found):
        # Only srun's prefix is removed: patterns expect the others as part of the text.
        message = (
            pl.when(pl.col("task").is_not_null()).then(message.str.replace(r"^\s*\d{1,6}: ?", "")).otherwise(message)
        )
    return _who(found.with_columns(message.alias("message")), origin)


# ------------------------------------------------------------------------------------------------- few lines, one by one


def _odd(text: str) -> bool:
    """Whether it contains colours or a progress bar to remove."""
    return "\x1b" in text or "\r" in text


def _stamped_line(text: str, origin: Origin) -> Row | None:
    if _odd(text):
        return LATER
    found = regexes.compiled(_STAMPED).search(text)
    if found is None:
        return None
    groups = found.groupdict()
    levelled = _levels_of(groups["rest"] or "", groups["word"])
    return {
        "iso": groups["iso"].replace("/", "-"),
        "stamp": groups["iso"],
        **levelled,
        **_written_by(levelled, groups, origin),
    }


def _short_line(text: str, origin: Origin) -> Row | None:
    if _odd(text):
        return LATER
    found = regexes.compiled(_SHORT).search(text)
    if found is None:
        return None
    groups = found.groupdict()
    both = (groups["month_day"] or "").zfill(4)
    month, day = (both[:2], both[2:]) if groups["month_day"] else (groups["month"], groups["day"])
    if month not in _MONTHS:
        return None
    stamp = f"{groups['month_day'] or f'{month}/{day}'} {groups['clock']}"
    levelled = _levels_of(groups["rest"] or "", groups["letter"], groups["word"])
    parts = {"month": _MONTHS[month], "day": day, **{name: groups[name] for name in ("clock", "fraction", "year")}}
    return {**parts, "stamp": stamp, **levelled, **_written_by(levelled, groups, origin)}


def _marked_line(text: str, origin: Origin) -> Row | None:
    if origin.source not in (*JOB_SOURCES, None):
        return None
    if _odd(text):
        return LATER
    groups = _group_dict(_WHO, text)
    message = text if groups.get("task") is None else _TASK.sub("", text, count=1)
    return {"message": message, **_written_by({"message": message}, groups, origin)}


def _group_dict(pattern: str, text: str) -> dict[str, str | None]:
    found = regexes.compiled(pattern).search(text)
    return found.groupdict() if found is not None else {}


def _levels_of(rest: str, *words: str | None) -> Row:
    """Like :func:`_levelled`; ``words`` are those before the timestamp."""
    named = _group_dict(_NAMED, rest)
    found = regexes.compiled(_WORD).search(rest)
    known = (found[1] if found is not None else None, named.get("level"), *words)
    word = next((word for word in known if word is not None), None)
    return {"severity": _WORDS.get(word or ""), "logger": named.get("logger"), "message": rest.lstrip(BETWEEN)}


def _written_by(row: Row, groups: dict[str, str | None], origin: Origin) -> Row:
    """Like :func:`_who`, for a ``row`` so far and the groups ``groups``."""
    message, logger = row["message"], row.pop("logger", None)
    writer = _group_dict(_WRITER, message)
    if regexes.compiled(_SOURCE_FILE).search(writer.get("mpi_host") or ""):
        writer = {}
    own = regexes.compiled(f"^{OWN}").search(message) if not writer else None
    role, number = groups["role"], groups["number"]
    numbers = {
        "pid": writer.get("pid") or writer.get("mpi_pid"), "gpu": writer.get("gpu"),
        "rank": number if role == "rank" else groups["task"], "local_rank": number if role not in (None, "rank") else None,
    }  # fmt: skip
    known = {name: int(text) for name, text in numbers.items() if text is not None and int(text) <= _MOST}
    source = "healthagent" if logger is not None and _HEALTHAGENT.match(logger) else origin.source or "job_stdout"
    service = origin.source is not None and origin.source not in JOB_SOURCES
    return {
        "host": writer.get("host") or writer.get("mpi_host") or (own[1] if own is not None else None),
        "pid": known.get("pid"), "extra": json.dumps(known) if known else None, "source": source,
        "unit": logger if logger is not None else origin.source if service else None,
        "format": "job_output" if source in JOB_SOURCES else "stamped",
    }  # fmt: skip


STAMPED = Format(
    "job_output", "a program's own stamp with a year",
    rf"(?:^|\r|m){_BARE_WHO[1:]}(?:\[?{LEVEL}\]?[ :]{{1,3}})?\[?\d{{4}}[-/]\d\d[-/]\d\d[T ]{_CLOCK}", ByLine(_stamped_line, _read_stamped),
    for_jobs=True,
)  # fmt: skip
SHORT = Format(
    "job_output", "a program's own stamp without a zone: glog's, a month and day",
    rf"(?:^|\r|m){_BARE_WHO[1:]}(?:\[?[DIWEF]\d{{3,4}} |(?:{LEVEL} )?\[?\d\d[/-]\d\d(?:/\d{{4}})?,? ){_CLOCK}", ByLine(_short_line, _read_short),
    for_jobs=True,
)  # fmt: skip
EPOCH = Format(
    "job_output",
    "UCX: [epoch seconds] in front",
    r"^\[1\d{9}\.\d{6}\] \[",
    _read_epoch,
    for_jobs=True,
)
MARKED = Format(
    "job_output", "words that only job output has",
    _MARKS + r"|\x1b\[|%\|", ByLine(_marked_line, _read_marked),
    for_jobs=True,
)  # fmt: skip
