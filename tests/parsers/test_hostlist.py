"""Host lists: what Slurm writes, what is damaged, and that fold and expand are inverse."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from parsers.hostlist import expand, fold, in_order, numbers


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n[01-03]", ("n01", "n02", "n03")),
        ("n[1,3-4],login", ("login", "n1", "n3", "n4")),
        ("rack[1-2]n[1-2]", ("rack1n1", "rack1n2", "rack2n1", "rack2n2")),
        ("gpu-007", ("gpu-007",)),
        ("a.example.org", ("a.example.org",)),
        ("", ()),
        ("(null)", ()),
        ("None assigned", ()),
        ("  n1 ", ("n1",)),
        ("n[1-", ("n[1-",)),
        ("n[3-1]", ("n[3-1]",)),
        ("n[0-99999999999999]", ("n[0-99999999999999]",)),
        ("@group,n1", ("@group,n1",)),
    ],
)
def test_expand(text: str, hosts: tuple[str, ...]) -> None:
    assert set(expand(text)) == set(hosts)
    assert len(expand(text)) == len(hosts)


@pytest.mark.parametrize(
    ("text", "found"),
    [("0,2-3", {0, 2, 3}), ("7", {7}), ("", set()), ("x,5-,-6,8", {8}), ("3-1", set()), (5000 * "9" + ",4", {4})],
)
def test_numbers(text: str, found: set[int]) -> None:
    assert numbers(text) == found


def test_a_range_of_any_size_is_cut() -> None:
    assert numbers("10-999999999") == set(range(10, 10 + 4096))


def test_order_is_numeric_within_a_name() -> None:
    assert expand("n[8-11]") == ("n8", "n9", "n10", "n11")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n[3,1]", ("n3", "n1")),
        ("10.0.0.[7-8,3]", ("10.0.0.7", "10.0.0.8", "10.0.0.3")),
        ("n2,n1", ("n2", "n1")),
        ("b[2,1],a[09-10]x", ("b2", "b1", "a09x", "a10x")),
        ("r[2,1]n[1-2]", ("r2n1", "r2n2", "r1n1", "r1n2")),
        ("n1", ("n1",)),
        ("(null)", ()),
        ("n[3-1]", ("n[3-1]",)),
        ("n[0-99999999999999]", ("n[0-99999999999999]",)),
        ("n[1-2],n[2-3]", ("n1", "n2", "n3")),
    ],
)
def test_in_the_order_in_which_they_are_written(text: str, hosts: tuple[str, ...]) -> None:
    assert in_order(text) == hosts


@given(st.lists(st.text(st.sampled_from("n1,[]-02 "), max_size=6), max_size=4).map("".join))
def test_the_order_is_all_that_differs(text: str) -> None:
    assert sorted(in_order(text)) == sorted(expand(text))


def test_fold() -> None:
    assert fold(["n03", "n01", "n02"]) == "n[01-03]"
    assert fold([]) == ""
    assert fold(["what is this", "n1"]) == "n1,what is this"


@given(st.sets(st.builds(lambda a, b: f"{a}{b:03d}", st.sampled_from(["n", "gpu-", "r1c"]), st.integers(0, 999))))
def test_fold_and_expand_undo_each_other(hosts: set[str]) -> None:
    assert set(expand(fold(hosts))) == hosts


@given(
    st.lists(
        st.builds(
            lambda a, b, c: f"{a}{b:0{c}d}",
            st.sampled_from(["n", "gpu-", "r1c", "a.b_"]),
            st.integers(0, 120),
            st.sampled_from([3, 3, 3, 1, 2]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_plain_names_are_folded_as_clustershell_folds_them(hosts: list[str]) -> None:
    assert fold(hosts) == str(NodeSet.fromlist(hosts))


@given(st.text(max_size=40))
def test_expand_never_raises(text: str) -> None:
    assert isinstance(expand(text), tuple)
