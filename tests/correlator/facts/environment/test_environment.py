"""Nodes on which several users' jobs fail alike: blamed if their jobs elsewhere do not, and never on one user's word."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from correlator.engine import conclude_cluster
from correlator.facts.environment.kinds import ENVIRONMENT_IN_OUTPUT, NODE_ENVIRONMENT
from correlator.facts.environment.odds import Witness, odds_of
from correlator.facts.environment.symptoms import symptom_of
from correlator.facts.jobs.kinds import RUN_FAILED
from correlator.facts.world import World
from correlator.live.ticker import Ticker
from correlator.model.nouns import Fact, Run
from correlator.verdicts.verdict import Verdict
from parsers.record import frame
from store import open_store
from tests.correlator.field import concluded, ended, heard, wrong
from tests.correlator.making import event, facts, run, world
from tests.correlator.situations import judged, said

NO_USER = "KeyError: 'getpwuid(): uid not found: 2000{n}'"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
STALE = "/usr/bin/bash: line 1: /home/{user}/result: Stale file handle"
FULL = "/usr/bin/dd: error writing '/tmp/scratch.{n}': No space left on device"
SHM = "/usr/bin/dd: error writing '/dev/shm/x.{n}': No space left on device"
NO_DEVICE = "FileNotFoundError: [Errno 2] No such file or directory: '/dev/nvidia0'"
NO_PATH = "/usr/bin/cat: /home/{user}/data/x: No such file or directory"
#: One and the same file, and one of a user's own.
SAME_FILE = "/usr/bin/python3: can't open file '/sw/mesh/run.py': [Errno 2] No such file or directory"
OWN_FILE = "/usr/bin/python3: can't open file '/home/{user}/run.py': [Errno 2] No such file or directory"
TIMED_OUT = "TimeoutError: timed out"
OWN_KEY = "KeyError: 'train_loss'"
EXPIRED = "bash: line 2: /home/{user}/x: Key has expired"
NO_MEMORY = "OSError: [Errno 12] Cannot allocate memory"
GPU_FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {n}0.00 MiB."
KILLED_STEP = "slurmstepd: error: Detected 1 oom_kill event in StepId={n}.0. Some"
FEW_FILES = "OSError: [Errno 24] Too many open files: '/scratch/{user}/part.{n}'"
SHELL_FILES = "bash: line 4: /home/{user}/part.{n}: Too many open files"
FILE_TABLE = "OSError: [Errno 23] Too many open files in system: '/scratch/{user}/part.{n}'"
#: An error that no symptom knows.
UNLISTED = "RuntimeError: site plugin: topology file of rack {n} does not describe this machine"
LICENCE = "License checkout failed: cannot connect to license server lic01 (-15,10:111)"


@dataclass(frozen=True)
class Job:
    """``error`` None: it ended well; empty: it failed without a word."""

    user: str
    node: str
    error: str | None = None
    end: float = 0.0
    lasted: float = 10.0
    name: str = "train"
    partition: str = "gpu"


def situation(*jobs: Job) -> World:
    runs, lines = [], []
    for number, job in enumerate(jobs, 1):
        failed = job.error is not None
        runs.append(run(
            number, [job.node], job.end - job.lasted, job.end, "FAILED" if failed else "COMPLETED", user=job.user,
            name=job.name, exit_code=int(failed), partition=job.partition,
        ))  # fmt: skip
        if job.error:
            kind = "job.exit_error" if "Error: " in job.error else "job.environment_error"
            kind = "job.oom" if job.error in (NO_MEMORY, GPU_FULL, KILLED_STEP) else kind
            text = job.error.format(n=number, user=job.user)
            lines.append(event(kind, job.end - 1, None, text, source="job_stderr", job_id=number))
    return world(lines, runs)


def verdict(where: World, job: int = 1) -> Verdict:
    return judged(where)[str(job)]


@pytest.mark.parametrize("error", [NO_USER, MISMATCH, STALE, FULL, SHM, NO_DEVICE, EXPIRED])
def test_two_users_fail_alike_on_one_node_and_not_elsewhere(error: str) -> None:
    where = situation(Job("alice", "n3", error), Job("bob", "n3", error, 2.0), Job("alice", "n1"))
    for job in (1, 2):
        found = verdict(where, job)
        assert said(found) == ("infra.node", "node.environment", "n3")
        assert 0.5 < found.confidence <= 0.9
    (fact,) = facts(where, "node.environment")
    assert fact.attrs["counts"] == (
        "2 of 2 jobs of 2 users on n3 failed with the same error within 2 s; 1 of 1 elsewhere did not"
    )


def test_one_and_the_same_file_that_their_runs_elsewhere_find() -> None:
    where = situation(Job("alice", "n3", SAME_FILE), Job("bob", "n3", SAME_FILE, 2.0), Job("alice", "n1", end=20.0))
    found = verdict(where)
    assert said(found) == ("infra.node", "node.environment", "n3") and 0.5 < found.confidence <= 0.75
    more = situation(
        *(Job(u, "n3", SAME_FILE) for u in ("alice", "bob")), *(Job(u, "n1", end=20.0) for u in ("alice", "bob"))
    )
    assert verdict(more).confidence > found.confidence


def test_an_error_that_is_known_by_its_text_only() -> None:
    """Three users, with jobs of the same names that run elsewhere at that moment and end well; numbers in the text differ."""
    where = situation(*(Job(u, "n3", UNLISTED, float(n)) for n, u in enumerate(STUDENTS)), *meanwhile(*STUDENTS))
    found = verdict(where)
    assert said(found) == ("infra.node", "node.environment", "n3") and 0.5 < found.confidence <= 0.75
    (fact,) = facts(where, "node.environment")
    assert fact.device == "error" and "site plugin" not in fact.attrs["fault"]


@pytest.mark.parametrize("error", [FEW_FILES, SHELL_FILES])
def test_two_users_whose_programs_may_open_too_few_files_on_one_node(error: str) -> None:
    """The same programs of both go on elsewhere meanwhile; that a third user's own limit is reached elsewhere changes nothing."""
    where = situation(
        *(Job(u, "n3", error, float(n), name=f"index-{u}") for n, u in enumerate(("dora", "emil"))), Job("fred", "n2", error, 3.0),
        *(Job(u, f"n{n}", end=25.0, lasted=60.0, name=f"index-{u}") for u in ("dora", "emil") for n in (1, 4)),
    )  # fmt: skip
    found = verdict(where)
    assert said(found) == ("infra.node", "node.environment", "n3") and 0.5 < found.confidence <= 0.75
    assert said(verdict(where, 3)) == ("app.error", None, None)


