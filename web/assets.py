"""Scripts, styles and icons: read once, sent compressed, and kept by browsers for good.

A page names them below ``/static/v-DIGEST/``, where the digest is that of all of them: a script's imports are relative, so
they carry it as well. Under such an address nothing ever changes, and a page never mixes scripts of two versions. Without the
digest, or with that of another version, a browser has to ask again each time.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path, PurePosixPath

import brotli
from markupsafe import Markup
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from web.packing import takes, takes_gzip

PATH = "/static"
#: A year: the longest that RFC 9111 caches are expected to keep something.
FOREVER = "public, max-age=31536000, immutable"
#: A browser takes a script or style from us only under the right type (nosniff). The rest is for readers.
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".json": "application/json"}
#: Smaller files fit into a packet as they are.
WORTH = 1024
#: The best there is: all files take 0.7 s of CPU, each once, when it is first asked for.
BROTLI_LEVEL = 11
_VERSIONED = re.compile(r"v-([0-9a-f]+)/(.+)")
#: A static import of one of our modules. Those that run later (``import(...)``) are requested then.
_IMPORT = re.compile(r"^(?:import|export)\b[^'\";]*?\bfrom '(\.[^']+)'|^import '(\.[^']+)'", re.M)


class Asset:
    """One file."""

    def __init__(self, name: str, body: bytes) -> None:
        self.name, self.body = name, body
        self.kind = KINDS.get(PurePosixPath(name).suffix, "text/plain")
        self.tag = f'W/"{blake2b(body, digest_size=12).hexdigest()}"'  # weak: the same for both encodings

    @cached_property
    def zipped(self) -> bytes:
        """The file in gzip; the file itself if that is not smaller."""
        return self._packed(gzip.compress(self.body, mtime=0))

    @cached_property
    def brotli(self) -> bytes:
        """The file in brotli, 15 % smaller than in gzip; the file itself if that is not smaller."""
        return self._packed(brotli.compress(self.body, quality=BROTLI_LEVEL))

    def _packed(self, body: bytes) -> bytes:
        return body if len(self.body) >= WORTH and len(body) < len(self.body) else self.body

    def body_for(self, accepted: str | None) -> tuple[bytes, str]:
        """What a client gets that sent ``accepted`` as Accept-Encoding, and its content coding (empty: none)."""
        found, coding = (self.brotli, "br") if takes("br", accepted) else (self.body, "")
        if not coding and takes_gzip(accepted):
            found, coding = self.zipped, "gzip"
        return found, coding if found is not self.body else ""

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """The modules that a script needs before it runs, as names."""
        found = _IMPORT.finditer(self.body.decode()) if self.name.endswith(".js") else ()
        return tuple(_joined(PurePosixPath(self.name).parent, each[1] or each[2]) for each in found)


def _joined(folder: PurePosixPath, relative: str) -> str:
    parts: list[str] = list(folder.parts)
    for part in relative.split("/"):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


class Assets:
    """The files of a folder, as an ASGI application and as addresses for templates."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        self.files = {name: Asset(name, path.read_bytes()) for path in paths if (name := path.relative_to(folder).as_posix())}  # fmt: skip
        contents = "".join(f"{one.name}\0{one.tag}\n" for one in self.files.values())
        self.version = blake2b(contents.encode(), digest_size=8).hexdigest()

    def address(self, name: str) -> str:
        """Where a page finds a file. Raises ``KeyError`` if there is none of this name."""
        return f"{PATH}/v-{self.version}/{self.files[name].name}"

    def scripts(self, *names: str) -> Markup:
        """The tags of modules. All that they import is requested with them, not when each of them has been read."""
        asked = dict.fromkeys(found for name in names for found in self._imported(name) if found not in names)
        preload = Markup('<link rel="modulepreload" href="{}">\n')
        tag = Markup('<script type="module" src="{}"></script>\n')
        head = [preload.format(self.address(name)) for name in asked]
        return Markup("").join([*head, *(tag.format(self.address(name)) for name in names)])

    def _imported(self, name: str) -> Iterator[str]:
        seen, waiting = {name}, [name]
        while waiting:
            for found in self.files[waiting.pop()].imports:
                if found not in seen:
                    seen.add(found)
                    waiting.append(found)
                    yield found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        name = scope["path"].removeprefix(scope.get("root_path", "")).lstrip("/")
        versioned = _VERSIONED.fullmatch(name)
        asset = self.files.get(versioned[2] if versioned else name)
        if asset is None:
            raise HTTPException(404)
        headers = Headers(scope=scope)
        # A page of another version gets what there is, and must not keep it under that version's address.
        kept = versioned is not None and versioned[1] == self.version
        sent = {"Cache-Control": FOREVER if kept else "no-cache", "ETag": asset.tag, "Vary": "Accept-Encoding"}
        if asset.tag in headers.get("if-none-match", ""):
            await Response(status_code=304, headers=sent)(scope, receive, send)
            return
        body, coding = asset.body_for(headers.get("accept-encoding"))
        if coding:
            sent["Content-Encoding"] = coding
        await Response(body, media_type=asset.kind, headers=sent)(scope, receive, send)


@cache
def assets() -> Assets:
    """Those of this installation, read once in a process."""
    return Assets(Path(__file__).parent / "static")
