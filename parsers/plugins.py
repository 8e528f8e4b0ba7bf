"""What installed packages bring through entry points. One that does not load is logged and left out: the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any


def installed(group: str) -> list[EntryPoint]:
    """The entry points of a group, by name: their order does not depend on how packages lie on the disk."""
    return sorted(entry_points(group=group), key=lambda point: point.name)


def loaded(group: str) -> Iterator[tuple[EntryPoint, Any]]:
    """Each entry point of a group that loads, and what it names."""
    for point in installed(group):
        try:
            found = point.load()
        except Exception as error:
            left_out(point, str(error) or type(error).__name__)
        else:
            yield point, found


def left_out(point: EntryPoint, reason: str) -> None:
    """Logs that an entry point is not used, and why."""
    # Loaded only here: the log's library costs worker processes 12 MB, and most sites have no packages that fail.
    import structlog

    from parsers import logs

    if not logs.is_set_up():  # a worker process
        logs.set_up()
    structlog.get_logger().warning(
        "an entry point is left out", group=point.group, name=point.name, value=point.value, reason=reason
    )
