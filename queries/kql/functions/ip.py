"""IPv4 and IPv6 addresses: parsing, masks, ranges, and finding them in text."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.functions.arguments import arguments
from queries.kql.functions.declaration import LINEAR, Bind, Body, Function, Template
from queries.kql.stages import Scope
from queries.kql.values import Value, sql, text_of

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"

_IPV4 = f"^{_OCTET}(?:\\.{_OCTET}){{3,3}}(?:/(?:3[0-2]|[12]?[0-9]))?$"

_PREFIX = "(32 - coalesce(TRY_CAST(split_part({0}, '/', 2) AS INTEGER), 32))"

PARSE_IPV4 = (
    f"CASE WHEN regexp_matches({{0}}, '{_IPV4}') THEN "
    f"shift_left(shift_right(ipv4_number(split_part({{0}}, '/', 1)), {_PREFIX}), {_PREFIX}) END"
)

_LENGTH = "coalesce(TRY_CAST(split_part({0}, '/', 2) AS INTEGER), 32)"


def _address(value: Value) -> Value:
    """The bare address as a number, whatever prefix follows it."""
    return sql(PARSE_IPV4, "long", sql("split_part({0}, '/', 1)", "string", value), nullable=True)


def _valid(value: Value) -> Value:
    return sql(f"regexp_matches({{0}}, '{_IPV4}')", "bool", value)


def _masked(first: Value, second: Value, prefix: Value | None) -> tuple[Value, Value]:
    """Both addresses under the shortest of the prefixes, for ipv4_compare and ipv4_is_match."""
    lengths = [sql(_LENGTH, "long", v) for v in (first, second)] + ([prefix] if prefix else [])
    size = sql("least({*})", "long", *lengths)
    shift = "shift_right({0}, 32 - {1})"
    return sql(shift, "long", _address(first), size), sql(shift, "long", _address(second), size)


def _ipv4_pair(template: str, kind: str) -> Bind:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        args = arguments(c, node, scope, 2, 3)
        first, second = text_of(args[0]), text_of(args[1])
        left, right = _masked(first, second, args[2] if len(args) == 3 else None)
        guard = f"CASE WHEN {{2}} AND {{3}} THEN {template} END"
        return sql(guard, kind, left, right, _valid(first), _valid(second), nullable=True)

    return build


def _in_range(address: Value, network: Value) -> Value:
    size = sql(_LENGTH, "long", network)
    template = "CASE WHEN {3} AND {4} THEN shift_right({0}, 32 - {2}) = shift_right({1}, 32 - {2}) END"
    parts = (_address(address), _address(network), size, _valid(address), _valid(network))
    return sql(template, "bool", *parts, nullable=True)


def _ipv4_is_in_range(c: Binder, node: ast.Call, scope: Scope) -> Value:
    address, network = arguments(c, node, scope, 2)
    return _in_range(text_of(address), text_of(network))


def _ipv4_netmask_suffix(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (value,) = arguments(c, node, scope, 1)
    return sql(f"CASE WHEN {{1}} THEN {_LENGTH} END", "long", text_of(value), _valid(text_of(value)), nullable=True)


_ALL4, _ALL6 = (1 << 32) - 1, (1 << 128) - 1

_MAPPED = 0xFFFF << 32


def ipv4(text: str) -> tuple[int, int] | None:
    """The number and prefix length of `a.b.c.d[/n]`; octets may have fewer digits, but all four are required."""
    found = re.fullmatch(r"\s*(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?:/(\d{1,2}))?\s*", text)
    if not found or any(int(o) > 255 for o in found.groups()[:4]) or int(found[5] or 32) > 32:
        return None
    number = 0
    for octet in found.groups()[:4]:
        number = number << 8 | int(octet)
    return number, int(found[5] or 32)


def _mask4(number: int, prefix: int) -> int:
    return number & (_ALL4 << (32 - prefix) & _ALL4)


def _dotted(number: int) -> str:
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def ipv6(text: str) -> tuple[int, int] | None:
    """The number and prefix length of an IPv6 address; an IPv4 one is mapped into ::ffff:0:0/96."""
    head, slash, tail = text.strip().partition("/")
    if slash and not tail.isdigit():
        return None
    dotted = head.removeprefix("::ffff:").removeprefix("::")
    four = ipv4(dotted) if "." in dotted and ":" not in dotted else None
    if four:
        prefix = int(tail) if slash else 32
        wide = prefix + 96 if prefix <= 32 else prefix
        return (_MAPPED | four[0], wide) if wide <= 128 else None
    try:
        number = int(ipaddress.IPv6Address(head.split("%")[0]))
    except ValueError:
        return None
    prefix = int(tail) if slash else 128
    return (number, prefix) if prefix <= 128 else None


def _mask6(number: int, prefix: int) -> int:
    return number & (_ALL6 << (128 - prefix) & _ALL6)


def _groups(number: int) -> str:
    text = f"{number:032x}"
    return ":".join(text[i : i + 4] for i in range(0, 32, 4))


def parse_ipv4_mask(text: str, prefix: int) -> int | None:
    """The address under a prefix as a long."""
    found = ipv4(text)
    return _mask4(found[0], min(found[1], prefix)) if found and 0 <= prefix <= 32 else None


def parse_ipv6(text: str) -> str | None:
    """All eight groups of four digits, under the address's own prefix."""
    found = ipv6(text)
    return _groups(_mask6(*found)) if found else None


