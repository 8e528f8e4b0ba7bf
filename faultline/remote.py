"""A running service over HTTP. Standard library only: the bare package asks it as well.

The caller is known by the token in FAULTLINE_ACCESS_TOKEN. Without one, a service that asks who it is gets what Slurm knows
the caller by, if it accepts that (``faultline.slurm_credentials``).
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from email.message import Message
from typing import Any

from faultline import slurm_credentials
from faultline.failure import CommandError

#: Timeout for a service's answer, in seconds.
LONGEST_S = 100.0


class RefusedError(CommandError):
    """The service answered with an error. ``code``: its HTTP status; ``document``: the problem, as far as it is one."""

    def __init__(self, text: str, code: int, document: dict[str, Any]) -> None:
        super().__init__(text)
        self.code, self.document = code, document


class Service:
    """``named``: the caller named this address. Credentials of Slurm go nowhere else: on a port that nobody named, any
    user of this machine may listen. ``patience_s``: how long to wait for an answer."""

    def __init__(self, server: str, *, named: bool = True, patience_s: float = LONGEST_S + 20) -> None:
        self.server = (server if "://" in server else f"http://{server}").rstrip("/")
        if not self.server.lower().startswith(("http://", "https://")):
            raise CommandError(f"{server}: a service has an address of http or https, such as https://HOST:8514")
        self._named, self._patience_s = named, patience_s
        #: The scheme that the service accepted.
        self._scheme: str | None = None

    def ask(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        """The body of an answer. Raises ``CommandError``, ``RefusedError`` if the service answered with an error."""
        if token := os.environ.get("FAULTLINE_ACCESS_TOKEN", "").strip():
            return self._ask(path, body, f"Bearer {token}")
        if self._scheme is not None:
            return self._ask(path, body, slurm_credentials.header(self._scheme, self.server))
        try:
            return self._ask(path, body, None)
        except _UnknownError as stranger:
            accepted = slurm_credentials.accepted(stranger.challenge) if self._named else ()
            return self._introduced(path, body, stranger, accepted)

    def _introduced(
        self, path: str, body: dict[str, Any] | None, stranger: _UnknownError, schemes: tuple[str, ...]
    ) -> bytes:
        """Asks with each identity that the service accepts and that can be had here."""
        problems = []
        for scheme in schemes:
            try:
                answer = self._ask(path, body, slurm_credentials.header(scheme, self.server))
            except slurm_credentials.UnavailableError as error:
                problems.append(str(error))
            except _UnknownError as error:
                problems.append(error.words.rstrip("."))
            else:
                self._scheme = scheme
                return answer
        words = "; ".join(problems) or stranger.words.rstrip(".")
        if not self._named:
            words += "; what Slurm knows you by is sent only to a service that you name by --server or FAULTLINE_SERVER"
        elif not schemes:
            words += "; it accepts neither munge nor Slurm tokens"
        cure = "put a token of yours into FAULTLINE_ACCESS_TOKEN" + (", or mend that" if problems else "")
        raise RefusedError(f"{self.server}: not signed in: {words}; {cure}", 401, stranger.document)

    def _ask(self, path: str, body: dict[str, Any] | None, authorization: str | None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            request = urllib.request.Request(f"{self.server}{path}", data=data, headers=headers)
            with opener.open(request, timeout=self._patience_s) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            by_token = (authorization or "").startswith("Bearer ")
            raise self._problem(
                path, error, by_token=by_token, by_slurm=authorization is not None and not by_token
            ) from error
        except (urllib.error.URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise CommandError(
                    f"{self.server}: its certificate is not trusted here ({reason.verify_message}); if it is of the site's own CA, "
                    "name that: export SSL_CERT_FILE=/etc/faultline/ca.pem"
                ) from error
            raise CommandError(
                f"{self.server}: not reachable ({reason}); is the service running? faultline serve"
            ) from error

    def _problem(self, path: str, error: urllib.error.HTTPError, *, by_token: bool, by_slurm: bool) -> RefusedError:
        if 300 <= error.code < 400:
            there = error.headers.get("Location", "elsewhere")
            return RefusedError(
                f"{self.server}{path}: {error.code}: moved to {there}; ask that address", error.code, {}
            )
        detail = error.read().decode("utf-8", "replace")
        document: dict[str, Any] = {}
        try:
            found = json.loads(detail)
            document = found if isinstance(found, dict) else {}
            text = str(document.get("detail") or document.get("title") or detail)
            if document.get("line"):
                text = f"line {document['line']}, column {document.get('column')}: {text}"
            if document.get("suggestion"):
                text += f"; did you mean {document['suggestion']}?"
        except ValueError:
            text = detail[:200]
        if error.code == 401 and not by_token:
            return _UnknownError(text, document, error.headers)
        if error.code == 403 and by_slurm:
            text += " Who is known by Slurm's identity may ask about jobs: put a token of yours into FAULTLINE_ACCESS_TOKEN."
        if error.code == 401:
            text += " Put a token of yours into FAULTLINE_ACCESS_TOKEN."
        return RefusedError(f"{self.server}{path}: {error.code}: {text}", error.code, document)


class _UnknownError(RefusedError):
    """The service wants to know who asks, or does not accept the identity."""

    def __init__(self, words: str, document: dict[str, Any], headers: Message) -> None:
        super().__init__(words, 401, document)
        do = str(document.get("do") or "") if "munge" in words.lower() or "slurm token" in words.lower() else ""
        self.words = f"{words} {do}".strip()
        self.challenge = ", ".join(headers.get_all("WWW-Authenticate") or ())


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Credentials are for the service that was named."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None