def test_a_full_table_of_open_files_is_the_systems() -> None:
    where = situation(Job("dora", "n3", FILE_TABLE), Job("emil", "n3", FILE_TABLE, 2.0), Job("dora", "n1"))
    assert said(verdict(where)) == ("infra.node", "node.environment", "n3")


def test_three_users_who_reach_nobody_from_one_node() -> None:
    where = situation(*(Job(u, "n3", TIMED_OUT) for u in ("alice", "bob", "carol")), Job("alice", "n1"))
    assert said(verdict(where)) == ("infra.node", "node.environment", "n3")


def test_more_users_and_jobs_elsewhere_make_it_surer() -> None:
    few = situation(Job("alice", "n3", FULL), Job("bob", "n3", FULL, 2.0), Job("alice", "n1"))
    elsewhere = [Job(user, f"n{n}", end=-60.0 * n) for user in ("alice", "bob", "carol") for n in (4, 5, 6)]
    many = situation(Job("alice", "n3", FULL), Job("bob", "n3", FULL, 2.0), Job("carol", "n3", FULL, 60.0), *elsewhere)
    assert verdict(few).confidence < verdict(many).confidence


STUDENTS = ("alice", "bob", "carol")


def meanwhile(*users: str) -> list[Job]:
    """Jobs elsewhere that run when others fail on n3, and end well."""
    return [Job(user, f"n{n}", end=20.0 + n, lasted=40.0) for user in users for n in (1, 2, 4, 5)]


