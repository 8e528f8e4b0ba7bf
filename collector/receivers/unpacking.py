"""Unpacks bodies (``Content-Encoding``) within limits of size and of streams."""

from __future__ import annotations

import contextlib
import zlib

import zstandard

from collector.receivers.refusals import Refused

#: Limit of a body unpacked: a larger one is refused (413).
MAX_UNPACKED = 64 * 1024 * 1024
#: Input per call of a decompressor: its unused input is copied, and a body may be a million streams.
_GIVEN = 64 * 1024
#: More streams than this in one body no longer compress anything, and each costs some microseconds.
MOST_STREAMS = 20_000


def unpack(data: bytes, encoding: str | None, limit: int = MAX_UNPACKED) -> bytes:
    """Reverses ``Content-Encoding``, the last of several first. Raises ``Refused``: 400 for invalid data, 413 beyond
    ``limit``, 415 for an unknown encoding."""
    too_large = Refused(413, f"more than {limit:,} bytes unpacked", "Send smaller batches.")
    for name in reversed((encoding or "identity").lower().split(",")):
        data = _unpacked(data, name.strip(), limit, too_large)
    return data


def _unpacked(data: bytes, name: str, limit: int, too_large: Refused) -> bytes:
    if name in ("", "identity"):
        if len(data) > limit:
            raise too_large
        return data
    try:
        if name in ("gzip", "x-gzip", "deflate", "zlib"):
            # "deflate" is zlib's format (RFC 9110); some clients send the raw stream, which begins differently.
            bare = name == "deflate" and not (
                len(data) > 1 and data[0] & 15 == 8 and int.from_bytes(data[:2]) % 31 == 0
            )
            return _inflate(data, -15 if bare else 47, limit, too_large)
        if name == "zstd":
            if (whole := _one_frame(data, limit)) is not None:
                return whole
            with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
                out = reader.read(limit + 1)
            if len(out) > limit:
                raise too_large
            if not data or zstandard.frame_content_size(data) != len(out):
                _whole_zstd(data)
            return out
        if name == "snappy":
            return unsnap(data, limit)
    except (zlib.error, zstandard.ZstdError, EOFError, ValueError) as error:
        raise Refused(400, f"the body is not {name}: {error}", "Send what Content-Encoding says.") from error
    raise Refused(415, f"Content-Encoding {name[:40]!r} is not known", "Use zstd, gzip, deflate, snappy or none.")


def states_more(data: bytes, encoding: str | None, limit: int) -> bool:
    """Whether packed data itself gives an unpacked size above ``limit`` bytes, so that it need not be unpacked to see that.
    A sender may give any size: this may decide where a body is unpacked, and not whether it is accepted."""
    name = (encoding or "").strip().lower()
    if name == "zstd":
        with contextlib.suppress(zstandard.ZstdError):
            return zstandard.frame_content_size(data) > limit
    # A stream of gzip ends with its size; of several, the last one's is a part of the whole.
    is_gzip = name in ("gzip", "x-gzip") and data.startswith(b"\x1f\x8b") and len(data) >= 18
    return is_gzip and int.from_bytes(data[-4:], "little") > limit


def unsnap(data: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """Unpacks Snappy's block format. Raises ``ValueError``."""
    import pyarrow as pa

    size = unsnapped_size(data)
    if size > limit:
        raise ValueError(f"more than {limit:,} bytes unpacked")
    try:
        return bytes(pa.decompress(data, size, codec="snappy", asbytes=True))
    except pa.ArrowException as error:
        raise ValueError("not snappy's block format, or cut") from error
    except OSError as error:
        raise ValueError("not snappy's block format, or cut") from error


def unsnapped_size(data: bytes) -> int:
    """The unpacked size, a varint with which Snappy's block format begins. Raises ``ValueError``."""
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return size
    raise ValueError("it does not begin with its size")


def packing_of(data: bytes) -> str | None:
    """The compression of a body that does not declare it: no received format begins like compressed data."""
    if data.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    return "zstd" if data.startswith(b"\x28\xb5\x2f\xfd") else None


def _inflate(data: bytes, window: int, limit: int, too_large: Refused) -> bytes:
    out: list[bytes] = []
    size, at, streams, view = 0, 0, 0, memoryview(data)
    while at < len(data):
        streams = _counted(streams)
        part = zlib.decompressobj(window)
        while not part.eof:
            given = view[at : at + _GIVEN]
            if not given:
                raise Refused(400, "the body ends in the middle of its gzip stream")
            out.append(part.decompress(given, limit + 1 - size))
            size += len(out[-1])
            if size > limit:
                raise too_large
            at += len(given) - len(part.unused_data)
    return b"".join(out)


def _counted(streams: int) -> int:
    """``streams`` plus one. Raises ``Refused`` above the limit."""
    if streams == MOST_STREAMS:
        raise Refused(413, f"more than {MOST_STREAMS:,} packed streams in one body", "Pack a batch as one stream.")
    return streams + 1


def _one_frame(data: bytes, limit: int) -> bytes | None:
    """Unpacks the common case: one frame that gives its size. None for anything else, including broken data."""
    with contextlib.suppress(zstandard.ZstdError):
        if 0 < zstandard.frame_content_size(data) <= limit:
            return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    return None


def _whole_zstd(data: bytes) -> None:
    """Refuses a body whose last frame is truncated: the stream reader returns what it has without an error."""
    at, streams, view = 0, 0, memoryview(data)
    while at < len(data):
        streams = _counted(streams)
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof:
            given = view[at : at + _GIVEN]
            if not given:
                raise Refused(400, "the body ends in the middle of its zstd frame")
            frame.decompress(given)
            at += len(given) - len(frame.unused_data)
