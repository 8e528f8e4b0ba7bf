"""What Slurm knows the caller by: a munge credential or a token, made by the programs of a login node.

Standard library only. The service checks it (``web.access.slurm``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from urllib.parse import urlsplit

#: Schemes of the headers Authorization and WWW-Authenticate.
MUNGE, TOKEN = "Munge", "Slurm-JWT"
#: The payload's first line; the second is the host that is asked, so that nobody else can use the credential.
PAYLOAD = "faultline-why/1"
#: For how long a credential may be used once, in seconds.
MUNGE_TTL_S = 60
#: For how long a token that is made here is valid, in seconds.
TOKEN_S = 300
#: How long munged and slurmctld may take to answer, in seconds.
WAIT_S = 10.0


class UnavailableError(Exception):
    """No such credential can be made here; the text says why, and what to do."""


def accepted(challenge: str) -> tuple[str, ...]:
    """Which of the schemes a service accepts, by its header WWW-Authenticate."""
    named = {name.lower() for name in re.findall(r"(?:^|,)\s*([A-Za-z-]+)(?=\s+\w+=|\s*(?:,|$))", challenge)}
    return tuple(scheme for scheme in (MUNGE, TOKEN) if scheme.lower() in named)


def header(scheme: str, server: str) -> str:
    """The value of Authorization for a service. Raises ``UnavailableError``."""
    return f"{MUNGE} {_munge(server)}" if scheme == MUNGE else f"{TOKEN} {_token(server)}"


def _munge(server: str) -> str:
    if shutil.which("munge") is None:
        raise UnavailableError("munge: there is no program munge here; ask on a login node of the cluster")
    host = urlsplit(server).hostname or ""
    where = os.environ.get("FAULTLINE_MUNGE_SOCKET", "")
    socket = [f"--socket={where}"] if where else []
    made = _run("munge", [f"--string={PAYLOAD}\n{host}", f"--ttl={MUNGE_TTL_S}", *socket])
    if not made.startswith("MUNGE:"):
        raise UnavailableError("munge: what it printed is no credential")
    return made


def _token(server: str) -> str:
    address = urlsplit(server)
    if address.scheme != "https" and not _is_here(address.hostname or ""):
        raise UnavailableError(f"Slurm token: not sent to {server}, where others could read and use it; ask by https")
    given = os.environ.get("SLURM_JWT", "").strip()
    if given:
        return given
    if shutil.which("scontrol") is None:
        raise UnavailableError("Slurm token: SLURM_JWT is not set, and there is no scontrol here to make one")
    output = _run("scontrol", ["token", f"lifespan={TOKEN_S}"])
    found = re.search(r"SLURM_JWT=(\S+)", output)
    if found is None:
        raise UnavailableError(
            "Slurm token: scontrol token printed none; does this cluster have AuthAltTypes=auth/jwt?"
        )
    return found[1]


def _run(program: str, arguments: list[str]) -> str:
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False,
                              stdin=subprocess.DEVNULL, errors="replace")  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{program}: no answer within {WAIT_S:g} s") from error
    except OSError as error:
        raise UnavailableError(f"{program}: {error.strerror}") from error
    if done.returncode:
        problem = " ".join((done.stderr or done.stdout).split())[:200]
        cure = "; is munged running here?" if program == "munge" else ""
        raise UnavailableError(f"{program}: {problem.removeprefix(f'{program}: ') or f'exit {done.returncode}'}{cure}")
    return done.stdout.strip()


def _is_here(host: str) -> bool:
    return host == "localhost" or host == "::1" or host.startswith("127.")