#: What is no node's fault, and why.
DECOYS = {
    "one user, many jobs": [Job("alice", "n3", FULL, float(n)) for n in range(9)] + [Job("alice", "n1"), Job("bob", "n2")],
    "different mistakes": [Job("alice", "n3", OWN_KEY), Job("bob", "n3", "ZeroDivisionError: x", 2.0), Job("alice", "n1")],
    "the same common mistake": [Job("alice", "n3", OWN_KEY), Job("bob", "n3", OWN_KEY, 2.0), Job("alice", "n1")],
    "a module of their own": [
        *(Job(u, "n3", "ModuleNotFoundError: No module named 'mylib'", 1.0) for u in ("alice", "bob")), Job("alice", "n1"),
    ],
    "a path of their own, elsewhere too": [
        Job("alice", "n3", NO_PATH), Job("bob", "n3", NO_PATH), Job("alice", "n1", NO_PATH),
    ],
    "others on the node are well": [
        Job("alice", "n3", FULL), Job("bob", "n3", FULL, 2.0), Job("alice", "n1"),
        *(Job(user, "n3", end=5.0 + n) for n, user in enumerate(("carol", "dave", "erin"))),
    ],
    "nothing ran elsewhere": [Job("alice", "n3", NO_PATH), Job("bob", "n3", NO_PATH)],
    "one and the same file, which nobody found elsewhere": [Job("alice", "n3", SAME_FILE), Job("bob", "n3", SAME_FILE), Job("carol", "n1")],
    "one and the same file, found elsewhere by other programs": [
        Job("alice", "n3", SAME_FILE), Job("bob", "n3", SAME_FILE), Job("alice", "n1", name="other"), Job("bob", "n1", name="other"),
    ],
    "one and the same file, found elsewhere before it was removed": [
        Job("alice", "n3", SAME_FILE), Job("bob", "n3", SAME_FILE), Job("alice", "n1", end=-600.0), Job("bob", "n1", end=-600.0),
    ],
    "files of their own": [Job("alice", "n3", OWN_FILE), Job("bob", "n3", OWN_FILE), Job("alice", "n1"), Job("bob", "n1")],
    "three users who reach nobody, and others elsewhere who need not": [
        *(Job(u, "n3", TIMED_OUT) for u in ("alice", "bob", "carol")), *(Job("dave", f"n{n}") for n in (1, 2, 4)),
    ],
    "an unknown error, and jobs of other names elsewhere": [
        *(Job(u, "n3", UNLISTED) for u in ("alice", "bob", "carol")), *(Job(u, f"n{n}", end=20.0, name="other") for u in ("alice", "bob") for n in (1, 2)),
    ],
    "an unknown error, which ended well elsewhere before": [
        *(Job(u, "n3", UNLISTED) for u in ("alice", "bob", "carol")), *(Job(u, f"n{n}", end=-600.0) for u in ("alice", "bob") for n in (1, 2)),
    ],
    "an unknown error, elsewhere too": [
        *(Job(u, "n3", UNLISTED) for u in ("alice", "bob")), *(Job(u, "n1", UNLISTED, 5.0) for u in ("alice", "bob")), Job("alice", "n2", end=20.0),
    ],
    "an unknown error of one user": [*(Job("alice", "n3", UNLISTED, float(n)) for n in range(5)), *(Job("alice", f"n{n}", end=20.0) for n in (1, 2, 4))],
    "an error of a common word": [*(Job(u, "n3", "ValueError: nan") for u in STUDENTS), *meanwhile(*STUDENTS)],
    "a user copies another's error, and is well elsewhere": [*(Job(u, "n3", UNLISTED) for u in ("alice", "mallory")), *meanwhile("mallory")],
    "a user copies another's error, and both are well elsewhere": [*(Job(u, "n3", UNLISTED) for u in ("alice", "mallory")), *meanwhile("alice", "mallory")],
    "a user copies two others' error, who are well nowhere": [*(Job(u, "n3", UNLISTED) for u in ("alice", "bob", "mallory")), *meanwhile("mallory")],
    "two students make the same mistake, mend it and are well elsewhere": [
        *(Job(u, "n3", UNLISTED) for u in STUDENTS[:2]), *(Job(u, f"n{n}", end=60.0 + n) for u in STUDENTS[:2] for n in (1, 2, 4)),
    ],
    "three students do": [*(Job(u, "n3", UNLISTED) for u in STUDENTS), *(Job(u, f"n{n}", end=60.0 + n) for u in STUDENTS for n in (1, 2, 4))],
    "GPUs are full": [*(Job(u, "n3", GPU_FULL) for u in ("alice", "bob", "carol")), Job("alice", "n1"), Job("bob", "n2")],
    "limits of their own jobs": [*(Job(u, "n3", KILLED_STEP) for u in ("alice", "bob", "carol")), Job("alice", "n1"), Job("bob", "n2")],
    "two users who reach nobody": [Job("alice", "n3", TIMED_OUT), Job("bob", "n3", TIMED_OUT), Job("alice", "n1")],
    "too many files of one user's program": [*(Job("dora", "n3", FEW_FILES, float(n)) for n in range(4)), *meanwhile("dora")],
    "too many files of two users, well elsewhere by other programs": [
        *(Job(u, "n3", FEW_FILES) for u in ("dora", "emil")), *(Job(u, "n1", end=20.0, lasted=40.0, name="other") for u in ("dora", "emil")),
    ],
    "too many files of two users, one of whom is well elsewhere": [*(Job(u, "n3", FEW_FILES) for u in ("dora", "emil")), *meanwhile("dora")],
    "too many files of two users, who mended it": [
        *(Job(u, "n3", FEW_FILES) for u in ("dora", "emil")), *(Job(u, f"n{n}", end=60.0 + n) for u in ("dora", "emil") for n in (1, 2, 4)),
    ],
    "too many files everywhere": [Job(u, f"n{n}", FEW_FILES, float(n)) for u in ("dora", "emil") for n in (1, 2, 3)],
    "exit codes without history": [Job("alice", "n3", ""), Job("bob", "n3", ""), Job("alice", "n1")],
    "everywhere": [Job(user, f"n{n}", NO_USER, float(n)) for n in range(1, 5) for user in ("alice", "bob")],
}  # fmt: skip


