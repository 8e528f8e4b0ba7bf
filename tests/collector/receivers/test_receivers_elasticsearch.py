"""Elasticsearch's bulk API as shippers and Slurm's plugin use it, and their requests before the first write."""

from __future__ import annotations

import gzip
import json
import zlib
from datetime import datetime

import pytest
import zstandard
from packing import snap
from receiver_requests import ask, lines, tables

from collector.intake import Intake
from collector.segment_file import Position
from collector.spool import Spool


def test_a_bulk_of_rsyslog_and_fluent_bit(spool: Spool, intake: Intake) -> None:
    documents = [
        {"message": "igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down", "fromhost": "gpu02", "host": "gpu02", "syslogtag": "kernel:",
         "syslogfacility": "kern", "syslogseverity": "err", "timereported": "2026-02-28T16:29:24+00:00"},
        {"@timestamp": "2026-11-21T10:00:00.000Z", "log": "plain text", "host": {"name": "n5"}, "kubernetes": {"pod": "p"}},
    ]  # fmt: skip
    body = b"".join(b'{"index":{"_index":"logs"}}\n' + json.dumps(d).encode() + b"\n" for d in documents)
    reply = ask(intake, "POST", "/_bulk", body, content_type="application/x-ndjson")
    assert reply.status == 200 and reply.document["errors"] is False
    assert [item["index"]["status"] for item in reply.document["items"]] == [201, 201]
    link, plain = sorted(lines(spool), key=lambda r: r["raw"] == "plain text")
    assert (link["event"], link["host"], link["source"], link["time"]) == (
        "nic.link_down",
        "gpu02",
        "kernel",
        datetime(2026, 2, 28, 16, 29, 24),
    )
    assert (plain["host"], plain["time"]) == ("n5", datetime(2026, 11, 21, 10))
    assert json.loads(plain["entities"]) == {"kubernetes.pod": "p"}


@pytest.mark.parametrize(
    ("path", "body", "status", "errors"),
    [
        ("/logs/_bulk", b'{"create":{}}\n{"message":"a"}\n', 200, False),
        ("/elasticsearch/_bulk", b'{"create":{"_index":"x"}}\n{"message":"a"}\n', 200, False),
        ("/_bulk", b'{"update":{"_index":"x","_id":"1"}}\n{"doc":{}}\n', 200, True),
        ("/_bulk", b'{"delete":{"_index":"x","_id":"1"}}\n', 200, False),
        ("/_bulk", b'{"index":{}}\n', 400, None), ("/_bulk", b"what\n", 400, None), ("/_bulk", b"[]\n", 400, None),
    ],
)  # fmt: skip
def test_what_a_bulk_request_is_answered(
    path: str, body: bytes, status: int, errors: bool | None, intake: Intake
) -> None:
    reply = ask(intake, "POST", path, body)
    assert reply.status == status
    assert reply.document.get("errors") is errors if errors is not None else reply.document["error"]["reason"]


@pytest.mark.parametrize("path", ["/_bulk", "/jobs/_doc/42"])
def test_an_id_that_comes_again_with_another_document_is_kept(path: str, spool: Spool, intake: Intake) -> None:
    """Found by reading: the second state of a document was taken for the first one sent twice."""
    action = b'{"index":{"_index":"jobs","_id":"42"}}\n' if path == "/_bulk" else b""
    for state in ("RUNNING", "FAILED", "FAILED"):
        assert ask(intake, "POST", path, action + b'{"message":"%b"}\n' % state.encode()).status in (200, 201)
    keys = [record.meta["key"] for record in spool.read(Position(0, 0), 1 << 20)]
    assert len(keys) == 3 and len(set(keys)) == 2 and keys[1] == keys[2]


def test_what_clients_ask_before_they_write(intake: Intake) -> None:
    assert ask(intake, "GET", "/elasticsearch/").document["version"]["number"]
    assert ask(intake, "GET", "/_cluster/health").document["status"] == "green"


