"""Password attempts: they succeed for nobody, and lock nobody else out."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import fixture
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from web.access import passwords
from web.access.addresses import of_one, plain
from web.access.attempts import MOST_OF_NAME, MOST_OF_PAIR, MOST_OF_SENDER, PACE_S, REMEMBERED, WITHIN_S, Attempts
from web.access.authentication import Authentication
from web.access.passwords import WAITING, WAITING_OF_SENDER, BusyError, Turns, is_old
from web.access.people import Role, Roles
from web.access.sessions import BROWSER_COOKIE, Sessions
from web.access.users import Users, hashed_password
from web.app import create_app

FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
PASSWORD = "correct horse"
HASHED = hashed_password(PASSWORD)


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


@pytest.fixture
def tried(now: list[float]) -> Attempts:
    return Attempts(lambda: now[0])


def test_a_name_waits_where_it_was_tried_and_nowhere_else(tried: Attempts, now: list[float]) -> None:
    for _ in range(MOST_OF_PAIR):
        assert tried.wait_s("ada", "10.0.0.5") == 0
        tried.failed("ada", "10.0.0.5")
    assert tried.wait_s("ada", "10.0.0.5") == WITHIN_S
    assert tried.wait_s("ada", "10.0.0.6") == 0, "nobody locks another out from elsewhere"
    assert tried.wait_s("bob", "10.0.0.5") == 0
    now[0] += WITHIN_S
    assert tried.wait_s("ada", "10.0.0.5") == 0
    tried.succeeded("ada", "10.0.0.5")
    for _ in range(MOST_OF_PAIR - 1):
        tried.failed("ada", "10.0.0.5")
    assert tried.wait_s("ada", "10.0.0.5") == 0, "who came in begins anew"


def test_a_host_with_many_addresses_is_one_sender(tried: Attempts) -> None:
    for n in range(MOST_OF_PAIR):
        tried.failed("ada", f"2001:db8:1:2:{n:x}::1")
    assert tried.wait_s("ada", "2001:db8:1:2:ffff:ffff:ffff:ffff") > 0
    assert tried.wait_s("ada", "2001:db8:1:3::1") == 0
    assert of_one("::ffff:10.0.0.5") == of_one("10.0.0.5") == plain("::ffff:10.0.0.5") == "10.0.0.5"
    assert plain("testclient") == "testclient"


def test_a_name_that_is_tried_from_everywhere_is_slow_and_its_owners_browser_is_not(
    tried: Attempts, now: list[float]
) -> None:
    for n in range(MOST_OF_NAME):
        tried.failed("ada", f"10.0.{n}.1")
    assert tried.wait_s("ada", "10.1.0.1") == 0, "one may try"
    assert 0 < tried.wait_s("ada", "10.1.0.2") <= PACE_S, "the next one waits"
    assert tried.wait_s("ada", "10.1.0.3", "ada's browser") == 0
    now[0] += PACE_S
    assert tried.wait_s("ada", "10.1.0.2") == 0
    for _ in range(MOST_OF_PAIR):
        assert tried.wait_s("ada", "10.1.0.3", "ada's browser") == 0
        tried.failed("ada", "10.1.0.3", "ada's browser")
    assert not tried.is_known("ada's browser"), "a stolen cookie has no more tries than anybody"
    assert tried.wait_s("ada", "10.1.0.3", "ada's browser") > 0


def test_one_address_that_tries_many_names_is_slow_and_refuses_nobody_behind_it(tried: Attempts) -> None:
    for n in range(10 * MOST_OF_SENDER):
        tried.failed(f"name {n}", "10.0.0.5")
    assert tried.wait_s("bob", "10.0.0.5") == 0
    assert tried.is_slow("10.0.0.5") and not tried.is_slow("10.0.0.6")


def test_what_is_remembered_has_a_bound(tried: Attempts) -> None:
    for n in range(REMEMBERED + 100):
        tried.failed(f"{n:06}{'x' * 2000}", f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
    for kept in (tried._pairs, tried._names, tried._senders):
        assert len(kept._moments) == REMEMBERED
    assert max(len(name) for key in tried._pairs._moments for name in key) <= 200


# -- the turns ---------------------------------------------------------------------------------------------------------


def test_many_tries_of_one_sender_starve_nobody() -> None:
    """The sender has one turn at a time: another one's check runs while all of its own still wait."""

    async def scene() -> None:
        turns, held, reported = Turns(), threading.Event(), list[str]()

        async def one(sender: str, known: bool = False) -> None:
            async with turns.turn(sender, lambda: False, known=known):
                await turns.fits(lambda: held.wait(120) if sender == "attacker" else True, known=known)
                reported.append(sender)

        attack = [asyncio.create_task(one("attacker")) for _ in range(WAITING_OF_SENDER)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await one("attacker")
        await one("ada's browser", known=True)
        assert reported == ["ada's browser"], "before any of them was through"
        other = asyncio.create_task(one("bob"))
        held.set()
        await other
        assert reported.count("attacker") < WAITING_OF_SENDER, "a stranger comes after one of them, not after all"
        await asyncio.gather(*attack)
        assert not turns._lines

    asyncio.run(scene())


def test_however_many_senders_wait_a_known_browser_has_its_turn() -> None:
    async def scene() -> None:
        turns, held, reported = Turns(), threading.Event(), list[str]()

        async def one(sender: str, known: bool = False) -> None:
            async with turns.turn(sender, lambda: False, known=known):
                await turns.fits(lambda: known or held.wait(120), known=known)
                reported.append(sender)

        attack = [asyncio.create_task(one(f"2001:db8:0:{n:x}::/64")) for n in range(WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await one("10.0.0.9")
        await one("ada's browser", known=True)
        assert reported == ["ada's browser"]
        held.set()
        await asyncio.gather(*attack)
        assert len(reported) == 1 + WAITING and not turns._lines

    asyncio.run(scene())


def test_a_slow_sender_waits_before_each_password_and_others_do_not() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def scene() -> None:
        turns = Turns(sleep)
        for slow in (True, False, True):
            async with turns.turn("10.0.0.5", lambda slow=slow: slow):
                assert await turns.fits(lambda: True, known=False)

    asyncio.run(scene())
    assert waited == [passwords.SLOW_S] * 2


# -- on the page -------------------------------------------------------------------------------------------------------


@pytest.fixture
def authentication(tmp_path: Path) -> Authentication:
    made = Users(tmp_path / "users.toml", {"ada": HASHED, "bob": HASHED})
    made.save()
    roles = Roles({Role.OPERATE: frozenset({"ada", "bob"})})
    return Authentication(users=Users.load(made.path), roles=roles, sessions=Sessions(b"k" * 32, 3600))


@pytest.fixture
def app(authentication: Authentication) -> Iterator[FastAPI]:
    yield create_app(fixture.shared(), authentication=authentication)


def browser(app: FastAPI, address: str = "10.0.0.5") -> TestClient:
    return TestClient(app, follow_redirects=False, raise_server_exceptions=False, client=(address, 4000))


def sign_in(client: TestClient, name: str, password: str = PASSWORD) -> int:
    return client.post("/login", content=urlencode({"name": name, "password": password}), headers=FORM).status_code


def test_sixty_failures_behind_an_address_keep_nobody_out(
    app: FastAPI, authentication: Authentication, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(MOST_OF_SENDER):
        authentication.attempts.failed(f"name {n}", "10.0.0.5")

    async def at_once(_seconds: float) -> None:
        return None

    monkeypatch.setattr(authentication.turns, "_sleep", at_once)
    assert sign_in(browser(app), "bob") == 303


def test_the_owner_comes_in_with_a_browser_that_is_known_while_the_name_is_tried(
    app: FastAPI, authentication: Authentication
) -> None:
    known, fresh = browser(app, "10.3.0.1"), browser(app, "10.3.0.2")
    assert sign_in(known, "ada") == 303 and BROWSER_COOKIE in known.cookies
    known.post("/logout", headers=FORM)
    assert BROWSER_COOKIE in known.cookies, "it is still known"
    for n in range(MOST_OF_NAME):
        authentication.attempts.failed("ada", f"10.4.{n}.1")
    authentication.attempts.wait_s("ada", "10.4.0.1")  # the next attempt was taken
    answer = fresh.post("/login", content=urlencode({"name": "ada", "password": PASSWORD}), headers=FORM)
    assert answer.status_code == 429 and 0 < int(answer.headers["retry-after"]) <= PACE_S + 1
    assert sign_in(known, "ada") == 303
    fresh.cookies.set(BROWSER_COOKIE, known.cookies[BROWSER_COOKIE])
    assert sign_in(fresh, "bob") == 303, "it speaks for one name only"
    fresh.cookies.set(BROWSER_COOKIE, "nonsense")
    assert sign_in(fresh, "ada") == 429


def test_who_tries_passwords_waits(app: FastAPI, authentication: Authentication) -> None:
    client = browser(app)
    assert sign_in(client, "ada", "wrong") == 403 and sign_in(client, "not there") == 403
    for _ in range(MOST_OF_PAIR):
        authentication.attempts.failed("ada", "10.0.0.5")
    answer = client.post("/login", content=urlencode({"name": "ada", "password": PASSWORD}), headers=FORM)
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 200


def test_tries_at_once_do_not_pass_by_the_count(authentication: Authentication, app: FastAPI) -> None:
    """All are counted before the next one is checked: forty requests at the same moment have eight attempts."""
    with browser(app) as client, ThreadPoolExecutor(8) as many:
        statuses = list(many.map(lambda _n: sign_in(client, "ada", "wrong"), range(2 * MOST_OF_PAIR)))
    assert statuses.count(403) == MOST_OF_PAIR and set(statuses) == {403, 429}, statuses


# -- hashes ------------------------------------------------------------------------------------------------------------


def scrypt(password: str) -> str:
    """As this program wrote them before."""
    digest = hashlib.scrypt(password.encode(), salt=b"s" * 16, n=2**15, r=8, p=3, maxmem=2**27, dklen=32)
    return f"scrypt:32768:8:3:{b64encode(b's' * 16).decode()}:{b64encode(digest).decode()}"


def as_the_product_loads_it() -> Any:
    """The module with the product's own hasher, beside the one to which ``tests/conftest.py`` gave a cheaper hasher."""
    found = importlib.util.find_spec("web.access.passwords")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_new_passwords_are_argon2_and_old_ones_still_fit() -> None:
    product, old = as_the_product_loads_it(), scrypt(PASSWORD)
    new = product.hashed_password(PASSWORD)
    assert new.startswith("$argon2id$v=19$m=65536,t=3,p=1$") and not product.is_old(new) and product.is_old(old)
    assert product.is_old(HASHED), "other costs than today's"
    for kept in (new, old):
        assert product.password_fits(PASSWORD, kept) and not product.password_fits("wrong", kept)
    for broken in ("", "scrypt:x", "scrypt:a:b:c:d:e", "$argon2id$nonsense", "plain", "scrypt:3:8:3:AAAA:AAAA"):
        assert not product.password_fits(PASSWORD, broken), broken


def test_an_old_hash_becomes_new_when_its_password_is_typed_and_the_file_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    Users(path, {"ada": scrypt(PASSWORD), "bob": scrypt("another horse")}).save()
    users = Users.load(path)
    authentication = Authentication(
        users=users, roles=Roles({Role.OPERATE: frozenset({"ada"})}), sessions=Sessions(b"k" * 32, 3600)
    )
    client = browser(create_app(fixture.shared(), authentication=authentication))
    assert sign_in(client, "ada") == 303
    assert client.get("/api/v1/jobs").status_code == 200, "the session is that of the new hash"
    again = Users.load(path)
    assert not is_old(again.people["ada"]) and is_old(again.people["bob"]) and again.has_password("ada", PASSWORD)


def test_who_is_not_there_takes_as_long_as_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same hash function runs; for some names that of an old stored hash."""
    compared: list[str] = []
    monkeypatch.setattr("web.access.users.password_fits", lambda _p, kept: bool(compared.append(kept)))
    for users in (Users(), Users(people={"ada": HASHED}), Users(people={"ada": HASHED, "old": scrypt(PASSWORD)})):
        for n in range(40):
            assert not users.has_password(f"name {n}", PASSWORD)
    kinds = [kept.split("$")[1] if kept.startswith("$") else kept.partition(":")[0] for kept in compared]
    assert set(kinds[:80]) == {"argon2id"} and set(kinds[80:]) == {"argon2id", "scrypt"}
