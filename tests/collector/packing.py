"""Compression of requests as by senders, where no library here has it."""

from __future__ import annotations

import struct


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def snap(data: bytes) -> bytes:
    """Snappy with literals only, except one copy of what repeats."""
    return varint(len(data)) + b"".join(bytes([61 << 2]) + struct.pack("<H", len(p) - 1) + p for p in (data[i : i + 9999] for i in range(0, len(data), 9999)))  # fmt: skip
