"""Scripts and styles: kept for good under an address that changes with them, sent compressed, requested at once."""

from __future__ import annotations

import gzip
import json
import re
from datetime import datetime
from pathlib import Path

import brotli
import pytest
from fastapi.testclient import TestClient

from web.assets import Asset, Assets, assets
from web.packing import dumped
from web.shaping import wire

PAGES = (
    "/incidents",
    "/incidents/I1",
    "/jobs",
    "/jobs/15",
    "/nodes/gpu01",
    "/fleet",
    "/explore",
    "/tail",
    "/dashboards",
)
NAMED = re.compile(r'(?:src|href)="(/static/[^"]+)"')
IMPORTED = re.compile(r"\bfrom '(\.[^']+)'")


def test_what_a_page_names_is_kept_for_good_and_there(client: TestClient) -> None:
    named = {path: NAMED.findall(client.get(path).text) for path in PAGES}
    assert all(len(addresses) >= 3 for addresses in named.values()), named
    for address in set().union(*named.values()):  # most pages name the same
        answer = client.get(address)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")


def test_modules_are_requested_with_their_page_not_one_after_the_other(client: TestClient) -> None:
    text = client.get("/incidents/I1").text
    known = {address for address in NAMED.findall(text) if address.endswith(".js")}
    for address in known:
        for relative in IMPORTED.findall(client.get(address).text):
            assert str(client.base_url.join(address).join(relative).path) in known
    assert 'rel="modulepreload" href="' in text and len(known) > 12


def test_an_address_of_another_version_is_not_kept(client: TestClient) -> None:
    """A browser would keep the present file as that of a version that may come back."""
    for address in ("/static/app.js", f"/static/v-{'0' * 16}/app.js"):
        answer = client.get(address)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")
        assert client.get(address, headers={"if-none-match": answer.headers["etag"]}).status_code == 304
    assert client.get("/static/none.js").status_code == 404
    assert client.get(assets().address("app.js") + "x").status_code == 404
    assert client.post("/static/app.js").status_code == 405


def test_the_version_follows_what_is_in_any_file(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("export const a = 1;")
    (tmp_path / "b.css").write_text("p { margin: 0 }")
    before = Assets(tmp_path)
    (tmp_path / "b.css").write_text("p { margin: 1px }")
    after = Assets(tmp_path)
    assert before.address("a.js") != after.address("a.js") and Assets(tmp_path).version == after.version
    with pytest.raises(KeyError):
        after.address("c.js")


def test_they_are_sent_compressed_to_who_takes_that(client: TestClient) -> None:
    address = assets().address("css/page.css")
    with client.stream("GET", address, headers={"accept-encoding": "gzip"}) as packed:
        assert packed.headers["content-encoding"] == "gzip" and packed.headers["vary"] == "Accept-Encoding"
        sent = b"".join(packed.iter_raw())
    plain = client.get(address, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(sent) == plain.content and len(sent) * 3 < len(plain.content)
    with client.stream("GET", address, headers={"accept-encoding": "gzip, deflate, br"}) as packed:
        assert packed.headers["content-encoding"] == "br"
        less = b"".join(packed.iter_raw())
    assert brotli.decompress(less) == plain.content and len(less) < len(sent)


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [(None, ""), ("br;q=0, gzip", "gzip"), ("*", "gzip"), ("identity", ""), ("BR", "br"), ("brotli", "")],
)
def test_the_coding_is_one_that_the_client_names(accepted: str | None, coding: str) -> None:
    assert Asset("a.js", b"let a = 1;\n" * 500).body_for(accepted)[1] == coding
    assert Asset("a.js", b"let a = 1;\n").body_for(accepted)[1] == "", "too small to be worth it"


def test_each_has_the_type_without_which_a_browser_refuses_it(client: TestClient) -> None:
    types = {
        "app.js": "text/javascript; charset=utf-8",
        "css/page.css": "text/css; charset=utf-8",
        "icon.svg": "image/svg+xml",
    }
    for name, kind in types.items():
        answer = client.get(assets().address(name))
        assert answer.headers["content-type"] == kind and answer.headers["x-content-type-options"] == "nosniff"


def test_json_of_a_text_that_no_encoding_has_is_sent_all_the_same() -> None:
    """Half of a surrogate pair in a line of JSON, an integer of a hundred bits, a time."""
    value = {"text": "\ud800 a", "bits": 2**100, "at": datetime(2026, 11, 21, 0, 30)}
    assert json.loads(dumped(value, wire)) == {**value, "at": "2026-11-21T00:30:00Z"}
    assert dumped({"at": value["at"], "x": float("nan")}, wire) == b'{"at":"2026-11-21T00:30:00Z","x":null}'
