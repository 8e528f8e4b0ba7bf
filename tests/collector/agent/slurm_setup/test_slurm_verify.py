"""``faultline slurm verify`` on a host made of folders: sound, then broken in one way after the other."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_slurm import CONF, FOLDER, HOOKS, SLURM_UID, SPOOL, TASKS, MadeSlurm

from collector.agent.config import validate
from collector.agent.slurm import access
from collector.agent.slurm.host import ANY_USER, ROOT, Account, Host
from collector.agent.slurm.installation import find
from collector.agent.slurm_setup import conf_side, script_side
from collector.agent.slurm_setup.findings import Finding
from collector.agent.slurm_setup.verify import verify

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files get owners, and children become users")

ROOT_FOLDER = Path(__file__).resolve().parents[4]
SLURM = Account("slurm", SLURM_UID, SLURM_UID, (SLURM_UID,))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> MadeSlurm:
    """In slurm.conf as well. It is only copied: installing takes as long as verifying."""
    made = MadeSlurm(tmp_path_factory.mktemp("installed"))
    assert made.slurm("install", "--yes", "--edit-slurm-conf") == 0
    return made


#: Answers command lines of ``faultline slurm``, each with its code and what it printed.
SMALL = """
import io, json, sys
from contextlib import redirect_stdout
from collector.agent.slurm_setup.commands import main
for line in sys.stdin:
    with redirect_stdout(io.StringIO()) as told:
        code = main(json.loads(line))
    print(json.dumps([code, told.getvalue()]), flush=True)
"""


class Small:
    """A process as small as an agent's. Verifying forks for each look as another user, which of the process that runs
    all tests costs a tenth of a second."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SMALL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT_FOLDER
        )

    def verify(self, made: MadeSlurm, *arguments: str) -> tuple[int, str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(["verify", "--root", str(made.root), *arguments]) + "\n")
        self.process.stdin.flush()
        code, told = json.loads(self.process.stdout.readline())
        return code, told


@pytest.fixture(scope="module")
def small() -> Iterator[Small]:
    started = Small()
    yield started
    started.process.communicate()
    assert started.process.returncode == 0


