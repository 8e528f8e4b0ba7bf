"""The storing thread: whatever ends a transaction there, its waiter is notified, and the next one succeeds."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from collector import supervised
from collector.pieces import Counts
from collector.storing import Storing, Transaction
from store.errors import StoreError


class _Ends(BaseException):
    """An exception that no error handler catches."""


def storing_of(monkeypatch: pytest.MonkeyPatch, does: list[BaseException | None]) -> Storing:
    made = Storing(cast(Any, None), cast(Any, None), cast(Any, None), Counts(), threading.Event())

    def store(_made: Transaction) -> None:
        if (error := does.pop(0)) is not None:
            raise error

    monkeypatch.setattr(made, "_store", store)
    monkeypatch.setattr(supervised, "PAUSE_S", 0.0)
    return made


@pytest.mark.parametrize(("error", "raised"), [(MemoryError(), MemoryError), (_Ends("of it"), StoreError)])
def test_what_fails_there_is_raised_where_it_is_waited_for(
    error: BaseException, raised: type[Exception], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    storing = storing_of(monkeypatch, [error, None])
    one = cast(Any, object())
    storing.begin(one)
    assert storing.wait(240)
    with pytest.raises(raised):
        storing.end()
    storing.begin(one)
    assert storing.wait(240) and storing.end() is one
    assert storing.ended is None
    storing.close()


def test_one_that_cannot_be_kept_alive_hangs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    stated: list[str] = []
    monkeypatch.setattr(supervised, "give_up", stated.append)
    storing = storing_of(monkeypatch, [_Ends("again") for _ in range(supervised.MOST_FAILURES)])
    monkeypatch.setattr(storing._thread, "well", lambda: None)
    for _ in range(supervised.MOST_FAILURES):
        storing.begin(cast(Any, object()))
        assert storing.wait(240)
        with pytest.raises(StoreError):
            storing.end()
    storing._thread.join(120)
    assert stated and storing.ended is not None and "_Ends" in storing.ended
    with pytest.raises(StoreError):
        storing.begin(cast(Any, object()))
    storing.close()