def parse_ipv6_mask(text: str, prefix: int) -> str | None:
    """All eight groups, under the shorter of two prefixes."""
    found = ipv6(text)
    return _groups(_mask6(found[0], min(found[1], prefix))) if found and 0 <= prefix <= 128 else None


def _both6(first: str, second: str, prefix: int) -> tuple[int, int] | None:
    one, two = ipv6(first), ipv6(second)
    if not one or not two or not 0 <= prefix <= 128:
        return None
    size = min(one[1], two[1], prefix)
    return _mask6(one[0], size), _mask6(two[0], size)


def ipv6_compare(first: str, second: str, prefix: int = 128) -> int | None:
    """-1, 0 or 1 under the shortest of the prefixes."""
    pair = _both6(first, second, prefix)
    return None if pair is None else (pair[0] > pair[1]) - (pair[0] < pair[1])


def ipv6_is_match(first: str, second: str, prefix: int = 128) -> bool | None:
    """Are two addresses equal under the shortest of the prefixes?"""
    pair = _both6(first, second, prefix)
    return None if pair is None else pair[0] == pair[1]


def ipv6_is_in_range(address: str, network: str) -> bool | None:
    """Is an address in a network?"""
    one, two = ipv6(address), ipv6(network)
    return None if not one or not two else _mask6(one[0], two[1]) == _mask6(*two)


def ipv4_is_in_range(address: str, network: str) -> bool | None:
    """Is an address in a network?"""
    one, two = ipv4(address), ipv4(network)
    return None if not one or not two else _mask4(one[0], two[1]) == _mask4(*two)


def _any_of(test: Callable[[str, str], bool | None]) -> Callable[..., bool | None]:
    def run(text: str, *given: Any) -> bool | None:
        wanted = [w for g in given for w in (g if isinstance(g, list) else [g])]
        answers = [test(text, str(w)) for w in wanted]
        if answers and all(a is None for a in answers):
            return None
        return any(answers)

    return run


def format_ipv4(address: Any, prefix: int = 32) -> str | None:
    """Dotted text of an address or a number under a prefix; empty if it is none."""
    return _formatted(address, prefix, False)


def format_ipv4_mask(address: Any, prefix: int = 32) -> str | None:
    """Like format_ipv4, followed by the prefix."""
    return _formatted(address, prefix, True)


def _formatted(address: Any, prefix: int, with_prefix: bool) -> str | None:
    if isinstance(address, int) and not isinstance(address, bool):
        found: tuple[int, int] | None = (address, 32) if 0 <= address <= _ALL4 else None
    else:
        found = ipv4(str(address))
    if not found or not 0 <= prefix <= 32:
        return ""
    size = min(found[1], prefix)
    return _dotted(_mask4(found[0], size)) + (f"/{size}" if with_prefix else "")


def has_ipv4(text: str, address: str) -> bool:
    """Does the text contain this valid address, with no letter or digit beside it?"""
    if not ipv4(address) or "/" in address:
        return False
    return bool(re.search(r"(?<![0-9A-Za-z])" + re.escape(address) + r"(?![0-9A-Za-z])(?!\.\d)", text))


def has_ipv4_prefix(text: str, prefix: str) -> bool:
    """Does the text contain a valid address with this prefix? The prefix is an address or ends in a dot."""
    if not prefix.endswith(".") and not ipv4(prefix):
        return False
    found = re.findall(r"(?<![0-9A-Za-z])\d{1,3}(?:\.\d{1,3}){3}(?![0-9A-Za-z])", text)
    return any(address.startswith(prefix) and ipv4(address) is not None for address in found)


def ipv4_range_to_cidr_list(first: str, last: str) -> list[str] | None:
    """The fewest networks that cover a range of addresses."""
    one, two = ipv4(first), ipv4(last)
    if not one or not two or one[0] > two[0]:
        return None
    low, high = ipaddress.IPv4Address(one[0]), ipaddress.IPv4Address(two[0])
    return [str(n) for n in ipaddress.summarize_address_range(low, high)]


