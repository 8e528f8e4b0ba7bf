"""Syslog in its many spellings: RFC 5424, RFC 3164, RFC 3339 timestamps from rsyslog, and a log host's two timestamps.

One regex over the whole column splits the headers; lines with an unusual rest (no tag, no host, a level in the middle)
are parsed one by one in ``syslog_tails``.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from parsers import clock
from parsers.formats.base import SEVERITY_WORDS, SLURM, Format, accepted, conform, groups, severity_of_level, timed
from parsers.formats.structured_data import STRUCTURED_DATA, parameters
from parsers.formats.syslog_fields import finish, look_up
from parsers.formats.syslog_tails import odd_tail
from parsers.header_grammar import STAMP, Run, digits, either, header, maybe, named, stamp
from parsers.record import Origin

_MONTH = r"(?:[A-Za-zÀ-ɏа-я]{3,5}\.?|\d{1,2}[月월])"
_STAMP = STAMP
PRIORITY = header("<", named("pri", digits(1, 3)), ">")
BSD_HEADER = header(
    either(r" ?"),
    named("stamp", either(
        rf"(?P<month>{_MONTH}) +(?P<day>\d{{1,2}}) (?:(?P<year>\d{{4}}) )?(?P<clock>\d{{1,2}}:\d\d:\d\d)(?:\.(?P<fraction>\d+))?"
        r"(?: (?:[A-Z]{3,5} )?(?P<year_after>(?:19|20)\d\d))?",
        Run("capital", 1, 1), Run("small", 2, 2), " ", Run("day", 1, 1), digits(1), " ", digits(2), ":", digits(2), ":", digits(2),
    )),
    either(r"(?:: ?| +)", " "),
)  # fmt: skip
ISO_HEADER = header(named("iso", stamp()), " ")
_BSD = rf"(?s)^(?:{PRIORITY.regex})?{BSD_HEADER.regex}(?P<rest>.*)$"
_ISO = rf"(?s)^(?:{PRIORITY.regex})?{ISO_HEADER.regex}(?P<rest>.*)$"
_LOGHOST = (
    rf"(?s)^(?P<first>{_STAMP}) (?P<iso>{_STAMP}) (?P<host>\S+) (?P<facility>[a-z]+\d?)\.(?P<word>[a-z]+) "
    r"(?P<unit>[^\s:\[]+)(?:\[(?P<pid>\d+)\])?:? ?(?P<message>.*)$"
)
_WORD = either(r"\S+", Run("printed"))
RFC5424_HEADER = header(
    named("version", either(r"[1-9]\d{0,2}", "1")), " ", named("iso", stamp(f"-|{STAMP}")), " ",
    named("host", _WORD), " ", named("unit", _WORD), " ", named("procid", _WORD), " ", named("msgid", _WORD), " ",
)  # fmt: skip
_RFC5424 = rf"(?s)^{PRIORITY.regex}{RFC5424_HEADER.regex}(?P<sd>-|{STRUCTURED_DATA})(?: (?P<message>.*))?$"
TAIL = header(
    named("host", either(r"[^\s:]|\S*[^\s:]", Run("name"))), either(r" +", " "), named("unit", either(r"[^\s:\[]+", Run("name"))),
    maybe("[", named("procid", either(r"[^\]]*", Run("digit", 1, 10))), "]"), either(r":", ": "),
)  # fmt: skip
_TAIL = rf"(?s)^{TAIL.regex}(?: (?P<spaced>.*)|(?P<message>[^\s:].*)?)$"


def split_rest(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds host, unit, procid, level, message from ``rest`` (and ``pri``)."""
    parts = _plain_tail(frame["rest"])
    odd = parts["unit"].is_null()
    if odd.any():
        at = odd.arg_true()
        slow = _odd_tails(frame.select("rest", "pri")[at])
        parts = parts.with_columns(parts[name].scatter(at, slow[name]) for name in parts.columns)
    return frame.with_columns(parts)


_TAIL_NAMES = ("host", "unit", "procid", "level", "message", "msgid", "sd")


