"""Detectors on small worlds: what is one fact, what is none, and which device and host it is about."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from correlator.facts.jobs.output import words_of
from correlator.facts.registry import title_of
from correlator.facts.storage import disk_of
from correlator.model.measurements import XidSeen
from tests.correlator.making import T0, event, facts, run, world


@pytest.mark.parametrize(
    ("kind", "message", "words"),
    [
        ("job.exit_error", "ValueError: mat1 and mat2 shapes cannot be multiplied", "own"),
        ("job.segfault", "Segmentation fault (core dumped)", "own"),
        ("job.exit_error", "terminate called after throwing an instance of 'c10::DistBackendError'", "peers"),
        ("job.exit_error", "terminate called without an active exception", "aftermath"),
        ("job.exit_error", "srun: error: n3: task 7: Exited with exit code 1", "aftermath"),
        ("job.nccl_timeout", "Watchdog caught collective operation timeout", "peers"),
        ("job.exit_error", "OSError: [Errno 5] Input/output error: '/scratch/x'", "storage"),
        ("job.exit_error", "OSError: [Errno 30] Read-only file system: '/local/x'", "storage"),
        ("job.cuda_error", "RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu"),
        ("job.cuda_error", "RuntimeError: CUDA error: an illegal memory access was encountered", "own"),
        ("job.exit_error", "ConnectionResetError: [Errno 104] Connection reset by peer", "peers"),
        ("job.mpi_error", "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", "aftermath"),
        (
            "job.mpi_error",
            "Abort(17) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 17) - process 3",
            "aftermath",
        ),
        ("job.mpi_error", "*** An error occurred in MPI_Allreduce", "peers"),
        (
            "job.exit_error",
            "[rank8]: RuntimeError: Detected mismatch between collectives on ranks. Rank 8 is running collective: X",
            "own",
        ),
    ],
)
def test_whose_fault_an_output_line_reports(kind, message, words):
    assert words_of(event(kind, 0, None, message, source="job_stderr", job_id=1)) == words


@pytest.mark.parametrize(
    ("name", "disk"), [("nvme1n1p2", "nvme1"), ("nvme1", "nvme1"), ("sda3", "sda"), ("dm-3", "dm-3"), (None, None)]
)
def test_partitions_and_controllers_are_drives(name, disk):
    assert disk_of(name) == disk


def test_a_drive_reported_by_three_layers_is_one_fault():
    lines = [event("storage.nvme_error", 0, "n1", "nvme nvme1: I/O 496 timeout, aborting", device="nvme1"),
             event("storage.io_error", 2, "n1", "I/O error, dev nvme1n1, sector 4", device="nvme1n1"),
             event("storage.io_error", 3, "n1", "EXT4-fs (nvme1n1): Remounting filesystem read-only", device="nvme1n1")]  # fmt: skip
    (fault,) = facts(world(lines), "disk.error")
    assert (fault.device, fault.attrs["read_only"], len(fault.events)) == ("nvme1n1", True, 3)


def test_a_virtual_function_is_its_interface():
    lines = [event("nic.failover", 0.0, "n1", "Data path switched from VF", port="eth0", vf="enP1s2"),
             event("nic.link_down", 0.1, "n1", "enP1s2: Link down", port="enP1s2"),
             event("nic.link_up", 60.0, "n1", "enP1s2: Link up", port="enP1s2")]  # fmt: skip
    (outage,) = facts(world(lines), "link.outage")
    assert (outage.device, round(outage.duration or 0)) == ("eth0", 60)


@pytest.mark.parametrize(("seen_again", "expected"), [
    (0.0610, [(-6.0, 0.0)]), (0.0600, [(-6.0, 0.0), (0.0608, None)]), (0.0, [(-6.0, 0.0), (0.0608, None)]), (1.3, [(-6.0, 0.0), (0.0608, 1.3)]),
])  # fmt: skip
def test_a_port_that_two_sources_saw_come_up_around_its_down_is_up(seen_again, expected):
    """On a real cluster after a reboot: the kernel's "forwarding", then the agent's "no carrier" and "up", which is the same event as
    the kernel's. A down after both is a loss."""
    lines = [event("switch.port_down", -6.0, "leaf01", "port 3(fs-n1) entered disabled state", port="fs-n1"),
             event("switch.port_up", 0.0, "leaf01", "port 3(fs-n1) entered forwarding state", port="fs-n1", count=2, last=seen_again),
             event("switch.port_down", 0.0608, "leaf01", "9: fs-n1@if3: <NO-CARRIER,UP,LOWER_UP> state DOWN", port="fs-n1")]  # fmt: skip
    found = [(f.start - T0, None if f.end is None else f.end - T0) for f in facts(world(lines), "link.outage")]
    rounded = [(round(start, 4), None if end is None else round(end, 4)) for start, end in found]
    assert rounded == expected


