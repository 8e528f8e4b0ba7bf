"""Did a request come from a foreign page?

Without a login, a foreign page needs only a browser inside the network; with one, it needs the browser's cookie. It
could then send a form here in its reader's name, or lines to a receiver. Browsers state where a request came from, and
pages cannot forge that; programs do not state it. A page may also point its own host's name at our address after it was
loaded (DNS rebinding). The browser then takes us for that host, and only the Host header shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from parsers.host_names import is_address

SAFE = {"GET", "HEAD", "OPTIONS"}


def foreign(method: str, headers: Mapping[str, str]) -> bool:
    """True for a request that changes something and that a browser sent from another site's page.

    ``Sec-Fetch-Site`` comes with every request over HTTPS or to the local machine. Over plain HTTP there is ``Origin``,
    whose host must then be the one in the Host header; behind a proxy that renames the host, HTTPS is therefore needed.
    """
    return method not in SAFE and elsewhere(headers)


def elsewhere(headers: Mapping[str, str]) -> bool:
    """True if a browser sent it from another site's page, whatever it requests."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def strange_host(headers: Mapping[str, str], known: Collection[str]) -> bool:
    """True if the requested host is neither an address, nor this machine, nor one of the ``known`` names (lower case)."""
    asked = headers.get("host", "").strip().lower()
    if not asked:
        return False
    try:
        name = (urlsplit(f"//{asked}").hostname or "").rstrip(".")
    except ValueError:
        return True
    if name == "localhost" or name.endswith(".localhost") or name in known:
        return False
    return not is_address(name)


def by_browser(headers: Mapping[str, str]) -> bool:
    """True if a page's script or form may have sent it: browsers say so in every request that changes something."""
    return "origin" in headers or any(name.startswith("sec-fetch-") for name in headers)
