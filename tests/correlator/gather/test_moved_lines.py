"""A line that was moved with its host's clock: who was there at the time that its stamp showed can have written it, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from correlator.gather import uncounted
from correlator.gather.kernel_lines import SHARED
from tests.correlator.making import T0, event


class _Confirmed:
    hosts: frozenset[str] = frozenset()


class _Hosts:
    """A user's job was on n1 from -600 to 0."""

    confirmed = _Confirmed()

    def is_remote(self, _: object) -> bool:
        return False

    def is_used(self, host: str, time: float) -> bool:
        return bool(self.users_at(host, time))

    def users_at(self, host: str, time: float) -> frozenset[str]:
        return frozenset({"mallory"} if host == "n1" and -600 <= time - T0 <= 0 else ())


@pytest.mark.parametrize(
    ("at", "offset", "open_"),
    [
        (-100, 0.0, True), (100, 0.0, False), (100, -200.0, True), (-100, 200.0, True), (500, -200.0, False),
        # A zone, which nobody chooses: the moment is known.
        (3500, -3600.0, False),
    ],
)  # fmt: skip
def test_a_line_is_as_open_at_its_stamp_as_at_its_time(at: float, offset: float, open_: bool) -> None:
    one = replace(event("gpu.xid", at, "n1", "NVRM: Xid"), clock_offset=offset)
    why = uncounted.reasons([one], {one.id: SHARED}, {}, _Hosts())  # type: ignore[arg-type]
    assert why == ({one.id: uncounted.OPEN} if open_ else {})
    if open_:
        assert "mallory" in uncounted.explained(one, uncounted.OPEN, _Hosts()).users  # type: ignore[arg-type]
    times = {time for time, _ in _moments(one)}
    assert times == ({one.time, one.written_at} if abs(offset) < 400 else {one.time})


def _moments(one: object) -> list[tuple[float, str]]:
    (asked,) = uncounted.questions([one])  # type: ignore[list-item]
    return list(zip(asked._times, ["n1"] * len(asked._times), strict=True))
