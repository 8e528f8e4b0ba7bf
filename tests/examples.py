"""How many examples a property test takes."""

from __future__ import annotations

import os

#: Random examples of each property; 0 outside of ``make fuzz``.
FUZZ = int(os.environ.get("FAULTLINE_FUZZ") or 0)


def examples(fixed: int) -> int:
    """``fixed`` ones in ``make test``, the same on every machine; random ones in ``make fuzz``, as many as it asks for."""
    return FUZZ or fixed
