"""A user with read access attacks a real service with queries: each ends at its limits, and no other user waits.

The output shows the measurements.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.measured import Measured
from tests.queries.attacks import ATTACKS
from tests.web.attacked_site import BUDGET, LIMIT_S, PATIENCE_S, Beside, Site, attacked_site, judged

pytestmark = pytest.mark.long
#: Runs only these of the table, for work on one of them: a regular expression of "kind: name".
ONLY = os.environ.get("FAULTLINE_ATTACKS", "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from attacked_site(tmp_path_factory.mktemp("attacked"))


def test_attacks(site: Site, measured: Measured) -> None:
    attacks = [a for a in ATTACKS if re.search(ONLY, f"{a.kind}: {a.name}")]
    measured(f"{len(attacks)} attacks, limit {LIMIT_S:g} s, {BUDGET / 1e6:.0f} MB")
    judged(site, attacks, measured)


def test_lines_went_on(site: Site) -> None:
    end = time.monotonic() + PATIENCE_S
    sent = site.sent
    counted: Any = None
    while time.monotonic() < end:
        counted = site.ask("bob", "Logs | where Message has 'storm' | count")[1].get("rows")
        if counted and counted[0][0] >= sent:
            return
        time.sleep(0.5)
    raise AssertionError(f"{sent} lines were taken in, {counted} are stored")


def test_tails_wait_their_turn(site: Site, measured: Measured) -> None:
    """Thirty streams with an expensive filter: four are opened, the others get the reason.

    People can sign in meanwhile.
    """
    import http.client

    site.beside = Beside()
    statuses: list[int] = []
    held = []
    query = urlencode({"filter": "strlen(strrep(Message, 100000)) > 5"})
    for _ in range(30):
        connection = http.client.HTTPConnection("127.0.0.1", site.service.http, timeout=PATIENCE_S)
        connection.request("GET", f"/api/v1/tail?{query}", headers=site.as_("mallory"))
        statuses.append(connection.getresponse().status)
        held.append(connection)
    time.sleep(6)
    for connection in held:
        connection.close()
    measured(f"30 tails: {statuses.count(200)} open, {statuses.count(429)} refused; others {site.beside.longest}")
    assert set(statuses) <= {200, 429} and 0 < statuses.count(200) <= 30 and statuses.count(429) > 0
    assert site.beside.longest["sign-in"] < LIMIT_S + 2 * site.beside.longest["health"] + 1


def test_cancelled_clients_leave_nothing(site: Site) -> None:
    """Forty queries whose clients disconnect at once."""
    import http.client

    for _ in range(40):
        connection = http.client.HTTPConnection("127.0.0.1", site.service.http, timeout=PATIENCE_S)
        body = json.dumps(
            {"query": "range x from 1 to 1000000000 step 1 | summarize sum(x)", "timeout_s": 600}
        ).encode()
        connection.request("POST", "/api/v1/query", body, site.as_("mallory"))
        connection.close()
    began = time.monotonic()
    while (status := site.ask("mallory", "print 1", timeout_s=120)[0]) == 429:  # until the disconnects are noticed
        assert time.monotonic() - began < 300, "they run on until their own limit, 600 s"
        time.sleep(0.1)
    assert status == 200
