"""What nodes are coloured by: for each measure the value and the class of every node at the moment of the map.

What is not known is the class ``UNKNOWN``. A count is known of a node that an event or a state named by then: "none" means
that none was recorded, not that all is well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import polars as pl

from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.registry import families
from correlator.incidents import lemons
from correlator.model.gauges import GAUGES
from parsers.moments import later
from store.errors import NoSuchTable
from store.questions import fleet as questions
from store.questions import runs
from web import node_states
from web.node_states import Nodes
from web.reading import Reader
from web.rooted import as_document

UNKNOWN = node_states.UNKNOWN
#: Prometheus takes a sample for the present value for five minutes as well (``query.lookback-delta``).
FRESH = timedelta(minutes=5)
#: Flaps are counted over this time before the moment.
FLAPS_WITHIN = timedelta(hours=24)
#: Below this probability a count is no longer what an ordinary node has: one in twenty.
UNUSUAL = 0.05


@dataclass(frozen=True)
class Class:
    """How nodes are drawn: ``look`` is the class of the style sheet, ``stands_out`` what an operator looks for."""

    name: str
    words: str
    look: str
    stands_out: bool = False


@dataclass(frozen=True)
class Measure:
    """``read`` returns ``name`` (nodes of which something is known), ``class``, ``value`` and ``says``, a text. ``about``: what
    is measured, for the legend."""

    name: str
    words: str
    about: str
    classes: tuple[Class, ...]
    read: Callable[[Reader, Nodes], pl.DataFrame]

    def of(self, read: Reader, nodes: Nodes) -> pl.DataFrame:
        """``name``, ``class``, ``value`` and ``says`` of every node, in the order of the nodes."""
        try:
            known = self.read(read, nodes)
        except NoSuchTable:  # a store of an older version, opened for reading
            known = pl.DataFrame(schema=KNOWN)
        known = known.select(pl.col(name).cast(kind) for name, kind in KNOWN.items())
        found = nodes.frame.select("name").join(
            known.unique("name", keep="first"), on="name", how="left", maintain_order="left"
        )
        return found.with_columns(pl.col("class").fill_null(UNKNOWN))


KNOWN: dict[str, Any] = {"name": pl.String, "class": pl.String, "value": pl.Float64, "says": pl.String}
NOT_KNOWN = Class(UNKNOWN, "not known", "unknown")

# -- states ------------------------------------------------------------------------------------------------------------


def _states(read: Reader, nodes: Nodes) -> pl.DataFrame:
    return node_states.at_moment(read, nodes).with_columns(pl.lit(None, pl.Float64).alias("value"))


# -- counts ------------------------------------------------------------------------------------------------------------


def _counted(nodes: Nodes, rows: pl.DataFrame) -> pl.DataFrame:
    """``name``, ``value`` and ``says`` of each node that anything named by then; 0 if no row is about it."""
    seen = nodes.frame.filter(pl.col("seen") <= nodes.at).select("name")
    return seen.join(rows, on="name", how="left").with_columns(pl.col("value").fill_null(0.0))


def _scale(column: str, steps: Iterable[tuple[float, str]]) -> pl.Expr:
    """The class of a number: the last of ``steps`` that begins at or below it."""
    expression: Any = pl.lit(None, pl.String)
    for least, name in steps:
        expression = pl.when(pl.col(column) >= least).then(pl.lit(name)).otherwise(expression)
    found: pl.Expr = expression.alias("class")
    return found


_SEVERITIES = {"impact": 3, "degraded": 2}


def _incidents(read: Reader, nodes: Nodes) -> pl.DataFrame:
    """Open incidents by the hosts in their documents, and the gravest severity of each node's."""
    rows = read.ask_frame(questions.open_incidents(nodes.at))
    rank = pl.col("severity").replace_strict(_SEVERITIES, default=1, return_dtype=pl.Int64).alias("rank")
    hosts = pl.concat_list(
        pl.col("hosts").cast(pl.List(pl.String)).fill_null([]), pl.col("root_host").cast(pl.String)
    ).alias("host")
    met = rows.select("cluster", "incident_id", rank, hosts).explode("host").drop_nulls("host").unique()
    of_nodes = nodes.bring(met).sort("name", pl.col("rank"), "incident_id", descending=[False, True, False]).group_by("name").agg(
        pl.len().cast(pl.Float64).alias("value"), pl.col("rank").max(), pl.col("incident_id").first().alias("first")
    )  # fmt: skip
    more = pl.format("{} and {} more", "first", pl.col("value").cast(pl.Int64) - 1)
    says = pl.when(pl.col("value") > 1).then(more).otherwise("first").alias("says")
    word = (
        pl.col("rank").fill_null(0).replace_strict({3: "impact", 2: "degraded", 1: "benign", 0: "none"}).alias("class")
    )
    return _counted(nodes, of_nodes.select("name", "value", says, "rank")).with_columns(word)


