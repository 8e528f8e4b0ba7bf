"""Logging of every process on the server: structlog, set up here and nowhere else.

Modules log with ``structlog.get_logger()``: a sentence, and named values. Messages that libraries log through the
standard library (uvicorn, APScheduler) pass the same processors. The agent and hooks, which run on compute nodes, write
single lines to stderr and load none of this. It is in the lowest package because every package logs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from parsers.visible import visible

#: Loggers of libraries whose routine messages are noise. A tick that takes longer than a second is normal, and the
#: service logs failed scheduler jobs itself.
QUIET = {"apscheduler": logging.ERROR, "apscheduler.executors": logging.CRITICAL}


def set_up() -> None:
    """Sends the log to stderr, which is looked up again for each entry. May be called repeatedly.

    Logging never raises, and tracebacks are plain: rich ones open modules, which fails when no file handle is left.
    """
    logging.raiseExceptions = False
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.StackInfoRenderer(),
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
    ]
    structlog.configure(
        processors=[*shared, one_line, renderer],
        wrapper_class=_NeverRaises,
        logger_factory=structlog.PrintLoggerFactory(_STDERR),
    )
    _take_over_standard_logging(shared, renderer)


def is_set_up() -> bool:
    """Whether this process has set its logging up."""
    return structlog.get_config()["wrapper_class"] is _NeverRaises


def one_line(_logger: object, _name: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor that keeps external text on its own line and stops it from controlling the terminal."""
    return {
        name: visible(value, lines=False) if isinstance(value, str) and name != "exception" else value
        for name, value in entry.items()
    }


def _take_over_standard_logging(shared: list[Processor], renderer: Processor) -> None:
    """Routes warnings and errors of libraries the same way, in the same form."""
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, one_line, renderer],
    )
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(handler)
    handler = _Handler(_STDERR)
    handler.setFormatter(formatter)
    handler.setLevel(logging.WARNING)
    root.addHandler(handler)
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)


class _Handler(logging.StreamHandler[Any]):
    """Our handler among those of the root logger."""


class _Stderr:
    """The current stderr. Commands replace it with an escaping stream (``faultline.printing``); entries are escaped
    already, and their colours are ours, so they go to the underlying stream."""

    def write(self, text: str) -> int:
        return self._stream().write(text)

    def flush(self) -> None:
        self._stream().flush()

    @staticmethod
    def _stream() -> TextIO:
        found: TextIO = getattr(sys.stderr, "exact", sys.stderr)
        return found


_STDERR: Any = _Stderr()


class _NeverRaises(structlog.make_filtering_bound_logger(logging.INFO)):  # type: ignore[misc]
    """Whatever happens to an entry (a full disk, a closed pipe, no file handle, no memory), its caller continues."""

    def _proxy_to_logger(self, method_name: str, event: str | None = None, *event_args: str, **event_kw: Any) -> Any:
        try:
            return super()._proxy_to_logger(method_name, event, *event_args, **event_kw)
        except Exception:
            with contextlib.suppress(BaseException):
                os.write(2, f"faultline: {event}\n".encode())
            return None
