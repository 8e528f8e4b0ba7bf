"""Forms that a page of ours posts; they work without JavaScript."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import Request

from web.problems import ProblemError

FORM = "application/x-www-form-urlencoded"
#: A form of our pages is far smaller: the longest note is 4,000 characters, each up to twelve bytes when encoded.
MOST_BYTES, MOST_FIELDS = 65_536, 20


async def posted(request: Request, otherwise: str) -> dict[str, str]:
    """The non-empty fields of the posted form as typed. ``otherwise``: what programs should do instead."""
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != FORM:
        raise ProblemError(415, "This address takes a form.", do=otherwise)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise ProblemError(413, f"The form is larger than {MOST_BYTES} bytes.", do="Shorten what was typed.")
    try:
        found = parse_qs(body.decode(), max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise ProblemError(400, "The form cannot be read.", do="Open the page anew and answer again.") from error
    return {name: values[-1] for name, values in found.items()}
