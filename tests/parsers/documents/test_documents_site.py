"""A site's documents besides accounting: configuration, cables, counters, environments. All data here is synthetic."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.documents import read
from parsers.documents.document import Gathered
from parsers.documents.prometheus import labels_of
from parsers.record import TABLES, Origin
from parsers.slurm_durations import seconds
from tests.parsers.documents.test_documents import rows

NOON = datetime(2026, 3, 1, 12)


def test_slurm_conf() -> None:
    text = (
        "clustername=c9   # the name\nSLURMDTIMEOUT=120\nProlog=/etc/a \\\n /etc/b\nInclude nodes.conf\n"
        "NodeName=n[1-4] CPUs=8 \\\n  Gres=gpu:4\nPartitionName=p Nodes=n[1-4]\nnonsense\n"
    )
    parsed = read("slurm_conf", text.encode(), Origin(path="slurm.conf"))
    found = {row["name"]: row["value"] for row in parsed.rows("settings").to_dicts()}
    assert found["ClusterName"] == "c9" and found["SlurmdTimeout"] == "120" and found["Include"] == "nodes.conf"
    assert found["NodeName:n[1-4]"].split() == ["CPUs=8", "Gres=gpu:4"] and found["PartitionName:p"] == "Nodes=n[1-4]"
    assert set(parsed.rows("settings")["cluster"]) == {"c9"}
    assert [warning.split(":")[0] for warning in parsed.warnings] == ["slurm.conf line 5", "slurm.conf line 9"]


def test_shown_config_keeps_values_as_they_are() -> None:
    text = "Configuration data as of 2026-03-01T10:00:00\nSlurmdTimeout           = 24 sec\nSlurmctldHost[0]  = ctl\n"
    found = {row["name"]: row["value"] for row in rows("scontrol_config", text, "settings", Origin())}
    assert found == {"SlurmdTimeout": "24 sec", "SlurmctldHost": "ctl"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [("24 sec", 24.0), ("300", 300.0), ("00:05:00", 300.0), ("5:00", 300.0), ("1-00:00:00", 86400.0), ("0", 0.0),
     ("10 min", 600.0), ("1-12:30", 131400.0), ("100 msec", 0.1), ("INFINITE", None), ("UNLIMITED", None), ("x", None)],
)  # fmt: skip
def test_seconds(value: str, expected: float | None) -> None:
    assert seconds(value) == expected


def test_topology() -> None:
    text = (
        "# tree\nSwitchName=s1 Nodes=n[1-2] LinkSpeed=9\nSwitchName=top Switches=s[1-2]\n"
        "BlockName=b Nodes=n3\nBlockSizes=4\n"
    )
    found = [(row["switch"], row["child"], row["kind"]) for row in rows("topology_conf", text, "topology", Origin())]
    assert found == [
        ("s1", "n1", "node"), ("s1", "n2", "node"), ("top", "s1", "switch"), ("top", "s2", "switch"),
        ("b", "n3", "node"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node,nic,switch,port\nn1,rdma3,leaf-r1-p2,Ethernet4\n", ("n1", "rdma3", "leaf-r1-p2", "Ethernet4", "2", "3")),
        ("host;device;switch;switch_port;plane;rail\nn1;mlx5_0;s;1;;7\n", ("n1", "mlx5_0", "s", "1", None, "7")),
        ("Node,NIC,Switch,Port\nn1,eth0,tor1,e1\n", ("n1", "eth0", "tor1", "e1", None, None)),
    ],
)
def test_links(text: str, expected: tuple[str | None, ...]) -> None:
    (link,) = rows("links_csv", text, "links", Origin())
    assert tuple(link[name] for name in ("host", "device", "switch", "switch_port", "plane", "rail")) == expected


def test_link_counters() -> None:
    links = [{"ifname": "eth0", "operstate": "DOWN", "carrier_changes": 5, "stats64": {"rx": {"errors": 2}}}]
    origin = Origin(path="hosts/n1/links.before.json", host="n1", received=NOON)
    found = {row["metric"]: row for row in rows("link_counters", json.dumps(links), "metrics", origin)}
    assert found["link_carrier_changes"]["value"] == 5 and found["link_operstate_up"]["value"] == 0
    assert found["link_rx_errors"]["device"] == "eth0" and found["link_rx_errors"]["time"] == NOON
    assert json.loads(found["link_rx_errors"]["labels"]) == {"snapshot": "before"}


def test_prometheus() -> None:
    text = (
        '# TYPE a gauge\na{gpu="3",name="x } \\"y\\" \\\\"} 1.5\nb 2e3 1772359200000\n'
        'c{device="mlx5_0",port="1",} NaN\nd{le="+Inf"} +Inf\nwhat is this\n'
    )
    parsed = read("prometheus", text.encode(), Origin(path="metrics/n1/1772362800.prom", host="n1", received=NOON))
    found = {row["metric"]: row for row in parsed.rows("metrics").to_dicts()}
    assert json.loads(found["a"]["labels"]) == {"gpu": "3", "name": 'x } "y" \\'}
    assert found["a"]["device"] == "3" and found["c"]["device"] == "mlx5_0"
    assert found["a"]["time"] == datetime(2026, 3, 1, 11) and found["b"]["time"] == datetime(2026, 3, 1, 10)
    assert found["b"]["value"] == 2000 and found["d"]["value"] == float("inf")
    assert found["c"]["value"] != found["c"]["value"]
    assert parsed.rows("logs")["raw"].to_list() == ["what is this"] and len(parsed.warnings) == 1


def test_a_packed_scrape_is_dated_by_its_name() -> None:
    (sample,) = rows("prometheus", "up 1\n", "metrics", Origin(path="metrics/n1/1772362800.prom.zst"))
    assert sample["time"] == datetime(2026, 3, 1, 11)


@given(st.dictionaries(st.from_regex(r"\A[a-z_][a-z0-9_]{0,8}\Z"), st.text(max_size=20), max_size=5))
def test_labels_give_back_what_was_written(labels: dict[str, str]) -> None:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    assert labels_of(",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())) == labels


def test_a_job_environment_gives_no_secret_away() -> None:
    text = (
        "SLURM_JOB_ID=7\nSLURM_RESTART_COUNT=1\nNCCL_IB_TIMEOUT=22\nHOME=/home/ann\nWANDB_API_KEY=abc\n"
        "NCCL_SECRET=abc\nMASTER_ADDR=http://u:pw@n1\nBASH_FUNC_x=() {\n abc\n}\n"
    )
    parsed = read("job_env", text.encode(), Origin(path="jobs/7/env", job_id=7))
    settings = {row["name"]: row for row in parsed.rows("settings").to_dicts()}
    assert set(settings) == {"SLURM_JOB_ID", "SLURM_RESTART_COUNT", "NCCL_IB_TIMEOUT"}
    assert settings["NCCL_IB_TIMEOUT"]["scope"] == "job:7#1"
    (artifact,) = parsed.rows("artifacts").to_dicts()
    assert artifact["kind"] == "env" and "HOME=redacted" in artifact["content"]
    assert not [word for word in ("abc", "pw@", "/home/ann") if word in artifact["content"]]


HOOK = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_RESTART_COUNT": "1", "SLURM_JOB_USER": "ann", "SLURM_JOB_UID": "1001",
    "SLURM_NODELIST": "n1", "SLURM_JOB_EXIT_CODE2": "3:0", "SLURM_JOB_GPUS": "0,1", "SLURM_JOB_NAME": "ring",
    "SLURM_JOB_WORK_DIR": "/home/ann", "SLURM_JOB_STDOUT": "%x-%5j.out", "SLURM_CLUSTER_NAME": "c9",
    "SLURM_JOB_ACCOUNT": "ml", "SLURM_JOB_PARTITION": "p",
}  # fmt: skip


def test_our_own_hook() -> None:
    header = {"FAULTLINE_EVENT": "epilog", "FAULTLINE_HOST": "n2", "FAULTLINE_TIME": "1772359200.5"}
    data = b"faultline-hook/1\n" + b"\0".join(f"{k}={v}".encode() for k, v in (header | HOOK).items()) + b"\0"
    (job,) = rows("hook_spool", data, "jobs", Origin())
    assert (job["job_id"], job["restarts"], job["exit_code"], job["gpu_index"]) == (7, 1, 3, "0,1")
    assert job["end"] == job["observed_at"] == datetime(2026, 3, 1, 10, 0, 0, 500_000) and job["start"] is None
    # What one node saw is neither the job's end state nor its list of nodes.
    assert job["state"] is None and job["nodes"] is None and job["host"] == "n2" and job["source"] == "hook"


def test_environment_of_a_sites_own_hook() -> None:
    env = HOOK | {"SLURM_SCRIPT_CONTEXT": "prolog_slurmctld", "SLURM_JOB_NODELIST": "n[1-2]"}
    text = "".join(f"{name}={value}\n" for name, value in env.items())
    (job,) = rows("hook_env", text, "jobs", Origin(host="ctl"))
    assert job["nodes"] == ["n1", "n2"] and job["cluster"] == "c9" and job["host"] == "ctl"


def test_screens() -> None:
    date = "Sun Mar 01 10:00:00 2026\n"
    sinfo = f"{date}NODELIST NODES PARTITION STATE REASON\nn1 1 p* drained bad cable\nn2 1 p* idle none\n"
    states = rows("sinfo", sinfo, "node_states", Origin())
    assert [(s["host"], s["state"], s["reason"]) for s in states] == [
        ("n1", "drained", "bad cable"), ("n2", "idle", None),
    ]  # fmt: skip
    squeue = f"{date}  JOBID PARTITION STATE NODELIST(REASON)\n  7 p RUNNING n[1-2]\n  8 p PENDING (Priority)\n"
    jobs = rows("squeue", squeue, "jobs", Origin())
    assert [(j["job_id"], j["state"], j["nodes"], j["reason"]) for j in jobs] == [
        (7, "RUNNING", ["n1", "n2"], None), (8, "PENDING", None, "Priority"),
    ]  # fmt: skip
    assert jobs[0]["observed_at"] == datetime(2026, 3, 1, 10)


@pytest.mark.parametrize(
    ("table", "row", "names"),
    [
        ("links", {"host": "n1", "port": "12"}, "'port'"),
        ("links", {"host": "n1", "switch_port": "12", "plane": "a"}, None),
        ("metrics", {"metric": "m", "value": 1.0, "unit": "C", "degrees": 1}, "'degrees', 'unit'"),
        (
            "topology",
            {"switch": "s1", "child": "n1", "kind": "node"},
            None,
        ),  # it has no source and no line, which are filled in
        ("settings", {"name": "a", "text": "b"}, "'text'"),
    ],
)
def test_a_column_that_does_not_exist_is_named_once_with_those_that_do(
    table: str, row: dict[str, object], names: str | None
) -> None:
    found = Gathered("harbour_list", Origin(path="a/cables.txt"))
    found.add(table, dict(row), 1)
    found.add(table, dict(row), 2)
    parsed = found.parsed()
    there = ", ".join(TABLES[table])
    says = f"a/cables.txt: {table} has no column {names}, which is dropped; there is {there}"
    assert parsed.warnings == ([says] if names else [])
    assert len(parsed.rows(table)) == 2


def test_a_table_that_does_not_exist_is_named_with_those_that_do() -> None:
    found = Gathered("harbour_list", Origin())
    found.add("cables", {"host": "n1"})
    with pytest.raises(ValueError, match="there is no table 'cables', but logs, jobs, steps, "):
        found.parsed()


def test_the_labels_of_a_metric_may_be_a_dict() -> None:
    found = Gathered("harbour_list", Origin())
    found.add("metrics", {"metric": "wear", "value": 3, "labels": {"model": "x", "firmware": "7"}})
    found.add("metrics", {"metric": "wear", "value": 4, "labels": '{"model": "y"}'})
    labels = found.parsed().rows("metrics")["labels"].to_list()
    assert labels == ['{"firmware": "7", "model": "x"}', '{"model": "y"}']
