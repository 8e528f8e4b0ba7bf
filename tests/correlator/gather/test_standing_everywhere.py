"""A host without slurmctld that logs as slurmctld moves no zone and no time, and makes no row of Events.

This holds whenever it becomes known which host runs slurmctld.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate
from correlator.live.ticker import Ticker
from queries.kql import Query
from store import open_store
from store.duckdb.store import DuckStore
from tests.line_parser import line_parser
from web.reading import Reader
from web.timerange import Range

HEAD = "JobID|JobIDRaw|User|UID|JobName|State|ExitCode|Submit|Start|End|NodeList|NNodes|Cluster\n"


def accounting(jobs: range, day: str = "2026-02-28") -> str:
    rows = (
        f"{job}|{job}|bob|1002|train|FAILED|1:0|{day}T10:{job}:00|{day}T10:{job}:00|{day}T10:{job}:50|gx02|1|c\n"
        for job in jobs
    )
    return HEAD + "".join(rows)


CONFIGURATION = (
    "ClusterName=c\nSlurmctldHost=ctl\nNodeName=gx[01-04] NodeAddr=10.0.0.[1-4] CPUs=8\nPartitionName=p Nodes=ALL\n"
)
#: What a true controller writes: jobs 11 to 14 begin as in accounting.
TRUE = {
    "slurm.conf": CONFIGURATION,
    "accounting/sacct.txt": accounting(range(11, 19)),
    "controller/slurmctld.log": "".join(
        f"[2026-02-28T10:{job}:00.100] sched: Allocate JobId={job} NodeList=gx02 #CPUs=1 Partition=p\n"
        for job in range(11, 15)
    ),
}


def forged(hour: int, jobs: range, words: str) -> str:
    """What a user of gx01 writes there with ``logger -t slurmctld -p daemon.err``."""
    return "".join(f"Feb 28 {hour:02}:{job}:00 gx01 slurmctld[77]: {words.format(job=job)}\n" for job in jobs)


ALLOCATED = "sched: Allocate JobId={job} NodeList=gx02 #CPUs=1 Partition=p"
DOWN = "error: Nodes gx0[2-4] not responding, setting DOWN"


def ingest(store: DuckStore, folder: Path, tree: dict[str, str]) -> None:
    for name, text in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    Ingest(store, parser=line_parser()).run([folder])


def rows(store: DuckStore, query: str) -> list[list[Any]]:
    """KQL's answer; nothing can be stored after the first query."""
    return store.run_kql(Query(query)).rows


def set_down(store: DuckStore) -> tuple[list[list[Any]], list[list[Any]]]:
    """The hosts whose lines say that a node is DOWN, and the nodes that have states."""
    events = rows(store, "Events | where Event == 'slurm.node_down' | project Host | order by Host asc")
    return events, rows(store, "NodeStates | distinct Host")


def shown_of_slurmctld(store: DuckStore) -> tuple[list[list[Any]], list[list[Any]]]:
    """Host, event and claim of slurmctld's lines, as KQL and as the pages show them."""
    query = "Logs | where Source == 'slurmctld' | project Host, Event, tostring(Fields.claims) | order by Host asc"
    lines = Reader(store).lines(Range(None, None), source="slurmctld")[0]
    return rows(store, query), sorted([line["host"], line["event"], line.get("claims") or ""] for line in lines)


def test_a_node_that_speaks_as_slurmctld_moves_no_zone(tmp_path: Path) -> None:
    """Five forged allocations, two hours before those in accounting, put a whole file of accounting two hours off."""
    with open_store(None) as store:
        ingest(store, tmp_path, {**TRUE, "nodes/gx01/syslog": forged(8, range(14, 19), ALLOCATED)})
        correlate(store)
        starts = rows(store, "Jobs | order by JobId asc | project JobId, format_datetime(Start, 'HH:mm')")
    assert starts == [[job, f"10:{job}"] for job in range(11, 19)]


def test_a_node_that_speaks_as_slurmctld_sets_no_time_of_output(tmp_path: Path) -> None:
    """Output without a timestamp is placed near the end of its job.

    Without accounting, that end is from slurmctld's lines.
    """
    tree = {
        "slurm.conf": CONFIGURATION,
        "controller/slurmctld.log": "[2026-02-28T10:11:00.100] sched: Allocate JobId=11 NodeList=gx02 #CPUs=1 Partition=p\n"
        "[2026-02-28T10:20:00.100] _job_complete: JobId=11 WEXITSTATUS 1\n",
        "jobs/11/stderr": "Traceback (most recent call last):\nValueError: bad input\n",
        "nodes/gx01/syslog": "Feb 28 15:00:00 gx01 slurmctld[77]: _job_complete: JobId=11 WEXITSTATUS 1\n",
    }
    with open_store(None) as store:
        ingest(store, tmp_path, tree)
        correlate(store)
        found = rows(store, "Events | where Event startswith 'job.' | project format_datetime(Time, 'HH:mm:ss')")
    assert found and {time for (time,) in found} == {"10:20:00"}


