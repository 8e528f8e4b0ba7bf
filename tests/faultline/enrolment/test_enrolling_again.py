"""A machine that is enrolled enrols again: with its token, under another name, after the loss of its disk. Nobody else does."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import enrolment_clouds as clouds
import pytest
from enrolment_site import NAMES, Site
from structlog.testing import capture_logs

from faultline.enrolment.door import Enroller
from faultline.enrolment.register import Enrolled


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
    assert site.azure("u", host="gpu003", token="t")[1]["status"] == "moved"
    sender = site.enroller.find("u")
    assert sender is not None and sender.limits.hosts == ("gpu003",)
    assert site.enroller.find("t") is None and [one.name for one in site.folder.iterdir()] == ["gpu003.json"]
    assert Enroller(site.settings, site.folder.parent).find("u") is not None


def test_a_name_that_changed_while_the_answer_was_lost_is_no_lasting_refusal(site: Site) -> None:
    """The agent has no token yet, and asks with the same one under its new name."""
    site.azure("t")
    assert site.azure("t", host="gpu003")[1]["status"] == "moved"
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
    assert site.azure("new", fresh, host=host)[1]["status"] == ("anew" if host == "gpu001" else "moved")
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


def test_a_request_that_comes_while_a_name_changes_leaves_no_second_entry(site: Site) -> None:
    """Every batch of every agent asks for its sender, also between the new file and the end of the former one."""
    site.azure("t")
    register, write = site.enroller.register, site.enroller.register._write

    def slowly(one: Enrolled) -> None:
        write(one)
        assert site.enroller.find("another agent's") is None

    register._write = slowly  # type: ignore[method-assign]
    assert site.azure("u", host="gpu003", token="t")[0] == 200
    assert site.enroller.find("t") is None and site.enroller.find("u") is not None
    assert [one.name for one in site.folder.iterdir()] == ["gpu003.json"]


@pytest.mark.parametrize("back", [0, 3600], ids=["", "the clock was set back"])
def test_a_crash_while_a_name_changes_leaves_no_second_entry(site: Site, back: float) -> None:
    site.azure("t")
    before = (site.folder / "gpu001.json").read_text()
    site.now += 60 - back
    fresh = clouds.azure(site.nonce("u", "gpu003"), made=datetime.fromtimestamp(site.now, UTC))
    site.azure("u", fresh, host="gpu003", token="t")
    (site.folder / "gpu001.json").write_text(before)
    again = Enroller(site.settings, site.folder.parent)
    assert again.find("t") is None and again.find("u") is not None and again.register.count(again._now()) == 1
    assert [one.name for one in site.folder.iterdir()] == ["gpu003.json"]


def test_a_former_entry_that_cannot_be_removed_ends_and_is_removed_later(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.azure("t")
    site.now += 60
    fresh, unlink = clouds.azure(site.nonce("u", "gpu003"), made=datetime.fromtimestamp(site.now, UTC)), Path.unlink

    def fails(self: Path, missing_ok: bool = False) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "unlink", fails)
    with capture_logs() as said:
        assert site.azure("u", fresh, host="gpu003", token="t")[0] == 200
    assert [one["node"] for one in said if "cannot be removed" in one["event"]] == ["gpu001"]
    (site.folder / "gpu009.json").write_text("the folder is read again")
    assert site.enroller.find("t") is None and site.enroller.find("u") is not None
    monkeypatch.setattr(Path, "unlink", unlink)
    site.enroller.purge()
    assert sorted(one.name for one in site.folder.iterdir()) == ["gpu003.json", "gpu009.json"]
    assert site.enroller.find("u") is not None


def test_a_machine_that_moves_to_anothers_name_is_not_silent_about_the_other(site: Site) -> None:
    site.azure("other", clouds.azure(site.nonce("other", "gpu003"), vmId="another"), host="gpu003")
    site.azure("t")
    with capture_logs() as said:
        assert site.azure("u", host="gpu003", token="t")[1]["status"] == "moved"
    assert site.enroller.find("other") is None
    assert {one["event"] for one in said} == {
        "an enrolled machine has another name", "another machine has the name of an enrolled one",
    }  # fmt: skip
    text = [json.loads(line) for line in site.audit.read_text().splitlines()]
    assert [one["what"] for one in text] == ["enrolled", "enrolled", "moved", "replaced"]
    assert text[3]["former"].endswith("another") and "another" not in text[3]["instance"]


def test_a_change_of_name_and_a_refusal_of_one_are_counted_apart(site: Site) -> None:
    site.azure("t")
    assert site.azure("u", host="gpu003", token="t")[1]["status"] == "moved"
    assert site.enroller.counts == {"enrolled": 1, "moved": 1} and site.enroller.trouble is None
    assert site.azure("v")[0] == 409 and site.enroller.counts["renamed"] == site.enroller.counts["moved"] == 1
