"""The switch port of each interface: lldpd is polled seldom, and a moved cable is reported."""

from __future__ import annotations

import json

import pytest
from made_host import Host, asked, rows, tables


def heard(**ports: tuple[str, str]) -> str:
    """lldpctl's answer; another age with every call of the program."""
    entries = [
        {name: {"via": "LLDP", "rid": "1", "age": "AGE", "chassis": {switch: {"id": {"type": "mac", "value": "0c:29:ef:aa:00:10"}}},
                "port": {"id": {"type": "ifname", "value": port}, "ttl": "120"}}}
        for name, (switch, port) in ports.items()
    ]  # fmt: skip
    reported = entries[0] if len(entries) == 1 else entries
    return json.dumps({"lldp": {"interface": reported} if entries else {}})


def says(host: Host, **ports: tuple[str, str]) -> str:
    return host.program("lldpctl", f"sed \"s/AGE/$(date +%N)/\" <<'EOF'\n{heard(**ports)}\nEOF")


def test_links_are_reported_once_and_again_where_a_cable_was_moved(host: Host) -> None:
    program = says(host, ens1=("leaf1", "swp7"), ens2=("leaf2", "swp7"))
    runner = host.runner("lldp", program=program)
    (first,) = asked(runner)
    assert first["document"] == "lldpctl_json" and "AGE" not in first["raw"] and '"age"' not in first["raw"]
    links = tables(first)["links"].to_dicts()
    assert [(r["host"], r["device"], r["switch"], r["switch_port"]) for r in links] == [
        ("gpu01", "ens1", "leaf1", "swp7"), ("gpu01", "ens2", "leaf2", "swp7"),
    ]  # fmt: skip
    for ports in ({"ens1": ("leaf1", "swp7")}, {"ens1": ("leaf1", "swp7"), "ens2": ("leaf2", "swp7")}):
        host.wait(3601)
        says(host, **ports)
        assert asked(runner) == [], "a port that was down for a while hears the same switch again"
    again = host.runner("lldp", json.loads(json.dumps(runner.positions)), program=program)
    assert asked(again) == [], "a restart is no news"
    says(host, ens1=("leaf1", "swp7"), ens2=("leaf9", "swp3"))
    host.wait(3601)
    (moved,) = asked(runner)
    assert ("leaf9", "swp3") in {(r["switch"], r["switch_port"]) for r in tables(moved)["links"].to_dicts()}


def test_one_interface_is_no_list(host: Host) -> None:
    (reported,) = asked(host.runner("lldp", program=says(host, eno1=("leaf1", "Ethernet7"))))
    assert tables(reported)["links"].height == 1


def test_a_host_that_has_logged_nobody_yet_is_asked_again_soon(host: Host) -> None:
    runner = host.runner("lldp", program=says(host))
    assert asked(runner) == []
    says(host, eno1=("leaf1", "swp1"))
    host.wait(60)
    assert asked(runner) == [], "twice as long with every silence"
    host.wait(61)
    assert len(asked(runner)) == 1
    says(host, eno1=("leaf2", "swp1"))
    host.wait(1800)
    assert asked(runner) == []
    host.wait(1801)
    assert len(asked(runner)) == 1


@pytest.mark.parametrize(("script", "state"), [
    ("echo 'unable to connect to socket /run/lldpd.socket' >&2; exit 1", "absent"),
    ("echo '[WARN/lldpctl] Permission denied' >&2; exit 1", "denied"),
    ("echo 'unknown command' >&2; exit 1", "error"),
    ("echo no json", "error"),
])  # fmt: skip
def test_what_it_says_instead_is_a_status(script: str, state: str, host: Host) -> None:
    runner = host.runner("lldp", program=host.program("lldpctl", script))
    assert rows(runner.poll()) == []
    assert runner.status.state == state


def test_a_host_without_lldpd_is_absent(host: Host) -> None:
    runner = host.runner("lldp", program=str(host.root / "none"))
    assert rows(runner.poll()) == []
    assert runner.status.state == "absent" and "not installed" in runner.status.detail