@pytest.mark.parametrize(
    ("known", "live"),
    [
        pytest.param("after", True, id="after, by ticks"),
        pytest.param("before", False, id="before, at once"),
        pytest.param("after", False, id="after, at once", marks=pytest.mark.long),
        pytest.param("before", True, id="before, by ticks", marks=pytest.mark.long),
    ],
)
def test_what_a_node_says_as_slurmctld_is_no_row_of_events(tmp_path: Path, known: str, live: bool) -> None:
    """The lines stay in Logs. If the controller becomes known only later, earlier conclusions are withdrawn."""
    lies = {"nodes/gx01/syslog": forged(10, range(16, 17), DOWN) + "Feb 28 10:17:00 gx01 systemd[1]: Started x.\n"}
    says = "[2026-02-28T10:11:00.100] error: Nodes gx04 not responding, setting DOWN\n"
    true = {"slurm.conf": CONFIGURATION, "controller/slurmctld.log": says}
    with open_store(None) as store:
        ticker = Ticker(store)
        conclude = ticker.tick if live else lambda: correlate(store)
        for part in (true, lies) if known == "before" else (lies, true):
            ingest(store, tmp_path, part)
            conclude()
        down, states = set_down(store)
        lines = rows(store, "Logs | where Source == 'slurmctld' and Host == 'gx01' | count")
        shown, read_back = shown_of_slurmctld(store)
        read = rows(store, "Logs | where Event == 'slurm.node_down' | project Host")
    assert shown == read_back == [["controller", "slurm.node_down", ""], ["gx01", "other", "slurm.node_down"]]
    assert read == [["controller"]], "whoever asks for the event does not find the claim"
    assert (down, states) == ([["controller"]], [["gx04"]])
    assert lines == [[1]]


FILE = "[2026-02-28T10:16:00.000] error: Nodes gx02 not responding, setting DOWN\n"


@pytest.mark.one_of_each(kind=lambda live: live)
@pytest.mark.parametrize(
    ("order", "live"),
    [
        ((2, 1, 0), False), ((0, 1, 2), True), ((2, 0, 1), True),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (((0, 1, 2), False), ((2, 1, 0), True), ((0, 2, 1), True))),
    ],
    ids=str,
)  # fmt: skip
def test_a_slurmctld_file_of_a_compute_node_is_a_claim(tmp_path: Path, order: tuple[int, ...], live: bool) -> None:
    """Root of gx01 can write such a file, and its token may send it. slurm.conf names ctl, which sends its own."""
    true = {"nodes/ctl/slurmctld.log": "[2026-02-28T10:11:00.100] error: Nodes gx04 not responding, setting DOWN\n"}
    parts = ({"slurm.conf": CONFIGURATION}, true, {"nodes/gx01/slurmctld.log": FILE})
    with open_store(None) as store:
        ticker = Ticker(store)
        for part in order:
            ingest(store, tmp_path, parts[part])
            if live:
                ticker.tick()
        if not live:
            correlate(store)
        down, states = set_down(store)
        shown, read_back = shown_of_slurmctld(store)
    assert (down, states) == ([["ctl"]], [["gx04"]])
    assert shown == read_back == [["ctl", "slurm.node_down", ""], ["gx01", "other", "slurm.node_down"]]


CONTROLLERS_ON_NODES = {
    "slurm.conf names it": {"slurm.conf": CONFIGURATION.replace("=ctl", "=gx01")},
    "its name in slurm.conf may be an alias": {"slurm.conf": CONFIGURATION.replace("=ctl", "=slurm-master")},
    "there is no slurm.conf": {"accounting/sacct.txt": accounting(range(11, 12)).replace("gx02", "gx01")},
}