@pytest.mark.parametrize("name", DECOYS)
def test_no_node_is_blamed(name: str) -> None:
    where = situation(*DECOYS[name])
    assert not facts(where, "node.environment")
    assert not any(v.category.startswith("infra.") for v in judged(where).values())


def test_own_mistakes_stay_the_programs() -> None:
    for name in ("different mistakes", "the same common mistake", "a path of their own, elsewhere too"):
        assert verdict(situation(*DECOYS[name])).category == "app.error"


def test_jobs_that_failed_without_a_word_need_a_history() -> None:
    """Three users' jobs end with the same code in a second, where each ran well for an hour elsewhere, many times."""
    history = [
        Job(user, f"n{1 + n % 2}", end=-4000.0 * n, lasted=3600.0)
        for user in ("alice", "bob", "carol")
        for n in range(1, 19)
    ]
    quick = [Job(user, "n3", "", 0.0, 2.0) for user in ("alice", "bob", "carol")]
    assert said(verdict(situation(*quick, *history))) == ("infra.node", "node.environment", "n3")
    slow = [Job(user, "n3", "", 0.0, 3000.0) for user in ("alice", "bob", "carol")]
    assert said(verdict(situation(*slow, *history)))[0] == "app.error"


def test_three_users_whose_programs_get_no_memory_on_one_node() -> None:
    where = situation(
        *(Job(u, "n3", NO_MEMORY) for u in ("alice", "bob", "carol")), Job("alice", "n1"), Job("bob", "n2")
    )
    assert said(verdict(where)) == ("infra.node", "node.environment", "n3")


def test_memory_that_one_user_or_a_limit_lacks_stays_the_programs() -> None:
    for jobs in (
        DECOYS["GPUs are full"],
        DECOYS["limits of their own jobs"],
        [Job("alice", "n3", NO_MEMORY), Job("alice", "n1")],
    ):
        assert verdict(situation(*jobs)).category == "app.oom"


def test_one_user_alone_names_the_node_as_a_doubt_only() -> None:
    found = verdict(situation(Job("alice", "n3", NO_USER), Job("alice", "n1")))
    assert said(found) == ("unknown", None, None) and found.confidence <= 0.5
    assert "n3 does not know its users (1 of 1 jobs of its user on n3 failed so, 0 of 1 elsewhere)" in found.reason


def test_an_array_that_fails_on_one_node_only() -> None:
    tasks = [Job("alice", f"n{n}", NO_DEVICE if n == 3 else None) for n in (1, 1, 2, 2, 3, 3, 4, 4)]
    found = verdict(situation(*tasks), 5)
    assert said(found) == ("unknown", None, None)
    assert "2 of 2 jobs of its user on n3 failed so, 0 of 6 elsewhere" in found.reason


