"""How fast pages open and move in a browser: an incident's axis with many lanes and events, and the map of a large fleet.

    python benchmarks/ui.py [--nodes 12500] [--lanes 200] [--events 100000] [--rounds 5] [--width 1440]

The service's pages over a simulated store in a process of their own, and headless Chromium without a graphics card. A page is
opened anew for each round, with an empty cache. First paint and ready are from the beginning of the request; ready is when the
picture is drawn and takes input. Bytes are those of bodies and heads as they were sent. Frames are those of a movement that asks
for one in each: panning and zooming for a second each; their CPU says what a frame costs where others use the machine. Each figure is beside that of an empty page of the same service in the same
run, since machines differ. Nothing is asserted about time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.simulators import ui_store  # noqa: E402

#: What an operator at a page should not have to wait for; the figures are printed beside them.
GOALS = {"paint": 0.5, "ready": 1.0, "bytes": 400_000, "fps": 50.0}
TIMEOUT_MS = 120_000
READY = """selector => new Promise(done => {
  const ready = () => document.querySelector(selector);
  const look = () => ready() ? requestAnimationFrame(() => done(performance.now())) : requestAnimationFrame(look);
  look();
})"""
PAINT = """() => new Promise(done => new PerformanceObserver(list => {
  const found = list.getEntriesByName('first-contentful-paint')[0];
  if (found) done(found.startTime);
}).observe({ type: 'paint', buffered: true }))"""
#: Moves for a second, one step in each frame; returns frames a second and the longest wait for one, ms.
MOVING = """move => new Promise(done => {
  const step = MOVES[move];
  let first = 0, last = 0, frames = 0, longest = 0;
  const frame = now => {
    if (!first) first = now;
    else { frames++; longest = Math.max(longest, now - last); }
    last = now;
    if (now - first >= 1000) return done([frames / (now - first) * 1000, longest, frames]);
    step(frames);
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""
AXIS = """const axis = document.getElementById('axis').axis, MOVES = {
  pan: n => axis.pan(n % 60 < 30 ? 0.02 : -0.02), zoom: n => axis.zoom(n % 60 < 30 ? 0.96 : 1 / 0.96),
};"""
MAP = """const map = document.getElementById('map'), MOVES = {
  pan: n => { map.scrollTop += n % 60 < 30 ? 20 : -20; map.scrollLeft += n % 60 < 30 ? 20 : -20; },
  zoom: n => map.dispatchEvent(new WheelEvent('wheel', { deltaY: n % 60 < 30 ? -20 : 20, ctrlKey: true, cancelable: true,
    clientX: 500, clientY: 400 })),
};"""


def serve(folder: Path, port: int) -> None:
    """Serves the pages over the store in a folder, without a correlator: the model is the simulator's."""
    import uvicorn

    from store import open_store
    from web.app import create_app

    with open_store(folder) as store:
        uvicorn.run(create_app(store, settings={"cluster": "bench"}), host="127.0.0.1", port=port, log_level="error")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the service did not start")


def cpu_seconds(excluded: int) -> float:
    """What all processes below this one used, without those of the service (``excluded``): the browser's."""
    used: dict[int, tuple[int, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        used[int(stat.parent.name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    below, found = {os.getpid()}, set[int]()
    while below:
        below = {pid for pid, (parent, _) in used.items() if parent in below and pid != excluded}
        found |= below
    return sum(used[pid][1] for pid in found) / os.sysconf("SC_CLK_TCK")


class Opened:
    """One page, opened once."""

    def __init__(self, browser: Any, service: int, address: str, ready: str, width: int, moves: str) -> None:
        context = browser.new_context(viewport={"width": width, "height": 900})
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        sent: list[float] = []
        requests: list[str] = []
        session.on("Network.loadingFinished", lambda event: sent.append(event["encodedDataLength"]))
        session.on("Network.requestWillBeSent", lambda event: requests.append(event["request"]["url"]))
        page.goto(address, timeout=TIMEOUT_MS)
        page.set_default_timeout(TIMEOUT_MS)
        self.figures = {
            "ready": page.evaluate(READY, ready) / 1000,
            "paint": (page.evaluate(PAINT) or float("nan")) / 1000,
        }
        page.wait_for_load_state("networkidle")
        self.figures |= {
            "bytes": sum(sent),
            "requests": len(requests),
            "dom": page.evaluate("document.querySelectorAll('*').length"),
        }
        for move in ("pan", "zoom") if moves else ():
            if move == "pan" and moves == MAP:  # there is nothing to pan before it is near
                page.evaluate(f"() => {{ {MAP} for (let n = 0; n < 20; n++) MOVES.zoom(0); }}")
            begun = cpu_seconds(service)
            fps, longest, frames = page.evaluate(f"move => {{ {moves} return ({MOVING})(move); }}", move)
            used = (cpu_seconds(service) - begun) / max(1, frames) * 1000
            self.figures |= {f"{move} fps": fps, f"{move} longest ms": longest, f"{move} cpu ms": used}
        context.close()


#: Name, address, what is there when it is ready, and how it moves.
PAGES = (
    ("empty page", "/incidents?from=2001-01-01T00:00:00Z&to=2001-01-02T00:00:00Z", "main .empty", ""),
    ("incident axis", f"/incidents/{ui_store.INCIDENT}", "#axis[data-ready=yes]", AXIS),
    ("fleet, state", "/fleet", "#fleet[data-ready=yes]", MAP),
    ("fleet, temperature", "/fleet?measure=temperature", "#fleet[data-ready=yes]", MAP),
)


def measure(site: str, service: int, rounds: int, width: int) -> dict[str, dict[str, float]]:
    """The median of each figure of each page; the pages take turns."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("no chromium on this machine")
    found: dict[str, list[dict[str, float]]] = {name: [] for name, *_ in PAGES}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for turn in range(rounds + 1):
            for name, path, ready, moves in PAGES:
                opened = Opened(browser, service, site + path, ready, width, moves)
                if turn:  # the first round is without the caches of the service
                    found[name].append(opened.figures)
        browser.close()
    return {name: {figure: median(one[figure] for one in rows) for figure in rows[0]} for name, rows in found.items()}


def report(found: dict[str, dict[str, float]]) -> None:
    base = found["empty page"]
    print(f"  {'page':19} {'paint s':>13} {'ready s':>13} {'KB':>12} {'requests':>8} {'DOM':>6}   {'pan':22}   zoom")
    for name, of in found.items():
        parts = [f"{of[key]:5.2f} ({of[key] / base[key]:4.1f}x)" for key in ("paint", "ready")]
        size = f"{of['bytes'] / 1000:4.0f} ({of['bytes'] / base['bytes']:4.1f}x)"
        moves = [
            f"{of[f'{move} fps']:4.0f} fps {of[f'{move} longest ms']:4.0f} / {of[f'{move} cpu ms']:4.1f} ms" if f"{move} fps" in of else ""
            for move in ("pan", "zoom")
        ]  # fmt: skip
        print(
            f"  {name:19} {parts[0]:>13} {parts[1]:>13} {size:>12} {of['requests']:8.0f} {of['dom']:6.0f}   {moves[0]:22}   {moves[1]}"
        )
    print(
        "  in brackets: times the empty page; ms: the longest wait for a frame / CPU of all the browser's processes for one"
    )
    goals = f"first paint {GOALS['paint']:g} s, ready {GOALS['ready']:g} s, {GOALS['bytes'] / 1000:g} KB, {GOALS['fps']:g} frames a second"
    print(f"  goals: {goals}")
    for name, of in found.items():
        missed = [key for key in ("paint", "ready", "bytes") if of[key] > GOALS[key]]
        missed += [f"{move} fps" for move in ("pan", "zoom") if of.get(f"{move} fps", GOALS["fps"]) < GOALS["fps"]]
        print(f"  {name:19} {'misses ' + ', '.join(missed) if missed else 'meets them'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("nodes", 12_500), ("lanes", 200), ("events", 100_000), ("rounds", 5), ("width", 1440)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--serve", nargs=2, metavar=("FOLDER", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(Path(options.serve[0]), int(options.serve[1]))
        return
    from store import open_store
    from store.duckdb.store import DuckStore

    with tempfile.TemporaryDirectory(prefix="faultline-ui-") as name:
        with open_store(Path(name)) as store:
            assert isinstance(store, DuckStore)
            ui_store.fill(store, nodes=options.nodes, lanes=options.lanes, events=options.events)
        port = free_port()
        service = subprocess.Popen([sys.executable, __file__, "--serve", name, str(port)], cwd=ROOT)
        try:
            wait_for(port)
            print(f"{options.nodes:,} nodes; {options.lanes} lanes with {options.events:,} events; {options.rounds} rounds, "
                  f"{options.width} px wide; load {os.getloadavg()[0]:.1f}")  # fmt: skip
            report(measure(f"http://127.0.0.1:{port}", service.pid, options.rounds, options.width))
        finally:
            service.terminate()
            service.wait(30)


if __name__ == "__main__":
    main()
