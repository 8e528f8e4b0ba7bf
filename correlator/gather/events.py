"""From classified lines to events: one occurrence logged in several files, or by several layers, is one event.

The same kernel line is in syslog, kern.log, messages and dmesg with three resolutions of time. One carrier loss is
logged by the driver, the IB core, the bond and rtnetlink. Lines of one host, event type and device within
``COALESCE_S`` of each other are one event, which keeps the references to all its lines.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2s
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from correlator.gather import kernel_lines, unstamped_lines
from correlator.gather.own_devices import is_about_own_device
from correlator.model.json_text import from_json, sorted_json
from correlator.model.kinds import BUILT_IN_LANES
from correlator.model.moments import _EPOCH, _MICROSECOND, all_seconds
from correlator.model.nouns import Event
from correlator.model.subjects import layers
from correlator.site.senders import NOBODY, Senders
from parsers.writers import LOCAL, NETWORK, surest
from store.line_frames import different
from store.questions import event_lines
from store.questions.authority import RELAYED, Speakers
from store.questions.source import ALL, Source
from store.questions.writers import authority_of_events

if TYPE_CHECKING:
    from correlator.clocks.clocks import AccountingTime
    from store.door import Asks

#: Longer than the spread of copies of one line (a whole second of resolution plus driver-to-core delay), shorter than
#: the fastest flap an operator would distinguish.
COALESCE_S = 1.5

#: Event families in which different messages about one device mean the same.
_BY_DEVICE = ("nic.", "switch.", "pcie.", "gpu.")

#: Entities that name the device an event is about, most specific name first.
DEVICE_KEYS = ("port", "ibdev", "interface", "pci", "gpu_uuid", "nvswitch", "lustre_target", "nfs_server", "device", "bond", "gpu", "dimm")  # fmt: skip

_SPECIFIC = {name: place for place, name in enumerate(DEVICE_KEYS)}

#: The lane of a family of events.
_LANE_OF = {family: lane.name for lane in BUILT_IN_LANES for family in lane.families}

#: The prefixes that different files put before the same message.
_COPY_NOISE = r"^(?:\[\s*\d+\.\d+\]\s*|\[[^\]]*\]\s*|(?:error|debug\d?|verbose|info|fatal):\s*|slurm[a-z]*(?:-\S+?)?(?:\[\d+\])?:\s*)+"

#: Which copy represents an event: the daemon's own file, then the host's logs, then rtnetlink, then the log host's
#: copy.
_SPEAKS = {"slurm": 0, "ip_link": 2, "ip": 2, "loghost": 3, "json": 3}


def device_of(entities: dict[str, Any]) -> str | None:
    if _SPECIFIC.keys().isdisjoint(entities):
        return None
    devices = [(_SPECIFIC[k], v) for k, v in entities.items() if k in _SPECIFIC and v not in (None, "", [])]
    return str(min(devices, key=itemgetter(0))[1]) if devices else None


def layer_of(event: str, source: str | None) -> str:
    if event.startswith("slurm."):
        return source if source in ("slurmctld", "slurmd") else "slurmd" if source == "slurmstepd" else "slurmctld"
    return _LANE_OF.get(event.split(".", 1)[0]) or layers().get(event, "node")


def with_unstamped(
    part: Part,
    store: Asks,
    cluster: str | None,
    speakers: Speakers,
    jobs: Collection[int] | None = None,
    known: AccountingTime | None = None,
) -> tuple[list[Event], Lines]:
    """All events of one cluster, in a total order that does not depend on the order of arrival, and those of one line.

    ``part`` holds the lines that have a time; the remaining arguments are those of ``unstamped_lines.placed``.
    """
    rows = unstamped_lines.placed(store, cluster, speakers, jobs, known)
    return joined([part, prepared(rows)] if rows.height else [part])


def stamped(store: Asks, cluster: str | None, source: Source = ALL) -> pl.DataFrame:
    """The event lines of a cluster that have a time."""
    return store.ask_frame(event_lines.stamped(cluster, source), many=source is ALL)


def order(event: Event) -> tuple[float, str, str, str, str]:
    """The total order of events."""
    return (event.time, event.kind, event.host or "", event.device or "", event.id)


_time = attrgetter("time")

#: Separates the components of a line's key; it does not occur in log lines.
_BETWEEN = "\x1f"

#: An event's id is "e" and so many bytes in hexadecimal.
_DIGEST = 5

#: The total order, for lines.
_ORDER = ("time", "event", pl.col("host").fill_null(""), pl.col("device").fill_null(""), "id")


@dataclass(frozen=True)
class Lines:
    """Events of one line each, in the total order, with the columns they were made of, which are stored as they are.

    ``entities`` is the JSON text of each event's entities; null if it has none. ``sent``: may any of these events, or of
    those of several lines beside them, name the address that sent it?
    """

    events: list[Event]
    columns: pl.DataFrame
    entities: pl.Series
    sent: bool = True


@dataclass(frozen=True)
class Part:
    """Event lines in the total order, and the ``events`` that they make without any other lines.

    The events ``alone`` have one line each. Those in ``copied`` have several, with equal ``keys``. ``known`` maps the
    JSON text of entities to their content.
    """

    lines: pl.DataFrame
    known: Mapping[str, _LineEntities]
    events: list[Event]
    alone: Lines
    copied: list[Event]
    keys: list[str]

    def holds(self, moment: datetime) -> bool:
        """Is any line at or after ``moment``?"""
        return self.lines.height > 0 and self.lines["time"][-1] >= (moment - _EPOCH) // _MICROSECOND

    def since(self, moment: datetime) -> Part:
        """The lines at or after ``moment``."""
        first = int(self.lines["time"].search_sorted((moment - _EPOCH) // _MICROSECOND))
        return self if first == 0 else _part(self.lines[first:], self.known, sent=self.alone.sent)

    def without(self, keys: pl.Series) -> Part:
        """All lines except those with one of these keys."""
        gone = set(keys.to_list())
        copied = [(event, key) for event, key in zip(self.copied, self.keys, strict=True) if key not in gone]
        stays = self.alone.columns.select(~pl.col("key").is_in(keys.implode())).to_series()
        return replace(
            self, alone=some_of(self.alone, stays.arg_true().to_list()),
            copied=[event for event, _ in copied], keys=[key for _, key in copied],
        )  # fmt: skip

    @property
    def last(self) -> float:
        """The time of the last line, epoch seconds; minus infinity if there is none."""
        return self.lines["time"][-1] / 1e6 if self.lines.height else float("-inf")


def coalesce(rows: pl.DataFrame) -> list[Event]:
    """Event lines -> events. Pure: the order of rows and the number of copies do not matter."""
    return read(rows)[0]


def read(rows: pl.DataFrame, senders: Senders = NOBODY) -> tuple[list[Event], Lines]:
    """The events of ``coalesce``, and those of them that have only one line."""
    return joined([prepared(rows, senders)])


def prepared(rows: pl.DataFrame, senders: Senders = NOBODY) -> Part:
    """Parses event lines into a part. ``senders``: whose addresses are known."""
    # Few distinct texts occur on very many lines: each is parsed once, and every line holds an index to it.
    texts, places = different(rows["entities"])
    line_entities = [_line_entities(text or "") for text in texts]
    known = {text or "": one for text, one in zip(texts, line_entities, strict=True)}
    same_device = pl.any_horizontal(*(pl.col("event").str.starts_with(family) for family in _BY_DEVICE))
    words = pl.concat_str(
        pl.col("job_id").fill_null(-1), pl.col("message").fill_null("").str.replace(_COPY_NOISE, ""), separator=_BETWEEN
    )
    # In memory: Polars' other engine takes half a millisecond more for each query of so few rows.
    lines = rows.lazy().with_columns(
        pl.col("time").dt.epoch("us"), pl.col("received_time").dt.epoch("us"),
        pl.when(pl.col("resolution_us") == 0).then(None).otherwise("resolution_us").fill_null(1_000_000).alias("resolution_us"),
        pl.col("file").fill_null(""), pl.col("line").fill_null(0), pl.col("entities").fill_null(""),
        pl.Series("device", [t.device for t in line_entities], pl.String)[places], pl.Series("code", [t.code for t in line_entities], pl.String)[places],
        authority_of_events(rows), places.alias(_PLACE),
    ).with_columns(
        key=pl.concat_str(
            *(pl.col(name).fill_null("") for name in ("cluster", "host", "event", "device")), "code",
            pl.when(same_device).then(pl.lit("")).otherwise(words), separator=_BETWEEN,
        )
    ).collect(engine="in-memory")  # fmt: skip
    of_text = {text: str(one.entities["sender"]) for text, one in known.items() if "sender" in one.entities}
    lines = _with_senders(lines, of_text, senders) if of_text else lines
    identity = pl.concat_str("key", pl.col("time").cast(pl.String), separator=_BETWEEN).cast(pl.Binary)
    named = lines.lazy().with_columns(_ids(lines.select(identity).to_series()))
    lines = named.sort(_ORDER).collect(engine="in-memory")
    return _part(lines.drop(_PLACE), known, sent=bool(of_text), read=(line_entities, lines[_PLACE]))


def _with_senders(lines: pl.DataFrame, of_text: Mapping[str, str], senders: Senders) -> pl.DataFrame:
    """``lines`` with what their senders' addresses show: the keys of those that are no copies of what others sent have
    the address, and what a host's own address sent can be any of its users'. ``of_text``: the addresses in the JSON text
    of entities."""
    sent = lines.select(
        "host", "source", sender=pl.col("entities").replace_strict(of_text, default=None, return_dtype=pl.String)
    )
    kinds = sent.drop_nulls("sender").unique()
    kinds = kinds.with_columns(
        apart=pl.Series([senders.is_separate(*row) for row in kinds.select("sender", "host", "source").iter_rows()], dtype=pl.Boolean),
        own=pl.Series([senders.is_own(*row) for row in kinds.select("sender", "host").iter_rows()], dtype=pl.Boolean),
    )  # fmt: skip
    if not (kinds["apart"].any() or kinds["own"].any()):
        return lines
    marked = sent.join(kinds, on=["sender", "host", "source"], how="left", nulls_equal=True, maintain_order="left")
    return lines.with_columns(marked["sender"].alias("_sender"), marked["apart"], marked["own"]).with_columns(
        key=pl.when("apart").then(pl.concat_str("key", "_sender", separator=_BETWEEN)).otherwise("key"),
        authority=pl.when(pl.col("own") & (pl.col("authority") == NETWORK)).then(pl.lit(LOCAL)).otherwise("authority"),
    ).drop("_sender", "apart", "own")  # fmt: skip


def _part(lines: pl.DataFrame, known: Mapping[str, _LineEntities], *, sent: bool, read: _Read | None = None) -> Part:
    """``read``: the entities of the lines, if they are at hand; else ``known`` has them by their text."""
    # Nearly every key occurs on one line; only the rest has to be sorted.
    again = (
        lines.lazy()
        .with_row_index("row")
        .filter(pl.col("key").is_duplicated())
        .sort("key", "time", "resolution_us", "file", "line")
    )
    is_new = (pl.col("key") != pl.col("key").shift(1)) | (pl.col("time").diff() > COALESCE_S * 1e6)
    is_last = pl.col("first").shift(-1, fill_value=True)
    marked = again.with_columns(first=is_new.fill_null(True)).with_columns(alone=pl.col("first") & is_last)
    repeated = marked.filter(~pl.col("alone")).select("row", "first", *_OF_COPIES).collect(engine="in-memory")
    places = repeated["row"].to_list()
    copies_of = repeated.select(_OF_COPIES)
    # Column by column: by itself, Polars takes four times as long for rows as dicts.
    rows = [
        dict(zip(_OF_COPIES, values, strict=True)) for values in zip(*(c.to_list() for c in copies_of), strict=True)
    ]
    groups: list[list[dict[str, Any]]] = []
    for row, is_first in zip(rows, repeated["first"].to_list(), strict=True):
        if is_first:
            groups.append([])
        groups[-1].append(row)
    if read is None:
        texts, whose = different(lines["entities"])
        read = [known[text] for text in texts], whose
    if places:  # not by way of NumPy: Polars imports numpy.ma before it takes an array, 30 ms the first time
        others = pl.repeat(True, lines.height, eager=True).scatter(places, False)
        single = _without_copies(lines.filter(others), (read[0], read[1].filter(others)), sent=sent)
    else:
        single = _without_copies(lines, read, sent=sent)
    copied = [_of_copies(copies, known) for copies in groups]
    events = in_order(list(single.events), copied, single.columns["time"].to_numpy() / 1e6)
    return Part(lines, known, events, single, copied, [copies[0]["key"] for copies in groups])


def joined(parts: Sequence[Part]) -> tuple[list[Event], Lines]:
    """The events that the lines of all parts make together, and those of them that have only one line."""
    if len(parts) == 1:
        return parts[0].events, parts[0].alone
    repeated = pl.concat([part.lines["key"].unique() for part in parts])
    both = repeated.filter(repeated.is_duplicated()).unique()
    if len(both):  # possibly copies of lines in another part
        wanted = pl.col("key").is_in(both.implode())
        lines = pl.concat([part.lines.filter(wanted) for part in parts]).sort(_ORDER)
        known = {text: line_entities for part in parts for text, line_entities in part.known.items()}
        sent = any(part.alone.sent for part in parts)
        parts = [*(part.without(both) for part in parts), _part(lines, known, sent=sent)]
    alone = _together([part.alone for part in parts])
    return in_order(list(alone.events), [event for part in parts for event in part.copied]), alone


def some_of(lines: Lines, places: list[int]) -> Lines:
    """Those at some places."""
    return Lines([lines.events[place] for place in places], lines.columns[places], lines.entities[places], lines.sent)


def _together(some: Sequence[Lines]) -> Lines:
    """Merges several into one, in the total order."""
    columns = pl.concat([lines.columns for lines in some]).with_row_index("row").sort(_ORDER)
    rows = columns["row"]
    events = np.empty(len(rows), object)
    events[:] = list(itertools.chain.from_iterable(lines.events for lines in some))
    entities = pl.concat([lines.entities for lines in some]).gather(rows)
    return Lines(events[rows.to_numpy()].tolist(), columns.drop("row"), entities, any(lines.sent for lines in some))


def in_order(events: list[Event], more: list[Event], known: np.ndarray | None = None) -> list[Event]:
    """Merges two lists in the total order; ``events`` is sorted and usually much longer. ``known``: its times."""
    if not more:
        return events
    if len(more) * 16 < len(events):
        more = sorted(more, key=order)
        if more[-1].time < events[0].time:  # what a window carries from before it
            return more + events
        times = np.fromiter(map(_time, events), float, len(events)) if known is None else known
        wanted = np.fromiter(map(_time, more), float, len(more))
        firsts, ends = (times.searchsorted(wanted, side).tolist() for side in ("left", "right"))
        found: list[Event] = []
        done = 0
        for event, first, end in zip(more, firsts, ends, strict=True):  # few events share one moment
            place = bisect.bisect_right(events, order(event), first, end, key=order) if first < end else first
            found += events[done:place]
            found.append(event)
            done = place
        return found + events[done:]
    return sorted([*events, *more], key=order)


class _LineEntities(NamedTuple):
    """The entities of a line that have a value, its device, and its Xid code."""

    entities: dict[str, Any]
    device: str | None
    code: str


#: The entities of lines, each different text once, and for each line the index of its own.
_Read = tuple[Sequence[_LineEntities], pl.Series]
#: The column of that index, while lines are read.
_PLACE = "_entities"


#: Entities that are names of hosts: the only ones of several values.
_NAMES = frozenset({"nodes"})
_SEVERAL = frozenset({list, dict})


def _are_names(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(name, str) for name in value))


def _is_entity(name: str, value: object) -> bool:
    """Can a value be an entity's? A record's attribute may be called so, and be anything."""
    if name in _NAMES:
        return value is None or _are_names(value)
    return type(value) not in _SEVERAL


def _line_entities(text: str) -> _LineEntities:
    entities = from_json(text) if text else {}
    if not (_NAMES.isdisjoint(entities) and _SEVERAL.isdisjoint(map(type, entities.values()))):
        entities = {name: value for name, value in entities.items() if _is_entity(name, value)}
    values = entities.values()  # nearly always, all of them are given
    kept = {k: v for k, v in entities.items() if v not in (None, "")} if None in values or "" in values else entities
    return _LineEntities(kept, device_of(entities), str(entities.get("xid", entities.get("sxid"))))


def _ids(identities: pl.Series) -> pl.Series:
    """The event ids, ``id``. An identity is the line's key and its time in microseconds."""
    empty, digests = blake2s(digest_size=_DIGEST), []
    for identity in identities.to_list():
        digest = empty.copy()  # takes two thirds of the time of making one with an argument
        digest.update(identity)
        digests.append(digest.digest())
    # Written as one text and cut by Arrow: a third of the time that Polars takes to write each.
    texts = np.full((len(digests), 1 + 2 * _DIGEST), ord("e"), np.uint8)
    texts[:, 1:] = np.frombuffer(b"".join(digests).hex().encode(), np.uint8).reshape(len(digests), 2 * _DIGEST)
    ends = np.arange(len(digests) + 1, dtype=np.int64) * texts.shape[1]
    return pl.Series("id", pa.LargeStringArray.from_buffers(len(digests), pa.py_buffer(ends), pa.py_buffer(texts)))


