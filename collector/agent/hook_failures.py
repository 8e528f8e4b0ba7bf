"""What hooks could not do: the words that they left about it, and whether they could write into a spool right now.

A hook that cannot write into its spool leaves an empty file whose name tells reason and event, on no disk
(``collector/hooks.py``). Only who runs Slurm's hooks writes into the first folder; the second is open to all users, so a
name there is a claim of the user who owns it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from collector.agent.failure import Missing
from collector.agent.slurm import access
from collector.agent.slurm.host import ANY_USER, ROOT, Account, Host, owner_name
from collector.agent.slurm.installation import CONTROLLER, find
from collector.agent.slurm.programs import PROGRAMS, SPOOL, TASK_SPOOL, call

WORDS, TASK_WORDS = "/run/faultline/hooks-failed", "/dev/shm"
#: In every sentence about a hook that could not do its work.
WROTE_NOTHING = "wrote nothing"
#: Most entries of a folder that one look examines: users fill ``/dev/shm`` as they like.
MOST_ENTRIES = 5000
_NAME = re.compile(
    r"faultline-hook\.(absent|denied|disk|full|slow)\."
    r"(prolog|epilog|prologslurmctld|epilogslurmctld|taskprolog|healthcheck|jobcomp|gate|unknown)\.([0-9]|[12][0-9]|3[01])"
)
#: Reason -> what the hook found, and the cure.
REASONS = {
    "absent": ("its spool {spool} was missing and could not be made", "faultline slurm install"),
    "denied": ("its user may not write into {spool}", "faultline slurm install"),
    "disk": ("the disk of {spool} took nothing (full, read-only, or a quota)", "make room there; faultline slurm verify names it"),
    "full": ("the spool {spool} was full", "see that this agent reads it"),
    "slow": ("the disk of {spool} did not answer for a second", "keep the spool on a local disk"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Word:
    """What one hook left. ``uid`` owns the file; ``at``: epoch seconds."""

    file: str
    reason: str
    event: str
    uid: int
    at: float

    @property
    def kind(self) -> str:
        """Words of a kind are counted together."""
        return f"{self.event} {self.reason} {self.uid}"


def words(folder: Path, of_users: bool) -> list[Word]:
    """The words in a folder, without those of users where only Slurm speaks, and the other way round."""
    found: list[Word] = []
    try:
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or (not of_users and about.st_mode & 0o022):
            return []
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_ENTRIES) if _NAME.fullmatch(entry.name)]
        for name in sorted(names):
            seen = (folder / name).lstat()
            match = _NAME.fullmatch(name)
            assert match is not None
            if not stat.S_ISREG(seen.st_mode) or (match[2] == "taskprolog") != of_users:
                continue
            found.append(Word(str(folder / name), match[1], match[2], seen.st_uid, seen.st_mtime))
    except OSError:
        return found
    return found


def counted(some: Iterable[Word]) -> dict[str, list[Word]]:
    """Words by kind."""
    kinds: dict[str, list[Word]] = {}
    for word in some:
        kinds.setdefault(word.kind, []).append(word)
    return kinds


def sentence(some: list[Word]) -> str:
    """Words of one kind for a person, with the cure. ``at least``: no more find room."""
    word = some[0]
    what, cure = REASONS[word.reason]
    spool = TASK_SPOOL if word.event == "taskprolog" else SPOOL
    count = f"at least {len(some)}" if len(some) >= 32 else f"{len(some)}"
    hooks = f"{count} {word.event} hook{'s' if len(some) > 1 else ''}"
    who = f" of uid {word.uid}" if word.event == "taskprolog" else f", run as {owner_name(word.uid)},"
    return f"{hooks}{who} {WROTE_NOTHING}: {what.format(spool=spool)}; {cure}"


def remove(some: Iterable[Word]) -> None:
    """Takes words away. One that cannot be removed stays, and is not counted again by the same process."""
    for word in some:
        try:
            os.unlink(word.file)  # noqa: PTH108
        except OSError:
            continue


def make_room(host: Host, owner: Account) -> None:
    """Makes the folder of Slurm's words, and gives it to who runs Slurm's hooks: ``/run`` is empty after each start. Without
    it hooks leave no words; whether they may write is asked all the same."""
    folder = host.path(WORDS)
    if os.geteuid() != 0 or not host.path("/run").is_dir():
        return
    try:
        folder.parent.mkdir(mode=0o755, exist_ok=True)
        folder.parent.chmod(0o755)
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.lstat().st_uid != owner.uid:
            os.chown(folder, owner.uid, owner.gid, follow_symlinks=False)
    except OSError:
        return


def owner(host: Host) -> Account:
    """Who runs Slurm's hooks on this host."""
    try:
        found = find(host)
        return found.user("SlurmUser" if CONTROLLER in found.roles else "SlurmdUser")
    except Missing:
        return ROOT


def unwritable(host: Host, folders: Iterable[str]) -> str:
    """Why hooks that slurm.conf has called here could not write at this moment, with the cure; empty if they could."""
    try:
        found = find(host)
    except Missing:
        return ""
    troubles: dict[str, None] = {}
    for program in PROGRAMS:
        if (
            program.role not in found.roles
            or program.spool not in folders
            or not call(host, found.conf, program).is_made
        ):
            continue
        folder = host.path(program.spool)
        try:
            user = found.user(program.user) if program.user else ANY_USER
        except Missing as why:
            troubles[str(why)] = None
            continue
        denied = access.may_write(folder, user) if folder.exists() or user.uid else ""
        full = access.room(folder)
        if full:
            troubles[f"hooks {WROTE_NOTHING} into {program.spool}: {full}; make room there"] = None
        elif denied:
            is_there = access.described(folder) if folder.exists() else "missing"
            troubles[f"{user} may not write into {program.spool} ({is_there}): {denied}, so its hooks {WROTE_NOTHING}; "
                     "run faultline slurm install"] = None  # fmt: skip
    return "; ".join(troubles)