@pytest.fixture
def sound(installed: MadeSlurm, tmp_path: Path) -> Iterator[MadeSlurm]:
    """Installed, with an agent that reads."""
    made = installed.copied(tmp_path)
    made.agent()
    yield made
    made.end_agent()


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is no question of rights, and is patched here: looks as other users are made in this process, as root. A
    fork of the process that runs all tests costs a tenth of a second, and verifying makes one for each look."""

    def here(_account: Account, work: Callable[[], str]) -> str:
        try:
            return work()
        except OSError as error:
            return os.strerror(error.errno or 0).lower()

    monkeypatch.setattr(access, "as_user", here)


AS_JSON = ("--format", "json", "--config", "/etc/faultline/agent.toml")


def reasons(made: MadeSlurm, by: Small | pytest.CaptureFixture[str]) -> list[tuple[str, str, str]]:
    """What is found by the small process, or by this one, where a test patches what it sees."""
    if isinstance(by, Small):
        code, told = by.verify(made, *AS_JSON)
    else:
        by.readouterr()
        code = made.slurm("verify", *AS_JSON)
        told = by.readouterr().out
    found = json.loads(told)
    assert code == (0 if found["ok"] else 1)
    for finding in found["findings"]:
        assert finding["cure"], finding
    return [(f["code"], f["hook"], f["what"]) for f in found["findings"]]


def test_a_sound_installation_is_ok(sound: MadeSlurm, small: Small) -> None:
    assert reasons(sound, small) == []
    before = sound.tree()
    code, told = small.verify(sound, "--config", "/etc/faultline/agent.toml")
    assert code == 0
    assert f"ok     PrologSlurmctld     {FOLDER}/prologslurmctld.sh" in told and told.rstrip().endswith("arrives")
    assert sound.tree() == before, "what was tried is taken away"


def _conf(old: str, new: str) -> Callable[[MadeSlurm], None]:
    def change(made: MadeSlurm) -> None:
        path = made.path("/etc/slurm/slurm.conf")
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return change


def _mode(name: str, mode: int, uid: int = 0) -> Callable[[MadeSlurm], None]:
    def change(made: MadeSlurm) -> None:
        made.path(name).chmod(mode)
        os.chown(made.path(name), uid, uid)

    return change


WAYS: dict[str, tuple[Callable[[MadeSlurm], object], str, str, str]] = {
    "missing script": (lambda m: m.path(f"{FOLDER}/epilog.sh").unlink(), "no-file", "Epilog", "epilog.sh is missing"),
    "missing common script": (
        lambda m: m.path(f"{FOLDER}/faultline-hook.sh").unlink(), "no-file", "Prolog", "faultline-hook.sh is missing"),
    "not executable": (_mode(f"{FOLDER}/prolog.sh", 0o644), "not-executable", "Prolog", "not executable"),
    "only root runs it": (
        _mode(f"{FOLDER}/prologslurmctld.sh", 0o700), "not-executable", "PrologSlurmctld", "root:root 0700"),
    "closed folder of scripts": (_mode(FOLDER, 0o700), "script-denied", "EpilogSlurmctld", f"uid {SLURM_UID}"),
    "changed by others": (_mode(f"{FOLDER}/prolog.sh", 0o777), "wrong-owner", "Prolog", "run programs as root"),
    "root's spool": (_mode(SPOOL, 0o700), "spool-denied", "", "root:root 0700"),
    "closed above the spool": (
        _mode("/var/spool/faultline", 0o700), "spool-denied", "", "/var/spool/faultline, root:root 0700"),
    "users write into it": (_mode(SPOOL, 0o777, SLURM_UID), "spool-not-trusted", "", "could speak for Slurm"),
    "task spool not for users": (_mode(TASKS, 0o700), "spool-denied", "", "nobody"),
    "no spool": (lambda m: m.path(SPOOL).rename(m.path("/away")), "no-spool", "", "is missing, and slurm"),
    "not in slurm.conf": (_conf("EpilogSlurmctld=", "#EpilogSlurmctld="), "not-called", "EpilogSlurmctld", "does not set it"),
    "a program of the site": (
        _conf(f"Prolog={FOLDER}/prolog.sh", "Prolog=/site/prolog.sh"), "not-called", "Prolog", "does not call"),
    "never runs": (_conf("HealthCheckInterval=300", ""), "never-runs", "HealthCheckProgram", "HealthCheckInterval"),
    "another cluster": (
        lambda m: m.put("/var/spool/slurmctld/clustername", "maxi\n"), "other-cluster", "", "cluster maxi"),
    "no account": (_conf("SlurmUser=slurm", "SlurmUser=slum"), "no-account", "PrologSlurmctld", "SlurmUser=slum"),
    "lost include": (_conf("ClusterName=mini", "ClusterName=mini\nInclude site.conf"), "no-include", "", "/etc/slurm/site.conf"),
    "no interpreter": (
        lambda m: m.put(f"{FOLDER}/epilog.sh", "#!/usr/bin/nowhere\n"), "no-interpreter", "Epilog", "/usr/bin/nowhere"),
    "no tool": (lambda m: m.path("/bin/awk").unlink(), "no-interpreter", "", "awk"),
    "no agent": (lambda m: m.end_agent(), "agent-not-running", "", "no agent runs"),
    "agent not installed": (lambda m: m.path("/etc/faultline/agent.toml").unlink(), "no-agent", "", "agent.toml"),
    "agent in trouble": (
        lambda m: m.agent("denied", "its mode 0777 lets others write"), "agent-not-reading", "", "its mode 0777"),
    "agent reads elsewhere": (
        lambda m: m.put("/etc/faultline/agent.toml", m.path("/etc/faultline/agent.toml").read_text()
                        + f'[sources.hooks]\nfolders = ["{SPOOL}"]\n'), "agent-not-reading", "", f"not {TASKS}"),
    "agent without hooks": (
        lambda m: m.put("/etc/faultline/agent.toml", m.path("/etc/faultline/agent.toml").read_text()
                        + "[sources.hooks]\nenabled = false\n"), "agent-not-reading", "", "turns the source"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_break_it_is_named(way: str, sound: MadeSlurm, small: Small) -> None:
    break_it, code, hook, says = WAYS[way]
    break_it(sound)
    found = reasons(sound, small)
    assert [f for f in found if f[0] == code and f[1] == hook and says in f[2]], found
    # What is broken in one way is not named in ten: other hooks keep their ok.
    concerned = {f[1] for f in found if f[1]}
    assert len(concerned) <= 1 or way in ("missing common script", "closed folder of scripts", "no account"), found


def test_several_reasons_are_named_together(sound: MadeSlurm, small: Small) -> None:
    for way in ("missing script", "root's spool", "not in slurm.conf", "no agent"):
        WAYS[way][0](sound)
    assert {f[0] for f in reasons(sound, small)} == {"no-file", "spool-denied", "not-called", "agent-not-running"}
    code, told = small.verify(sound)
    assert code == 1
    assert told.count("cure: ") == told.count("WRONG  ") - 2, "each reason has its cure; two hooks are marked"


@pytest.mark.parametrize(
    ("flags", "free", "inodes", "code"),
    [(0, 0, 9, "disk-full"), (0, 1 << 30, 0, "disk-full"), (os.ST_RDONLY, 1 << 30, 9, "read-only")],
)
@pytest.mark.usefixtures("as_root")
def test_a_disk_that_takes_nothing(
    flags: int, free: int, inodes: int, code: str, sound: MadeSlurm, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    real = os.statvfs

    def full(path: str) -> os.statvfs_result:
        seen = list(real(path))
        if str(path).endswith("/hooks"):
            seen[1], seen[4], seen[7], seen[8] = 1, free, inodes, flags
        return os.statvfs_result(seen)

    monkeypatch.setattr(os, "statvfs", full)
    (found,) = reasons(sound, capsys)
    assert found[0] == code and SPOOL in found[2]


@pytest.mark.usefixtures("as_root")
def test_a_mount_without_execution(
    sound: MadeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_side, "_noexec", lambda path: path.name == "prolog.sh")
    (found,) = reasons(sound, capsys)
    assert found[:2] == ("noexec", "Prolog")


@pytest.mark.usefixtures("as_root")
def test_a_label_that_selinux_refuses_counts_where_it_is_enforced(
    sound: MadeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "is_this", True)
    monkeypatch.setattr(script_side, "trial", lambda *_: "")
    monkeypatch.setattr(script_side, "selinux", lambda _: "system_u:object_r:user_home_t:s0")
    monkeypatch.setattr("collector.agent.slurm_setup.conf_side.of_running", lambda *_: ())
    found = find(sound.host, roles=frozenset({"node"}))
    assert not [f for f in verify(found, "none").findings if f.code == "selinux"]
    sound.put("/sys/fs/selinux/enforce", "1")
    labels = [f for f in verify(found, "none").findings if f.code == "selinux"]
    assert labels and "user_home_t" in labels[0].what and "restorecon" in labels[0].cure


@pytest.mark.usefixtures("as_root")
def test_a_quota_shows_when_it_is_tried(
    sound: MadeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_handle: int) -> None:
        raise OSError(errno.EDQUOT, "")

    monkeypatch.setattr(os, "fsync", refuse)
    assert {(f[0], "disk quota exceeded" in f[2]) for f in reasons(sound, capsys)} == {("spool-denied", True)}
    monkeypatch.undo()


def test_a_spool_that_nobody_empties_is_full(sound: MadeSlurm, small: Small) -> None:
    with sound.put(f"{SPOOL}/1.prolog.gpu01.1.1.hook", "").open("wb") as stream:
        stream.truncate(65 << 20)
    (found,) = reasons(sound, small)
    assert found[0] == "spool-full" and "1 records" in found[2]


def test_on_a_node_only_the_hooks_of_a_node_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = MadeSlurm(tmp_path, daemons=("slurmd",))
    assert made.slurm("install", "--yes") == 0
    assert made.path(SPOOL).stat().st_uid == 0
    assert {f[1] for f in reasons(made, capsys) if f[0] == "not-called"} == {
        "Prolog", "Epilog", "TaskProlog", "HealthCheckProgram"}  # fmt: skip
    assert made.slurm("verify", "--hooks", "prolog,nonsense") == 2


def test_a_script_is_run_as_its_user(tmp_path: Path) -> None:
    """What no look at modes shows: the folder that a script works in, what its interpreter cannot do."""
    made = MadeSlurm(tmp_path)
    assert made.slurm("install", "--yes") == 0
    script = made.path(f"{FOLDER}/prologslurmctld.sh")
    assert script_side.trial(str(script), SLURM) == "" == script_side.trial(str(script), ROOT)
    script.write_text("#!/bin/sh\nid -u >&2; exit 3\n")
    assert script_side.trial(str(script), SLURM) == f"exit 3: {SLURM_UID}"
    script.chmod(0o700)
    assert "permission denied" in script_side.trial(str(script), SLURM)


def test_access_is_asked_as_the_user(tmp_path: Path) -> None:
    made = MadeSlurm(tmp_path)
    closed = made.path("/closed")
    closed.mkdir(0o700)
    assert access.may_write(closed, ROOT) == "" and access.may_write(closed, ANY_USER) == "permission denied"
    os.chown(closed, 0, 77)
    closed.chmod(0o770)
    member = Account("x", 4711, 4711, (4711, 77))
    assert access.may_write(closed, member) == "" and access.try_to_write(closed, member) == ""
    assert list(closed.iterdir()) == []
    assert access.may_write(tmp_path / "none", ANY_USER) == "no such file or directory"


def test_the_text_of_slurm_conf_is_read_as_slurm_reads_it(tmp_path: Path) -> None:
    made = MadeSlurm(tmp_path, CONF + "prolog=/one\nInclude more/*.conf\ninclude more.conf\n")
    made.put("/etc/slurm/more.conf", 'EPILOG = "/a b/epilog.sh" # not this\nPROLOG=/two Clustername=other\nTaskProlog=\\\n/three\n'
             "EpilogSlurmctld=(null)\nNodeName=x Prolog=/no\n")  # fmt: skip
    conf = find(made.host).conf
    assert (conf.get("Prolog"), conf.get("Epilog"), conf.get("ClusterName")) == ("/two", "/a b/epilog.sh", "other")
    assert conf.get("TaskProlog") == "/three" and str(conf.at("TaskProlog")) == "/etc/slurm/more.conf:3"
    assert conf.at("EpilogSlurmctld") is None and conf.missing == ["/etc/slurm/more/*.conf"]


def test_hooks_are_named_as_the_program_knows_them() -> None:
    from collector.agent.slurm.programs import BY_EVENT
    from collector.hooks import EVENTS

    assert tuple(BY_EVENT) == HOOKS and set(HOOKS) == set(EVENTS)


def test_what_the_daemons_could_not_run_is_quoted(sound: MadeSlurm, small: Small) -> None:
    """The words of 22.05, seen on a real cluster, and of older versions."""
    said = [
        "[2026-11-21T10:00:00.000] slurmscriptd: error: run_command: PrologSlurmctld can not be executed (/x/p.sh) No such file",
        "[2026-11-21T10:00:01.000] error: Invalid EpilogSlurmctld: Permission denied",
    ]
    sound.put(
        "/var/log/slurmctld.log",
        "\n".join(["[...] sched: Allocate JobId=1", *said, "[...] Prolog of JobId=1 done"]) + "\n",
    )
    WAYS["root's spool"][0](sound)
    code, told = small.verify(sound)
    assert code == 1
    assert [line for line in told.splitlines() if line.startswith("logged")] == [
        f"logged /var/log/slurmctld.log: {x}" for x in said
    ]


@pytest.mark.usefixtures("as_root")
def test_a_program_of_the_site_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prolog of a site does things to a node: only our own scripts are tried."""
    made = MadeSlurm(tmp_path, CONF + "Prolog=/site/prolog.sh\nEpilog=/site/epilog.sh\n", daemons=("slurmd",))
    made.put("/site/prolog.sh", f"#!/bin/sh\n{FOLDER}/prolog.sh || :\n").chmod(0o755)
    made.put("/site/epilog.sh", "#!/bin/sh\nhook=/opt/hooks/epilog.sh\n$hook\n").chmod(0o755)
    assert made.slurm("install", "--yes") == 0
    ran: list[str] = []
    monkeypatch.setattr(script_side, "trial", lambda script, user: ran.append(script) or "")
    monkeypatch.setattr(Host, "is_this", True)
    monkeypatch.setattr("collector.agent.slurm_setup.conf_side.of_running", lambda *_: ())
    done = verify(find(made.host, roles=frozenset({"node"})), "none")
    assert {c.program.setting: c.state for c in done.calls if c.is_made} == {"Prolog": "chained", "Epilog": "chained"}
    assert ran == [f"{FOLDER}/prolog.sh"]