#: The requests of clients before they write, in order, with what they accept. Vector 0.4x:
#: src/sinks/elasticsearch/common.rs; rsyslog's omelasticsearch since 8.2510; Logstash's output: http_client/pool.rb,
#: template_manager.rb, ilm.rb; Filebeat 8: libbeat/esleg/eslegclient, licenser, idxmgmt/lifecycle/es_client_handler.go,
#: template/load.go.
_STARTS: dict[str, list[tuple[str, str, int]]] = {
    "vector": [("GET", "/elasticsearch/", 200), ("GET", "/elasticsearch/_cluster/health", 200)],
    "vector before 0.30": [("GET", "/_cluster/state/version", 200), ("GET", "/_cluster/health", 200)],
    "rsyslog": [("GET", "/elasticsearch/", 200), ("HEAD", "/_cat/health", 200)],
    "logstash": [
        ("HEAD", "/elasticsearch/", 200), ("GET", "/elasticsearch/", 200), ("GET", "/elasticsearch/_license", 200),
        ("HEAD", "/elasticsearch/_index_template/ecs-logstash", 404), ("PUT", "/elasticsearch/_index_template/ecs-logstash", 200),
        ("HEAD", "/elasticsearch/_template/logstash", 404), ("PUT", "/elasticsearch/_template/logstash", 200),
        ("HEAD", "/elasticsearch/logstash", 404), ("PUT", "/elasticsearch/<logstash-{now/d}-000001>", 200),
        ("GET", "/elasticsearch/_ilm/policy/logstash-policy", 404), ("PUT", "/elasticsearch/_ilm/policy/logstash-policy", 200),
    ],
    "filebeat": [
        ("GET", "/elasticsearch", 200), ("GET", "/elasticsearch/_license", 200),
        ("GET", "/elasticsearch/_ilm/policy/filebeat", 404), ("PUT", "/elasticsearch/_ilm/policy/filebeat", 200),
        ("HEAD", "/elasticsearch/_index_template/filebeat-8.17.0", 404), ("PUT", "/elasticsearch/_index_template/filebeat-8.17.0", 200),
        ("GET", "/elasticsearch/_data_stream/filebeat-8.17.0", 404), ("PUT", "/elasticsearch/_data_stream/filebeat-8.17.0", 200),
        ("PUT", "/elasticsearch/_ingest/pipeline/filebeat-8.17.0-system-syslog-pipeline", 200), ("GET", "/elasticsearch/_alias/filebeat", 404),
    ],
}  # fmt: skip


@pytest.mark.parametrize("client", _STARTS)
def test_clients_find_what_they_ask_for_before_they_write(client: str, spool: Spool, intake: Intake) -> None:
    for method, path, status in _STARTS[client]:
        reply = ask(intake, method, path, b"{}" if method == "PUT" else b"", content_type="application/json")
        assert reply.status == status, (method, path)
        if method == "PUT":
            assert reply.document["acknowledged"] is True and "not used" in reply.document["note"]
        elif path.endswith("_license"):
            assert reply.document["license"]["status"] == "active"
        elif status == 200 and path.rstrip("/").endswith(("elasticsearch", "version")):
            assert (
                reply.document["version"]["number"].startswith("8.")
                and reply.headers["x-elastic-product"] == "Elasticsearch"
            )
    assert list(spool.read(Position(0, 0), 1 << 40)) == []


@pytest.mark.parametrize(
    "path", ["/", "/logs", "/incidents", "/_other/x", "/elasticsearch/_search", "/elasticsearch/logs/_search"]
)
def test_pages_and_searches_are_not_answered_in_the_place_of_others(path: str, intake: Intake) -> None:
    assert not any(pattern.fullmatch(path) for _, _, pattern in intake.routes)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "snappy", None])
def test_a_bulk_in_every_packing_that_shippers_have(encoding: str | None, spool: Spool, intake: Intake) -> None:
    """gzip: Fluent Bit, Filebeat, Logstash, Vector; Vector also zlib (which it calls deflate), zstd and snappy. None has lz4."""
    body = b'{"create":{"_index":"x"}}\n{"message":"packed"}\n'
    packs = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress, "snappy": snap, None: bytes}
    headers = {"content_encoding": encoding} if encoding else {}
    assert ask(intake, "POST", "/elasticsearch/_bulk", packs[encoding](body), **headers).document["errors"] is False
    assert ask(intake, "POST", "/elasticsearch/_bulk", body, content_encoding="lz4").status == 415
    assert [row["raw"] for row in lines(spool)] == ["packed"]


def test_an_ended_job_of_slurms_own_plugin_is_a_run(spool: Spool, intake: Intake) -> None:
    record = {
        "jobid": 42802, "username": "alice", "user_id": 1001, "@start": "2026-11-21T10:00:00", "@end": "2026-11-21T10:30:00",
        "partition": "gpu", "nodes": "gpu[01-02]", "derived_ec": "0:0", "exit_code": "1:0", "state": "NODE_FAIL", "@submit": "2026-11-21T09:59:00",
        "cluster": "ml1", "job_name": "train", "time_limit": 3600, "tres_alloc": "cpu=64,mem=1G,node=2,gres/gpu=16", "work_dir": "/home/alice",
    }  # fmt: skip
    for path in ("/slurm/_doc", "/slurm/jobcomp"):
        assert ask(intake, "POST", path, json.dumps(record).encode(), content_type="application/json").status == 201
    job = tables(spool)["jobs"].to_dicts()[0]
    assert (job["job_id"], job["state"], job["nodes"], job["gpus"], job["cluster"]) == (
        42802,
        "NODE_FAIL",
        ["gpu01", "gpu02"],
        16,
        "ml1",
    )
    assert (job["start"], job["time_limit_s"], job["exit_code"]) == (datetime(2026, 11, 21, 10), 3600, 1)
