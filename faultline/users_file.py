"""``faultline access``: passwords for people and tokens for programs, in the file that ``[access] users`` names."""

from __future__ import annotations

import getpass
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from collector.senders import Limits, Sender
from faultline.failure import CommandError
from web.access.passwords import MOST_CHARS, is_old
from web.access.scopes import ALL
from web.access.users import (
    LEAST_CHARS,
    Token,
    Users,
    UsersError,
    fresh_sender,
    fresh_token,
    hashed_password,
)

ACTIONS = ("password", "token", "sender", "remove", "list", "first")
#: Default lifetime of a token, in days.
DAYS = 365.0


def run(
    action: str,
    name: str,
    path: Path,
    days: float = DAYS,
    scope: str = ALL,
    limits: Limits = Limits(""),  # noqa: B008  (frozen)
) -> int:
    """Performs one action. Returns 1 if nothing of that name existed to be removed."""
    if action == "list":
        _list(_load(path))
        return 0
    if not name.split() or not name.isprintable():
        raise CommandError(f"access {action} needs a NAME, such as: faultline access {action} ada --users {path}")
    password = hashed_password(_asked_for(name)) if action == "password" else ""
    users = Users(path)
    try:
        with users.changing():
            found = _change(users, action, name, password, days, scope, replace(limits, name=name))
            if found:
                users.save()
    except UsersError as error:
        raise CommandError(str(error)) from error
    if not found:
        print(f"faultline: {path} has no password and no token or sender of the name {name}", file=sys.stderr)
    return 0 if found else 1


def _change(users: Users, action: str, name: str, password: str, days: float, scope: str, limits: Limits) -> bool:
    """False if nothing of that name existed to be removed."""
    if action == "password":
        users.people[name] = password
    elif action == "sender":
        expires = _end(days)
        token, users.senders[name] = fresh_sender(expires, limits)
        print(token)
        print(
            f"faultline: it is shown this once; {describe_sender(users.senders[name], datetime.now(UTC))}",
            file=sys.stderr,
        )
    elif action == "token":
        expires = _end(days)
        token, users.tokens[name] = fresh_token(expires, scope)
        print(token)
        ends = f"it ends on {expires:%Y-%m-%d}" if expires else "it never ends"
        print(
            f"faultline: it is shown this once; it stands for {name.split()[0]}, scope {scope}, {ends}", file=sys.stderr
        )
    else:
        kept = [some.pop(name, None) for some in (users.people, users.tokens, users.senders)]
        return any(one is not None for one in kept)
    return True


def _end(days: float) -> datetime | None:
    try:
        return datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) if days else None
    except OverflowError as error:
        raise CommandError(f"--days {days:g}: too far away; 0 makes a token that never ends") from error


def _list(users: Users) -> None:
    """Prints kind, name and details, separated by tabs; no secret."""
    for name, kept in sorted(users.people.items()):
        old = "an old hash: made anew at the next sign-in where the service owns this file, else by `access password`"
        print("password", name, old if is_old(kept) else "argon2id", sep="\t")
    for name, token in sorted(users.tokens.items()):
        print("token", name, describe_token(token, datetime.now(UTC)), sep="\t")
    for name, sender in sorted(users.senders.items()):
        print("sender", name, describe_sender(sender, datetime.now(UTC)), sep="\t")


def describe_sender(sender: Sender, now: datetime) -> str:
    """A sender's limits and expiry."""
    limits = sender.limits
    bound = [f"{name} {' '.join(some)}" for name, some in (("hosts", limits.hosts), ("clusters", limits.clusters), ("data", limits.kinds)) if some]  # fmt: skip
    return ", ".join(
        [*(bound or ["bound to nothing"]), _ends(sender, now), *([f"...{sender.ends}"] if sender.ends else [])]
    )


def _ends(token: Token | Sender, now: datetime) -> str:
    return (
        "never ends"
        if token.expires is None
        else f"{'ENDED' if token.is_over(now) else 'ends'} {token.expires:%Y-%m-%d}"
    )


def describe_token(token: Token, now: datetime) -> str:
    ends = _ends(token, now)
    return ", ".join([f"scope {token.scope}", ends, *([f"...{token.ends}"] if token.ends else [])])


def _load(path: Path) -> Users:
    try:
        return Users.load(path) if path.exists() else Users(path)
    except UsersError as error:
        raise CommandError(str(error)) from error


def _asked_for(name: str) -> str:
    """A password typed twice, or the first line of piped input."""
    if sys.stdin.isatty():
        first = getpass.getpass(f"Password for {name}: ")
        if first != getpass.getpass("Again: "):
            raise CommandError("the two passwords differ; nothing was changed")
    else:
        first = sys.stdin.readline().rstrip("\r\n")
    if len(first) < LEAST_CHARS:
        raise CommandError(f"a password has at least {LEAST_CHARS} characters; nothing was changed")
    if len(first) > MOST_CHARS:
        raise CommandError(f"a password has at most {MOST_CHARS} characters; nothing was changed")
    return first
