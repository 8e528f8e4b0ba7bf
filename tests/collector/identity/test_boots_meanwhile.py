"""Rows may get other numbers while boots are settled: another thread's commit writes a checkpoint, which counts rows anew if many
before them are gone."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collector.identity import boots
from parsers.record import frame
from store import open_store

BOOT = datetime(2026, 11, 30, 10)
#: The rows of one row group.
GROUP = 122_880
#: Three lines of a ring are the first of the second row group.
LINES = f"""INSERT INTO raw.logs BY NAME SELECT n AS line, 0 AS block, 'n1' AS host, CASE WHEN ring THEN 'dmesg' ELSE 'other' END AS file,
CASE WHEN ring THEN format('{{{{"uptime_s": {{}}.5}}}}', n) END AS entities
FROM (SELECT range AS n, range BETWEEN {GROUP} AND {GROUP + 2} AS ring FROM range({4 * GROUP}))"""
#: So much is gone that three row groups become two.
GONE = f"DELETE FROM raw.logs WHERE file = 'other' AND ((line < {GROUP} AND line % 10 < 5) OR (line BETWEEN {GROUP} AND {3 * GROUP} AND line % 10 < 3))"
BOOTED = {"host": "n1", "boot_time": BOOT, "error_us": 1, "source": "scontrol_node"}


def test_a_checkpoint_meanwhile_gives_no_other_line_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path) as store:
        with store.transaction() as connection:
            connection.execute(LINES)
        store.add({"boots": frame("boots", [BOOTED])})
        store.checkpoint()
        at_first, looks = boots.times_of, list[Any]()

        def times_of(*known: Any) -> Any:
            looks.append(at_first(*known))
            if len(looks) == 1:
                with store.transaction() as connection:
                    connection.execute(GONE)
                store.checkpoint()
            return looks[-1]

        monkeypatch.setattr(boots, "times_of", times_of)
        boots.settle(store)
        places = [store.rows("SELECT rowid AS place FROM raw.logs WHERE file = 'dmesg'"), looks[0]["place"].to_list()]
        assert [row["place"] for row in places[0]] != places[1], "the checkpoint moved nothing: this tests nothing"
        assert store.rows("SELECT line, time FROM raw.logs WHERE time IS NOT NULL ORDER BY line") == [
            {"line": n, "time": BOOT + timedelta(seconds=n + 0.5)} for n in range(GROUP, GROUP + 3)
        ]
