"""Access control of the pages, from the configuration and the users file that it names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from faultline.config import Access, Config
from faultline.failure import CommandError
from web.access.addresses import Networks
from web.access.authentication import Authentication, SlurmPeople
from web.access.ended import ENDED_FILE, Ended
from web.access.first import FirstLink
from web.access.people import EVERYONE, GROUP, Role, Roles
from web.access.sessions import Sessions, key_of
from web.access.users import Users, UsersError


def authentication_of(config: Config) -> Authentication | None:
    """None if the configuration has no ``[access]``. Raises ``CommandError``."""
    access = config.access
    if access is None:
        return None
    users = people_of(access)
    try:
        key = key_of(config.data)
        ended = Ended(config.data / ENDED_FILE)
    except OSError as error:
        raise CommandError(f"{config.data}: what sessions need cannot be kept: {error.strerror or error}") from error
    members = {Role.OWN: access.own, Role.READ: access.read, Role.OPERATE: access.operate}
    return Authentication(
        users=users, roles=Roles({role: frozenset(names) for role, names in members.items()}),
        sessions=Sessions(key, access.session_hours * 3600, ended), proxies=Networks(access.proxies),
        user_header=config.user_header or "", groups_header=access.groups_header or "", provider=access.provider,
        public_url=config.public_url, first=FirstLink(config.data, administrators(access)), slurm=slurm_of(config),
    )  # fmt: skip


def slurm_of(config: Config) -> SlurmPeople | None:
    """None if the configuration has no ``[access.slurm]``. Raises ``CommandError``."""
    settings = config.access.slurm if config.access is not None else None
    if settings is None:
        return None
    if settings.munge and shutil.which("unmunge") is None:
        raise CommandError("[access.slurm] munge: there is no program unmunge here; install the package munge")
    from web.access.slurm import SlurmUsers, known_as  # importing joserfc takes a while

    try:
        return SlurmUsers(settings, known_as(config.public_url, config.listen))
    except OSError as error:
        raise CommandError(f"[access.slurm] jwt_key {settings.jwt_key}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"[access.slurm] jwt_key {error}") from error


def people_of(access: Access) -> Users:
    """Raises ``CommandError`` if a file that ``[access]`` names cannot be used."""
    provider = access.provider
    if provider is not None and provider.secret_file is not None and not provider.secret_file.is_file():
        raise CommandError(f"[access.provider] secret_file {provider.secret_file}: there is no such file")
    if access.users is not None and not access.users.exists() and may_begin(access):
        return Users(access.users)  # the first administrator creates it
    try:
        return Users.load(access.users)
    except UsersError as error:
        by_hand = "" if access.users is None or access.users.exists() else f"; {begun_by_hand(access, access.users)}"
        raise CommandError(f"{error}{by_hand}") from error


def administrators(access: Access) -> tuple[str, ...]:
    """Names that ``operate`` lists; empty if it admits every authenticated user."""
    return () if EVERYONE in access.operate else tuple(n for n in access.operate if not n.startswith(GROUP))


def may_begin(access: Access) -> bool:
    """Whether a link could create the first administrator: passwords are enabled, somebody may operate, the file is
    writable."""
    possible = EVERYONE in access.operate or bool(administrators(access))
    return access.users is not None and possible and _may_write(access.users)


def begun_by_hand(access: Access, users: Path) -> str:
    """The command to type if a link cannot be used."""
    name = next(iter(administrators(access)), "NAME")
    return f"make the first password from a shell: faultline access password {name} --users {users}"


def _may_write(path: Path) -> bool:
    """``Users.save`` writes a draft beside it, then replaces it."""
    return os.access(path.parent, os.W_OK | os.X_OK) and (not path.exists() or os.access(path, os.R_OK))