def _plain_tail(rest: pl.Series) -> pl.DataFrame:
    """The fields of ``host program[pid]: message``, split at the first blank and the first ": "; null where that does
    not work. Splitting is several times cheaper than regex groups, and nearly all lines have this form."""
    at = pl.col("rest")
    frame = (
        rest.alias("rest")
        .to_frame()
        .select(at.str.splitn(" ", 2).struct.rename_fields(["host", "rest"]).alias("h"))
        .unnest("h")
    )
    frame = frame.select("host", at.str.splitn(": ", 2).struct.rename_fields(["tag", "message"]).alias("t")).unnest("t")
    frame = frame.select(
        "host", "message", "tag", pl.col("tag").str.splitn("[", 2).struct.rename_fields(["unit", "procid"]).alias("u"),
    ).unnest("u")  # fmt: skip
    fits = (
        pl.col("message").is_not_null() & pl.col("tag").str.contains(r"^[^\s:\[]+(?:\[[^\]]*\])?$")
        & pl.col("host").str.contains(r"^\S*[^\s:]$")
    ).fill_null(False)  # fmt: skip
    nothing = pl.lit(None, pl.String)
    return frame.select(
        pl.when(fits).then("host").alias("host"), pl.when(fits).then("unit").alias("unit"),
        pl.when(fits).then(pl.col("procid").str.strip_suffix("]")).alias("procid"), nothing.alias("level"),
        pl.when(fits).then("message").alias("message"), nothing.alias("msgid"), nothing.alias("sd"),
    )  # fmt: skip


def _odd_tails(frame: pl.DataFrame) -> pl.DataFrame:
    """Like :func:`_plain_tail` for all other rests: by regex, and where that does not match, line by line."""
    tail = frame.select(pl.col("rest").str.extract_groups(_TAIL).alias("t")).unnest("t")
    ok = tail["host"].is_not_null()
    parts = tail.with_columns(
        pl.coalesce("spaced", "message", pl.lit("")).alias("message"),
        *(pl.lit(None, pl.String).alias(name) for name in ("level", "msgid", "sd")),
    )
    if not ok.all():
        rows = [
            {} if fine else odd_tail(rest or "", pri is not None)
            for fine, rest, pri in zip(ok.to_list(), frame["rest"].to_list(), frame["pri"].to_list(), strict=True)
        ]
        parts = parts.with_columns(
            parts[name].zip_with(ok, pl.Series([row.get(name) for row in rows], dtype=pl.String))
            for name in _TAIL_NAMES
        )
    return parts.select(_TAIL_NAMES)


def _valid_priority(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("pri").is_null() | (pl.col("pri").cast(pl.Int64, strict=False) <= 191))


#: RFC 3164's own example: a zone and a year between time and host.
_ZONED = r"^(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [A-Z]{3,5} (?:19|20)\d\d "
#: "Feb  4 17:29:38 " with or without a priority before it: all fields at fixed positions.
_FIXED = r"^(?:<\d{1,3}>)?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d [^ \d]"


def _bsd_groups(frame: pl.DataFrame) -> pl.DataFrame:
    """The groups of ``_BSD``: by slices if everything is at its fixed position, by regex elsewhere."""
    fixed = frame["text"].str.contains(_FIXED) & ~frame["text"].str.contains(_ZONED)
    plain, other = frame.filter(fixed), frame.filter(~fixed)
    text = pl.col("text")
    after = pl.when(text.str.starts_with("<")).then(text.str.find(">", literal=True) + 1).otherwise(0)
    nothing = pl.lit(None, pl.String)
    bare = plain.with_columns(after.alias("_at")).with_columns(
        pl.when(pl.col("_at") > 0).then(text.str.slice(1, pl.col("_at").cast(pl.Int64) - 2)).alias("pri"),
        text.str.slice(pl.col("_at")).alias("_bare"),
    )
    at = pl.col("_bare").str
    found = bare.select(
        *frame.columns, "pri", at.slice(0, 15).alias("stamp"), at.slice(0, 3).alias("month"), at.slice(4, 2).str.strip_chars_start(" ").alias("day"),
        nothing.alias("year"), at.slice(7, 8).alias("clock"), nothing.alias("fraction"), nothing.alias("year_after"),
        at.slice(16).alias("rest"),
    )  # fmt: skip
    return found if other.is_empty() else pl.concat([found, groups(other, _BSD)], how="vertical")


