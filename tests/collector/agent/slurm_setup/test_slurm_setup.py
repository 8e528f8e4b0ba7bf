"""``faultline slurm install`` and ``remove`` on a host made of folders: nothing unasked, nothing twice, all undone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_slurm import CONF, FOLDER, HOOKS, SLURM_UID, SPOOL, TASKS, MadeSlurm

from collector.agent.failure import AgentError, Missing
from collector.agent.slurm.installation import find
from collector.agent.slurm_setup import conf_lines
from collector.agent.slurm_setup.install import SCRIPTS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files get owners")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[MadeSlurm]:
    made = MadeSlurm(tmp_path)
    yield made
    made.end_agent()


def test_a_dry_run_shows_everything_and_writes_nothing(made: MadeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    before = made.tree()
    assert made.slurm("install", "--dry-run") == 0
    told = capsys.readouterr().out
    assert made.tree() == before
    assert "/etc/slurm/slurm.conf (default place); cluster mini" in told and "SlurmUser=slurm" in told
    for name in HOOKS:
        assert f"make file {FOLDER}/{name}.sh (root:root 0755)" in told
    assert f"make folder {SPOOL}" in told and "JobSubmitPlugins=lua (/etc/slurm/slurm.conf:6)" in told
    for setting in ("Prolog", "Epilog", "PrologSlurmctld", "EpilogSlurmctld", "TaskProlog", "HealthCheckProgram"):
        assert f"         {setting}={FOLDER}/{setting.lower().replace('program', '')}.sh\n" in told
    assert "HealthCheckInterval=300" in told, "without it Slurm never runs the program"


def test_without_a_terminal_and_without_yes_nothing_is_changed(
    made: MadeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    before = made.tree()
    assert made.slurm("install") == 2
    assert "--yes" in capsys.readouterr().err and made.tree() == before


def test_install_is_idempotent_and_remove_leaves_what_was(made: MadeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    before = made.tree()
    assert made.slurm("install", "--yes", "--edit-slurm-conf") == 0
    installed = made.tree()
    for name in (*HOOKS, "faultline-hook", "faultline-gate", "prolog-gate"):
        assert made.path(f"{FOLDER}/{name}.sh").read_bytes() == (SCRIPTS / f"{name}.sh").read_bytes()
    spool = made.path(SPOOL).stat()
    assert (spool.st_mode & 0o7777, spool.st_uid) == (0o700, SLURM_UID), "slurmctld's hooks run as SlurmUser"
    assert made.path(TASKS).stat().st_mode & 0o7777 == 0o1733
    conf = made.path("/etc/slurm/slurm.conf").read_text()
    assert conf.startswith(CONF) and f"PrologSlurmctld={FOLDER}/prologslurmctld.sh\n" in conf

    capsys.readouterr()
    assert made.slurm("install", "--yes", "--edit-slurm-conf") == 0
    assert made.tree() == installed and "write    nothing" in capsys.readouterr().out

    assert made.slurm("remove", "--yes") == 1, "Slurm drains a node whose Prolog is missing"
    assert made.tree() == installed and "the scripts stay" in capsys.readouterr().err
    assert made.slurm("remove", "--yes", "--edit-slurm-conf") == 0
    assert made.tree() == before
    assert made.slurm("remove", "--yes") == 0, "removed twice"


def test_folders_that_were_there_become_what_they_were(made: MadeSlurm) -> None:
    """As ``deploy/agent/install.sh`` made them once: closed to SlurmUser, the folders above as well."""
    for name in ("/var/spool/faultline", SPOOL, "/etc/faultline"):
        made.path(name).mkdir(parents=True, exist_ok=True)
        made.path(name).chmod(0o700)
    before = made.tree()
    assert made.slurm("install", "--yes") == 0
    assert made.path(SPOOL).stat().st_uid == SLURM_UID
    for name in ("/var/spool/faultline", "/etc/faultline"):
        assert made.path(name).stat().st_mode & 0o011 == 0o011
    assert made.slurm("remove", "--yes") == 0
    assert made.tree() == before


def test_a_script_that_was_there_comes_back_and_one_that_was_edited_stays(
    made: MadeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    old = made.put(f"{FOLDER}/prolog.sh", "#!/bin/sh\n# an earlier version\n")
    assert made.slurm("install", "--yes") == 0
    edited = made.path(f"{FOLDER}/epilog.sh")
    edited.write_text("#!/bin/sh\n# the site's own\n")
    assert made.slurm("remove", "--yes") == 1
    assert "epilog.sh was changed since it was installed" in capsys.readouterr().err
    assert edited.exists() and "an earlier version" in old.read_text()
    edited.unlink()
    assert made.slurm("remove", "--yes") == 0, "what stayed was remembered"


def test_records_that_wait_are_not_thrown_away(made: MadeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    assert made.slurm("install", "--yes") == 0
    waiting = made.put(f"{SPOOL}/7.epilog.gpu01.1.1.hook", "faultline-hook/1\n")
    assert made.slurm("remove", "--yes") == 1
    assert "1 records wait in it" in capsys.readouterr().err and waiting.exists()
    waiting.unlink()
    assert made.slurm("remove", "--yes") == 0 and not made.path("/var/spool/faultline").exists()


@pytest.mark.parametrize("value", ["/site/prolog.sh", "/site/prolog.d/*"])
def test_programs_of_the_site_stay_and_how_to_chain_them_is_said(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = MadeSlurm(tmp_path, CONF + f"Prolog={value}\n")
    made.put("/site/prolog.d/10-nhc", "#!/bin/sh\n")
    made.put("/site/prolog.sh", "#!/bin/sh\n# not /etc/faultline/slurm/prolog.sh\nnhc\n")
    assert made.slurm("install", "--yes", "--edit-slurm-conf") == 0
    told = capsys.readouterr().out
    assert f"Prolog={value} (/etc/slurm/slurm.conf:9) is the site's and stays" in told
    script = f"{FOLDER}/prolog.sh"
    if "*" in value:
        assert f"ln -s {script} /site/prolog.d/faultline-prolog.sh" in told
        made.path("/site/prolog.d/faultline-prolog.sh").symlink_to(script)
    else:
        assert f"{script} || :" in told
        made.put("/site/prolog.sh", f"#!/bin/sh\n{script} || :\nnhc\n")
    conf = made.path("/etc/slurm/slurm.conf").read_text()
    assert len(re.findall(r"(?m)^Prolog=", conf)) == 1, "Slurm would take the last one"
    made.slurm("install", "--dry-run")
    assert "Prolog" in (line := next(x for x in capsys.readouterr().out.splitlines() if x.startswith("calls"))), line


def test_a_prolog_with_the_gate_is_a_hook_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = MadeSlurm(tmp_path, CONF + f"Prolog={FOLDER}/prolog-gate.sh\nEpilog=/site/epilog.sh\n")
    made.put("/site/epilog.sh", f"#!/bin/sh\n{FOLDER}/epilog.sh || :\n")
    assert made.slurm("install", "--yes", "--edit-slurm-conf") == 0
    assert f"calls    Prolog={FOLDER}/prolog-gate.sh" in capsys.readouterr().out
    assert f"Prolog={FOLDER}/prolog.sh\n" not in made.path("/etc/slurm/slurm.conf").read_text()
    assert made.slurm("remove", "--yes", "--edit-slurm-conf") == 1
    assert f"Prolog={FOLDER}/prolog-gate.sh: remove it first" in capsys.readouterr().err


def test_a_chained_hook_is_not_removed_under_the_site_that_calls_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = MadeSlurm(tmp_path, CONF + "Epilog=/site/epilog.sh\n")
    made.put("/site/epilog.sh", f"#!/bin/sh\n{FOLDER}/epilog.sh || :\n")
    assert made.slurm("install", "--yes") == 0
    assert made.slurm("remove", "--yes") == 1
    assert "/site/epilog.sh: calls" in capsys.readouterr().err and made.path(f"{FOLDER}/epilog.sh").exists()
    made.put("/site/epilog.sh", "#!/bin/sh\n")
    assert made.slurm("remove", "--yes") == 0


def test_where_slurm_conf_is_found(tmp_path: Path) -> None:
    made = MadeSlurm(tmp_path, daemons=())
    made.put("/opt/a/slurm.conf", "ClusterName=a\n")
    made.put("/opt/b/slurm.conf", "ClusterName=b\n")
    made.put("/run/slurm/conf/slurm.conf", "ClusterName=cached\n")
    assert find(made.host).cluster == "mini"
    shell = type(made.host)(tmp_path, {"SLURM_CONF": "/opt/b/slurm.conf"})
    assert find(shell).cluster == "b"
    made.put("/usr/lib/systemd/system/slurmd.service", "ExecStart=/usr/sbin/slurmd -D $SLURMD_OPTIONS\n")
    made.put("/etc/default/slurmd", "# -f /no\nSLURMD_OPTIONS='-f /opt/a/slurm.conf'\n")
    assert find(shell).cluster == "a", "what the unit starts"
    made.runs("slurmd", 7, "-f", "/etc/slurm/slurm.conf")
    found = find(shell)
    assert found.cluster == "mini" and found.roles == {"node"} and set(found.others) >= {"/opt/a/slurm.conf"}
    made.runs("slurmd", 7, "--conf-server", "ctl")
    found = find(type(made.host)(tmp_path, {}))
    assert (found.cluster, found.configless) == ("a", False), "the unit still names a file"
    made.path("/etc/default/slurmd").unlink()
    found = find(type(made.host)(tmp_path, {}))
    assert (found.cluster, found.configless) == ("cached", True)
    with pytest.raises(Missing, match="cannot be read"):
        find(made.host, "/nowhere/slurm.conf")


def test_a_copy_of_the_controllers_configuration_is_not_edited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = MadeSlurm(tmp_path, daemons=())
    made.path("/etc/slurm/slurm.conf").unlink()
    made.put("/run/slurm/conf/slurm.conf", CONF)
    made.runs("slurmd", 7, "--conf-server", "ctl")
    before = made.tree()
    assert made.slurm("install", "--yes", "--edit-slurm-conf") == 2
    assert "run this with --edit-slurm-conf there" in capsys.readouterr().err and made.tree() == before


def test_no_slurm_is_an_error_of_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = MadeSlurm(tmp_path)
    made.path("/etc/slurm/slurm.conf").unlink()
    for verb in ("install", "verify"):
        assert made.slurm(verb) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and "no slurm.conf found" in told and "--conf" in told


@pytest.mark.parametrize("text", [b"ClusterName=a\n", b"ClusterName=a", b"", b"\n\n", b"ClusterName=a\r\n# end"])
def test_the_block_goes_without_a_trace(text: bytes) -> None:
    once = conf_lines.with_block(text, ["Prolog=/a"])
    assert once.count(b"Prolog=/a\n") == 1 and conf_lines.block_lines(once) == ["Prolog=/a"]
    assert conf_lines.with_block(once, ["Prolog=/a"]) == once
    assert conf_lines.without_block(once) == text
    more = once + b"MailProg=/bin/mail\n"
    assert conf_lines.without_block(more) in (text + b"MailProg=/bin/mail\n", text + b"\nMailProg=/bin/mail\n")


def test_a_block_without_an_end_is_not_guessed_at() -> None:
    with pytest.raises(AgentError, match="no end"):
        conf_lines.without_block(conf_lines.BEGIN + b"\nProlog=/a\n")


def test_only_the_spools_where_slurm_is_not_installed_yet(tmp_path: Path) -> None:
    made = MadeSlurm(tmp_path, daemons=())
    made.path("/etc/slurm/slurm.conf").unlink()
    assert made.slurm("install", "--folders-only", "--controller", "--yes") == 0
    assert made.path(SPOOL).stat().st_uid == SLURM_UID and not made.path(FOLDER).exists()