@pytest.mark.parametrize(
    "known",
    [pytest.param(k, id=n, marks=pytest.mark.long if "alias" in n else ()) for n, k in CONTROLLERS_ON_NODES.items()],
)
def test_a_compute_node_may_be_the_controller(tmp_path: Path, known: dict[str, str]) -> None:
    with open_store(None) as store:
        ticker = Ticker(store)
        for part in ({"nodes/gx01/slurmctld.log": FILE}, known):
            ingest(store, tmp_path, part)
            ticker.tick()
        assert rows(store, "NodeStates | distinct Host") == [["gx02"]]


def test_a_controller_that_is_found_later_is_logged_from_then_on(tmp_path: Path) -> None:
    """The other way round: until slurm.conf names it, only a host that runs no job counts as the controller."""
    says = {"nodes/ctl/syslog": "Feb 28 10:11:00 ctl slurmctld[77]: error: Nodes gx04 not responding, setting DOWN\n"}
    lies = {
        "nodes/gx01/syslog": forged(10, range(16, 17), DOWN),
        "accounting/sacct.txt": accounting(range(11, 12)).replace("gx02", "gx01"),
    }
    with open_store(None) as store:
        ticker = Ticker(store)
        for part in (lies, says, {"slurm.conf": CONFIGURATION}):
            ingest(store, tmp_path, part)
            ticker.tick()
        down = rows(store, "Events | where Event == 'slurm.node_down' | project Host")
        shown = rows(store, "Logs | where Source == 'slurmctld' | project Host, Event | order by Host asc")
    assert down == [["ctl"]]
    assert shown == [["ctl", "slurm.node_down"], ["gx01", "other"]]


def test_a_host_that_turns_out_to_run_slurmctld_has_its_events_back(tmp_path: Path) -> None:
    """The mark is not permanent: the lines were never changed."""
    lies = {"nodes/gx01/syslog": forged(10, range(16, 17), DOWN)}
    second = {"slurm.conf": CONFIGURATION.replace("SlurmctldHost=ctl\n", "SlurmctldHost=ctl\nSlurmctldHost=gx01\n")}
    asked = "Logs | where Source == 'slurmctld' and Host == 'gx01' | project Event"
    with open_store(None) as store:
        ingest(store, tmp_path, {"slurm.conf": CONFIGURATION, **lies})
        correlate(store)
        before = store.rows('SELECT "Event" FROM kql."Logs" WHERE "Source" = \'slurmctld\'')
        ingest(store, tmp_path, second)
        correlate(store)
        after = rows(store, asked)
    assert ([row["Event"] for row in before], after) == (["other"], [["slurm.node_down"]])


def test_what_a_node_sends_as_another_host_is_a_claim(tmp_path: Path) -> None:
    """Over syslog the receiver records the address: 10.0.0.2 is gx02's, and claims to be gx03."""
    text = "Feb 28 10:16:00 gx03 kernel: mlx5_core 0000:c4:00.0 eth0: Link down"
    with open_store(None) as store:
        ingest(
            store,
            tmp_path,
            {"slurm.conf": CONFIGURATION, "nodes/gx03/syslog": text + "\n" + text.replace("16:00", "17:00") + "\n"},
        )
        with store.transaction() as connection:
            connection.execute(
                'UPDATE raw.logs SET entities = json_merge_patch(entities, \'{"sender": "10.0.0.2"}\') WHERE line = 1'
            )
        correlate(store)
        shown = rows(
            store, "Logs | where File endswith 'syslog' | order by Line asc | project Event, tostring(Fields.claims)"
        )
        lines = Reader(store).lines(Range(None, None), host="gx03")[0]
    assert shown == [["other", "nic.link_down"], ["nic.link_down", ""]]
    assert [(line["event"], line.get("claims")) for line in lines] == [
        ("other", "nic.link_down"),
        ("nic.link_down", None),
    ]


def test_the_view_of_lines_joins_the_claims_only_where_there_are_some(tmp_path: Path) -> None:
    """The join makes a look at the newest lines five times as slow, and most stores have no claims."""

    def joined() -> bool:
        (row,) = store.rows("SELECT sql FROM duckdb_views() WHERE schema_name = 'kql' AND view_name = 'Logs'")
        return "disowned" in str(row["sql"])

    looks = []
    with open_store(None) as store:
        ticker = Ticker(store)
        for part in (
            {"slurm.conf": CONFIGURATION},
            {"nodes/gx01/syslog": forged(10, range(16, 17), DOWN)},
            {"slurm.conf": CONFIGURATION.replace("SlurmctldHost=ctl\n", "SlurmctldHost=ctl\nSlurmctldHost=gx01\n")},
        ):
            ingest(store, tmp_path, part)
            ticker.tick()
            looks.append(joined())
    assert looks == [False, True, False]
