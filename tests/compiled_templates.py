"""Templates that an application of this process compiled, for the next one.

Tests make hundreds of applications, and each would compile the templates of its pages: up to half a second of CPU.
"""

from __future__ import annotations

from functools import cache

import jinja2
from jinja2.bccache import Bucket

from web import pages


class Compiled(jinja2.BytecodeCache):
    """The code of each template, and the checksum of the text that it was made of."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, bytes]] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        checksum, code = self._kept.get(bucket.key, ("", b""))
        if checksum == bucket.checksum:
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._kept[bucket.key] = bucket.checksum, bucket.bytecode_to_string()


@cache
def share_templates() -> None:
    """For the rest of the process."""
    make, compiled = pages.environment, Compiled()

    def environment() -> jinja2.Environment:
        made = make()
        made.bytecode_cache = compiled
        return made

    pages.environment = environment