def test_the_subnet_manager_is_the_far_end_of_an_infiniband_link():
    gone = event(
        "fabric.sm_event", 3.0, "ctl", "Removed port", source="opensm", ibdev="mlx5_1", peer_node="n1", verb="Removed"
    )
    back = event(
        "fabric.sm_event",
        90.0,
        "ctl",
        "Discovered new port",
        source="opensm",
        ibdev="mlx5_1",
        peer_node="n1",
        verb="Discovered new",
    )
    (alone,) = facts(world([gone, back], [run(1, ["n1"], -100, 200)]), "link.outage")
    assert (alone.host, alone.device, alone.attrs["far_end_only"], round(alone.duration or 0)) == (
        "n1",
        "mlx5_1",
        True,
        87,
    )
    own = event("nic.link_down", 0.0, "n1", "mlx5_1: Port: 1 Link DOWN", ibdev="mlx5_1")
    (both,) = facts(world([own, gone, back], [run(1, ["n1"], -100, 200)]), "link.outage")
    assert both.attrs["ends"] == ["nic", "subnet manager"] and both.start == T0


LINKS = [{"host": f"n{i}", "device": "eth0", "switch": "tor", "switch_port": f"Ethernet{i}"} for i in range(1, 6)]


def _port_down(i, at=0.0):
    return event(
        "switch.port_down",
        at,
        "tor",
        f"Interface Ethernet{i}, changed state to down",
        source="switch",
        port=f"Ethernet{i}",
    )


def test_most_links_of_a_switch_at_once_are_the_switch():
    where = world([_port_down(i, i * 0.1) for i in range(1, 5)], links=LINKS)
    (switch,) = facts(where, "switch.outage")
    assert switch.host == "tor" and switch.attrs["under"] == ["n1", "n2", "n3", "n4", "n5"]


def test_two_links_of_a_switch_are_two_links():
    assert facts(world([_port_down(1), _port_down(2, 0.2)], links=LINKS), "switch.outage") == []


def test_a_spine_that_failed_explains_its_leaf():
    links = [
        {"host": f"n{i}", "device": "rdma3", "switch": "leaf-p3", "switch_port": f"Ethernet{i}"} for i in range(1, 6)
    ]
    lines = [event("switch.hw_error", -0.5, "spine-p3-1", "Module 1 failed", source="switch")]
    lines += [event("nic.link_down", i * 0.1, f"n{i}", "rdma3: Link down", port="rdma3") for i in range(1, 6)]
    (plane,) = facts(world(lines, links=links), "plane.outage")
    assert (plane.host, plane.device, len(plane.attrs["hosts"])) == ("spine-p3-1", "plane3", 5)


def _far_end(spoke):
    lines = [event("switch.port_down", 0.0, "tor", "Ethernet1 down", source="switch", port="Ethernet1")]
    last = event(
        "slurm.node_down",
        600.0,
        "ctl",
        "error: Nodes n1 not responding, setting DOWN",
        source="slurmctld",
        nodes=["n1"],
    )
    return world(
        [*lines, last],
        [run(1, ["n1"], -500, 600, "NODE_FAIL")],
        links=LINKS,
        spoke=lambda host: [T0 + s for s in spoke],
    )


def test_a_host_that_never_speaks_again_died():
    assert [f.host for f in facts(_far_end([-300.0, -40.0]), "node.dead")] == ["n1"]


@pytest.mark.parametrize("spoke", [[-300.0, -40.0, 200.0], [-9000.0], []])
def test_a_host_that_speaks_on_or_never_spoke_did_not_die(spoke):
    assert facts(_far_end(spoke), "node.dead") == []


def test_an_xid_that_only_telemetry_saw():
    (seen,) = facts(
        world([], [run(1, ["n1"], 0, 500)], xids_seen=[XidSeen("n1", "00000000:3A:00.0", 94, T0 + 100, T0 + 400)]),
        "gpu.xid",
    )
    assert (seen.device, seen.attrs["code"], seen.attrs["inferred"]) == ("0000:3a:00", 94, True)


def test_telemetry_adds_nothing_to_what_the_kernel_reported():
    reported = event("gpu.xid", 150.0, "n1", "NVRM: Xid 94", pci="0000:3a:00", xid=94)
    assert (
        len(facts(world([reported], xids_seen=[XidSeen("n1", "00000000:3A:00.0", 94, T0 + 100, T0 + 400)]), "gpu.xid"))
        == 1
    )


