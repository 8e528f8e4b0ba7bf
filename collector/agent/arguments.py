"""Command lines of what runs on nodes and login nodes, read with the standard library."""

from __future__ import annotations

import argparse
from typing import NoReturn

from collector.agent.console import complain


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line on stderr, as all commands do."""

    def error(self, message: str) -> NoReturn:
        complain(f"faultline: {message}; try '{self.prog} --help'")
        raise SystemExit(2)
