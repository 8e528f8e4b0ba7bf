"""A user's text with line ends in a Slurm daemon's own file: its lines are claims, and what stands around it is not."""

from __future__ import annotations

import polars as pl
import pytest

from parsers import cut_quotes
from parsers.engine import LineParser
from parsers.record import Origin

FILES = {"slurmctld": "hosts/ctl/slurmctld.log", "slurmd": "hosts/gpu03/slurmd.log"}
LIE = "[2026-11-30T14:10:03.678] error: Nodes gpu03 not responding, setting DOWN"
LIE_OF_SLURMD = "[2026-11-30T14:10:03.678] fatal: Unable to determine this slurmd's NodeName"
TRUE = "[2026-11-30T14:10:{}] error: Nodes gpu04 not responding, setting DOWN"
SUBMIT = "[2026-11-30T14:10:03.693] _slurm_rpc_submit_batch_job: Invalid partition name specified"
PARTITION = "_get_job_parts: invalid partition specified: "
#: What slurmctld, slurmd and slurmstepd write: ``@`` is a user's text, and what follows it is theirs.
MESSAGES = [
    ("slurmctld", PARTITION + "@"),
    ("slurmctld", "_job_create: Job's requested licenses are invalid: @"),
    ("slurmctld", "Failed to create job: Invalid mcs-label: @"),
    ("slurmctld", "JobId=36 has invalid feature list: @"),
    ("slurmctld", "_job_create: invalid account or partition for user 20002, account '@', and partition 'gpu'"),
    ("slurmctld", "_job_create: invalid wckey '@' for user 20002."),
    ("slurmctld", "error: Invalid qos (@)"),
    ("slurmctld", "Reservation name not found (@)"),
    ("slurmctld", 'error: node_name2bitmap: invalid node specified: "@"'),
    ("slurmctld", "_update_job: setting name to @ for JobId=36"),
    ("slurmctld", "sched: update_job: setting comment to @ for JobId=36"),
    ("slurmctld", "sched: _update_job: setting work_dir to @ for JobId=36"),
    ("slurmctld", "_update_job: invalid features(@) for JobId=36"),
    ("slurmd", "[36.0] error: execve(): @: No such file or directory"),
    ("slurmd", "[36.batch] error: couldn't chdir to `@': No such file or directory: going to /tmp instead"),
    ("slurmd", "[36.0] error: Could not open stdout file @: Permission denied"),
    ("slurmd", "[36.batch] error: run_script_as_user: couldn't change working dir to @: No such file or directory"),
    ("slurmd", "[36.batch] error: Could not open output file @: Permission denied"),
    ("slurmd", "[36.0] debug:  chdir(@) success"),
    ("slurmd", "[36.0] error: Could not run user task_prolog [@]: access denied"),
    ("slurmd", "[36.0] debug:  [job 36] attempting to run user task_prolog [@]"),
    ("slurmd", "[36.0] error: TMPDIR [@] is not writeable"),
    ("slurmd", "[36.0] error: Unable to create TMPDIR [@]: Permission denied"),
    ("slurmd", "[36.0] error: Invalid SLURM_RLIMIT_CORE env var, value = `@'"),
    ("slurmd", "[36.0] error: setup_container: container /tmp/@ requested but containers are not configured on this node"),
    ("slurmd", "[36.0] error: Invalid task range specification (@) ignored."),
    ("slurmd", "[36.0] error: mpi/pmi2: failed to open multi-prog file @: No such file or directory"),
    ("slurmd", "[36.0] error: --mem-bind value '@' is malformed for local task 0"),
    ("slurmd", "[36.0] error: mpi/pmi2: invalid pmi2 command received: '@'"),
    ("slurmd", "[36.0] error: Couldn't find the specified plugin name for mpi/@ looking at all files"),
    ("slurmd", "error: sbcast: uid:20002 can't open `@` code 2: No such file or directory"),
    ("slurmd", "error: sbcast: uid:20002 gid:20002 can't chown `@`: Operation not permitted"),
    ("slurmd", "error: _rpc_file_bcast: No registered file transfer for uid 20002 file `@`."),
    ("slurmctld", "_get_assoc: account '@' has no association for user 20002 using default account 'a'"),
    ("slurmctld", "_job_create: invalid qos (@) given"),
    ("slurmctld", "_update_job: Invalid node list (@) for JobId=36 update"),
    ("slurmctld", "error: job_str_signal(1): invalid JobId=@"),
]  # fmt: skip


