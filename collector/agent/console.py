"""What the agent and its commands print: to a person's terminal, and to the agent's log, which is its standard error.

Plain lines, not structlog as in the service: a node needs no package for the agent, and systemd gives each line its time
and unit. All of it may quote untrusted text (file names, a log's first line, an answer's reasons), which cannot control
a terminal here.
"""

from __future__ import annotations

import sys

from collector.agent.strangers import visible


def say(line: str) -> None:
    """A line of a command's answer."""
    print(visible(line))


def complain(line: str) -> None:
    """A line about a command that failed."""
    sys.stderr.write(f"{visible(line)}\n")


def log(line: str) -> None:
    """A line of the running agent's log."""
    complain(f"faultline agent: {line}")