def _flaps(read: Reader, nodes: Nodes) -> pl.DataFrame:
    rows = read.ask_frame(questions.facts_by_host(LINK_OUTAGE.name, later(nodes.at, -FLAPS_WITHIN), nodes.at))
    of_nodes = nodes.bring(rows).group_by("name").agg(pl.col("value").sum().cast(pl.Float64))
    found = _counted(nodes, of_nodes.with_columns(pl.lit(None, pl.String).alias("says")))
    return found.with_columns(_scale("value", [(0, "none"), (1, "few"), (2, "some"), (4, "many"), (10, "most")]))


def _temperature(read: Reader, nodes: Nodes) -> pl.DataFrame:
    rows = read.ask_frame(questions.hottest(GAUGES["temperature"].metrics, later(nodes.at, -FRESH), nodes.at))
    found = nodes.bring(rows).group_by("name").agg(pl.col("value").max())
    steps = [(-math.inf, "cool"), (45, "mild"), (60, "warm"), (75, "hot"), (85, "hottest")]
    return found.with_columns(_scale("value", steps), pl.lit(None, pl.String).alias("says"))


def _lemons(read: Reader, nodes: Nodes) -> pl.DataFrame:
    """For each node the least probability among the families of faults, as ``GET /api/v1/nodes/{name}/risk`` computes it, from the
    incidents that had begun."""
    rows = read.ask(questions.rooted(families(), at=nodes.at))
    found = [
        (host, cluster, part["probability"], float(part["incidents"]), part["family"], part["lemon"])
        for cluster in sorted({row["cluster"] for row in rows}, key=str)
        for host, parts in lemons.risk(map(as_document, (r for r in rows if r["cluster"] == cluster)), _size(read, cluster)).items()
        for part in parts[:1]
    ]  # fmt: skip
    schema: dict[str, Any] = {
        "host": pl.String,
        "cluster": pl.String,
        "chance": pl.Float64,
        "value": pl.Float64,
        "family": pl.String,
        "lemon": pl.Boolean,
    }
    risks = nodes.bring(pl.DataFrame(found, schema=schema, orient="row"))
    word = (
        pl.when("lemon")
        .then(pl.lit("lemon"))
        .when(pl.col("chance") < UNUSUAL)
        .then(pl.lit("unusual"))
        .otherwise(pl.lit("ordinary"))
    )
    says = pl.format(
        "{} of {}, chance {}", pl.col("value").cast(pl.Int64), "family", pl.col("chance").round_sig_figs(2)
    )
    worded = risks.select("name", "value", word.alias("class"), says.alias("says")).unique("name", keep="first")
    return _counted(nodes, worded).with_columns(pl.col("class").fill_null("none"))


def _size(read: Reader, cluster: str | None) -> int:
    return max(2, int(read.ask(runs.node_count(cluster))[0]["n"]))


_NONE = Class("none", "none recorded", "none")

MEASURES = {one.name: one for one in (
    Measure("state", "State", "Slurm's last state of the node, and accounting's runs where only the log has it", (
        Class("down", "down or failed", "bad", stands_out=True), Class("silent", "not responding", "silent", stands_out=True),
        Class("drain", "drained, in maintenance, to be restarted", "warn", stands_out=True), Class("off", "switched off to save power", "off"),
        Class("busy", "running jobs", "busy"), Class("idle", "idle", "idle"), Class("up", "in service", "up"), NOT_KNOWN,
    ), _states),
    Measure("incidents", "Open incidents", "incidents that were not over, by the gravest of a node's", (
        Class("impact", "impact", "bad", stands_out=True), Class("degraded", "degraded", "warn", stands_out=True),
        Class("benign", "benign", "low"), _NONE, NOT_KNOWN,
    ), _incidents),
    Measure("temperature", "Temperature", "hottest GPU of the node, °C, from the last five minutes", (
        Class("hottest", "85 and more", "s5", stands_out=True), Class("hot", "75 to 84", "s4"), Class("warm", "60 to 74", "s3"),
        Class("mild", "45 to 59", "s2"), Class("cool", "below 45", "s1"), NOT_KNOWN,
    ), _temperature),
    Measure("flaps", "Link flaps", "outages of the node's links in the 24 hours before", (
        Class("most", "10 and more", "s5", stands_out=True), Class("many", "4 to 9", "s4", stands_out=True),
        Class("some", "2 or 3", "s3"), Class("few", "1", "s2"), _NONE, NOT_KNOWN,
    ), _flaps),
    Measure("lemon", "Lemon score", "incidents of one family of faults that began on the node and ended jobs, against ordinary nodes", (
        Class("lemon", "lemon", "bad", stands_out=True), Class("unusual", "more than nineteen in twenty nodes have", "warn", stands_out=True),
        Class("ordinary", "as ordinary nodes", "low"), _NONE, NOT_KNOWN,
    ), _lemons),
)}  # fmt: skip