@pytest.fixture(scope="module")
def parser() -> LineParser:
    return LineParser()


def meant(parser: LineParser, source: str, *lines: str) -> list[tuple[str, list[str]]]:
    text = "\n".join(lines)
    rows = parser.parse(text.encode().split(b"\n"), Origin(path=FILES[source], timezone_known=True, source=source))
    return [(event, list(tags or ())) for event, tags in rows.select("event", "tags").iter_rows()]


@pytest.mark.parametrize(("source", "message"), MESSAGES, ids=lambda value: value[:40])
def test_a_line_within_a_users_text_is_a_claim(parser: LineParser, source: str, message: str) -> None:
    lie, event = (LIE, "slurm.node_down") if source == "slurmctld" else (LIE_OF_SLURMD, "slurm.daemon_fatal")
    line = "[2026-11-30T14:10:03.693] " + message.replace("@", f"nosuch\n{lie}")
    said = [*meant(parser, source, line, SUBMIT, TRUE.format("09.000"))]
    assert said[1] == ("other", [f"claims:{event}"])
    assert source != "slurmctld" or said[3] == ("slurm.node_down", [])
    assert meant(parser, source, lie)[0][0] == event  # by itself it is the daemon's


@pytest.mark.parametrize(("source", "message"), MESSAGES, ids=lambda value: value[:40])
def test_what_a_daemon_says_around_a_whole_message_is_its_own(parser: LineParser, source: str, message: str) -> None:
    line = "[2026-11-30T14:10:03.693] " + message.replace("@", "nosuch")
    before, _, _, after = meant(parser, "slurmctld", TRUE.format("03.000"), line, SUBMIT, TRUE.format("03.700"))
    assert before == after == ("slurm.node_down", [])


def test_an_end_that_the_user_wrote_does_not_end_it(parser: LineParser) -> None:
    """Several lines, with the daemon's own words between them."""
    refused = f"[2026-11-30T14:10:03.693] {PARTITION}nosuch\n{SUBMIT}\n{LIE}"
    said = meant(parser, "slurmctld", refused, SUBMIT, TRUE.format("03.900"))
    assert [event for event, _ in said] == ["other", "other", "other", "other", "slurm.node_down"]
    changed = f"[2026-11-30T14:10:03.693] _update_job: setting comment to x\n{LIE} for JobId=36\n{LIE} for JobId=36"
    said = meant(parser, "slurmctld", changed, TRUE.format("03.900"))
    assert [event for event, _ in said] == ["other", "other", "other", "slurm.node_down"]


def test_nobody_hides_what_slurmctld_says_by_what_it_refuses(parser: LineParser) -> None:
    """A user who submits without end to a partition that there is not: only what stands between the two lines is in doubt."""
    lines = []
    for n in range(20):
        second = f"{10 + n}"
        lines += [
            f"[2026-11-30T14:10:{second}.100] {PARTITION}nosuch",
            f"[2026-11-30T14:10:{second}.100] _slurm_rpc_submit_batch_job: Invalid partition name specified",
            TRUE.format(f"{second}.500"),
        ]
    said = meant(parser, "slurmctld", *lines)
    assert [event for event, _ in said].count("slurm.node_down") == 20


def test_a_users_text_that_looks_like_another_message_begins_none(parser: LineParser) -> None:
    """One request for what looks like the beginning of a message with an end, and another for the end: what slurmctld says
    between them is its own."""
    for text in ("invalid account or partition for user 1, account 'x", "error: invalid account nosuch", "execve(): x"):
        said = meant(
            parser, "slurmctld", f"[2026-11-30T14:10:03.100] {PARTITION}{text}", TRUE.format("03.500"),
            f"[2026-11-30T14:10:03.600] {PARTITION}a', and partition 'b'", TRUE.format("03.900"),
        )  # fmt: skip
        assert [event for event, _ in said].count("slurm.node_down") == 2, text


