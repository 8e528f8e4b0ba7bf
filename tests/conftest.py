"""For all tests."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from pathlib import Path
from zlib import crc32

import pytest
import structlog
from argon2 import PasswordHasher, Type
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.examples import FUZZ
from tests.measured import PROPERTY, Measured
from web.access import passwords

# The duration of an example shows how busy the machine is, and nothing about the code. The examples are the same on
# every machine: a test is red because of a change, never by chance. `make fuzz` searches for new ones and prints how to
# repeat them.
settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=15)
settings.register_profile("fuzz", deadline=None, max_examples=FUZZ or 1_000, print_blob=True)
settings.load_profile("fuzz" if FUZZ else "fixed")
if not FUZZ:
    # Hypothesis also draws constants of the modules that a process loaded: fixed examples would change with any of the
    # code, and with the files that run. Each process would parse or look up 900 files for them.
    assert hasattr(providers, "_get_local_constants"), "this version of Hypothesis draws such constants in another way"
    providers._get_local_constants = lambda: providers._local_constants

# Hundreds of processes start in a run: bytecode that is not kept would be compiled in each of them, half a second of CPU.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A password costs a tenth of a second of CPU and 64 MiB, on purpose, and tests hash hundreds. The cost of the product's
# hasher is tested in web/access/test_access_attempts.py, which reloads the module.
passwords.HASHER = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1, type=Type.ID)

# A traceback with all variables, as structlog writes it until a log is set up, takes five seconds of CPU.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)

_OWN_FOLDER = pytest.StashKey[Path]()
#: The number of objects that collecting left and froze.
_FROZEN = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Each run has a folder of its own. pytest's default lies in one that all runs of a user share, and each start of
    pytest closes that to others: tests in which another user reads a file would fail if a second run starts meanwhile."""
    if not config.option.basetemp:
        config.stash[_OWN_FOLDER] = Path(tempfile.mkdtemp(prefix="pytest-faultline-"))
        config.option.basetemp = str(config.stash[_OWN_FOLDER])
    if not config.option.durations and not config.option.xmlpath:
        send_less(config)


def send_less(config: pytest.Config) -> None:
    """Leaves out, of what a worker of xdist sends for each test, that it begins, and that its setup and its teardown
    passed: nobody counts or prints this but ``--durations``, ``--junitxml`` and ``-v``. To send and to read it takes a
    quarter of a millisecond of CPU, and there are ten thousand tests."""
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":  # a worker executes xdist's source: it is no class of a module
            send = plugin.pytest_runtest_logreport

            def pytest_runtest_logreport(report: pytest.TestReport, send: Callable[..., None] = send) -> None:
                if report.when == "call" or not report.passed or report.user_properties:
                    send(report)

            config.pluginmanager.unregister(plugin)
            plugin.pytest_runtest_logreport = pytest.hookimpl(pytest_runtest_logreport)
            if config.option.verbose < 0:  # otherwise the name of what runs is printed
                plugin.pytest_runtest_logstart = pytest.hookimpl(lambda nodeid, location: None)
            config.pluginmanager.register(plugin)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """The folder of a run with failures stays, for a look at it."""
    if (
        exitstatus != pytest.ExitCode.TESTS_FAILED
        and (folder := session.config.stash.get(_OWN_FOLDER, None)) is not None
    ):
        shutil.rmtree(folder, ignore_errors=True)


#: Files that share what costs seconds in every process that needs it, or what only one may have. One process runs all
#: files of a group.
TOGETHER = {
    "a browser": (
        "test_web_contrast.py",
        "test_web_browser.py",
        "test_web_bundle.py",
        "test_web_keyboard.py",
        "test_web_charts.py",
        "test_dashboards.py",
        "test_explore.py",
        "test_provider_browser.py",
        "test_replays.py",
        "test_web_folds.py",
        "test_once_untrue.py",
        "test_pace.py",
        "test_palette.py",
        "test_web_live.py",
        "test_web_tail.py",
        "test_web_tail_page.py",
        "test_web_triage.py",
        "test_web_visible.py",
        "test_web_zones.py",
    ),
    "the syntax trees of all source files": (
        "test_house.py",
        "test_known_engines.py",
        "test_one_owner.py",
        "test_patience.py",
        "test_spelled_functions.py",
        "test_template_names.py",
        "test_utc.py",
        "test_words.py",
        "test_zones.py",
    ),
    "an example of each KQL function": (
        "test_language_page.py",
        "test_costs.py",
        "test_query_costs.py",
        "test_moments.py",
    ),
    "the small Slurm cluster, of which a machine has one (another process would wait for it)": (
        "test_live_cluster.py",
        "test_live_faults.py",
        "test_live_comments.py",
        "test_live_drains.py",
        "test_live_service.py",
        "test_live_slurm_setup.py",
        "test_live_steps.py",
    ),
}
GROUPS = {file: group for group, files in TOGETHER.items() for file in files}
#: Files whose tests share nothing that costs, and take minutes together: each test goes to a process of its own.
APART = ("test_liars.py", "test_storm.py")