def test_a_drain_reason_reports_a_lost_gpu():
    drain = event(
        "slurm.node_reason",
        90.0,
        "ctl",
        "update_node",
        source="slurmctld",
        nodes=["n1"],
        reason="NHC: GPU 0000:3a:00.0 is lost",
    )
    (lost,) = facts(world([drain]), "gpu.xid")
    assert (lost.host, lost.device, lost.attrs["code"]) == ("n1", "0000:3a:00", 79)


def test_a_label_of_a_finished_job_owns_no_gpu():
    where = world(
        [],
        [run(1, ["n1"], -900, -300, "COMPLETED"), run(2, ["n1"], -200, 500)],
        gpu_jobs={("n1", "0000:3a:00"): [(T0 - 350, 1)]},
    )
    assert where.gpu_owner("n1", "0000:3a:00", T0) is None


def test_one_client_that_blinked_is_no_outage_of_the_storage():
    lost = event("storage.lustre_error", 0.0, "n1", "Connection to fs1-OST0001 was lost", lustre_target="fs1-OST0001")
    back = event("storage.recovered", 1.5, "n1", "Connection restored to fs1-OST0001", lustre_target="fs1-OST0001")
    (blink,) = facts(world([lost, back]), "storage.outage")
    assert blink.attrs["passing"] and blink.duration == pytest.approx(1.5)


def test_panic_lines_are_one_panic():
    lines = [event("kernel.panic", i * 1.0, "n1", f"Kernel panic - not syncing {i}") for i in range(4)]
    assert len(facts(world(lines), "node.panic")) == 1


def test_a_card_that_changed_its_slot_is_called_as_the_last_line_before_says():
    lines = [
        event("nic.link_down", 0, "n1", "0000:53:00.0 ens1: Link down", port="ens1", pci="0000:53:00.0"),
        event("nic.link_up", 10, "n1", "0000:53:00.0 ens1: Link up", port="ens1", pci="0000:53:00.0"),
        event("nic.link_down", 5000, "n1", "0000:53:00.0 ens7: Link down", port="ens7", pci="0000:53:00.0"),
        event("nic.link_up", 5010, "n1", "0000:53:00.0 ens7: Link up", port="ens7", pci="0000:53:00.0"),
        *(event("nic.error", at, "n1", "device is gone", pci="0000:53:00.0") for at in (60, 6000)),
        *(event("nic.link_down", at, "n1", "Link down", pci="0000:53:00.0") for at in (70, 7000)),
    ]
    found = facts(world(lines), "link.outage")
    assert [(f.start - T0, f.device) for f in found] == [(0, "ens1"), (70, "ens1"), (5000, "ens7"), (7000, "ens7")]


@pytest.mark.parametrize(
    ("reason", "title"),
    [
        ("replace psu2", "somebody set n1 DOWN (replace psu2)"),
        ("NHC: check_fs_mount: /scratch not mounted", "a health check set n1 DOWN (NHC: check_fs_mount: /scratch not mounted)"),
        (None, "somebody set n1 DOWN"),
    ],
)  # fmt: skip
def test_who_set_a_node_down(reason, title):
    given = [event("slurm.node_reason", 0, "ctl", "reason set to", source="slurmctld", nodes=["n1"], reason=reason)]
    downed = event("slurm.node_down", 0.001, "ctl", "update_node: node n1 state set to DOWN", source="slurmctld", nodes=["n1"], actor="admin")  # fmt: skip
    (fact,) = facts(world([*(given if reason else []), downed]), "admin.down")
    assert title_of(fact) == title


@pytest.mark.parametrize(
    ("state", "reason", "actor", "title"),
    [
        ("down", "ResumeTimeout reached", "slurm(64030)", "n1 did not resume: it was not up within ResumeTimeout"),
        ("down", "replace psu2", "root(0)", "root set n1 DOWN (replace psu2)"),
        ("down*", "Not responding", "slurm(64030)", "n1 stopped answering, for a reason no log tells"),
        ("down*+drain", "bad dimm", "root(0)", "n1 stopped answering, for a reason no log tells"),
        ("down+drain", "bad dimm", "root(0)", None),
        ("drain", "replace psu2", "root(0)", None),
        (
            "down",
            "NHC: check_ps: load too high",
            "root(0)",
            "a health check set n1 DOWN (NHC: check_ps: load too high)",
        ),
    ],
)
def test_what_a_state_shows_that_slurm_was_asked_for(state, reason, actor, title):
    moment = datetime.fromtimestamp(T0, UTC).replace(tzinfo=None)
    row = {"time": moment, "host": "n1", "state": state, "reason": reason, "actor": actor, "source": "sacctmgr_events"}
    where = world([event("kernel.mce", -60, "n2", "x")], node_states=[row])
    reported = [f for f in where.facts if f.kind in ("node.down", "admin.down")]
    assert [title_of(f) for f in reported] == ([title] if title else [])