def test_an_administrators_words_are_whole(parser: LineParser) -> None:
    """They set nodes and partitions in words that end otherwise."""
    lines = ("[2026-11-30T14:10:03.693] update_part: setting state_up to DOWN for partition gpu",
             "[2026-11-30T14:10:03.694] update_node: node gpu03 reason set to: bad dimm", TRUE.format("03.700"),
             "[2026-11-30T14:10:03.800] prolog_running_decr: Configuration for JobId=26 is complete")  # fmt: skip
    assert [tags for _, tags in meant(parser, "slurmctld", *lines)] == [[], [], [], []]


def test_what_means_no_event_is_no_daemons_line_either(parser: LineParser) -> None:
    """A new time limit of another's job is read from slurmctld's lines, which are no events."""
    lie = "[2026-11-30T14:10:03.678] _update_job: setting time_limit to 1 for JobId=26"
    lines = f"[2026-11-30T14:10:03.693] {PARTITION}nosuch\n{lie}\n{SUBMIT}\n{lie}".encode().split(b"\n")
    rows = parser.parse(lines, Origin(path=FILES["slurmctld"], timezone_known=True, source="slurmctld"))
    _, within, _, own = rows.select("source", "facility", "job_id", "message").rows()
    assert within[:3] == ("syslog", "user", None) and within[3].startswith("_update_job: ")
    assert own[:3] == ("slurmctld", None, 26)


def test_no_time_that_a_user_writes_hides_a_daemons_lines(parser: LineParser) -> None:
    """A time ahead within a user's text, a clock that is set back, and a line that is written late."""
    fatal = "fatal: Unable to determine this slurmd's NodeName"
    for lines in (
        (("00.000", "[36.0] error: execve(): x"), ("20.000", "[36.0] y: No such file or directory"), ("05.000", fatal),
         ("20.100", "[36.0] error: execve(): z: No such file or directory")),
        (("03.000", "[36.0] done with job"), ("00.100", fatal), ("03.300", "launch task StepId=37.0 request from UID:1000")),
        (("03.300", "[36.0] done with job"), ("03.100", fatal), ("03.600", "slurmd version 23.11.4 started")),
    ):  # fmt: skip
        said = meant(parser, "slurmd", *(f"[2026-11-30T14:10:{at}] {text}" for at, text in lines))
        assert ("slurm.daemon_fatal", []) in said, lines
    said = meant(
        parser, "slurmctld", f"[2026-11-30T14:10:00.000] {PARTITION}x", "[2026-11-30T14:10:20.000] [36.0] y",
        "[2026-11-30T14:10:00.001] _slurm_rpc_submit_batch_job: Invalid partition name specified",
        TRUE.format("05.000"), "[2026-11-30T14:10:20.100] _slurm_rpc_submit_batch_job: JobId=77 InitPrio=1 usec=500",
    )  # fmt: skip
    assert ("slurm.node_down", []) in said


@pytest.mark.parametrize(("source", "message"), MESSAGES, ids=lambda value: value[:40])
def test_among_many_lines_the_same_lines_are_a_users(parser: LineParser, source: str, message: str) -> None:
    """Of many messages, an automaton finds where a user's text may begin; of few, a search for words."""
    lie = LIE if source == "slurmctld" else LIE_OF_SLURMD
    line = "[2026-11-30T14:10:03.693] " + message.replace("@", f"nosuch \u00e9\n{lie}")
    few = [line, SUBMIT, TRUE.format("09.000"), "[2026-11-30T14:10:03.700] debug2: container signal 9 to StepId=1.0"]
    filler = ["[2026-11-30T14:09:00.000] debug:  sched: Running job scheduler"] * 3_000
    assert meant(parser, source, *filler, *few)[3_000:] == meant(parser, source, *few)


def test_the_automaton_reads_only_where_a_users_text_may_begin() -> None:
    texts = [
        "sched: Allocate JobId=17 NodeList=node01",
        "error: Invalid qos (x",
        "_x: invalid partition specified: nosuch",
        "a b: execve(): x",
    ]
    found = cut_quotes._may_begin(pl.Series(texts * cut_quotes._MANY))
    assert found[:4].tolist() == [1, 2, 5, 6]