def test_what_all_nodes_share_is_no_nodes_fault() -> None:
    where = situation(Job("alice", "n1", LICENCE), Job("bob", "n2", LICENCE), Job("alice", "n3", LICENCE))
    for job in (1, 2, 3):
        found = verdict(where, job)
        assert said(found) == ("unknown", None, None)
        assert "the same error on 3 nodes for 2 users" in found.reason


def test_interpreters_that_do_not_find_their_own_files() -> None:
    """A site's task prolog may set PYTHONHOME, and a user may as well."""
    codecs = "ModuleNotFoundError: No module named 'encodings'"
    one_node = situation(
        Job("alice", "n3", codecs), Job("bob", "n3", codecs, 2.0), Job("alice", "n1"), Job("bob", "n1")
    )
    assert said(verdict(one_node)) == ("infra.node", "node.environment", "n3")
    two_nodes = situation(Job("alice", "n3", codecs), Job("bob", "n3", codecs, 2.0), Job("olga", "n1", codecs))
    assert said(verdict(two_nodes)) == ("unknown", None, None)
    assert verdict(situation(Job("alice", "n3", codecs), Job("alice", "n1"))).category == "app.error"


def test_a_user_alone_does_not_make_the_odds() -> None:
    """However well their jobs elsewhere go, and whatever they print here: another user must fail by more than chance."""
    liar = Witness(alike=50, well=0, elsewhere=1000, alike_elsewhere=0)
    assert odds_of([liar], 0.0005, 0.0) == 0.0
    assert odds_of([liar, Witness(0, 3, 0, 0)], 0.0005, 0.0) == 0.0
    assert odds_of([liar, Witness(1, 0, 0, 0)], 0.04, 0.0) == 0.0


def test_the_last_error_of_its_output_is_quoted_where_it_is_no_nodes_fault() -> None:
    """Else the advice would be that no line of its output tells why."""
    found = verdict(situation(Job("alice", "n3", NO_PATH)))
    assert found.category == "app.error" and [e.message for e in found.own] == [NO_PATH.format(user="alice")]
    assert found.reason.endswith(f"and the last error of its output is: {NO_PATH.format(user='alice')}")
    assert "the last error" not in verdict(situation(Job("alice", "n3", ""))).reason


@pytest.mark.parametrize(("text", "name"), [
    (NO_USER, "users"), ("whoami: cannot find name for user ID 20001", "users"), (MISMATCH, "driver"), (SHM, "shm"),
    ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.", "shm"),
    (FULL, "full"), ("OSError: [Errno 30] Read-only file system: '/tmp/x'", "read-only"), (NO_DEVICE, "device"),
    ("OSError: [Errno 116] Stale file handle: '/home/a/x'", "stale"), ("OSError: [Errno 5] Input/output error: '/scratch/x'", "io"),
    (FEW_FILES, "files"), ("accept4: EMFILE", "files"), (FILE_TABLE, "file-table"), ("open: Too many open files in system", "file-table"),
    ("bash: fork: retry: Resource temporarily unavailable", "processes"), ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "processes"),
    ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "names"), ("No devices were found", "gpu"),
    ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment", "gpu"),
    ("./a.out: error while loading shared libraries: libmpi.so.40: cannot open shared object file: No such file or directory", "library"),
    ("slurm_script: line 9: module: command not found", "command"), ("OSError: [Errno 98] Address already in use", "port"),
    ("/bin/sh: 1: nvcc: not found", "command"), ("configure: checking for nvcc: not found by us", None),
    ("ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory", "library"),
    ("ImportError: /sw/py/_C.so: undefined symbol: ncclCommSplit", "link"), ("./a: /lib64/libc.so.6: version `GLIBC_2.36' not found (required by ./a)", "link"),
    ("Error in library(sf): there is no package called 'sf'", "module"), ("Can't locate Net/LDAP.pm in @INC (@INC contains: /usr/share/perl5)", "module"),
    ("OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/fs1/x'", "mount"), ("OSError: [Errno 107] Transport endpoint is not connected", None),
    ("ConnectionAbortedError: [Errno 103] Software caused connection abort: '/mnt/fs2/x'", "mount"), ("ConnectionAbortedError: [Errno 103] Software caused connection abort", None),
    ("srun: error: Application launch failed: Can't find an address, check slurm.conf", "names"), ('srun: error: slurm_set_addr: Unable to resolve "n7"', "names"),
    ("srun: error: Application launch failed: Invalid job credential", None),
    ("ModuleNotFoundError: No module named 'encodings'", "interpreter"), ("ModuleNotFoundError: No module named 'encodings_2'", "module"),
    ("Fatal Python error: init_fs_encoding: failed to get the Python codec of the filesystem encoding", "interpreter"),
    ("Can't locate strict.pm in @INC (@INC contains: /sw/perl)", "interpreter"),
    (EXPIRED, "credentials"), ("kinit: Cannot contact any KDC for realm 'SITE'", "credentials"), ("ssl.SSLCertVerificationError: certificate verify failed: certificate has expired", "credentials"),
    ("OSError: [Errno 126] Required key not available: '/afs/x'", "credentials"), (NO_MEMORY, "memory"), ("MemoryError", "memory"), (GPU_FULL, None),
    ("bash: fork: Cannot allocate memory", "processes"),
    ("KeyError: 'train_loss'", None), ("ValueError: shapes (3,4) and (5,6) not aligned", None), ("ZeroDivisionError: division by zero", None),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'data/x.bin'", None),
])  # fmt: skip
def test_the_symptom_of_an_error(text: str, name: str | None) -> None:
    found = symptom_of(text)
    assert (found[0].name if found else None) == name


