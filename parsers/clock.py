"""The time that a timestamp means: years, zones (``parsers.zones``), folds and uptimes that the line itself does not
give.

Functions work on whole columns and look at one line at a time (never at its neighbours), so that other batch boundaries
change no time. Results are naive UTC in microseconds; what cannot be parsed is null.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import polars as pl

from parsers import regexes
from parsers.moments import utc
from parsers.record import Origin
from parsers.zones import is_utc, to_utc, to_wall

#: A timestamp this far after the reference still belongs to its year; beyond it, to the year before (clocks run ahead).
AHEAD = timedelta(days=1)
#: An uptime may point this far after the reference: a boot time is known only to some minutes.
BOOT_AHEAD = timedelta(minutes=5)
#: Month names in syslogs: English, and the forms of other languages that differ in a letter. A form that means two
#: months (July in Croatian is August in Czech) is omitted.
MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11,
    "dec": 12, "janv": 1, "fév": 2, "févr": 2, "mars": 3, "avr": 4, "avril": 4, "mai": 5, "juin": 6, "juil": 7,
    "août": 8, "sept": 9, "déc": 12, "mär": 3, "mrz": 3, "okt": 10, "dez": 12, "ene": 1, "abr": 4, "ago": 8, "dic": 12,
    "mrt": 3, "mei": 5, "gen": 1, "mag": 5, "giu": 6, "lug": 7, "ott": 10, "fev": 2, "out": 10, "maj": 5, "des": 12,
    "led": 1, "úno": 2, "bře": 3, "dub": 4, "kvě": 5, "čen": 6, "čec": 7, "zář": 9, "říj": 10, "sty": 1, "lut": 2, "kwi": 4,
    "cze": 6, "sie": 8, "wrz": 9, "paź": 10, "gru": 12,
    "янв": 1, "фев": 2, "мар": 3, "апр": 4, "мая": 5, "июн": 6, "июл": 7, "авг": 8, "сен": 9, "окт": 10, "ноя": 11, "дек": 12,
    **{f"{month}{sign}": month for month in range(1, 13) for sign in "月월"},
}  # fmt: skip
_ISO = (
    r"^(?P<day>\d{4}-\d{1,2}-\d{1,2})[T ](?P<clock>\d{1,2}:\d{2}:\d{2})(?:[.,:](?P<fraction>\d+))?"
    r"\s*(?P<zone>Z|UTC|[+-]\d{2}:?\d{2})?$"
)
_ISO_STAMP = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))?", re.ASCII)
#: Zone names that switches print and that mean one offset only (hours).
ZONES = {
    "UTC": 0.0, "GMT": 0.0, "Z": 0.0, "CET": 1.0, "CEST": 2.0, "MET": 1.0, "MEST": 2.0, "EET": 2.0, "EEST": 3.0, "EST": -5.0,
    "EDT": -4.0, "CDT": -5.0, "MDT": -6.0, "PST": -8.0, "PDT": -7.0, "JST": 9.0, "AEST": 10.0, "AEDT": 11.0,
}  # fmt: skip


def reference_of(origin: Origin) -> datetime:
    """The time (naive UTC) for inferring years and boots: the origin's, else the time of receipt, else now."""
    moment = origin.reference or origin.received or datetime.now(UTC).replace(tzinfo=None)
    return utc(moment)


def _offset_us(zone: pl.Expr) -> pl.Expr:
    """``+02:00`` -> microseconds east of UTC; Z and UTC -> 0; null stays null."""
    digits = zone.str.replace(":", "", literal=True)
    minutes = digits.str.slice(1, 2).cast(pl.Int64, strict=False) * 60 + digits.str.slice(3, 2).cast(
        pl.Int64, strict=False
    )
    east = pl.when(zone.str.starts_with("-")).then(-minutes).otherwise(minutes) * 60_000_000
    return pl.when(zone.is_in(["Z", "UTC"])).then(0).otherwise(east)


def _resolution(fraction: pl.Expr) -> pl.Expr:
    """The resolution of a timestamp with that many decimals of seconds, in microseconds."""
    digits = fraction.str.len_chars().fill_null(0).clip(0, 6)
    return pl.lit(10).cast(pl.Int64).pow(6 - digits.cast(pl.Int64)).cast(pl.Int64)


def iso(stamps: pl.Series, origin: Origin) -> pl.DataFrame:
    """ISO 8601 timestamps -> columns ``time``, ``quality`` ("line" or "inferred"), ``resolution_us``.

    Any number of decimals is fine; a timestamp without a zone is in the origin's.
    """
    few = len(stamps) < regexes.MANY
    frame = _one_by_one(stamps) if few else _by_slices(stamps)
    odd = frame["wall"].is_null() & stamps.is_not_null()
    if few:
        odd &= frame["resolution_us"].is_null()
    if odd.any():
        at = odd.arg_true()
        slow = _by_regex(stamps.gather(at))
        frame = frame.with_columns(frame[name].scatter(at, slow[name]) for name in frame.columns)
    zoned = frame["wall"] - frame["east"].cast(pl.Duration("us"))
    local = to_utc(frame["wall"], origin.timezone)
    has_zone = frame["east"].is_not_null()
    certain = has_zone | pl.Series([origin.timezone_known]).new_from_index(0, len(frame))
    return pl.DataFrame(
        {"time": zoned.zip_with(has_zone, local), "quality": certain, "resolution_us": frame["resolution_us"]}
    ).with_columns(pl.when("quality").then(pl.lit("line")).otherwise(pl.lit("inferred")).alias("quality"))


