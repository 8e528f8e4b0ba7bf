"""Times in the reader's zone: pages show them in it and name it, addresses and the API keep UTC."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient

from web.timerange import parse_range
from web.zones import chosen, local, name_at, shown_in

SUMMER, WINTER = datetime(2026, 7, 1, 12, 0), datetime(2026, 11, 21, 0, 30)


@pytest.mark.parametrize(
    ("zone", "moment", "clock", "name"),
    [
        ("UTC", WINTER, "2026-11-21 00:30", "UTC"),
        ("Europe/Berlin", WINTER, "2026-11-21 01:30", "UTC+01"),
        ("Europe/Berlin", SUMMER, "2026-07-01 14:00", "UTC+02"),
        ("America/Los_Angeles", WINTER, "2026-11-20 16:30", "UTC−08"),
        ("Asia/Kolkata", WINTER, "2026-11-21 06:00", "UTC+05:30"),
        ("America/St_Johns", WINTER, "2026-11-20 21:00", "UTC−03:30"),
    ],
)
def test_a_moment_as_its_zone_shows_it(zone: str, moment: datetime, clock: str, name: str) -> None:
    with shown_in(zone):
        assert f"{local(moment):%Y-%m-%d %H:%M}" == clock and name_at(moment) == name
    assert local(moment) == moment and name_at(moment) == "UTC", "and nobody else's page is told in it"


@pytest.mark.parametrize(
    "told", ["", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "A" * 3000, '"><script>', "\0"]
)
def test_a_zone_that_nobody_knows_is_utc(told: str, client: TestClient) -> None:
    assert chosen(told) == "UTC" and chosen(told, "Asia/Tokyo") == "Asia/Tokyo"
    assert 'data-zone="UTC"' in client.get("/", params={"zone": told}).text


def test_an_address_pins_a_zone_before_the_cookie(client: TestClient) -> None:
    client.cookies.set("zone", "Asia%2FTokyo")
    assert 'data-zone="Asia/Tokyo"' in client.get("/").text
    assert 'data-zone="Europe/Berlin"' in client.get("/?zone=Europe/Berlin").text
    client.cookies.clear()


def test_pages_show_the_zones_clock_and_say_which(client: TestClient) -> None:
    here, there = (client.get("/incidents/I1", params=zone).text for zone in ({}, {"zone": "Europe/Berlin"}))
    assert "<b>00:30:17</b> UTC<" in re.sub(r"\s+<", "<", here) and "Known only at 00:31:18" in here
    assert "<b>01:30:17</b> UTC+01<" in re.sub(r"\s+<", "<", there) and "Known only at 01:31:18" in there
    moments = re.compile(r'datetime="([^"]+)"')
    assert moments.findall(here) == moments.findall(there) != [], "what programs read stays UTC"
    assert "zone=Europe%2FBerlin" in there and "zone=" not in re.sub(r'data-[a-z]+="[^"]*"', "", here)
    assert "21 Nov 2026" in here and "20 Nov 2026" in client.get("/incidents/I1?zone=America/Los_Angeles").text


def test_the_api_and_addresses_keep_utc(client: TestClient) -> None:
    client.cookies.set("zone", "Asia%2FTokyo")
    assert client.get("/api/v1/incidents/I1").json()["start"] == "2026-11-21T00:30:17.735336Z"
    client.cookies.clear()
    with shown_in("Asia/Tokyo"):
        within = parse_range("2026-11-21T00:30:00", "2026-11-21T00:40:00Z")
        assert within.start == WINTER, "a time without a zone means the same to everybody"
        assert within.label() == "21 Nov 2026, 09:30:00 – 09:40:00 UTC+09"
        assert within.shifted(1) == {"from": "2026-11-21T00:40:00Z", "to": "2026-11-21T00:50:00Z"}


@pytest.mark.browser
def test_the_switch_shows_the_browsers_zone_on_page_and_axis(browser: Any, site: str) -> None:
    context = browser.new_context(timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.goto(f"{site}/incidents/I1", wait_until="networkidle")
    clock = "import('/static/axis/scale.js').then(m => m.clock(Date.UTC(2026, 10, 21, 0, 30, 17), 1))"
    assert page.evaluate(clock) == "00:30:17"
    page.click("[data-do=zone]")
    page.wait_for_selector("html[data-zone='Asia/Calcutta']")  # Chromium's name for it
    page.wait_for_selector("#axis[data-ready=yes]")
    assert page.evaluate(clock) == "06:00:17"
    page.wait_for_selector(".ln .t")
    assert {text[:5] for text in page.locator(".ln .t").all_inner_texts()} <= {"06:00", "06:01"}, "raw lines too"
    assert "06:00:17" in page.content() and page.inner_text("[data-do=zone]") == "UTC+05:30"
    page.click("[data-do=zone]")
    page.wait_for_selector("html[data-zone='UTC']")
    assert page.evaluate(clock) == "00:30:17"
    context.close()


@pytest.mark.browser
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "UTC"])
def test_the_browser_and_the_server_call_a_zone_the_same(look: Any, zone: str) -> None:
    """Also in the hour in which a clock is set."""
    page = look().open(f"/?zone={zone}")
    moments = [datetime(2026, 3, 29, 0, 59), datetime(2026, 3, 29, 1, 1), datetime(2026, 10, 3, 15, 31), SUMMER, WINTER]
    script = "import('/static/zone.js').then(m => {}.map(ms => [m.called(ms), m.wall(ms).slice(0, 16)]))"
    stamps = [int((m - datetime(1970, 1, 1)).total_seconds() * 1000) for m in moments]
    with shown_in(zone):
        assert page.evaluate(script.format(stamps)) == [[name_at(m), f"{local(m):%Y-%m-%dT%H:%M}"] for m in moments]