def _read_bsd(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = _valid_priority(_bsd_groups(frame))
    found = found.filter(pl.col("month").str.to_lowercase().str.strip_chars_end(".").is_in(list(clock.MONTHS)))
    if found.is_empty():
        return found
    found = found.with_columns(pl.coalesce("year", "year_after").alias("year"))
    return finish(split_rest(timed(found, origin)), "rfc3164")


_DATED = (
    r"(?s)^(?:<(?P<pri>\d{1,3})>)?(?P<stamp>(?P<year>\d{4}) (?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)"
    r"(?:\.(?P<fraction>\d+))?) +(?P<rest>.*)$"
)


def _read_dated(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = _valid_priority(groups(frame, _DATED))
    found = found.filter(pl.col("month").str.to_lowercase().is_in(list(clock.MONTHS)))
    return found if found.is_empty() else finish(split_rest(timed(found, origin)), "rfc3164")


def _read_iso(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = _valid_priority(groups(frame, _ISO))
    # Without zone and priority it is a program's own timestamp, not syslog.
    if origin.source not in ("syslog", "kernel", "switch"):
        found = found.filter(pl.col("pri").is_not_null() | pl.col("iso").str.contains(r"(?:Z|[+-]\d\d:?\d\d)$"))
    if found.is_empty():
        return found
    found = timed(found.with_columns(pl.col("iso").alias("stamp")), origin)
    found = finish(split_rest(found), "rfc3164")
    if found["sd"].null_count() == len(found):
        return found
    # RFC 5424 that lost its priority and version on the way.
    is_5424 = pl.col("sd").is_not_null()
    found = found.with_columns(
        pl.when(is_5424).then(pl.lit("rfc5424")).otherwise("format").alias("format"),
        pl.when(pl.col("msgid") != "-").then("msgid").alias("msgid"), pl.col("sd").fill_null("-"),
    )  # fmt: skip
    return _with_structure(found)


def _read_loghost(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _LOGHOST)
    if found.is_empty():
        return found
    found = timed(found.with_columns(pl.col("iso").alias("stamp")), origin)
    received = clock.iso(found["first"], origin)["time"]
    found = finish(
        found.drop("facility").with_columns(pl.lit(None, pl.String).alias("pri"), pl.col("pid").alias("procid"), found["facility"].alias("_facility")),
        "rfc3164",
    )  # fmt: skip
    return found.with_columns(
        received.alias("received"), pl.col("time").alias("sender_time"), pl.col("_facility").alias("facility"),
        pl.col("word").replace_strict(SEVERITY_WORDS, default=None, return_dtype=pl.String).alias("severity"),
    )  # fmt: skip


def _read_5424(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = _valid_priority(groups(frame, _RFC5424))
    if found.is_empty():
        return found
    nil = [
        pl.when(pl.col(name) != "-").then(pl.col(name)).alias(name)
        for name in ("host", "unit", "procid", "msgid", "iso")
    ]
    found = found.with_columns(*nil, pl.col("message").fill_null("").str.strip_prefix("\ufeff").str.strip_prefix(" "))
    found = timed(found.with_columns(pl.col("iso").alias("stamp")), origin)
    return _with_structure(finish(_junos_named(found), "rfc5424"))


#: The priority used to parse a line without one, and what that adds to ``extra``.
_NO_PRIORITY, _NO_NUMBERS = "<0>", r'"facility_num": 0, "pri": 0, "severity_num": 0(?:, )?'


def _read_bare_5424(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """RFC 5424 that lost its priority but not its version."""
    found = _read_5424(frame.with_columns(pl.concat_str(pl.lit(_NO_PRIORITY), "text").alias("text")), origin)
    if found.is_empty():
        return found
    named = pl.when(pl.col("source").is_in(list(SLURM)))
    return found.with_columns(
        pl.lit(None, pl.String).alias("facility"), named.then(severity_of_level(pl.col("message"))).alias("severity"),
        pl.col("extra").str.replace(_NO_NUMBERS, ""),
    )  # fmt: skip


#: Parameters of Junos' structured data -> their wording in the plain text message.
_JUNOS_WORDS = {
    "snmp-interface-index": "ifIndex", "admin-status": "ifAdminStatus", "operational-status": "ifOperStatus", "interface-name": "ifName",
}  # fmt: skip


def _junos_named(found: pl.DataFrame) -> pl.DataFrame:
    """Junos puts the event's name into the message ID, in plain syslog at the start of the text: use the latter form.
    With ``brief`` there is no text at all, and the parameters replace it."""
    odd = (found["sd"].str.starts_with("[junos@") & found["msgid"].is_not_null()).fill_null(False)
    if not odd.any():
        return found
    at = odd.arg_true()
    texts = []
    for msgid, sd, message in found.select("msgid", "sd", "message")[at].iter_rows():
        stated = {name: value for values in parameters(sd).values() for name, value in values.items()}
        text = message or ", ".join(f"{_JUNOS_WORDS.get(name, name)} {value}" for name, value in stated.items())
        texts.append(text if text.startswith(msgid) else f"{msgid}: {text}")
    return found.with_columns(found["message"].scatter(at, texts))


def _with_structure(found: pl.DataFrame) -> pl.DataFrame:
    """Puts the fields of RFC 5424 into ``extra``: structured data, message ID, version, a process ID that is not a
    number."""
    if "version" in found.columns:
        versions = found["version"].unique().drop_nulls().to_list()
        text = look_up("version", {number: f', "version": {int(number)}}}' for number in versions})
        found = found.with_columns(pl.concat_str(pl.col("extra").str.strip_suffix("}"), text).alias("extra"))
    named = found["procid"].is_not_null() & found["pid"].is_null()
    if not (found["sd"].ne("-") | found["msgid"].is_not_null() | named).any():
        return found
    extras = []
    for extra, sd, msgid, procid, pid in found.select("extra", "sd", "msgid", "procid", "pid").iter_rows():
        more: dict[str, Any] = {}
        if msgid is not None:
            more["msgid"] = msgid
        if sd != "-":
            more["sd"] = parameters(sd)
        if pid is None and procid not in (None, "-"):
            more["pid"] = procid
        extras.append(json.dumps(more | json.loads(extra or "{}"), ensure_ascii=False) if more else extra)
    return found.with_columns(pl.Series("extra", extras, dtype=pl.String))


#: Level words that programs write in place of a host.
_LEVELS = r"(?i)^(?:trace|debug|info|notice|warn|warning|error|err|crit|critical|fatal|alert|emerg|log)$"
_SPACED = (
    r"(?s)^(?P<day>\d{4}-\d\d-\d\d)[ T](?P<clock>\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?) "
    r"(?P<rest>(?P<name>[A-Za-z][\w.-]*) (?:kernel|[A-Za-z][\w./@-]*\[\d+\]):[ \[].*)$"
)


def _read_spaced(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _SPACED)
    found = found.filter(pl.col("name").is_not_null() & ~pl.col("name").str.contains(_LEVELS))
    if found.is_empty():
        return found
    clock_ = pl.col("clock").str.replace(",", ".", literal=True)
    found = found.with_columns(
        pl.concat_str("day", pl.lit("T"), clock_).alias("iso"), pl.concat_str("day", pl.lit(" "), "clock").alias("stamp"),
        pl.lit(None, pl.String).alias("pri"),
    )  # fmt: skip
    return finish(split_rest(timed(found.drop("day", "clock", "name"), origin)), "rfc3164")


LOGHOST = Format(
    "rfc3164",
    "received and reported RFC 3339 stamps of a log host",
    rf"^{_STAMP} {_STAMP} \S+ [a-z]+\d?\.[a-z]+ ",
    _read_loghost,
)
RFC5424 = Format("rfc5424", "<priority>version", r"^<\d{1,3}>[1-9]\d{0,2} (?:-|\d{4}-)", _read_5424)
BARE_5424 = Format(
    "rfc5424",
    "version and stamp of RFC 5424 without a priority",
    rf"^1 {_STAMP} \S+ \S+ \S+ \S+ (?:-(?: |$)|\[)",
    _read_bare_5424,
)
ISO = Format(
    "rfc3164",
    "an RFC 3339 stamp as syslog daemons write it",
    r"^(?:<\d{1,3}>)?\d{4}-\d\d-\d\dT",
    _read_iso,
)
BSD = Format(
    "rfc3164",
    "Mon dd hh:mm:ss",
    rf"^(?:<\d{{1,3}}>)? ?{_MONTH} +\d{{1,2}} (?:\d{{4}} )?\d{{1,2}}:\d\d:\d\d",
    _read_bsd,
)


SPACED = Format(
    "rfc3164",
    "date, blank, time, host, program[pid]; a comma before the fraction",
    r"^(?:19|20)\d\d-\d\d-\d\d(?: \d\d:\d\d:\d\d\S*|T\d\d:\d\d:\d\d(?:,\d+\S*|\.\d+)?) [A-Za-z][\w.-]* (?:kernel|[A-Za-z][\w./@-]*\[\d+\]):[ \[]",
    _read_spaced,
)
DATED = Format(
    "rfc3164",
    "yyyy Mon dd hh:mm:ss, as SONiC writes it",
    r"^(?:<\d{1,3}>)?(?:19|20)\d\d [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?:\.\d+)? +\S+ ",
    _read_dated,
)


def _read_octets(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Captured octet-counted syslog (RFC 6587): the length before an ordinary line."""
    left = frame.with_columns(pl.col("text").str.replace(r"^\d{1,6} ", ""))
    parts = []
    for form in (RFC5424, ISO, BSD):
        found = conform(form.read(left.filter(accepted(form, left["text"])), origin))
        parts.append(found)
        left = left.join(found.select("i"), on="i", how="anti", maintain_order="left")
    return pl.concat(parts)


OCTETS = Format("octets", "a length, then <priority>", r"^\d{1,6} <\d{1,3}>", _read_octets)