def _one_by_one(stamps: pl.Series) -> pl.DataFrame:
    """Like :func:`_by_slices`, for so few timestamps that its many passes would cost more. A timestamp of this layout
    that is no day of any calendar has a resolution, and needs no other reading."""
    walls: list[datetime | None] = []
    easts: list[int | None] = []
    resolutions: list[int | None] = []
    for stamp in stamps.to_list():
        found = _ISO_STAMP.fullmatch(stamp) if stamp is not None else None
        wall = east = resolution = None
        if found is not None:
            day, second, fraction, sign, hours, minutes = found.groups()
            micros = timedelta(seconds=second == "60", microseconds=int((fraction or "0")[:6].ljust(6, "0")))
            resolution = 10 ** (6 - min(len(fraction or ""), 6))
            try:
                wall = datetime.fromisoformat(f"{day}:{'59' if second == '60' else second}") + micros
            except (ValueError, OverflowError) as error:
                # Polars' calendar has a year 0, and nothing after the last microsecond of ours.
                if day.startswith("0000") or isinstance(error, OverflowError):
                    resolution = None
            if hours is not None:
                east = (int(hours) * 60 + int(minutes)) * (-60_000_000 if sign == "-" else 60_000_000)
            elif stamp.endswith("Z"):
                east = 0
        walls.append(wall)
        easts.append(east)
        resolutions.append(resolution)
    return pl.DataFrame([
        pl.Series("wall", walls, dtype=pl.Datetime("us")), pl.Series("east", easts, dtype=pl.Int64),
        pl.Series("resolution_us", resolutions, dtype=pl.Int64),
    ])  # fmt: skip


def _by_slices(stamps: pl.Series) -> pl.DataFrame:
    """``wall``, ``east``, ``resolution_us`` of timestamps with the common fixed layout; null for others.

    Seconds repeat within a batch, so converting the first 19 characters is mostly a look-up.
    """
    text = pl.col("s")
    tail = text.str.slice(-6)
    zone = pl.when(tail.str.contains(r"^[+-]\d\d:\d\d$")).then(tail).when(text.str.ends_with("Z")).then(pl.lit("Z"))
    width = text.str.len_bytes().cast(pl.Int64) - 20 - zone.str.len_bytes().fill_null(0).cast(pl.Int64)
    frame = stamps.alias("s").to_frame().with_columns(zone.alias("zone"), width.alias("digits"))
    digits = pl.col("digits")
    fraction = text.str.slice(20, digits.clip(0, 6)).cast(pl.Int64, strict=False)
    # -1: no fraction at all, and no decimal point.
    fits = (digits == -1) | (digits.is_between(1, 9) & text.str.slice(19, 1).is_in([".", ","]))
    frame = frame.with_columns(
        pl.when(fits).then(text.str.slice(0, 19)).str.replace(" ", "T", literal=True)
        .str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False).alias("wall"),
        pl.when(digits == -1).then(0).otherwise(fraction).alias("fraction"),
        pl.when(digits == -1).then(1_000_000).otherwise(_power(digits)).alias("resolution_us"),
    )  # fmt: skip
    zones = frame.select(pl.col("zone").unique().drop_nulls())
    offsets = dict(zones.with_columns(_offset_us(pl.col("zone")).alias("east")).iter_rows())
    micros = pl.col("fraction") * pl.col("resolution_us")
    return frame.select(
        pl.col("wall") + micros.cast(pl.Duration("us")),
        pl.col("zone").replace_strict(offsets, default=None, return_dtype=pl.Int64).alias("east")
        if offsets else pl.lit(None, pl.Int64).alias("east"),
        "resolution_us",
    )  # fmt: skip


def _power(digits: pl.Expr) -> pl.Expr:
    """The resolution of that many decimals, in microseconds."""
    return digits.clip(0, 6).replace_strict({n: 10 ** (6 - n) for n in range(7)}, return_dtype=pl.Int64, default=None)


def _by_regex(stamps: pl.Series) -> pl.DataFrame:
    """Like :func:`_by_slices`, for every other spelling."""
    frame = stamps.alias("stamp").to_frame().select(pl.col("stamp").str.extract_groups(_ISO)).unnest("stamp")
    wall = pl.concat_str(
        pl.col("day"), pl.lit("T"), pl.col("clock"), pl.lit("."), pl.col("fraction").fill_null("0").str.slice(0, 6)
    )
    return frame.select(
        wall.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False).alias("wall"),
        _offset_us(pl.col("zone")).alias("east"),
        _resolution(pl.col("fraction")).alias("resolution_us"),
    )