def spread(values: list[Any], places: pl.Series) -> list[Any]:
    """The value at each index."""
    objects = np.empty(len(values), object)
    objects[:] = values
    found: list[Any] = objects.take(places.to_numpy()).tolist()
    return found


def shared(column: pl.Series) -> list[Any]:
    """The values of a column as shared objects: few hosts, files and kinds occur in very many events."""
    if column.null_count() == len(column):
        return [None] * len(column)
    return spread(*different(column))


#: So many messages are looked at to see whether they repeat, and this share of different ones is too many to share: of
#: half a million lines, those of 20,000 texts.
_SAMPLE, _MOSTLY_DIFFERENT = 4096, 0.9


def _messages(column: pl.Series) -> list[Any]:
    """Messages as shared objects where they repeat, as in storms: looking for equal texts takes three times as long as
    making a text for each line."""
    sample = column.gather_every(max(1, len(column) // _SAMPLE))
    return column.to_list() if sample.n_unique() > _MOSTLY_DIFFERENT * len(sample) else shared(column)


def _without_copies(lines: pl.DataFrame, read: _Read, *, sent: bool) -> Lines:
    """Lines without copies, which is nearly all of them; column by column, because there are many."""
    pairs, whose_pair = _pairs(lines["event"], lines["source"])
    lines = lines.with_columns(
        pl.col("message").fill_null(""), pl.col("file").replace("", None), pl.col("line").replace(0, None),
        pl.col("time_quality").fill_null("line").replace("", "line"), pl.Series("layer", [layer_of(*pair) for pair in pairs], pl.String)[whose_pair],
        _own().alias("own"), kernel_lines.is_in_doubt().alias("in_doubt"),
    )  # fmt: skip
    own, known_by = lines["own"].to_list(), kernel_lines.known_by(lines, lines["in_doubt"])
    lines = lines.drop("own", "in_doubt")
    times, received = all_seconds(lines["time"]), all_seconds(lines["received_time"])
    resolutions = lines["resolution_us"].to_list()
    sigmas = {r: r / 1e6 / 2 for r in set(resolutions)}
    whose, entities_by_text = read[1], [one.entities for one in read[0]]
    empty, ones, nowhere = itertools.repeat(()), itertools.repeat(1), itertools.repeat(0.0)
    events = list(map(
        Event, lines["id"].to_list(), times, list(map(sigmas.__getitem__, resolutions)),
        spread([kind for kind, _ in pairs], whose_pair), shared(lines["host"]), shared(lines["device"]), lines["job_id"].to_list(), _messages(lines["message"]),
        spread([source for _, source in pairs], whose_pair), shared(lines["layer"]), shared(lines["severity"]), shared(lines["file"]), lines["line"].to_list(), received,
        shared(lines["time_quality"]), ones, times, spread(entities_by_text, whose), empty, nowhere, own,
        known_by, shared(lines["authority"]),
    ))  # fmt: skip
    entities = pl.Series("entities", [sorted_json(t) if t else None for t in entities_by_text], pl.String)
    return Lines(events, lines, entities[whose], sent)


def _pairs(first: pl.Series, second: pl.Series) -> tuple[list[tuple[Any, Any]], pl.Series]:
    """The distinct pairs of values of two columns, and for each row the index of its pair."""
    (ones, of_ones), (others, of_others) = different(first), different(second)
    numbers, places = different(of_ones.cast(pl.Int64) * len(others) + of_others)
    return [(ones[number // len(others)], others[number % len(others)]) for number in numbers], places


#: What ``_of_copies`` needs of a line.
_OF_COPIES = (
    "key", "id", "time", "resolution_us", "received_time", "time_quality", "event", "host", "device", "job_id", "message",
    "source", "severity", "format", "facility", "file", "line", "entities", "authority",
)  # fmt: skip


def _of_copies(copies: list[dict[str, Any]], known: Mapping[str, _LineEntities]) -> Event:
    """One event from several copies: one of them gives time, message and place; the others are kept as references."""
    ranked = sorted(copies, key=_rank, reverse=True)
    # Of the same link: a driver's line, and one that a user can have caused, which shows nothing about the other.
    others = [c for c in ranked if not is_about_own_device(c["event"], c["source"], c["message"] or "")]
    speaker = min(reversed([c for c in others if _speaks(c) < _SPEAKS["ip"]] or ranked), key=_speaks)
    merged: dict[str, Any] = {}
    for copy in ranked:
        merged.update(known[copy["entities"]].entities)
    file, line = speaker["file"], speaker["line"]
    refs = sorted({(c["file"], c["line"]) for c in copies} - {(file, line)})
    received = [c["received_time"] for c in copies if c["received_time"] is not None]
    jobs = [c["job_id"] for c in copies if c["job_id"] is not None]
    own = [c for c in copies if c["file"] == file]
    alike = [c for c in (others if speaker in others else copies) if c["source"] == speaker["source"]]
    return Event(
        id=speaker["id"], time=speaker["time"] / 1e6, sigma=speaker["resolution_us"] / 1e6 / 2,
        kind=speaker["event"], host=speaker["host"], device=speaker["device"], job_id=min(jobs, default=None), message=speaker["message"] or "",
        source=speaker["source"], layer=layer_of(speaker["event"], speaker["source"]), severity=speaker["severity"], file=file or None,
        line=line or None, received=min(received) / 1e6 if received else None, time_quality=speaker["time_quality"] or "line",
        count=max(1, len({c["line"] for c in own})), last=max(c["time"] for c in own) / 1e6, entities=merged, also=tuple(refs),
        own=any(_is_own(c["format"], c["file"]) for c in copies),
        # A copy under another name says nothing about who wrote the kernel's.
        known_by=kernel_lines.known_by_of_copies(alike), authority=surest(c["authority"] for c in alike),
    )  # fmt: skip


def _own() -> pl.Expr:
    """Selects lines from the own file of the Slurm daemon that wrote them."""
    return (pl.col("format") == "slurm").fill_null(False) & ~pl.col("file").fill_null("").str.starts_with(RELAYED)


def _is_own(form: str | None, file: str | None) -> bool:
    return form == "slurm" and not (file or "").startswith(RELAYED)


def _speaks(copy: Mapping[str, Any]) -> int:
    return _SPEAKS.get(copy["format"] or "", 1)


def _rank(copy: Mapping[str, Any]) -> tuple[int, int, str, int]:
    """Sorts the finest clock first."""
    return (copy["resolution_us"], copy["time"], copy["file"], copy["line"])
