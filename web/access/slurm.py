"""Identities of Slurm: a munge credential, or a token of ``scontrol token``. They give the right to one's own jobs.

A munge credential shows the uid of the process that made it. munged decodes it once (a replay is refused) and while it is
fresh. Its payload names the host of the service that it was made for, so that a service cannot use what it was sent
to ask another one. A token is a JWT of slurmctld or slurmrestd (auth/jwt), signed with the site's HS256 key.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from parsers.host_names import short_name
from web.access.addresses import is_loopback
from web.access.authentication import IdentityError
from web.access.people import Person, Role
from web.access.settings import SlurmIdentity

#: Schemes of the header Authorization.
MUNGE, TOKEN = "Munge", "Slurm-JWT"
#: The first line of a credential's payload; the second is the host that its maker asked.
PAYLOAD = "faultline-why/1"
#: The scope of whoever comes with such an identity: jobs, their verdicts and incidents.
SCOPE = "jobs"
#: A credential is refused when it is older than this, whatever its maker allowed (munge itself: at most an hour).
OLDEST_S = 300
#: A token may be from this far in the future, and over since this long: clocks of two machines.
SKEW_S = 30
#: Longer ones are not decoded: a credential with such a payload has some 200 characters.
LONGEST = 4096
#: Credentials decoded at once, and waiting for it: each is a process of some milliseconds.
AT_ONCE, MOST_WAITING = 4, 32
DECODE_S = 5.0

_CREDENTIAL = re.compile(r"MUNGE:[A-Za-z0-9+/=]+:", re.ASCII)
_NUMBERED = re.compile(r"^(\w+):\s+(?:.*\()?(\d+)\)?$", re.MULTILINE | re.ASCII)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\$?", re.ASCII)
#: Exit codes of ``unmunge`` (munge/munge.h): which failure it is, and what to do.
_FAILURES = {
    6: ("munged of this service cannot be asked", "Ask who runs this service to start munged, or to correct munge_socket."),
    14: ("it is not of this service's munge realm", "Ask on a login node of the cluster whose munge.key this service has."),
    15: ("it is too old", "Try again; if that does not help, the clocks of both machines differ: compare them by date -u."),
    16: ("it is from the future", "The clocks of both machines differ: compare them by date -u."),
    17: ("it was used before", "Make a new one: each is valid once."),
    18: ("it is meant for another user or group", "Make one that anybody may decode."),
}  # fmt: skip


class SlurmUsers:
    """Recognises users of the cluster. ``known_as``: hosts by which users call this service, beside its own names.

    Used from one event loop."""

    def __init__(
        self, settings: SlurmIdentity, known_as: tuple[str, ...] = (), clock: Callable[[], float] = time.time
    ) -> None:
        """Raises OSError if the key cannot be read, ValueError if it is empty."""
        self.settings, self._clock = settings, clock
        self._key: OctKey | None = None
        if settings.jwt_key is not None:
            content = settings.jwt_key.read_bytes()
            if len(content) < 16:
                raise ValueError(f"{settings.jwt_key}: {len(content)} bytes are no key of HS256")
            self._key = OctKey.import_key(content)
        here = socket.gethostname()
        names = {name.lower() for name in (*known_as, here, short_name(here), socket.getfqdn())}
        self.names = frozenset(name for name in names if not is_loopback(name) and not name.startswith("localhost"))
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    @property
    def schemes(self) -> tuple[str, ...]:
        """The accepted schemes of the header Authorization."""
        return (*((MUNGE,) if self.settings.munge else ()), *((TOKEN,) if self._key is not None else ()))

    async def person(self, scheme: str, given: str, *, peer: str | None, at: str | None) -> Person:
        """Whom an identity shows. Raises ``IdentityError``.

        ``peer``: the connection's other end; ``at``: this end's address.
        """
        if scheme.lower() == MUNGE.lower() and self.settings.munge:
            name = await self._of_munge(given, peer, at)
        elif scheme.lower() == TOKEN.lower() and self._key is not None:
            name = self._of_token(given, self._key)
        else:
            accepted = " and ".join(self.schemes)
            raise IdentityError(f"{scheme} is not accepted here.", f"Accepted are {accepted} ([access.slurm]).")
        return Person(name, Role.OWN, scope=SCOPE)

    async def _of_munge(self, given: str, peer: str | None, at: str | None) -> str:
        if len(given) > LONGEST or not _CREDENTIAL.fullmatch(given):
            raise IdentityError("This is no munge credential.", "Send what the program munge prints, in one line.")
        if self._waiting >= MOST_WAITING:
            raise IdentityError("Too many munge credentials wait.", "Try again in a few seconds.", status=503)
        self._waiting += 1
        try:
            async with self._turns:
                return await asyncio.to_thread(self._of_credential, given, peer, at)
        finally:
            self._waiting -= 1

    def _of_credential(self, given: str, peer: str | None, at: str | None) -> str:
        done = self._decode(given)
        if done.returncode:
            why, do = _FAILURES.get(done.returncode, (done.stderr.decode("utf-8", "replace").strip()[:200], ""))
            raise IdentityError(f"The munge credential was refused: {why}.", do)
        header, _, payload = done.stdout.decode("utf-8", "replace").partition("\n\n")
        # "UID:              alice (20001)", "ENCODE_TIME:      2026-11-28 22:34:25 +0000 (1795905265)"
        values = {name: int(number) for name, number in _NUMBERED.findall(header)}
        try:
            uid, age = values["UID"], values["DECODE_TIME"] - values["ENCODE_TIME"]
        except KeyError as error:
            raise IdentityError(f"unmunge of this service does not tell {error}.", _FAILURES[6][1]) from error
        if age > OLDEST_S:
            raise IdentityError(
                f"The munge credential was refused: it is {age} seconds old, and {OLDEST_S} are the limit.",
                _FAILURES[15][1],
            )
        self._check_payload(payload, peer, at)
        return self._name(uid)

    def _decode(self, credential: str) -> subprocess.CompletedProcess[bytes]:
        """Raises ``IdentityError`` if the program is missing or hangs."""
        program = shutil.which("unmunge")
        if program is None:
            raise IdentityError("This service has no program unmunge.", "Ask who runs this service to install munge.")
        where = [] if self.settings.munge_socket is None else [f"--socket={self.settings.munge_socket}"]
        try:
            return subprocess.run(
                [program, *where], input=credential.encode(), capture_output=True, timeout=DECODE_S,
                check=False, env={"PATH": os.defpath, "LC_ALL": "C"},
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise IdentityError("munged of this service does not answer.", _FAILURES[6][1]) from error

    def _check_payload(self, payload: str, peer: str | None, at: str | None) -> None:
        purpose, _, host = payload.partition("\n")
        if purpose != PAYLOAD:
            raise IdentityError(
                "The munge credential was refused: it was made for something else.",
                f"Its payload must be {PAYLOAD}, a newline, and the host that is asked.",
            )
        host = host.strip().lower()
        own = (
            host in self.names
            or (at is not None and host == at.lower())
            or (is_loopback(host) and is_loopback(peer or ""))
        )
        if not own:
            raise IdentityError(
                f"The munge credential was refused: it was made for a service on {host[:100]!r}, which is no name of this one.",
                f"Ask {min(self.names, key=len)}, or let who runs this service name that host in public_url.",
            )

    def _name(self, uid: int) -> str:
        if (named := self.settings.users.get(str(uid))) is not None:
            return named
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            raise IdentityError(
                f"uid {uid} has no name where this service runs.",
                f"Ask who runs this service to name it: [access.slurm.users] {uid} = 'NAME'.",
            ) from None

    def _of_token(self, given: str, key: OctKey) -> str:
        try:
            claims: Mapping[str, Any] = jwt.decode(given, key, algorithms=["HS256"]).claims
        except (JoseError, ValueError, TypeError) as error:
            raise IdentityError(
                "The Slurm token was refused: it is not signed with this site's key by HS256.",
                "Make a new one on the cluster whose jwt_hs256.key this service has: scontrol token.",
            ) from error
        now = self._clock()
        until, since = (_moment(claims.get(name)) for name in ("exp", "iat"))
        if until is None:
            raise IdentityError(
                "The Slurm token was refused: it has no end.", "Make one that ends: scontrol token lifespan=3600."
            )
        if until + SKEW_S < now:
            ago = f"{now - until:.0f} seconds ago"
            raise IdentityError(f"The Slurm token was refused: it ended {ago}.", "Make a new one: scontrol token.")
        begins = max(since or 0.0, _moment(claims.get("nbf")) or 0.0)
        if begins - SKEW_S > now:
            raise IdentityError(
                f"The Slurm token was refused: it is {begins - now:.0f} seconds from the future.", _FAILURES[16][1]
            )
        # auth/jwt of Slurm takes "sun"; a site's own issuer may write "username" (userclaimfield).
        name = claims.get("sun", claims.get("username"))
        if not isinstance(name, str) or not _USER.fullmatch(name):
            raise IdentityError("The Slurm token was refused: it names no user.", "Make one by scontrol token.")
        return name


def known_as(public_url: str | None, listen: str) -> tuple[str, ...]:
    """The hosts of the address at which people reach the pages, and of the one on which the service listens."""
    found = (re.sub(r"^\w+://", "", url or "").partition("/")[0] for url in (public_url, listen))
    hosts = (re.sub(r":\d+$", "", host).strip("[]") for host in found)
    return tuple(host for host in hosts if host and host not in ("0.0.0.0", "::"))


def _moment(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
