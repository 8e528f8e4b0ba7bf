"""Where the service and its data are if nothing else is configured. Commands that read no configuration need only these."""

from __future__ import annotations

from pathlib import Path

DEFAULT_LISTEN = "127.0.0.1:8514"
DEFAULT_DATA = Path("faultline-data")
