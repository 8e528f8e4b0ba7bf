"""``faultline hook mail ARGUMENTS``: the line that a job mail of Slurm gets, for deploy/slurm/faultline-mail.sh.

Standard library only. Prints the line of the verdict on the job, or nothing; always exits 0. FAULTLINE_SERVER is the
service, FAULTLINE_TOKEN_FILE has a token for it, FAULTLINE_MAIL_WAIT says for how many seconds a verdict is awaited.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import urllib.request
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import quote

from faultline.verdict_line import line_of

#: Subjects of Slurm: "Slurm Job_id=15 Name=train Failed, Run time 00:01:00, NODE_FAIL, ExitCode 0". Of a task of an array the
#: number of its own is in parentheses. What a user chose, the name, comes behind.
_SUBJECT = re.compile(r"Slurm (?:Array (?:Task|Summary) )?Job_id=(\d+)(?:_(?:\d+|\*))?(?: \((\d+)\))? ")
#: What the end of a subject says of a job that needs no verdict.
_WELL = re.compile(
    r"(?: Began, Queued time [\d:-]+| COMPLETED, ExitCode 0| Time reached \d+%| Staged Out, StageOut time [\d:-]+)$"
)
#: How long a verdict is awaited by default, in seconds, and the time between two questions.
WAIT_S, AGAIN_S = 4.0, 1.0


def main(arguments: Sequence[str]) -> int:
    """Prints the line. ``arguments``: those that Slurm gave its MailProg."""
    try:
        job = job_of(arguments)
        if job and (line := _line(job, os.environ.get("FAULTLINE_SERVER", "").strip())):
            print(line)
    except Exception:  # a mail without the line is as good as before; nobody is there to read an error
        return 0
    return 0


def job_of(arguments: Sequence[str]) -> str:
    """The job that a mail is about and that may need a verdict; "" for none."""
    subject = next((text for flag, text in pairwise(arguments) if flag == "-s"), "")
    found = _SUBJECT.match(subject)
    if not found or _WELL.search(subject):
        return ""
    return found[2] or found[1]


def _line(job: str, server: str) -> str:
    if not server.startswith(("http://", "https://")):
        return ""
    request = urllib.request.Request(f"{server.rstrip('/')}/api/v1/jobs/{quote(job, safe='')}/verdict")
    if where := os.environ.get("FAULTLINE_TOKEN_FILE", ""):
        with open(where, encoding="ascii") as file:  # noqa: PTH123
            request.add_header("Authorization", f"Bearer {file.read().strip()}")
    until = time.monotonic() + float(os.environ.get("FAULTLINE_MAIL_WAIT") or WAIT_S)
    while (left := until - time.monotonic()) > 0:
        try:
            with _OPENER.open(request, timeout=left) as answer:
                if line := line_of(json.loads(answer.read(1 << 20))):
                    return line
        except OSError as error:  # 404: there is none yet
            if getattr(error, "code", None) != 404:
                return ""
        time.sleep(min(AGAIN_S, max(until - time.monotonic(), 0)))
    return ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token goes to the named service only."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
