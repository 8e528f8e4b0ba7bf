"""What the program and the priority of a syslog line tell: source, severity, facility, the system that wrote it."""

from __future__ import annotations

import re

import polars as pl

from parsers import clock, regexes
from parsers.formats.base import FACILITIES, SEVERITIES, SEVERITY_WORDS, SLURM, severity_of_level, source_of_program
from parsers.formats.kernel import UPTIME_HEADER
from parsers.formats.mnemonics import MNEMONIC

_JUNOS = re.compile(
    r"(?:rpd|mib2d|mgd|lacpd|craftd|alarmd|chassisd|l2ald|eswd|jddosd|jlaunchd|xntpd|dcd|cosd|snmpd|fpc\d+|/kernel|RT_FLOW)$"
)


def finish(frame: pl.DataFrame, format_name: str) -> pl.DataFrame:
    """Source, severity, facility, uptime and further entities of lines with host, unit, procid, pri and message.

    Programs and priorities are few and lines many: derived values are looked up, not computed per line.
    """
    if frame.is_empty():
        return frame
    if "level" not in frame.columns:
        frame = frame.with_columns(pl.lit(None, pl.String).alias("level"))
    units = frame["unit"].unique().drop_nulls().to_list()
    unit, message = pl.col("unit"), pl.col("message")
    if any(name.startswith("%") for name in units):
        # A tag like %ETHPORT-5-IF_UP belongs to the text: the patterns for switches start there.
        whole = pl.concat_str(unit, pl.lit(": "), message)
        tagged = unit.str.starts_with("%") & ~unit.str.contains(_FIREWALL)
        frame = frame.with_columns(pl.when(tagged).then(whole).otherwise(message).alias("message"))
    if any(_ADDRESS.match(name) for name in units):
        frame = _address_for_tag(frame)
        units = frame["unit"].unique().drop_nulls().to_list()
    sources = {name: source_of_program(name) or "syslog" for name in units}
    frame = frame.with_columns(
        look_up("unit", sources).fill_null("syslog").alias("source"),
        look_up("unit", {name: "sonic" for name in units if _SONIC.match(name)}).alias("_system"),
        pl.lit(None, pl.Float64).alias("uptime_s"),
    )
    frame = _own_prefix(frame)
    named = pl.col("source").is_in(list(SLURM))
    vendor = message.str.starts_with("%") & message.str.contains(f"^{MNEMONIC}") & ~named
    junos = [name for name in units if _JUNOS.fullmatch(name)]
    frame = frame.with_columns(
        pl.when(vendor | pl.col("_system").is_not_null()).then(pl.lit("switch")).otherwise(pl.col("source")).alias("source"),
        pl.when(vendor).then(pl.lit("eos")).when(pl.col("_system").is_not_null()).then("_system")
        .when(unit.is_in(junos) & pl.col("pri").is_not_null()).then(pl.lit("junos")).alias("_system"),
        named.alias("_named"),
    )  # fmt: skip
    frame = _priorities(frame).with_columns(
        pl.col("procid").cast(pl.Int64, strict=False).alias("pid"), pl.lit(format_name).alias("format")
    )
    if any(name.startswith(_PORT_DAEMON) for name in units):
        frame = _port_daemons(frame)
    return _routing_engines(frame) if junos else frame


def _routing_engines(frame: pl.DataFrame) -> pl.DataFrame:
    """Junos names the routing engine of a device (``re0.leaf1``): the device itself goes to ``host_norm``."""
    device = pl.col("host").str.extract(r"^re\d[.-]([A-Za-z0-9][A-Za-z0-9._-]*)$")
    more = pl.concat_str(pl.lit(', "host_norm": "'), device, pl.lit('"}'))
    both = pl.concat_str(pl.col("extra").str.strip_suffix("}"), more)
    return frame.with_columns(pl.coalesce(both, "extra").alias("extra"))


#: The daemon appends the port that it watches to its name: ``ifplugd(eth2)``.
_PORT_DAEMON = "ifplugd("


def _port_daemons(frame: pl.DataFrame) -> pl.DataFrame:
    port = pl.col("unit").str.extract(r"^ifplugd\(([\w.-]+)\)$")
    entities = pl.concat_str(pl.lit('{"port": "'), port, pl.lit('"}'))
    more = pl.concat_str(pl.lit('{"port": "'), port, pl.lit('", '), pl.col("extra").str.strip_prefix("{"))
    return frame.with_columns(pl.coalesce(more, entities, "extra").alias("extra"))


