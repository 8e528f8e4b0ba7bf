"""``faultline access``: passwords for people and tokens for programs, in the file that ``[access] users`` names."""

from __future__ import annotations

import getpass
import secrets
import sys
from pathlib import Path

from faultline.failure import CommandError
from web.access.users import LEAST_CHARS, TOKEN_BYTES, Users, UsersError, hashed_password, hashed_token

ACTIONS = ("password", "token", "remove", "list")


def run(action: str, name: str, path: Path) -> int:
    """Does one action. 1 where nothing of that name was there to be removed."""
    users = _load(path)
    if action == "list":
        for kind, names in (("password", users.people), ("token", users.tokens)):
            for one in sorted(names):
                print(f"{kind}\t{one}")
        return 0
    if not name.split() or not name.isprintable():
        raise CommandError(f"access {action} needs a NAME, such as: faultline access {action} ada --users {path}")
    if action == "password":
        users.people[name] = hashed_password(_asked_for(name))
    elif action == "token":
        token = secrets.token_urlsafe(TOKEN_BYTES)
        users.tokens[name] = hashed_token(token)
        print(token)
        print(f"faultline: it is shown this once; it stands for {name.split()[0]}", file=sys.stderr)
    elif users.people.pop(name, None) is None and users.tokens.pop(name, None) is None:
        print(f"faultline: {path} has no password and no token of the name {name}", file=sys.stderr)
        return 1
    try:
        users.save()
    except UsersError as error:
        raise CommandError(str(error)) from error
    return 0


def _load(path: Path) -> Users:
    try:
        return Users.load(path) if path.exists() else Users(path)
    except UsersError as error:
        raise CommandError(str(error)) from error


def _asked_for(name: str) -> str:
    """A password typed twice, or the first line of what is piped in."""
    if sys.stdin.isatty():
        first = getpass.getpass(f"Password for {name}: ")
        if first != getpass.getpass("Again: "):
            raise CommandError("the two passwords differ; nothing was changed")
    else:
        first = sys.stdin.readline().rstrip("\r\n")
    if len(first) < LEAST_CHARS:
        raise CommandError(f"a password has at least {LEAST_CHARS} characters; nothing was changed")
    return first
