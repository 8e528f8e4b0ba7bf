"""Access for the first administrator of a service that nobody can sign in to yet."""

from __future__ import annotations

from faultline.authentication import begun_by_hand, may_begin, people_of
from faultline.config import Config
from faultline.failure import CommandError
from web.access.authentication import Authentication
from web.access.first import LASTING_S, FirstLink


def offer(config: Config, authentication: Authentication | None, address: str) -> str | None:
    """The message at the service's start if nobody can sign in yet; None if somebody can, or sign-in is not needed."""
    access = config.access
    if authentication is None or access is None or access.users is None or authentication.users.people:
        return None
    if access.provider is not None or access.proxies:  # these people sign in elsewhere
        return None
    if not may_begin(access):
        return f"Nobody can sign in yet; {begun_by_hand(access, access.users)}"
    try:
        return _invitation(config, authentication.first.make(), address)
    except OSError as error:
        return f"Nobody can sign in yet, and {config.data} takes no link: {error.strerror}; {begun_by_hand(access, access.users)}"


def again(config: Config) -> str:
    """``faultline access first``: a new link for a running service. Raises ``CommandError``."""
    access = config.access
    if access is None or access.users is None:
        raise CommandError("the configuration has no [access] with a file users; there is nobody to be the first of")
    if people_of(access).people:
        raise CommandError(
            f"{access.users}: somebody has a password already; faultline access password NAME --users {access.users} gives another"
        )
    if not may_begin(access):
        raise CommandError(f"no link can be made; {begun_by_hand(access, access.users)}")
    try:
        secret = FirstLink(config.data).make()
    except OSError as error:
        raise CommandError(
            f"{config.data}: takes no link: {error.strerror}; run it as root, or as the service's user"
        ) from error
    return _invitation(config, secret, config.pages)


def _invitation(config: Config, secret: str, address: str) -> str:
    pages = (config.public_url or address).rstrip("/")
    return (
        f"Nobody can sign in yet. The first administrator makes a password here, once, within {LASTING_S / 60:.0f} minutes:\n"
        f"  {pages}/first?key={secret}"
    )