class ByFile(LoadFileScheduling):
    """A file, or a group of files, is run by one process; of a few files each test."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        name = file.rpartition("/")[2]
        return nodeid if name in APART else GROUPS.get(name, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile | None:
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


def mark_one_of_each(items: Sequence[pytest.Item]) -> None:
    """Of a test marked ``one_of_each(kind=...)``, the first case of each kind stays in ``make test``; the others are long.

    ``kind`` is a function of some of a case's values, by their names. A case that is long by itself is passed over."""
    seen: set[tuple[str, object]] = set()
    for item in items:
        mark = item.get_closest_marker("one_of_each")
        if mark is None or item.get_closest_marker("long") is not None:
            continue
        kind, values = mark.kwargs["kind"], item.callspec.params  # type: ignore[attr-defined]
        found = item.nodeid.partition("[")[0], kind(**{name: values[name] for name in signature(kind).parameters})
        if found in seen:
            item.add_marker(pytest.mark.long)
        seen.add(found)


#: Files that take long and come late in the alphabet. They run first: a long one at the end would leave the other
#: processes without work.
LONGEST = ("test_web_contrast.py", "test_rights_by_construction.py", "test_extending.py")
#: The same of ``make test-long``: what takes more than half a minute, or waits for so long.
LONGEST_OF_LONG = (
    "test_liars.py",
    "test_attacks.py",
    "test_rights_by_construction.py",
    "test_live_slurm_setup.py",
    "test_units_run.py",
    "test_query_costs.py",
    "test_web_contrast.py",
    "test_short_lines_memory.py",
    "test_finality.py",
    "test_storm.py",
    "test_service_exhausted.py",
    "test_pictures.py",
    "test_standing.py",
    "test_altered_sources.py",
    "test_whose_job.py",
    "test_endings_table.py",
    "test_captures.py",
)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is long
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_one_of_each(items)
    first = LONGEST_OF_LONG if config.option.markexpr == "long" else LONGEST

    def place(item: pytest.Item) -> tuple[int, int]:
        # The rooms are mixed, always in the same way: files of one room wait for the same kind of thing (agents, disks,
        # processes), and run beside each other they leave the cores without work.
        name = item.path.name
        return first.index(name) if name in first else len(first), crc32(name.encode())

    items.sort(key=place)


#: New objects between two collections. Tests make many and keep few: with Python's 700, a twentieth of the CPU went into them.
GARBAGE = 20_000

atexit.register(gc.unfreeze)  # extension modules report objects left at exit as a leak


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[object]:
    """What collecting loads stays until the end. Scanning it for garbage again and again takes a second of CPU in each
    process while it is loaded, and more later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        session.config.stash[_FROZEN] = gc.get_freeze_count()
        gc.enable()
        gc.set_threshold(GARBAGE, *gc.get_threshold()[1:])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """A file whose tests unfreeze (a service's conclusions freeze everything) leaves all modules to the collector: each
    full collection after it took half a second of CPU. So they are frozen again, without the file's own garbage.

    Unfrozen objects join the oldest generation. To count the frozen ones instead would take 66 ms of CPU for each file."""
    yield
    if nextitem is not None and nextitem.path != item.path:
        frozen = item.config.stash.get(_FROZEN, 0)
        if len(gc.get_objects(generation=2)) > frozen / 2:
            gc.collect()
            gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Names a failed test at once: a run that a time limit cuts prints nothing of what it found."""
    if report.failed and not os.environ.get("PYTEST_XDIST_WORKER"):
        print(f"\nfailed: {report.nodeid} ({report.when})", file=sys.__stderr__, flush=True)


@pytest.fixture(scope="session", autouse=True)
def _one_schema() -> Iterator[None]:
    """Imported here: the process that only distributes the tests needs no store."""
    from tests.copied_schema import share_schema
    from tests.idle_engines import macros_left

    share_schema()
    yield
    assert not macros_left(), "a test leaves a macro in a store in memory, which shares its engine with later ones"


@pytest.fixture(autouse=True)
def _own_umask() -> Iterator[None]:
    """A command that writes a store makes its files private from then on; the next test represents another process."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="module", autouse=True)
def _own_umask_of_a_file() -> Iterator[None]:
    """The same for what a file makes once: it comes before the umask of its first test."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    """What a test measured, printed at the end of the run."""
    return lambda text: record_property(PROPERTY, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what tests measured, with their names."""
    reports = [
        r
        for r in terminalreporter.getreports("")
        + terminalreporter.getreports("passed")
        + terminalreporter.getreports("failed")
        if r.when == "call"
    ]
    texts = [(r.nodeid, str(v)) for r in reports for name, v in r.user_properties if name == PROPERTY]
    if texts:
        terminalreporter.section("measured")
        for test, text in sorted(set(texts)):
            terminalreporter.write_line(f"{test}: {text.strip()}")
