"""Whether a request that changes something came from a page of ours.

Without signing in, a browser inside the network is all that a foreign page would need; with it, its cookie: it could send a form
here in its reader's name. Browsers say where a request came from and pages cannot forge that; programs do not say it.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

SAFE = {"GET", "HEAD", "OPTIONS"}


def foreign(method: str, headers: Mapping[str, str]) -> bool:
    """True for a request that changes something and that a browser sent from another site's page.

    ``Sec-Fetch-Site`` comes with every request over HTTPS or to the own machine. Over plain HTTP there is ``Origin``,
    whose host must then be the one asked; behind a proxy that renames the host, HTTPS is therefore needed.
    """
    if method in SAFE:
        return False
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
