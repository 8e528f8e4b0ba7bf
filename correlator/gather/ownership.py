"""Which user a run belongs to: accounting decides, else root's hooks; never a source into which users may write.

Two trusted sources that name different users for one run contradict each other: a store that mixes clusters, a host
that impersonates another, accounting that was set up again. Then the run has no owner: a user who asks for their own
runs does not see it, operators see which users were named, and the service reports it. A job id that is used again is
another run, not a contradiction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

#: Sources that are trusted about a run's user. ``log``: lines name no user. ``task_hook``: users may write it about any
#: job.
TRUSTED = frozenset({"sacct", "sacct_json", "slurmrestd", "jobcomp", "scontrol", "squeue", "hook"})

#: squeue cuts names at this many characters unless its format says otherwise.
_CUT = 8


def differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Do two rows name different users? Permissions go by name; uids decide if one of them has no name."""
    ours, theirs = one.get("user"), other.get("user")
    uids = (one.get("uid"), other.get("uid"))
    if ours and theirs:
        if ours == theirs or (None not in uids and uids[0] == uids[1]):
            return False
        return not _is_cut(one, other) and not _is_cut(other, one)
    return None not in uids and uids[0] != uids[1]


def _is_cut(short: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    name = short["user"].removesuffix("+")
    return short.get("source") == "squeue" and len(name) >= _CUT - 1 and str(whole["user"]).startswith(name)


def names_user(row: Mapping[str, Any]) -> bool:
    """Does a row name a user at all? One that does not differs from no other."""
    return bool(row.get("user")) or row.get("uid") is not None


def dispute(rows: Iterable[Mapping[str, Any]]) -> str:
    """The users named for one run, with their sources, if trusted sources contradict each other; empty if not."""
    # Rows with the same three values are one claim: hooks and dumps repeat it often.
    named = {
        (row.get("source"), row.get("user"), row.get("uid", "?")): row
        for row in rows
        if row.get("source") in TRUSTED and names_user(row)
    }
    if not any(differ(one, other) for one, other in combinations(named.values(), 2)):
        return ""
    return "; ".join(sorted({f"{source}: {user or 'uid'} ({uid})" for source, user, uid in named}))
