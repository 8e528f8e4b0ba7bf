"""Incidents of one device are linked to each other; others are not."""

from __future__ import annotations

from correlator.incidents.recurrence import link


def _incident(name, start, event, host, device, edge=None):
    root = {"event": event, "host": host, "device": device}
    return {
        "id": name,
        "start": start,
        "severity": "impact",
        "root_cause": root,
        "chain": [{"edge": edge}] if edge else [],
    }


def test_the_same_device_comes_back():
    first = _incident("I-1", "2026-01-01T00:00:00Z", "nic.link_flap", "n1", "eth0", "E03")
    other = _incident("I-2", "2026-01-02T00:00:00Z", "nic.link_down", "n1", "ib0", "E07")
    again = _incident("I-3", "2026-01-03T00:00:00Z", "nic.link_down", "n1", "eth0", "E03")
    benign = _incident("I-4", "2026-01-04T00:00:00Z", "nic.link_down", "n1", "eth0")
    gpu = _incident("I-5", "2026-01-05T00:00:00Z", "gpu.xid", "n1", "eth0")
    nobody = _incident("I-6", "2026-01-06T00:00:00Z", "unknown", None, None)
    link([again, benign, first, other, gpu, nobody])
    assert [(r["id"], r["same_edge"]) for r in again["recurrence"]] == [("I-1", True), ("I-4", False)]
    assert [r["id"] for r in first["recurrence"]] == ["I-3", "I-4"]
    assert other["recurrence"] == gpu["recurrence"] == nobody["recurrence"] == []