@pytest.mark.usefixtures("as_root")
def test_a_program_of_the_site_that_asks_the_gate_needs_the_scripts_of_the_gate(tmp_path: Path) -> None:
    """As docs/hooks.md writes it; before, copies of the scripts beside the site's own were missed."""
    made = MadeSlurm(tmp_path, CONF + "Prolog=/site/prolog.sh\n", daemons=("slurmd",))
    made.put("/site/prolog.sh", f"#!/bin/sh\n{FOLDER}/prolog-gate.sh || exit 1\n").chmod(0o755)
    assert made.slurm("install", "--yes") == 0

    def missing() -> list[str]:
        done = verify(find(made.host, roles=frozenset({"node"})), "none")
        return [f.what for f in done.findings if f.code == "no-file" and f.hook == "Prolog"]

    assert missing() == []
    for name in ("prolog-gate.sh", "faultline-gate.sh", "faultline-memory.sh"):
        made.path(f"{FOLDER}/{name}").rename(tmp_path / name)
        assert missing() == [f"{FOLDER}/{name} is missing"]
        (tmp_path / name).rename(made.path(f"{FOLDER}/{name}"))


@pytest.mark.usefixtures("as_root")
def test_a_copy_that_a_program_of_the_site_calls_is_looked_for_where_that_says(tmp_path: Path) -> None:
    made = MadeSlurm(tmp_path, CONF + "Epilog=/site/epilog.sh\n", daemons=("slurmd",))
    made.put(
        "/site/epilog.sh", "#!/bin/sh\n# /not/this/epilog.sh\nhook=/opt/hooks/epilog.sh\n[ ! -x $hook ] || $hook\n"
    ).chmod(0o755)
    assert made.slurm("install", "--yes") == 0

    def missing() -> list[tuple[str, str]]:
        done = verify(find(made.host, roles=frozenset({"node"})), "none")
        return [(f.what, f.cure) for f in done.findings if f.code == "no-file" and f.hook == "Epilog"]

    ((what, cure),) = missing()
    assert what == "/site/epilog.sh calls /opt/hooks/epilog.sh, which is missing"
    assert cure == f"put this line behind the first one of /site/epilog.sh:  {FOLDER}/epilog.sh || :"
    made.put("/opt/hooks/epilog.sh", "#!/bin/sh\n").chmod(0o755)
    assert [what for what, _ in missing()] == ["/opt/hooks/faultline-hook.sh is missing"]
    made.put("/opt/hooks/faultline-hook.sh", "#!/bin/sh\n").chmod(0o755)
    assert missing() == []


