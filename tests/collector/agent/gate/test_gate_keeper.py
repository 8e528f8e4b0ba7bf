"""The agent's answer about its own node: what the service said, what is seen now, and how both grow old."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from made_host import BOOT, NOW, Host

from collector.agent.agent import Agent
from collector.agent.config import validate
from collector.agent.failure import AgentError
from collector.agent.gate.answer_file import ANSWER, KEY, Word, word
from collector.agent.gate.keeper import ASK_EVERY_S, DRAIN, EAGER, EXPIRES_S, GOOD_S, GRANT_S, LOG, SOON_S, Keeper
from collector.agent.gate.seen import CONFIRM_S, RESET_XIDS, Seen
from collector.agent.sender import Answer as Response
from collector.agent.source import metrics_reading
from parsers.xid import xids

NOBODY = Response(0, "http://faultline: Connection refused")


class Site:
    """A node with its keeper, and a service that answers what the test says."""

    def __init__(self, folder: Path, mode: str = DRAIN) -> None:
        self.host = Host(folder / "root")
        self.folder = folder / "gate"
        self.response = told()
        self.asked: list[str] = []
        self.mode = mode
        self.keeper = self.started()

    def started(self) -> Keeper:
        keeper = Keeper(self.host.context, self.folder, self.ask, mode=self.mode, chance=lambda: 0.0)
        keeper.open()
        return keeper

    def ask(self, path: str) -> Response:
        self.asked.append(path)
        return self.response

    def after(self, seconds: float) -> Word:
        """Time passes, the keeper takes a turn, and a prolog asks."""
        self.host.wait(seconds)
        self.keeper.turn()
        return self.prolog()

    def prolog(self) -> Word:
        return word(str(self.folder), BOOT, self.host.uptime)


def told(fitness: str = "fit", *reasons: str, granted: bool = False, **more: Any) -> Response:
    document = {
        "node": "gpu01", "fitness": fitness, "reasons": [{"text": text, "evidence": "x", "since": "2026-11-21T16:00:00Z"} for text in reasons],
        "age_s": 20.0, "by": "service", "drain": {"granted": granted, "until_s": 600.0 if granted else 0.0, "why": ""}, **more,
    }  # fmt: skip
    return Response(200, text=json.dumps(document))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_answer_of_the_service_is_what_a_prolog_reads(site: Site) -> None:
    found = site.after(0)
    assert found.lines == ("fit gpu01 (answer of the service 20 s ago)",) and not found.refuses
    site.response = told("doubtful", "it is a lemon")
    assert site.after(ASK_EVERY_S).lines == (
        "doubtful gpu01 (answer of the service 20 s ago)",
        "  - it is a lemon [x, since 2026-11-21T16:00:00Z]",
    )
    assert site.after(15).lines[0] == "doubtful gpu01 (answer of the service 35 s ago)"
    assert site.asked == ["/api/v1/gate/gpu01?drain=yes"] * 2


def test_before_the_first_question_the_answer_says_so(tmp_path: Path) -> None:
    """It comes within half a minute of the start, so that agents that were started together do not ask together."""
    site = Site(tmp_path)
    site.keeper._ask_at = site.host.context.uptime() + 60
    found = site.after(0)
    assert found.verdict == "doubtful" and found.lines[1] == (
        "  - the service has not been asked yet; it is within 30 s of the agent's start"
    )
    assert site.after(ASK_EVERY_S).verdict == "fit"


def test_it_asks_slowly_whatever_the_answer(site: Site) -> None:
    site.response = NOBODY
    for _ in range(40):
        site.after(15)
    assert 4 <= len(site.asked) <= 40 * 15 / (0.75 * ASK_EVERY_S) + EAGER


def test_a_new_node_is_asked_about_soon_until_it_is_fit(site: Site) -> None:
    """The service knows it from its first lines and states: until then it is doubtful, and no longer."""
    site.response = Response(404, "no line and no Slurm record names a node gpu01")
    assert site.after(SOON_S).verdict == "doubtful"
    site.response = told("doubtful", "nothing is concluded about it yet")
    assert site.after(SOON_S).verdict == "doubtful" and len(site.asked) == 2
    site.response = told()
    assert site.after(SOON_S).verdict == "fit" and len(site.asked) == 3
    site.after(SOON_S)
    assert len(site.asked) == 3  # it is in no hurry any more


def test_a_granted_refusal_ends_minutes_after_the_last_word_of_the_service(site: Site) -> None:
    site.response = told("unfit", "Xid 79", granted=True)
    assert site.after(0).refuses
    site.response = NOBODY
    assert site.after(GRANT_S - 60).refuses
    found = site.after(120)
    assert (found.verdict, found.refuses) == ("unfit", False)
    found = site.after(EXPIRES_S)
    assert (found.verdict, found.refuses) == (
        "doubtful",
        False,
    ) and "the service has not been reached for 2 h: " in found.lines[1]


@pytest.mark.parametrize("mode", [LOG, DRAIN])
def test_only_opting_in_and_a_grant_together_refuse(tmp_path: Path, mode: str) -> None:
    site = Site(tmp_path, mode)
    for granted in (True, False):
        site.response = told("unfit", "Xid 79", granted=granted)
        found = site.after(ASK_EVERY_S)
        assert (found.verdict, found.refuses) == ("unfit", granted and mode == DRAIN)
    assert ("drain=yes" in site.asked[0]) == (mode == DRAIN)
    site.response = told("fit", granted=True)  # nor does a grant refuse on a fit node
    assert not site.after(ASK_EVERY_S).refuses


def test_a_service_that_was_never_reached_is_no_fit_node(site: Site) -> None:
    site.response = Response(403, "this token is not bound to a node")
    assert (
        site.after(0).lines[1]
        == "  - the service has given no answer for 0 s: HTTP 403: this token is not bound to a node"
    )


BROKEN = {
    "no JSON": Response(200, text="<html>"), "no object": Response(200, text="[]"), "no word of ours": told("splendid"),
    "no age": told(age_s="old"), "reasons of another shape": told(reasons=[1]), "cut": Response(200, text=told().text[:40]),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_an_answer_that_cannot_be_read_is_none(site: Site, broken: str) -> None:
    site.response = BROKEN[broken]
    assert site.after(0).verdict == "doubtful" and "cannot be read" in site.keeper.trouble
    site.response = told()
    assert site.after(ASK_EVERY_S).verdict == "fit" and not site.keeper.trouble


def test_a_dead_agent_leaves_an_answer_that_grows_old(site: Site) -> None:
    site.response = told("unfit", "Xid 79", granted=True)
    assert site.after(0).refuses
    site.host.wait(GOOD_S + 1)
    found = site.prolog()
    assert (found.verdict, found.refuses) == ("doubtful", False) and "is faultline-agent running?" in found.lines[0]


def test_the_file_is_the_agents_alone(site: Site, tmp_path: Path) -> None:
    site.after(0)
    assert [oct(place.stat().st_mode & 0o777) for place in (site.folder, site.folder / ANSWER, site.folder / KEY)] == [
        "0o700",
        "0o600",
        "0o600",
    ]
    key = (site.folder / KEY).read_bytes()
    site.keeper = site.started()
    assert site.after(ASK_EVERY_S).verdict == "fit" and (site.folder / KEY).read_bytes() == key
    (site.folder / KEY).chmod(0o644)  # others may have read it
    site.keeper = site.started()
    assert site.after(ASK_EVERY_S).verdict == "fit" and (site.folder / KEY).read_bytes() != key
    for name in (f".{ANSWER}.new", ANSWER):  # what lies in its place is not followed
        (site.folder / name).unlink(missing_ok=True)
        (site.folder / name).symlink_to(tmp_path / "target")
    assert site.after(1).verdict == "fit" and not (tmp_path / "target").exists()
    if os.geteuid() == 0:
        os.chown(site.folder, 20001, 20001)
        site.after(1)
        assert "no folder of uid 0" in site.keeper.trouble and site.prolog().verdict == "doubtful"


# -- what is seen -------------------------------------------------------------------------------------------------------


def gpu(host: Host, bus: str, head: bytes = b"\xde\x10\x22\x23") -> None:
    for name, text in (("vendor", "0x10de"), ("class", "0x030200")):
        host.put(f"/sys/bus/pci/devices/{bus}/{name}", text + "\n")
    (host.root / f"sys/bus/pci/devices/{bus}/config").write_bytes(head + b"\0" * 60)


def rdma(host: Host, state: str, physical: str = "5: LinkUp") -> None:
    host.put("/sys/class/infiniband/mlx5_0/ports/1/state", state)
    host.put("/sys/class/infiniband/mlx5_0/ports/1/phys_state", physical)


def ethernet(host: Host, carrier: str) -> None:
    host.put("/sys/class/net/eth0/carrier", carrier)
    host.put("/sys/class/net/eth0/device/vendor", "0x8086")
    host.put("/sys/class/net/br0/carrier", carrier)  # no device: a bridge


def mounts(host: Host, options: str, kind: str = "ext4") -> None:
    host.put("/proc/mounts", f"proc /proc proc ro 0 0\n/dev/sda2 / {kind} {options} 0 0\n")


def test_what_is_gone_since_the_boot_makes_the_node_unfit_without_the_service(site: Site) -> None:
    host, site.response = site.host, NOBODY
    gpu(host, "0000:1b:00.0")
    gpu(host, "0000:3b:00.0")
    rdma(host, "4: ACTIVE")
    ethernet(host, "1")
    mounts(host, "rw,relatime")
    assert site.after(0).verdict == "doubtful"  # only the silence of the service
    gpu(host, "0000:1b:00.0", b"\xff\xff\xff\xff")
    (host.root / "sys/bus/pci/devices/0000:3b:00.0").rename(host.root / "gone")
    rdma(host, "1: DOWN", "2: Polling")
    ethernet(host, "0")
    mounts(host, "ro,relatime")
    site.after(1)
    found = site.after(CONFIRM_S)
    said = {line.strip(" -").removesuffix(" [seen by the agent]") for line in found.lines[1:]}
    assert found.verdict == "unfit" and not found.refuses
    assert said >= {
        "GPU 0000:1b:00.0 does not answer on its bus", "GPU 0000:3b:00.0 is gone; it was there earlier in this boot",
        "mlx5_0 port 1 is DOWN; it was up earlier in this boot", "eth0 has no carrier; it was up earlier in this boot",
        "the root file system (ext4) has become read-only",
    }  # fmt: skip
    site.after(ASK_EVERY_S)
    assert site.asked[-1].endswith("unfit=yes")
    site.keeper = site.started()  # an agent that is started again knows what was there
    site.after(1)
    again = site.after(CONFIRM_S).lines
    assert again[1:-1] == found.lines[1:-1] and "not been reached" in again[-1]
    host.put("/proc/sys/kernel/random/boot_id", BOOT[:-1] + "2")  # after a boot, what is there is what there is
    fresh = Seen(host.context, site.folder / "seen.json")
    fresh.open()
    assert [sight.text for sight in fresh.look()] == ["GPU 0000:1b:00.0 does not answer on its bus"]


def test_what_never_was_there_is_no_fault(site: Site) -> None:
    rdma(site.host, "1: DOWN", "2: Polling")
    ethernet(site.host, "0")
    mounts(site.host, "ro", "squashfs")
    site.after(0)
    assert site.after(2 * CONFIRM_S).verdict == "fit"


def test_a_port_that_blinks_or_is_switched_off_is_not_unfit(site: Site) -> None:
    rdma(site.host, "4: ACTIVE")
    ethernet(site.host, "1")
    site.after(0)
    rdma(site.host, "1: DOWN", "2: Polling")
    assert site.after(CONFIRM_S - 1).verdict == "fit"
    rdma(site.host, "4: ACTIVE")
    assert site.after(CONFIRM_S).verdict == "fit"
    rdma(site.host, "1: DOWN", "3: Disabled")
    ethernet(site.host, "0")
    site.after(1)
    assert site.after(CONFIRM_S).verdict == "doubtful"


def test_an_xid_in_the_kernels_messages_counts_until_the_boot(site: Site) -> None:
    site.keeper.seen.note(b'{"raw": "4,9,1,-;NVRM: Xid (PCI:0000:1b:00): 13, pid=3"}')
    assert site.after(0).verdict == "fit"
    site.keeper.seen.note(b'{"raw": "4,9,1,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=3"}')
    found = site.after(1)
    assert found.verdict == "unfit" and "GPU 0000:1b:00 reported Xid 79 in this boot" in found.lines[1]


def test_what_nvml_reported_counts_as_well(site: Site) -> None:
    """In the form in which its source writes it (``metrics_reading``)."""

    def sample(name: str, gpu: str, value: float) -> bytes:
        labels = (("gpu", "0"), ("UUID", "GPU-7"), ("pci_bus_id", gpu))
        return metrics_reading({(f"DCGM_FI_DEV_{name}", labels): value}, "nvml", NOW).body

    site.keeper.seen.note(
        sample("ROW_REMAP_PENDING", "00000000:1B:00.0", 1) + sample("ROW_REMAP_FAILURE", "00000000:1B:00.0", 0)
    )
    found = site.after(0)
    assert found.verdict == "doubtful" and "GPU 0000:1b:00 replaces a faulty row" in found.lines[1]
    site.keeper.seen.note(sample("ROW_REMAP_PENDING", "00000000:1B:00.0", 0))
    assert site.after(1).verdict == "fit"
    site.keeper.seen.note(sample("ROW_REMAP_FAILURE", "00000000:3B:00.0", 2))
    assert site.after(1).verdict == "unfit"
    site.keeper.seen.note(sample("ROW_REMAP_FAILURE", "00000000:3B:00.0", 0))
    site.keeper.seen.note(b'{"raw":"NVRM: GPU 00000000:5E:00.0 is lost, told by NVML"}\n')
    site.keeper.seen.note(b'{"raw":"NVRM: Xid (PCI:00000000:6E:00): 95, told by NVML"}\n')
    site.keeper.seen.note(b'{"raw":"4,9,1,-;NVRM: Xid (PCI:0000:6e:00): 95, pid=1"}\n')
    lines = site.after(1).lines
    assert (
        len(lines) == 3
        and "GPU 0000:5e:00 is lost, NVML says" in lines[1]
        and "GPU 0000:6e:00 reported Xid 95" in lines[2]
    )


def test_the_xids_are_those_of_nvidias_catalogue() -> None:
    assert {
        code for code, xid in xids().items() if xid.action in ("RESET_GPU", "RESTART_BM") and not xid.unused
    } == RESET_XIDS


def test_a_look_that_fails_does_not_end_the_thread(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, stopping = [], threading.Event()

    def turn() -> None:
        turns.append(1)
        if len(turns) == 2:
            stopping.set()
        raise ValueError("a driver's nonsense")

    monkeypatch.setattr(site.keeper, "turn", turn)
    monkeypatch.setattr("collector.agent.gate.keeper.LOOK_EVERY_S", 0.0)
    site.keeper.run(stopping)
    assert len(turns) == 2 and site.keeper.trouble == "ValueError: a driver's nonsense"


def test_the_agent_asks_with_its_token_and_keeps_no_connection(tmp_path: Path) -> None:
    seen: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            body = told("doubtful", "it is a lemon").text.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        config = validate(
            {"server": f"http://127.0.0.1:{server.server_port}", "token": "s3cret", "spool": str(tmp_path / "s")}, "f"
        )
        answer = Agent(config)._ask_gate("/api/v1/gate/gpu01")
    assert seen == [("/api/v1/gate/gpu01", "Bearer s3cret")]
    assert answer.code == 200 and json.loads(answer.text)["fitness"] == "doubtful"


def test_the_configuration_knows_three_modes() -> None:
    assert validate({"server": "http://x"}, "f").gate == LOG
    with pytest.raises(AgentError, match="gate: 'fire' is unknown; there are off, log, drain"):
        validate({"server": "http://x", "gate": "fire"}, "f")
