"""Who may look at the pages, made of the configuration and the file of people that it names."""

from __future__ import annotations

from faultline.config import Access, Config
from faultline.failure import CommandError
from web.access.gate import Gate
from web.access.people import Role, Roles
from web.access.sessions import Sessions, key_of
from web.access.users import Users, UsersError


def gate_of(config: Config) -> Gate | None:
    """None where the configuration has no ``[access]``. Raises ``CommandError``."""
    access = config.access
    if access is None:
        return None
    users = people_of(access)
    try:
        key = key_of(config.data)
    except OSError as error:
        raise CommandError(f"{config.data}: the key of sessions cannot be kept: {error.strerror or error}") from error
    members = {Role.OWN: access.own, Role.READ: access.read, Role.OPERATE: access.operate}
    return Gate(
        users=users, roles=Roles({role: frozenset(names) for role, names in members.items()}),
        sessions=Sessions(key, access.session_hours * 3600), proxies=frozenset(access.proxies),
        user_header=config.user_header or "", groups_header=access.groups_header or "", provider=access.provider,
        public_url=config.public_url,
    )  # fmt: skip


def people_of(access: Access) -> Users:
    """Raises ``CommandError`` where a file that ``[access]`` names cannot be used."""
    told = access.provider
    if told is not None and told.secret_file is not None and not told.secret_file.is_file():
        raise CommandError(f"[access.provider] secret_file {told.secret_file}: there is no such file")
    try:
        return Users.load(access.users)
    except UsersError as error:
        raise CommandError(str(error)) from error