@pytest.mark.parametrize("disk", [True, False])
def test_words_of_a_run_hide_no_disk_that_the_kernel_reports(disk: bool) -> None:
    """One user's job says that /local is read-only, which blames nobody by itself."""
    kernel = (
        "-20s gpu01 kernel: blk_update_request: I/O error, dev nvme1n1, sector 41943040",
        "-15s gpu01 kernel: EXT4-fs (nvme1n1): Remounting filesystem read-only",
    )
    words = "-2s {0} stderr: OSError: [Errno 30] Read-only file system: '/local/run/ckpt.pt'"
    jobs = (
        ended(nodes="gpu01", user="alice"),
        ended("COMPLETED", nodes="gpu02", user="alice", end="-20min"),
        *(ended("COMPLETED", nodes="gpu01", user=other, end="30min") for other in ("bob", "carol")),
    )
    true = ("infra.node", "node.disk_error", "gpu01") if disk else ("unknown", None, None)
    reported = heard("disk", [*(kernel if disk else ()), words], jobs, (true, None, None, None))
    assert wrong(reported, *concluded([reported])["disk"]) == []


def shown(where: World, keys: set[str]) -> list[tuple[Any, ...]]:
    """What a world shows about the environment of some runs."""
    some = [*facts(where, NODE_ENVIRONMENT.name), *facts(where, ENVIRONMENT_IN_OUTPUT.name)]
    these = (f for f in some if f.run in keys or not keys.isdisjoint(f.attrs.get("runs", ())))
    return [(f.start, f.end, f.key, dict(f.attrs), [e.id for e in f.events]) for f in these]


@pytest.mark.parametrize("seed", [0, 2])
def test_a_window_and_the_runs_before_it_show_what_all_runs_show(seed: int) -> None:
    whole = situation(*(replace(job, end=at) for at, job in at_random(seed)))
    failed = facts(whole, RUN_FAILED.name)
    blamed = 0
    for cut in range(10, len(whole.runs), 2):
        later, keys = whole.runs[cut:], {r.key for r in whole.runs[cut:]}
        known = {r.job_id for r in later}

        def past(since: float, cut: int = cut, keys: set[str] = keys) -> tuple[list[Run], list[Fact]]:
            runs = [r for r in whole.runs[:cut] if (r.end or 0.0) >= since]
            return runs, [f for f in failed if f.run not in keys and f.start >= since]

        window = world([e for e in whole.events if e.job_id in known], later, past=past)
        found = shown(window, keys)
        assert found == shown(whole, keys), cut
        blamed += any(start < later[0].end for start, *_ in found)
    assert blamed, "no node is blamed for what began before a window"


# -- ticks ---------------------------------------------------------------------------------------------------------------
DAY = datetime(2026, 2, 6, 8, tzinfo=UTC).replace(tzinfo=None)


