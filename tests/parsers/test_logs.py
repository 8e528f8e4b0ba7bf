"""The log: one configuration for ours and for libraries, which raises no error in the caller and stays on one line."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from parsers import logs


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restores the configuration of this process after a test. A test that ran uvicorn may have configured its loggers."""
    for name in ("uvicorn", "uvicorn.error"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
        monkeypatch.setattr(logging.getLogger(name), "disabled", False)
    levels = {name: logging.getLogger(name).level for name in ("uvicorn", "uvicorn.error")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.NOTSET)
    before, configured = structlog.get_config(), structlog.is_configured()
    handlers = list(logging.getLogger().handlers)
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger().handlers[:] = handlers
    if configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()


def test_ours_and_libraries_entries_have_one_form_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up()
    logs.set_up()  # a second time writes no entry twice
    structlog.get_logger().warning("a disk is full", disk="sda")
    logging.getLogger("uvicorn.error").warning("a port is %s", "taken")
    logging.getLogger("apscheduler.scheduler").warning("a run was missed")
    structlog.get_logger().debug("a detail")
    out, err = capsys.readouterr()
    ours, library = err.splitlines()
    assert out == "" and ours[20:].split() == ["[warning", "]", *["a", "disk", "is", "full"], "disk=sda"]
    assert library[20:].split() == ["[warning", "]", *["a", "port", "is", "taken"]]


def test_a_text_of_many_lines_is_written_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up()
    logging.getLogger("uvicorn.error").error("first\n\x1b[2Jsecond")
    structlog.get_logger().error("first\n\x1b[2Jsecond")
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 2 and "\x1b" not in err


def test_logging_raises_into_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _text: str) -> None:
            raise OSError(28, "No space left on device")

        def isatty(self) -> bool:
            return False

        flush = close = lambda self: None

    monkeypatch.setattr(sys, "stderr", Full())
    logs.set_up()
    structlog.get_logger().error("said", reason="x")
    logging.getLogger("uvicorn.error").error("said")
    try:
        raise MemoryError
    except MemoryError:
        structlog.get_logger().exception("said")


@pytest.mark.parametrize("module", ["collector.agent.agent", "collector.hooks", "collector.workers", "parsers.engine"])
def test_small_processes_do_not_load_the_log(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps([m for m in ('structlog', 'rich') if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout) == []


def test_a_package_that_fails_is_named_on_stderr_where_nobody_set_the_log_up() -> None:
    """As in a worker process: stdout is for the requested output."""
    code = (
        "from importlib.metadata import EntryPoint\nfrom parsers import extensions\n"
        "extensions.entry_points = lambda group: [EntryPoint('theirs', 'no_such_module:FORMAT', group)]\n"
        "assert extensions.load('faultline.formats', lambda offered, extension: offered) == []\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "" and "theirs" in done.stderr and "No module named" in done.stderr
