"""Job mails of Slurm with the verdict's line: the real mail program gets everything, whatever happens to the line."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from faultline import mail_line
from faultline.entry import main as entry

SCRIPT = Path(__file__).parents[2] / "deploy/slurm/faultline-mail.sh"
FAILED = "Slurm Job_id=15 Name=train Failed, Run time 00:01:00, NODE_FAIL, ExitCode 0"
VERDICT = {"category": "infra.network", "confidence": 0.97, "headline": "", "root_cause": {"host": "gpu02"}}


@pytest.mark.parametrize(
    ("subject", "job"),
    [
        (FAILED, "15"),
        ("Slurm Array Task Job_id=12_3 (19) Name=sweep Failed, Run time 00:00:01, FAILED, ExitCode 1", "19"),
        ("Slurm Array Summary Job_id=12_* (12) Name=sweep Ended, Mixed, ExitCode [0-1]", "12"),
        ("Slurm Job_id=15 Name=Job_id=99 (99) Failed, Run time 00:01:00, FAILED, ExitCode 1", "15"),
        ("Slurm Job_id=15 Name=train Began, Queued time 00:00:01", ""),
        ("Slurm Job_id=15 Name=train Ended, Run time 00:00:09, COMPLETED, ExitCode 0", ""),
        ("Slurm Job_id=15 Name=train Reached time limit 50%, Time reached 50%", ""),
        ("Lunch at Job_id=15 ", ""),
    ],
)
def test_the_job_is_that_of_the_subject_before_its_name(subject: str, job: str) -> None:
    assert mail_line.job_of(["-s", subject, "alice"]) == job
    assert mail_line.job_of(["alice"]) == ""


class Api(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, str | None]]] = []
    answers: ClassVar[list[tuple[int, Any]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        code, document = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def asking(api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("t-mail\n")
    monkeypatch.setenv("FAULTLINE_SERVER", api)
    monkeypatch.setenv("FAULTLINE_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setattr(mail_line, "AGAIN_S", 0.01)
    Api.asked.clear()


@pytest.mark.usefixtures("asking")
def test_a_verdict_is_awaited_for_a_moment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Api.answers[:] = [(404, {}), (404, {}), (200, VERDICT)]
    monkeypatch.setattr("sys.argv", ["faultline", "hook", "mail", "-s", FAILED, "alice"])
    assert entry() == 0
    assert capsys.readouterr().out == "faultline: infra.network 0.97 (gpu02)\n"
    assert Api.asked == [("/api/v1/jobs/15/verdict", "Bearer t-mail")] * 3


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize("answer", [(403, {}), (200, ["no verdict"]), (500, {}), (200, {"category": "unknown"})])
def test_without_a_verdict_nothing_is_printed(
    answer: tuple[int, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTLINE_MAIL_WAIT", "0.05")
    Api.answers[:] = [answer]
    assert mail_line.main(["-s", FAILED, "alice"]) == 0 and capsys.readouterr().out == ""


def sent(folder: Path, faultline: str, settings: str = "") -> tuple[int, str]:
    """The exit code of the script, and what the mail program got: arguments, one a line, and the text."""
    mail, ours, out = folder / "mail", folder / "faultline", folder / "out"
    mail.write_text(f'#!/bin/sh\n{{ for a in "$@"; do printf "<%s>\\n" "$a"; done; cat; }} >{out}\nexit 7\n')
    ours.write_text(f"#!/bin/sh\n{faultline}\n")
    for file in (mail, ours):
        file.chmod(0o755)
    (folder / "conf").write_text(f"program={mail}\nfaultline={ours}\nwait=0\n{settings}")
    done = subprocess.run(
        ["/bin/sh", SCRIPT, "-s", FAILED, "alice@x y"], input=b"text\n", env={"FAULTLINE_MAIL_CONF": str(folder / "conf")}, check=False
    )  # fmt: skip
    return done.returncode, out.read_text()


ARGUMENTS = f"<-s>\n<{FAILED}>\n<alice@x y>\n"


def test_the_mail_has_the_line_below_its_text(tmp_path: Path) -> None:
    assert sent(tmp_path, '[ "$1 $2 $3" = "hook mail -s" ] && echo "faultline: $FAULTLINE_SERVER"', "server=http://f\n") == (
        7, ARGUMENTS + "text\n\nfaultline: http://f\n"
    )  # fmt: skip


@pytest.mark.parametrize("ours", ["exit 3", "sleep 600", "kill -9 $$", "echo lost >&2", "exec cat"])
def test_the_mail_goes_out_as_it_is_if_there_is_no_line(ours: str, tmp_path: Path) -> None:
    assert sent(tmp_path, ours) == (7, ARGUMENTS + "text\n")


def test_a_broken_configuration_and_no_faultline_lose_no_mail(tmp_path: Path) -> None:
    assert sent(tmp_path, "echo x", "faultline=/nowhere\nwait=soon\n$(exit 9)\nif then") == (7, ARGUMENTS + "text\n")
