"""What is wrong with a script: missing, not executable, on a mount without execution, a label, an interpreter; and a run
of it, as the user that Slurm runs it as."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from collector.agent.exported import SUFFIX
from collector.agent.slurm import access
from collector.agent.slurm.host import Account, Host, owner_name
from collector.agent.slurm.programs import COMMON, GATE, QUICK, Call, chaining, copied
from collector.agent.slurm_setup.findings import Finding

#: What the scripts call.
TOOLS = ("sh", "tr", "awk", "date", "mv", "du", "cat", "rm")
_TOOL_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: Types of SELinux that no daemon may run or write, where it is confined.
_WRONG_TYPES = ("user_home_t", "admin_home_t", "user_tmp_t", "tmp_t", "unlabeled_t", "default_t", "nfs_t", "mnt_t")
INSTALL = "run faultline slurm install, which writes it"
TRIAL_S = 10.0


def of_script(host: Host, made: Call, user: Account, dry_run: bool) -> Iterator[Finding]:
    setting = made.program.setting
    called = _called(host, made)
    copy = "" if called else copied(host.text(made.by) or "", made.program)
    if copy and not host.path(copy).exists():
        yield Finding("no-file", f"{made.by} calls {copy}, which is missing", chaining(made), setting)
        return
    named = [made.by or made.value] + ([called] if made.state == "chained" and called else [])
    broken = False
    # Beside a copy that the site's program does not write out, nothing is known.
    beside: tuple[str, ...] = (COMMON, QUICK) if _own(host, made) == made.program.script else (COMMON,) if copy else ()
    beside += GATE[:1] if called.endswith(GATE[1]) else ()
    folder = Path(copy or _own(host, made)).parent
    for path in dict.fromkeys([*named, *(f"{folder}/{name}" for name in beside)]):
        runs_it = path in named
        for finding in _of_file(host, path, user, runs_it):
            broken = True
            yield Finding(finding.code, finding.what, finding.cure, setting)
    for tool in TOOLS:
        if not any(host.path(f"{folder}/{tool}").exists() for folder in _TOOL_FOLDERS):
            broken = True
            yield Finding("no-interpreter", f"the scripts call {tool}, which is not installed", f"install {tool}")
    ours = made.program.script
    # Only our own script is run: the site's does things to a node.
    if not broken and host.is_this and not dry_run and _own(host, made) == ours:
        why = trial(ours, user)
        if why:
            yield Finding("no-record", f"{ours}, run as {user}, wrote no record: {why}", INSTALL, setting)


def _called(host: Host, made: Call) -> str:
    """The script of ours that is called; empty for a program of the site that calls a copy elsewhere."""
    if made.state == "direct":
        return made.by
    text = host.text(made.by) or ""
    return next((script for script in made.program.scripts if script in text), "")


def _own(host: Host, made: Call) -> str:
    """The hook of ours that hands over; for a site's program that calls a copy elsewhere, that program itself."""
    if made.state == "direct" or _called(host, made):
        return made.program.script
    return made.by


def _of_file(host: Host, name: str, user: Account, runs_it: bool) -> Iterator[Finding]:
    path = host.path(name)
    try:
        about = path.stat()
    except OSError as error:
        shown = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be looked at: {error.strerror}"
        yield Finding("no-file", f"{name} {shown}", INSTALL)
        return
    if not stat.S_ISREG(about.st_mode):
        yield Finding("no-file", f"{name} is not a file", INSTALL)
        return
    if about.st_uid not in (0, user.uid) or about.st_mode & 0o022:
        yield Finding("wrong-owner", f"{name} ({access.described(path)}) can be changed by others, who could run programs as {user}",
                      f"chown root:root {name}; chmod 0755 {name}")  # fmt: skip
    why = access.may_run(path, user) if runs_it else ("" if os.access(path, os.R_OK) else "not readable")
    if why and not (runs_it and _noexec(path) and about.st_mode & 0o111):
        code = "not-executable" if about.st_mode & 0o111 != 0o111 else "script-denied"
        yield Finding(code, f"{user}, whom Slurm runs it as, cannot run {name} ({access.described(path)}): {why}",
                      f"chmod 0755 {name}, and let {user} pass the folders above it")  # fmt: skip
    if runs_it and _noexec(path):
        yield Finding(
            "noexec",
            f"{name} is on a file system that is mounted noexec: nobody runs it",
            f"mount {_mount_of(path)} without noexec",
        )
    interpreter = _interpreter(host, name)
    if interpreter and not host.path(interpreter).exists():
        yield Finding(
            "no-interpreter",
            f"{name} wants {interpreter}, which is not there",
            f"install it, or correct the first line of {name}",
        )
    yield from wrong_label(host, name)


def wrong_label(host: Host, name: str) -> Iterator[Finding]:
    """A label of SELinux that no daemon may run or write into, where SELinux is enforced."""
    if not host.is_this or (host.text("/sys/fs/selinux/enforce") or "").strip() != "1":
        return
    label = selinux(host.path(name))
    if label.count(":") >= 2 and label.split(":")[2] in _WRONG_TYPES:
        yield Finding("selinux", f"SELinux is enforced, and {name} is labelled {label}", f"restorecon -Rv {name}")


def _noexec(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def _mount_of(path: Path) -> str:
    """The mount that a file is on: of a folder mounted onto itself, too."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "/"
    places = [re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), line.split()[4]) for line in lines]
    return max((place for place in places if path.resolve().is_relative_to(place)), key=len, default="/")


def _interpreter(host: Host, name: str) -> str:
    first = (host.bytes(name) or b"")[:256].split(b"\n", 1)[0]
    words = first[2:].split() if first.startswith(b"#!") else []
    return words[0].decode("utf-8", "replace") if words else ""


def selinux(path: Path) -> str:
    try:
        return os.getxattr(path, "security.selinux").rstrip(b"\0").decode("utf-8", "replace")
    except OSError:
        return ""


def trial(script: str, user: Account) -> str:
    """Runs a script as its user, as Slurm would, with a spool of its own. Returns why no record came; empty if one did,
    or if this process may not become that user."""
    if os.geteuid() not in (0, user.uid):
        return ""
    return _tried(script, user, "FAULTLINE_HOOK_SPOOL") or _tried(script, user, "FAULTLINE_HOOK_MEMORY")


def _tried(script: str, user: Account, variable: str) -> str:
    """One run, on the way that hands over on the disk, or on that in memory."""
    spool = Path(tempfile.mkdtemp(prefix="faultline-verify-"))
    try:
        os.chown(spool, user.uid, user.gid) if os.geteuid() == 0 else None
        environment = {"SLURM_JOB_ID": "0", "SLURM_JOB_USER": owner_name(user.uid), variable: str(spool)}
        wanted = ".hook" if variable == "FAULTLINE_HOOK_SPOOL" else SUFFIX
        done = subprocess.run(
            [script], env=environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIAL_S,
            **({"user": user.uid, "group": user.gid, "extra_groups": list(user.groups)} if os.geteuid() == 0 else {}),  # type: ignore[call-overload]
        )  # fmt: skip
        if any(entry.name.endswith(wanted) for entry in spool.iterdir()):
            return ""
        output = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        return f"exit {done.returncode}{': ' + output[-1][:200] if output else ', without output'}"
    except subprocess.TimeoutExpired:
        return f"it did not end in {TRIAL_S:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    finally:
        shutil.rmtree(spool, ignore_errors=True)
