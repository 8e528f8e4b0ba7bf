"""How many examples a property test takes."""

from __future__ import annotations

import os


def examples(fixed: int) -> int:
    """``fixed`` ones in ``make test``, the same on every machine; a thousand random ones in ``make fuzz``."""
    return 1_000 if os.environ.get("FAULTLINE_FUZZ") else fixed
