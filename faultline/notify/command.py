"""A program of the site: it gets the message as JSON on its standard input, never on its command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from faultline.notify.kind import TIMEOUT_S, Notifier, OptionError, Send
from faultline.notify.message import Message


def _make(options: Mapping[str, Any]) -> Send:
    command = options["command"]
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise OptionError('options.command: must be a list of words, such as ["/usr/local/bin/page", "--oncall"]')

    def send(message: Message) -> None:
        done = subprocess.run(
            command, input=json.dumps(message.as_json()).encode(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            stderr_lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise OSError(f"{command[0]}: exit code {done.returncode}{': ' + stderr_lines[-1] if stderr_lines else ''}")

    return send


NOTIFIER = Notifier("command", "a program that reads the message from its standard input", {"command": None}, _make)