@pytest.mark.usefixtures("as_root")
def test_an_agent_that_keeps_the_gates_answer_elsewhere_is_named(tmp_path: Path) -> None:
    made = MadeSlurm(tmp_path, CONF + "Prolog=/site/prolog.sh\n", daemons=("slurmd",))
    call = f"{FOLDER}/prolog-gate.sh || exit 1\n"
    made.put("/site/prolog.sh", f"#!/bin/sh\n{call}").chmod(0o755)
    assert made.slurm("install", "--yes") == 0
    there = found(made, "/var/lib/faultline-agent")
    assert there == []
    (elsewhere,) = found(made, "/data/spool")
    assert (
        "keep the gate's answer in /data/spool/gate" in elsewhere.what
        and "FAULTLINE_GATE=/data/spool/gate" in elsewhere.cure
    )
    made.put("/site/prolog.sh", f"#!/bin/sh\nFAULTLINE_GATE=/data/spool/gate {call}").chmod(0o755)
    assert found(made, "/data/spool") == []


def found(made: MadeSlurm, spool: str) -> list[Finding]:
    """What verify says of the gate to an agent with that spool."""
    config = validate({"server": "http://ctl:8514", "spool": spool}, "agent.toml")
    done = verify(find(made.host, roles=frozenset({"node"})), config)
    return [one for one in done.findings if one.code == "gate-elsewhere"]


