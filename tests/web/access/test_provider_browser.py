"""Sign-in with an OpenID Connect provider in a real browser: another site, its page, the way back, and the cookies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fixture
import pytest
from provider import SmallProvider, running
from serving import serve

from web.access.authentication import Authentication
from web.access.people import Role, Roles
from web.access.sessions import Sessions
from web.access.settings import Provider
from web.access.users import Users

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def small() -> Iterator[SmallProvider]:
    """At another name than the service: for a browser these are two sites, and what it sends to one is not for the other."""
    for provider in running("faultline", "s3cret"):
        provider.address = provider.address.replace("127.0.0.1", "localhost")
        provider.asks = True
        yield provider


@pytest.fixture(scope="module")
def guarded(small: SmallProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    secret = tmp_path_factory.mktemp("provider") / "secret"
    secret.write_text("s3cret\n")
    reported = Provider(issuer=small.address, client_id="faultline", secret_file=secret, name="HPC login")
    authentication = Authentication(
        Users(), Roles({Role.READ: frozenset({"@hpc"})}), Sessions(b"k" * 32, 3600), provider=reported
    )
    yield from serve(fixture.shared(), authentication)


def test_a_person_signs_in_at_the_provider_and_comes_back_to_the_page(
    look: Any, guarded: str, small: SmallProvider
) -> None:
    small.claims = {"preferred_username": "eve", "groups": ["hpc"]}
    page = look(at=guarded).open("/jobs?state=failed")
    assert page.url.startswith(f"{guarded}/login?")
    page.get_by_role("link", name="Sign in with HPC login").click()
    assert page.url.startswith(f"{small.address}/authorize?")
    page.get_by_role("link", name="Continue").click()
    page.wait_for_url(f"{guarded}/jobs?state=failed")
    assert page.get_by_role("button", name="Sign out").count() == 1
    ours = {cookie["name"]: cookie for cookie in page.context.cookies(guarded)}
    kept = [one for one in ours.values() if one["httpOnly"] and one["sameSite"] in ("Lax", "Strict")]
    assert len(kept) == len(ours) > 0
    page.get_by_role("button", name="Sign out").click()
    page.goto(f"{guarded}/jobs")
    assert page.url.startswith(f"{guarded}/login")


def test_whom_the_provider_refuses_stays_outside_and_is_told(look: Any, guarded: str, small: SmallProvider) -> None:
    small.denied = "access_denied"  # the last test with this provider
    eyes = look(at=guarded)
    page = eyes.open("/login")
    page.get_by_role("link", name="Sign in with HPC login").click()
    page.get_by_role("link", name="Continue").click()
    page.wait_for_url(f"{guarded}/login/provider/back?*")
    assert "HPC login" in page.inner_text("main") and page.get_by_role("button", name="Sign out").count() == 0
    eyes.faults.clear()  # the browser logs the refusal's status