def rows(at: float, number: int, job: Job) -> dict[str, list[dict[str, Any]]]:
    """The rows about a job that ends ``at`` seconds after the day's beginning."""
    end = DAY + timedelta(seconds=at)
    state = "COMPLETED" if job.error is None else "FAILED"
    tables = {
        "jobs": [{
            "cluster": "c", "job_id": number, "user": job.user, "name": job.name, "state": state, "exit_code": int(job.error is not None),
            "submit": end - timedelta(seconds=job.lasted + 1), "start": end - timedelta(seconds=job.lasted), "end": end,
            "node_list": job.node, "nodes": [job.node], "source": "sacct", "file": "sacct", "line": number,
        }],
        "logs": [{
            "cluster": "c", "time": end, "host": "ctl", "source": "slurmctld", "file": "slurmctld.log", "line": number,
            "event": "slurm.job_end", "job_id": number, "message": f"_job_complete: JobId={number} done", "time_quality": "exact",
        }],
    }  # fmt: skip
    if job.error:
        tables["logs"].append({
            "cluster": "c", "time": end - timedelta(seconds=1), "host": job.node, "source": "job_stderr", "file": f"{number}.err", "line": 1,
            "event": "job.exit_error", "job_id": number, "message": job.error.format(n=number, user=job.user), "time_quality": "exact",
        })  # fmt: skip
    return tables


def failing_for_hours() -> list[tuple[float, Job]]:
    """A node fails the jobs of one user, then of others, for hours; the same users' jobs elsewhere end well."""
    jobs: list[tuple[float, Job]] = [(600.0 * n, Job("alice", f"n{n % 3 + 1}")) for n in range(60)]
    jobs += [(20_000.0 + 700.0 * n, Job(("alice", "alice", "bob", "carol")[n % 4], "n4", NO_USER)) for n in range(16)]
    jobs += [(20_350.0 + 3000.0 * n, Job("dave", "n4")) for n in range(3)]
    jobs += [(24_000.0 + 40.0 * n, Job(("erin", "fred")[n % 2], f"n{n % 3 + 1}", STALE)) for n in range(5)]
    return jobs


def at_random(seed: int) -> list[tuple[float, Job]]:
    rng = random.Random(seed)
    jobs, at = [], 0.0
    for _ in range(70):
        at += rng.choice((5.0, 60.0, 60.0, 400.0, 590.0, 610.0, 900.0, 1500.0))
        node = rng.choice(("n1", "n2", "n3", "n4", "n4", "n4"))
        errors = (
            (NO_USER, NO_USER, NO_USER, NO_USER, STALE, "", None)
            if node == "n4"
            else (None, None, None, None, None, STALE, OWN_KEY)
        )
        user, error, lasted = (
            rng.choice(("alice", "bob", "carol", "dave")),
            rng.choice(errors),
            rng.choice((5.0, 700.0)),
        )
        jobs.append((at, Job(user, node, error, lasted=lasted)))
    return jobs


@pytest.mark.long
@pytest.mark.parametrize(
    ("jobs", "every"),
    [
        pytest.param(failing_for_hours(), 8, id="hours, a tick for eight jobs"),
        pytest.param(failing_for_hours(), 1, id="hours", marks=pytest.mark.long),
        *(pytest.param(at_random(seed), 1, id=str(seed), marks=pytest.mark.long) for seed in range(3)),
    ],
)
def test_every_tick_says_what_a_full_pass_says(jobs: list[tuple[float, Job]], every: int) -> None:
    jobs.sort(key=lambda one: one[0])
    partly, blamed, late = 0, 0, {}
    with open_store(None) as store:
        ticker = Ticker(store)
        for number, (at, job) in enumerate(jobs, 1):
            some = rows(at, number, job)
            if number % 5 == 0:  # its output comes after the next job's end
                some, late = {**some, "logs": some["logs"][:1]}, {"logs": some["logs"][1:]}
            elif late:
                some["logs"] += late.pop("logs")
            store.add({name: frame(name, one) for name, one in some.items()})
            if number < 30 or number % every:
                continue
            partly += not ticker.tick().full
            now, whole = ticker._known["c"].result, conclude_cluster(store, "c", ticker._rules).result
            assert {
                k: {**v, "final": True, "final_at": None, "waits_for": []} for k, v in now.verdicts.items()
            } == whole.verdicts, at
            assert [i["id"] for i in now.incidents] == [i["id"] for i in whole.incidents], at
            blamed = sum(v["category"] == "infra.node" for v in whole.verdicts.values())
    assert partly > 20 // every and blamed > 1