NODE_LINES = {
    "memory of a namespace": ("State=INVAL Reason=Low RealMemory (reported:2000 < 100.00% of configured:8000) [slurm@2026-11-30T10:00:00]",
                              "Low RealMemory (reported:2000 < 100.00% of configured:8000)"),
    "an older version": ("State=IDLE+DRAIN Reason=Low RealMemory [slurm@2026-11-30T10:00:00]", "Low RealMemory"),
    "GPUs": ("State=IDLE+INVALID_REG Reason=gres/gpu count reported lower than configured (3 < 4) [slurm@x]",
             "gres/gpu count reported lower than configured (3 < 4)"),
    "no reason": ("State=IDLE+INVALID_REG", "its state is IDLE+INVALID_REG"),
    "a person's drain": ("State=IDLE+DRAIN Reason=bad cable [root@2026-11-30T10:00:00]", ""),
    "well": ("State=IDLE", ""),
}  # fmt: skip


@pytest.mark.parametrize(("line", "says"), NODE_LINES.values(), ids=NODE_LINES)
def test_a_node_that_slurmctld_does_not_take_runs_no_hook(
    line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = MadeSlurm(tmp_path, daemons=("slurmd",))
    asked: list[list[str]] = []

    class Answering:
        def answer(self, command: list[str], timeout: float) -> str:
            asked.append(command)
            return f"NodeName=gpu01 CPUTot=8 RealMemory=8000 {line} Partitions=gpu"

    monkeypatch.setattr(Host, "is_this", True)
    monkeypatch.setattr(conf_side, "Context", Answering)
    found = list(conf_side.of_node(find(made.host, roles=frozenset({"node"})), "gpu01"))
    assert asked == [["scontrol", "show", "node", "-o", "gpu01"]]
    assert [one.code for one in found] == ["node-invalid"] * bool(says)
    assert all(f"starts no job on gpu01: {says}" in one.what and "slurmd -C" in one.cure for one in found)


def test_it_runs_from_an_agents_installation(tmp_path: Path) -> None:
    """Nothing of the server's is imported: not even the command line's library."""
    made = MadeSlurm(tmp_path)
    code = (
        "import sys\nfor name in ('typer', 'rich', 'polars', 'duckdb', 'pyarrow', 'zstandard', 'structlog'): sys.modules[name] = None\n"
        f"sys.argv[1:] = ['slurm', 'verify', '--root', {str(made.root)!r}]\nfrom faultline.entry import main\nraise SystemExit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "does not set it" in done.stdout, done.stderr
