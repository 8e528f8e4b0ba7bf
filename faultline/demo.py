"""``faultline demo``: a real incident, from its logs, in a temporary store, with the pages."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from collector.ingest import Ingest
from faultline.clock_watch import ClockWatch
from faultline.config import validate
from faultline.exposure import refuse
from faultline.ingesting import in_store
from faultline.upkeep import utc_now
from store import open_store

CAPTURE = Path(__file__).parent / "capture"


def show(listen: str, *, once: bool, insecure: bool = False) -> None:
    from correlator.engine import correlate
    from correlator.incidents.stored import result

    settings = {"listen": listen, "insecure": insecure}
    asked = validate(settings, "command line")
    refuse(asked)  # before the load, which takes seconds
    if not once:
        from faultline.serving import bound, serve

        bound(asked).close()  # likewise: an address that is taken
    with tempfile.TemporaryDirectory(prefix="faultline-demo-") as folder:
        data = Path(folder)
        with open_store(data) as store:
            report = Ingest(store).run([CAPTURE])
            ClockWatch(store).begin(utc_now())
            correlate(store)
            found, stored = result(store), store.info()["lines"]
        read = sum(f.lines for f in report.files)
        print(
            f"Read {read:,} lines of {len(report.files)} files of a real mini Slurm cluster, 21 November 2026: {in_store(stored)}."
        )
        for incident in found["incidents"]:
            print(f"  {incident['id']}  {incident['severity']}: {incident['title']}")
        if once:
            return
        sys.stdout.flush()
        serve(validate({**settings, "data": data}, "command line"), first_page=_page(found), listeners=False)


def _page(found: dict[str, object]) -> str:
    incidents = found["incidents"]
    assert isinstance(incidents, list)
    hurt = [i for i in incidents if i["severity"] == "impact"]
    return f"/incidents/{hurt[0]['id']}" if hurt else "/"
