"""The repair list: GET /api/v1/repairs and the page /repairs."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from correlator.repairs.model import Repair, RepairList
from correlator.repairs.repairs import DAYS, URGENCIES, repairs
from web import pages
from web.api import Cursor, Limit, Read, Within, page
from web.cursors import decode_cursor, encode_cursor
from web.reading import MAX_PAGE, PAGE, Reader
from web.shaping import wire
from web.timerange import Range

router = APIRouter()
#: How long a list is cached, seconds: on a large fabric it takes seconds to compute, and a page is reloaded often.
KEPT_S = 30.0
#: The number of cached lists: ranges that end now differ with every request and are not worth caching.
KEPT = 8


class Memory:
    """The lists of the last requested ranges."""

    def __init__(self) -> None:
        self._lists: dict[tuple[object, object], tuple[float, RepairList]] = {}
        self._lock = threading.Lock()

    def of(self, read: Reader, within: Range) -> RepairList:
        key, now = (within.start, within.end), time.monotonic()
        with self._lock:
            made, found = self._lists.get(key, (float("-inf"), None))
            if found is None or now - made > KEPT_S:
                found = repairs(read, within.start, within.end)
                self._lists = dict([*self._lists.items(), (key, (now, found))][-KEPT:])
            return found


def chosen(rows: Sequence[Repair], urgency: str | None, q: str | None) -> list[Repair]:
    """Repairs of an urgency whose ends, plane or advice contain the words."""
    words = (q or "").lower().split()
    return [
        one for one in rows
        if (not urgency or one.urgency == urgency) and all(
            word in f"{one.node} {one.device} {one.switch or ''} {one.switch_port or ''} {one.plane or ''} {one.action}".lower() for word in words
        )
    ]  # fmt: skip


def part(rows: list[Repair], cursor: str | None, limit: int) -> tuple[list[Repair], str | None]:
    """A page of the list and the cursor after it."""
    first = max(0, int(decode_cursor(cursor, int)[0])) if cursor else 0
    shown = rows[first : first + min(limit, MAX_PAGE)]
    more = first + len(shown) < len(rows)
    return shown, encode_cursor(first + len(shown)) if more else None


def memory_of(request: Request) -> Memory:
    found: Memory = request.app.state.repairs
    return found


@router.get("/api/v1/repairs", tags=["nodes"])
def listed(
    request: Request, read: Read, within: Within, urgency: Annotated[str | None, Query(description="now, soon or watch")] = None,
    q: str | None = None, limit: Limit = PAGE, cursor: Cursor = None,
) -> dict[str, Any]:  # fmt: skip
    """Devices that come and go or correct errors, the most urgent first; the last seven days unless a range is given."""
    found = memory_of(request).of(read, within)
    shown, after = part(chosen(found.repairs, urgency, q), cursor, limit)
    return {
        **page("repairs", [one.document() for one in shown], after),
        "since": wire(found.since),
        "until": wire(found.until),
    }


@router.get("/repairs", response_class=HTMLResponse, include_in_schema=False)
def listed_page(
    request: Request, read: Read, within: Within, urgency: str | None = None, q: str | None = None, cursor: str | None = None
) -> HTMLResponse:  # fmt: skip
    found = memory_of(request).of(read, within)
    shown, after = part(chosen(found.repairs, urgency, q), cursor, PAGE)
    counts = {word: sum(one.urgency == word for one in found.repairs) for word in URGENCIES}
    nothing = {} if found.repairs else pages.first_steps(request, read)
    return pages.render(
        request, "repairs.html", rows=shown, after=after, counts=counts, found=found, days=DAYS, urgency=urgency, q=q, nav="repairs",
        **nothing,
    )  # fmt: skip
