"""Texts with a structure of their own: URLs, paths, versions, CSV, XML, command lines."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

from queries.kql.functions.declaration import Body, Function

_URL = re.compile(r"^(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<authority>[^/?#]*))?(?P<path>[^?#]*)"
                  r"(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?$", re.S)  # fmt: skip

_VERSION_PART = 10**8  # each of the four components has eight decimal digits


def _query_bag(text: str) -> dict[str, str]:
    out: dict[str, str] = {}
    for pair in text.split("&"):
        key, _, value = pair.partition("=")
        if key:
            out[key] = value
    return out


def parse_url(text: str) -> dict[str, Any]:
    """The components of a URL; nothing is decoded."""
    found = _URL.match(text)
    part = {k: v or "" for k, v in found.groupdict().items()} if found else {}
    authority = part.get("authority", "")
    user, _, place = authority.rpartition("@")
    name, _, secret = user.partition(":")
    host, port = place, ""
    numbered = re.match(r"^(\[[^\]]*\]|[^:]*):(\d+)$", place)
    if numbered:
        host, port = numbered[1], numbered[2]
    return {
        "Scheme": part.get("scheme", ""), "Host": host, "Port": port, "Path": part.get("path", ""), "Username": name,
        "Password": secret, "Query Parameters": _query_bag(part.get("query", "")), "Fragment": part.get("fragment", ""),
    }  # fmt: skip


def parse_urlquery(text: str) -> dict[str, Any]:
    """`k=v&k=v` as a bag under "Query Parameters"."""
    return {"Query Parameters": _query_bag(text.removeprefix("?"))}


def parse_csv(text: str) -> list[str] | None:
    """The fields of the first record."""
    if not text:
        return None
    return next(csv.reader(io.StringIO(text, newline=""), strict=False), [])


def parse_xml(text: str) -> dict[str, Any] | None:
    """Elements as properties, attributes with @, text beside them as #text, repeated elements as arrays."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return None  # entities can grow without bound
    try:
        root = ElementTree.fromstring(text.strip())
    except (ElementTree.ParseError, ValueError):
        return None
    return {_tag(root.tag): _element(root)}


def _tag(name: str) -> str:
    return name.rsplit("}", 1)[-1]


def _element(node: ElementTree.Element) -> Any:
    bag: dict[str, Any] = {f"@{_tag(k)}": v for k, v in node.attrib.items()}
    children: dict[str, list[Any]] = {}
    for child in node:
        children.setdefault(_tag(child.tag), []).append(_element(child))
    bag |= {name: items[0] if len(items) == 1 else items for name, items in children.items()}
    text = (node.text or "").strip() if children else (node.text or "")
    if not bag:
        return text or None
    if text.strip():
        bag["#text"] = text
    return bag


def parse_version(text: str) -> Decimal | None:
    """One to four numbers of at most eight digits, as a number that orders as versions do."""
    parts = text.strip().split(".")
    if not 1 <= len(parts) <= 4 or not all(p.isascii() and p.isdigit() and len(p) <= 8 for p in parts):
        return None
    value = 0
    for part in [*parts, "0", "0", "0"][:4]:
        value = value * _VERSION_PART + int(part)
    return Decimal(value)


def parse_path(text: str) -> dict[str, str]:
    """Scheme, root, directory, file, extension and stream of a Windows, UNC, Unix or file:// path."""
    scheme, rest = "", text
    found = re.match(r"^([A-Za-z][A-Za-z0-9+.-]+)://", text)
    if found:
        scheme, rest = found[1], text[found.end() :]
    root = m[0] if (m := re.match(r"^[A-Za-z]:", rest)) else ""
    cut = max(rest.rfind("/"), rest.rfind("\\"))
    directory, name = (rest[:cut], rest[cut + 1 :]) if cut >= 0 else ("", rest)
    name, _, stream = name.partition(":")
    extension = name.rpartition(".")[2] if "." in name else ""
    return {
        "Scheme": scheme, "RootPath": root, "DirectoryPath": directory,
        "DirectoryName": re.split(r"[\\/]", directory)[-1] if directory else "", "Filename": name,
        "Extension": extension, "AlternateDataStreamName": stream,
    }  # fmt: skip


def parse_command_line(text: str, kind: str) -> list[str] | None:
    """The arguments as Windows splits them: quotes group, backslashes before a quote escape it."""
    if kind.lower() != "windows":
        raise ValueError('kql: parse_command_line() knows the parser type "windows" only')
    if not text.strip():
        return None
    out: list[str] = []
    place = 0
    while place < len(text):
        while place < len(text) and text[place] in " \t":
            place += 1
        if place >= len(text):
            break
        word, place = _argument(text, place)
        out.append(word)
    return out


def _argument(text: str, place: int) -> tuple[str, int]:
    made, quoted = "", False
    while place < len(text):
        slashes = 0
        while place < len(text) and text[place] == "\\":
            slashes, place = slashes + 1, place + 1
        if place < len(text) and text[place] == '"':
            made += "\\" * (slashes // 2)
            if slashes % 2:
                made += '"'
            elif quoted and text[place + 1 : place + 2] == '"':
                made, place = made + '"', place + 1
            else:
                quoted = not quoted
            place += 1
            continue
        made += "\\" * slashes
        if place >= len(text) or (not quoted and text[place] in " \t"):
            break
        made, place = made + text[place], place + 1
    return made, place


FUNCTIONS = (
    Function("parse_url", "The parts of a URL as a bag.", Body("s", "dynamic", parse_url), aliases=("parseurl",)),
    Function(
        "parse_urlquery",
        "The parameters of a URL's query as a bag.",
        Body("s", "dynamic", parse_urlquery),
        aliases=("parseurlquery",),
    ),
    Function("parse_csv", "The fields of the first record as an array.", Body("s", "dynamic", parse_csv)),
    Function("parse_xml", "The elements of an XML document as a bag.", Body("s", "dynamic", parse_xml)),
    Function(
        "parse_version",
        "A version of up to four numbers as a decimal that orders as versions do.",
        Body("s", "decimal", parse_version),
    ),
    Function("parse_path", "The parts of a file's path as a bag.", Body("s", "dynamic", parse_path)),
    Function(
        "parse_command_line", "The arguments of a command line as an array.", Body("S s", "dynamic", parse_command_line)
    ),
)
