"""Input/output errors that name no file: of several users on several nodes in the same minute, they are of shared storage."""

from __future__ import annotations

from collections.abc import Iterable

from correlator.facts.world import World
from correlator.model.nouns import Event
from tests.correlator.making import event, facts, run, world
from tests.correlator.situations import judged, said

EIO = "OSError: [Errno 5] Input/output error"

#: User, node, end (seconds), and the error.
Job = tuple[str, str, float, str]


def situation(*jobs: Job, logged: Iterable[Event] = ()) -> World:
    runs = [run(n, [node], end - 60.0, end, user=user, exit_code=1) for n, (user, node, end, _) in enumerate(jobs, 1)]
    lines = [
        event("job.exit_error", end - 0.5, None, error, source="job_stderr", job_id=n)
        for n, (_, _, end, error) in enumerate(jobs, 1)
    ]
    return world([*lines, *logged], runs)


def test_two_users_on_two_nodes_in_one_minute() -> None:
    where = situation(("alice", "n1", 0.0, EIO), ("bob", "n2", 1.0, EIO))
    for job in ("1", "2"):
        found = judged(where)[job]
        assert said(found) == ("infra.storage", "storage.told", None)
        assert found.confidence <= 0.5
    (fact,) = facts(where, "storage.told")
    assert (fact.attrs["users"], fact.attrs["nodes"]) == (2, 2)


def test_a_third_user_makes_it_surer() -> None:
    two = situation(("alice", "n1", 0.0, EIO), ("bob", "n2", 1.0, EIO))
    three = situation(("alice", "n1", 0.0, EIO), ("bob", "n2", 1.0, EIO), ("carol", "n3", 2.0, EIO))
    assert judged(two)["1"].confidence < judged(three)["1"].confidence <= 0.75


def test_one_user_or_one_node_or_another_hour_shows_no_shared_storage() -> None:
    for jobs in (
        [("alice", "n1", 0.0, EIO), ("alice", "n2", 1.0, EIO)],
        [("alice", "n1", 0.0, EIO), ("bob", "n1", 1.0, EIO)],
        [("alice", "n1", 0.0, EIO), ("bob", "n2", 600.0, EIO)],
    ):
        where = situation(*jobs)
        assert not facts(where, "storage.told"), jobs
        assert said(judged(where)["1"])[0] != "infra.storage", jobs


def test_a_sockets_error_is_none_of_storage() -> None:
    socket = "OSError: [Errno 107] Transport endpoint is not connected"
    assert not facts(situation(("alice", "n1", 0.0, socket), ("bob", "n2", 1.0, socket)), "storage.told")


def test_a_disk_that_failed_meanwhile_may_be_why() -> None:
    disk = event("storage.nvme_error", -5.0, "n1", "nvme0n1: I/O Error (sct 0x2 / sc 0x81)", device="nvme0n1")
    where = situation(("alice", "n1", 0.0, EIO), ("bob", "n2", 1.0, EIO), logged=[disk])
    assert facts(where, "disk.error") and not facts(where, "storage.told")


def test_what_clients_logged_says_more() -> None:
    lost = "Lustre: fs1-OST0001-osc-ffff: Connection to fs1-OST0001 (at 10.0.0.9@o2ib) was lost; in progress operations will fail"
    told = event("storage.lustre_error", -5.0, "n1", lost, lustre_target="fs1-OST0001")
    where = situation(("alice", "n1", 0.0, EIO), ("bob", "n2", 1.0, EIO), logged=[told])
    assert facts(where, "storage.outage") and not facts(where, "storage.told")
