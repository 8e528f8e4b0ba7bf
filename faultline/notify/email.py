"""Mail by SMTP."""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Any

from faultline.notify.kind import TIMEOUT_S, Notifier, OptionError, Send
from faultline.notify.message import Message


def mail(message: Message, sender: str, to: list[str]) -> EmailMessage:
    """One fault's mails form a thread: all reply to the first one's message ID. The same message sent twice, because
    the service died in between, has the same ID."""
    made = EmailMessage()
    first = re.sub(r"[^A-Za-z0-9._-]+", "-", message.thread)
    made["Message-ID"] = f"<{first}.{message.number}@faultline>" if message.number else f"<{first}@faultline>"
    if message.number:
        made["In-Reply-To"] = made["References"] = f"<{first}@faultline>"
    made["Date"] = formatdate()
    made["From"], made["To"] = sender, ", ".join(to)
    made["Subject"] = " ".join(message.subject.split())[:200]
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(message.text + "\n")
    return made


def _make(options: Mapping[str, Any]) -> Send:
    to = options["to"]
    if not isinstance(to, list) or not all(isinstance(one, str) and "@" in one for one in to):
        raise OptionError('options.to: must be a list of addresses, such as ["ops@example.org"]')

    def send(message: Message) -> None:
        with smtplib.SMTP(options["server"], options["port"], timeout=TIMEOUT_S) as server:
            if options["starttls"]:
                server.starttls(context=ssl.create_default_context())
            if options["user"]:
                server.login(options["user"], Path(options["password_file"]).read_text(encoding="utf-8").strip())
            server.send_message(mail(message, options["sender"], to))

    return send


NOTIFIER = Notifier(
    "email", "mail by SMTP",
    {"to": None, "sender": None, "server": "localhost", "port": 25, "starttls": False, "user": "", "password_file": ""}, _make,
)  # fmt: skip
