"""What a bundle holds, read from its file as a stranger would."""

from __future__ import annotations

import base64
import html
import json
import re
from html.parser import HTMLParser
from typing import Any


class Bundle(HTMLParser):
    """``elements``: tags with their attributes; ``scripts`` and ``styles``: their texts, by attributes of the element."""

    def __init__(self, body: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.text = body.decode()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []
        self._in: list[str] | None = None
        self.shown: list[str] = []
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._in = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style") and self._in is not None:
            text = "".join(self._in)
            if tag == "style":
                self.styles.append(text)
            else:
                self.scripts.append((self.elements[-1][1], text))
            self._in = None

    def handle_data(self, data: str) -> None:
        (self.shown if self._in is None else self._in).append(data)

    @property
    def policy(self) -> dict[str, str]:
        (content,) = [
            a["content"] for t, a in self.elements if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
        ]
        return {words.split()[0]: words.split(None, 1)[1] for words in str(content).split("; ")}

    def block(self, identity: str) -> Any:
        (text,) = [text for attrs, text in self.scripts if attrs.get("id") == identity]
        return json.loads(text)

    @property
    def parts(self) -> dict[str, bytes]:
        """Attached data by its name in the manifest."""
        links = {
            str(attrs["download"]): str(attrs["href"])
            for tag, attrs in self.elements
            if tag == "a" and "download" in attrs
        }
        name = self.block("manifest")["incident"]
        return {key.removeprefix(f"{name}-"): base64.b64decode(href.partition(",")[2]) for key, href in links.items()}

    def everything(self) -> str:
        """All texts of the page, and of its data that is text."""
        texts = [*self.shown, *(text for _, text in self.scripts if "const modules" not in text)]
        texts += [str(value) for _, attrs in self.elements for name, value in attrs.items() if name != "href"]
        return html.unescape("\n".join(texts)) + self.parts["incident.json"].decode()


REFERENCE = re.compile(r"(?:https?:)?//[\w.-]+\.\w+/", re.I)
