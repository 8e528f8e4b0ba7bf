"""A machine that is enrolled enrols again: with its token, under another name, after the loss of its disk. Nobody else does."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import enrolment_clouds as clouds
import pytest
from enrolment_site import NAMES, Site

from faultline.enrolment.door import Enroller


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_whoever_has_the_token_renews_it(site: Site) -> None:
    site.azure("first")
    assert site.azure("second", token="first")[1]["status"] == "renewed"
    assert site.enroller.find("first") is None and site.enroller.find("second") is not None
    assert site.azure("third", token="first")[0] == 409


def test_a_machine_has_one_name_and_whoever_has_its_token_may_change_it(site: Site) -> None:
    site.azure("t")
    assert site.azure("u", host="gpu003")[0] == 409, "without the token"
    assert site.enroller.counts["renamed"] == 1
    assert site.azure("u", host="gpu003", token="t")[1]["status"] == "renamed"
    sender = site.enroller.find("u")
    assert sender is not None and sender.limits.hosts == ("gpu003",)
    assert site.enroller.find("t") is None and [one.name for one in site.folder.iterdir()] == ["gpu003.json"]
    assert Enroller(site.settings, site.folder.parent).find("u") is not None


def test_a_name_that_changed_while_the_answer_was_lost_is_no_lasting_refusal(site: Site) -> None:
    """The agent has no token yet, and asks with the same one under its new name."""
    site.azure("t")
    assert site.azure("t", host="gpu003")[1]["status"] == "renamed"
    sender = site.enroller.find("t")
    assert sender is not None and sender.limits.hosts == ("gpu003",) and len(list(site.folder.iterdir())) == 1


def test_without_the_resolver_a_token_goes_to_no_other_name(tmp_path: Path) -> None:
    site = Site(tmp_path, resolve=False)
    site.azure("t", host="gpu009")
    assert site.azure("u", host="gpu010", token="t")[0] == 409 and site.enroller.counts["renamed"] == 1


@pytest.mark.parametrize("host", ["gpu001", "gpu003"])
def test_a_machine_that_lost_its_disk_enrols_anew_once_its_token_is_out_of_use(site: Site, host: str) -> None:
    site.azure("old")
    site.now += 600
    assert site.enroller.find("old") is not None  # the agent reports
    site.now += 600
    fresh = clouds.azure(site.nonce("new", host), made=datetime.fromtimestamp(site.now, UTC))
    assert site.azure("new", fresh, host=host)[0] == 409
    site.now += 400
    fresh = clouds.azure(site.nonce("new", host), made=datetime.fromtimestamp(site.now, UTC))
    assert site.azure("new", fresh, host=host)[1]["status"] == ("anew" if host == "gpu001" else "renamed")
    assert site.enroller.find("old") is None and site.enroller.find("new") is not None
    assert len(list(site.folder.iterdir())) == 1


def test_another_machine_takes_no_name_whatever_is_out_of_use(tmp_path: Path) -> None:
    site = Site(tmp_path, resolve=False)
    site.azure("old", host="gpu009")
    site.now += 5000
    fresh = clouds.azure(site.nonce("new", "gpu009"), vmId="another", made=datetime.fromtimestamp(site.now, UTC))
    assert site.azure("new", fresh, host="gpu009")[0] == 409 and site.enroller.counts["taken"] == 1


def test_after_a_restart_a_token_counts_as_used(site: Site, tmp_path: Path) -> None:
    """A service that was down for an hour saw nobody use it."""
    site.azure("old")
    site.now += 3600
    again = Enroller(
        site.settings, tmp_path, clock=lambda: site.now, steady=lambda: site.now, resolve=lambda host: {NAMES[host]}
    )
    site.enroller = again
    fresh = clouds.azure(site.nonce("new"), made=datetime.fromtimestamp(site.now, UTC))
    assert site.azure("new", fresh)[0] == 409