def bsd(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Timestamps in fields -> ``time``, ``quality``, ``resolution_us``.

    ``frame`` has String columns month (a name), day, clock (H:M:S), fraction and year, the last two often null.
    Timestamps without a fraction repeat, so each is computed once.
    """
    names = ["month", "day", "clock", "fraction", "year"]
    if frame["fraction"].null_count() < len(frame):
        return _bsd(frame, origin)
    key = pl.concat_str([pl.col(name).fill_null("") for name in names], separator="|").alias("key")
    keyed = frame.select(key, *names)
    once = keyed.unique("key", keep="any")
    times = _bsd(once, origin).with_columns(once["key"])
    return keyed.select("key").join(times, on="key", how="left", maintain_order="left").drop("key")


def _bsd(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    month = pl.col("month").str.to_lowercase().str.strip_chars_end(".").replace_strict(MONTHS, default=None)
    seconds = pl.concat_str(pl.col("clock"), pl.lit("."), pl.col("fraction").fill_null("0").str.slice(0, 6))
    frame = frame.with_columns(
        pl.concat_str(month.cast(pl.String), pl.lit("-"), pl.col("day").str.strip_chars(), pl.lit("T"), seconds)
        .alias("rest"),
        _resolution(pl.col("fraction")).alias("resolution_us"),
    )  # fmt: skip
    limit = reference_of(origin) + AHEAD
    times = _in_year(frame["rest"], frame["year"])
    times = to_utc(times, origin.timezone)
    open_ = frame["year"].is_null()
    for year in range(limit.year, limit.year - 9, -1):
        if not (open_ & times.is_null()).any():
            break
        guess = to_utc(_in_year(frame["rest"], pl.Series([str(year)]).new_from_index(0, len(frame))), origin.timezone)
        fits = open_ & times.is_null() & (guess <= limit).fill_null(False)
        times = guess.zip_with(fits, times)
    certain = (~open_) & pl.Series([origin.timezone_known]).new_from_index(0, len(frame))
    return pl.DataFrame(
        {"time": times, "quality": certain, "resolution_us": frame["resolution_us"]}
    ).with_columns(pl.when("quality").then(pl.lit("line")).otherwise(pl.lit("inferred")).alias("quality"))  # fmt: skip


def _in_year(rest: pl.Series, year: pl.Series) -> pl.Series:
    both = pl.DataFrame({"year": year, "rest": rest}).select(pl.concat_str("year", pl.lit("-"), "rest"))
    return both.to_series().str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)


def uptime(seconds: pl.Series, origin: Origin) -> pl.Series:
    """Seconds since boot -> time, counted from the last known boot that lies at least that far before the reference.

    Null if no boot is known or none fits.
    """
    limit = reference_of(origin) + BOOT_AHEAD
    micros = (seconds * 1_000_000).round(0).cast(pl.Int64, strict=False)
    times = pl.Series([None], dtype=pl.Datetime("us")).new_from_index(0, len(seconds))
    for boot in sorted(origin.boots, reverse=True):
        epoch = int((utc(boot) - datetime(1970, 1, 1)) / timedelta(microseconds=1))
        guess = (micros + epoch).cast(pl.Datetime("us"))
        times = guess.zip_with(times.is_null() & (guess <= limit).fill_null(False), times)
    return times


_OFFSET_WRITTEN = r"\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"


def marks(times: pl.Series, texts: pl.Series, origin: Origin) -> dict[int, list[str]]:
    """Anomalies of lines' times, by line: ``future`` (more than a day after the reference: kept as written),
    ``leap_second`` (a minute with a 61st second: read as the next minute's first), ``dst_fold`` (a wall clock time that
    occurred twice: read as the first).
    """
    found: dict[int, list[str]] = {}

    def mark(name: str, at: pl.Series) -> None:
        for place in at.to_list():
            found.setdefault(place, []).append(name)

    newest = max(reference_of(origin), reference_of(origin.but(reference=origin.received or origin.reference)))
    ahead = times > newest + AHEAD
    if ahead.any():
        mark("future", ahead.arg_true())
    # Only the first second of a minute can have been a leap second.
    starts = (times.cast(pl.Int64) % 60_000_000 < 1_000_000).arg_true()
    if len(starts):
        mark("leap_second", starts.filter(texts[starts].str.contains(r":\d\d:60(?:\D|$)")))
    if not is_utc(origin.timezone):
        at = times.is_not_null().arg_true()
        wall, later = (
            to_wall(moment, origin.timezone) for moment in (times.gather(at), times.gather(at).dt.offset_by("1h"))
        )
        twice = at.filter(wall == later)
        if len(twice):
            mark("dst_fold", twice.filter(~texts.gather(twice).str.contains(_OFFSET_WRITTEN)))
    return found