#: Cisco's firewalls: their tag is a number, and no patterns start there.
_FIREWALL = r"^%(?:PIX|ASA|FWSM|FTD)\b"
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}$")


def _address_for_tag(frame: pl.DataFrame) -> pl.DataFrame:
    """An IPv4 address in place of the program is not a program: it belongs to the text."""
    is_address = pl.col("unit").str.contains(rf"^{_ADDRESS.pattern}")
    pid = pl.when(pl.col("procid").is_not_null()).then(pl.concat_str(pl.lit("["), "procid", pl.lit("]")))
    whole = pl.concat_str("unit", pid.fill_null(""), pl.lit(": "), "message")
    nothing = pl.lit(None, pl.String)
    return frame.with_columns(
        pl.when(is_address).then(whole).otherwise("message").alias("message"),
        pl.when(is_address).then(nothing).otherwise("unit").alias("unit"),
        pl.when(is_address).then(nothing).otherwise("procid").alias("procid"),
    )


_SONIC = re.compile(r"[a-z]+#|orchagent$|portsyncd$|xcvrd$")


def is_plain(program: str) -> bool:
    """Whether a program's name is a real name: not part of the text, an address, a packet's number, the time zone of a
    switch's own timestamp, or anything longer."""
    return not (
        program.startswith(("%", _PORT_DAEMON))
        or program.isdigit()
        or _ADDRESS.match(program)
        or program in clock.ZONES
    )


def is_sonic(program: str) -> bool:
    """Whether only SONiC has a program of this name."""
    return _SONIC.match(program) is not None


def is_junos(program: str) -> bool:
    """Whether a program of this name that sends priorities belongs to Junos."""
    return _JUNOS.fullmatch(program) is not None


_UPTIME = regexes.portable(f"^{UPTIME_HEADER.regex}")


def look_up(column: str, table: dict[str, str]) -> pl.Expr:
    if not table:
        return pl.lit(None, pl.String)
    return pl.col(column).replace_strict(table, default=None, return_dtype=pl.String)


def _own_prefix(frame: pl.DataFrame) -> pl.DataFrame:
    """Removes what some daemons repeat after the tag: Slurm's their name, the kernel its uptime."""
    source, message = pl.col("source"), pl.col("message")
    if (frame["source"] == "kernel").any():
        at = (frame["source"] == "kernel").arg_true()
        texts = frame["message"].gather(at)
        uptime = texts.str.extract(_UPTIME).cast(pl.Float64, strict=False)
        frame = frame.with_columns(
            frame["message"].scatter(at, texts.str.replace(_UPTIME, "")), frame["uptime_s"].scatter(at, uptime)
        )
    if frame["source"].is_in(list(SLURM)).any():
        bare = message.str.replace(r"^slurm[a-z]+: ", "")
        frame = frame.with_columns(pl.when(source.is_in(list(SLURM))).then(bare).otherwise(message).alias("message"))
    return frame


def _priorities(frame: pl.DataFrame) -> pl.DataFrame:
    """Severity and facility from the priority, a level word or Slurm's own words; the numbers and the system as
    JSON."""
    numbers = {pri: int(pri) for pri in frame["pri"].unique().drop_nulls().to_list() if pri.isascii() and pri.isdigit()}
    severity = {pri: SEVERITIES[number % 8] for pri, number in numbers.items()}
    facility = {pri: FACILITIES[number // 8] for pri, number in numbers.items() if number // 8 < len(FACILITIES)}
    texts = {
        pri: f'{{"facility_num": {number // 8}, "pri": {number}, "severity_num": {number % 8}}}'
        for pri, number in numbers.items()
    }
    parts = [look_up("pri", severity)]
    if frame["level"].null_count() < len(frame):
        parts.append(
            pl.col("level").str.to_lowercase().replace_strict(SEVERITY_WORDS, default=None, return_dtype=pl.String)
        )
    if frame["_named"].any():
        parts.append(pl.when("_named").then(severity_of_level(pl.col("message"))))
    text = look_up("pri", texts)
    if frame["_system"].null_count() < len(frame):
        system = pl.concat_str(pl.lit('{"device_os": "'), "_system", pl.lit('"}'))
        both = pl.concat_str(system.str.strip_suffix("}"), pl.lit(", "), text.str.strip_prefix("{"))
        text = pl.coalesce(both, text, system)
    return frame.with_columns(
        pl.coalesce(parts).alias("severity"), look_up("pri", facility).alias("facility"), text.alias("extra")
    )
