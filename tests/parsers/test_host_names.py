"""Names of hosts: what is an address, and what a name is without its domain."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import polars as pl
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from parsers.host_names import is_address, is_loopback, short_key, short_name, short_name_of

LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
#: A name with a domain: the last label is no number.
NAMES = st.builds(lambda labels, last: ".".join([*labels, last]), st.lists(LABELS, max_size=4), st.from_regex("[a-z]{2,6}", fullmatch=True))  # fmt: skip
#: Texts in which the signs that decide are frequent.
TEXTS = st.text(st.sampled_from("..::019afA%-_ é\n"), max_size=12)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("gpu01", "gpu01"),
        ("gpu01.cluster.example.org", "gpu01"),
        ("Gpu01.Site", "Gpu01"),
        ("gpu01.", "gpu01"),
        ("gpu01.site:9100", "gpu01"),
        ("7.site", "7"),
        ("1a.2b", "1a"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1:9100", "10.0.0.1:9100"),
        ("10.0.0.1.", "10.0.0.1."),
        ("300.1.2.3", "300.1.2.3"),
        ("12.34", "12.34"),
        ("fe80::1%eth0.7", "fe80::1%eth0.7"),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.1"),
        ("[::1]:80", "[::1]:80"),
        ("10.0.0.1\n", "10"),
        (".site", ""),
        ("..", ""),
        ("", ""),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short
    assert short_key(name) == short.lower()


@given(NAMES)
def test_a_name_is_its_first_label(name: str) -> None:
    assert short_name(name) == name.split(".")[0]
    assert not is_address(name)


@given(st.ip_addresses(), st.ip_addresses())
def test_two_addresses_are_never_one(one: IPv4Address | IPv6Address, other: IPv4Address | IPv6Address) -> None:
    assert is_address(str(one)) and short_name(str(one)) == str(one)
    assume(one != other)
    assert short_key(str(one)) != short_key(str(other))
    assert is_loopback(str(one)) == one.is_loopback


@given(TEXTS)
@example("::ffff:10.0.0.1")
def test_any_text(text: str) -> None:
    """A beginning of it, short already, and an address only as a whole. The spelling for Polars says the same."""
    short = short_name(text)
    assert text.startswith(short) and short_name(short) == short
    assert short == text or not is_address(text)
    found = pl.DataFrame({"host": [text, None]}).select(short_name_of(pl.col("host")).alias("short"))["short"]
    assert found.to_list() == [short, None]


@pytest.mark.parametrize(
    ("name", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", False), ("10.0.0.1", False), ("", False)],
)
def test_loopback(name: str, loopback: bool) -> None:
    assert is_loopback(name) is loopback