IPV6_IS_IN_RANGE = Function(
    "ipv6_is_in_range", "Whether an address lies in a network.", Body("s s", "bool", ipv6_is_in_range)
)
IPV4_IS_IN_ANY_RANGE = Function(
    "ipv4_is_in_any_range",
    "Whether an address lies in one of several networks.",
    Body("s d", "bool", _any_of(ipv4_is_in_range)),
    Body("s s s*", "bool", _any_of(ipv4_is_in_range)),
)
FUNCTIONS = (
    Function("parse_ipv4", "The address as a number, under its prefix.", Template("s", "long!", PARSE_IPV4)),
    Function(
        "ipv4_is_private",
        "Whether the address is in a private network of RFC 1918.",
        Template(
            "s",
            "bool!",
            f"CASE WHEN regexp_matches({{0}}, '{_IPV4}') THEN regexp_matches({{0}}, "
            "'^(10\\.|192\\.168\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.)') END",
        ),
        cost=LINEAR,
    ),
    Function(
        "ipv4_compare",
        "-1, 0 or 1 as the first address is before, equal to or after the second under a prefix.",
        bind=_ipv4_pair("CAST(sign({0} - {1}) AS BIGINT)", "long"),
    ),
    Function(
        "ipv4_is_match",
        "Whether two addresses agree under the shortest of their prefixes.",
        bind=_ipv4_pair("({0} = {1})", "bool"),
    ),
    Function("ipv4_is_in_range", "Whether an address lies in a network.", bind=_ipv4_is_in_range),
    Function("ipv4_netmask_suffix", "The length of the prefix of an address.", bind=_ipv4_netmask_suffix, cost=LINEAR),
    Function("parse_ipv4_mask", "The address as a number under a prefix.", Body("s l", "long", parse_ipv4_mask)),
    Function(
        "parse_ipv6",
        "The address in its full canonical form; an IPv4 address is mapped.",
        Body("s", "string", parse_ipv6),
    ),
    Function(
        "parse_ipv6_mask",
        "The address in its full canonical form under a prefix.",
        Body("s l", "string", parse_ipv6_mask),
    ),
    Function(
        "ipv6_compare",
        "-1, 0 or 1 as the first address is before, equal to or after the second under a prefix.",
        Body("s s", "long", ipv6_compare),
        Body("s s l", "long", ipv6_compare),
    ),
    Function(
        "ipv6_is_match",
        "Whether two addresses agree under the shortest of their prefixes.",
        Body("s s", "bool", ipv6_is_match),
        Body("s s l", "bool", ipv6_is_match),
    ),
    IPV6_IS_IN_RANGE,
    Function(
        "ipv6_is_in_any_range",
        "Whether an address lies in one of several networks.",
        Body("s d", "bool", _any_of(ipv6_is_in_range)),
        Body("s s s*", "bool", _any_of(ipv6_is_in_range)),
    ),
    IPV4_IS_IN_ANY_RANGE,
    Function(
        "format_ipv4",
        "The dotted text of an address or a number under a prefix.",
        Body("s", "string", format_ipv4),
        Body("l", "string", format_ipv4),
        Body("s l", "string", format_ipv4),
        Body("l l", "string", format_ipv4),
    ),
    Function(
        "format_ipv4_mask",
        "The dotted text of an address or a number, with the prefix behind it.",
        Body("s", "string", format_ipv4_mask),
        Body("l", "string", format_ipv4_mask),
        Body("s l", "string", format_ipv4_mask),
        Body("l l", "string", format_ipv4_mask),
    ),
    Function(
        "has_ipv4",
        "Whether a text holds the address, with no letter or digit beside it.",
        Body("s s", "bool", has_ipv4),
    ),
    Function(
        "has_ipv4_prefix", "Whether a text holds an address that begins so.", Body("s s", "bool", has_ipv4_prefix)
    ),
    Function(
        "has_any_ipv4",
        "Whether a text holds one of several addresses.",
        Body("s d", "bool", _any_of(has_ipv4)),
        Body("s s s*", "bool", _any_of(has_ipv4)),
    ),
    Function(
        "has_any_ipv4_prefix",
        "Whether a text holds an address that begins in one of several ways.",
        Body("s d", "bool", _any_of(has_ipv4_prefix)),
        Body("s s s*", "bool", _any_of(has_ipv4_prefix)),
    ),
    Function(
        "ipv4_range_to_cidr_list",
        "The fewest networks that cover the addresses from one to another.",
        Body("s s", "dynamic", ipv4_range_to_cidr_list),
    ),
)
