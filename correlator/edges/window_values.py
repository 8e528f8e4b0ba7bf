"""What an edge's window may name besides settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from correlator.model.attributes import TIMEOUT
from correlator.model.nouns import Fact
from correlator.site.site import JOB_SETTINGS, SETTINGS
from correlator.site.windows import Value


def derived_values(values: dict[str, Value], effect: Fact | None) -> dict[str, Value]:
    """Adds what windows may name besides settings: the InfiniBand retry budget and the effect's logged timeout."""
    values = dict(values)
    exponent, retries = values["NCCL_IB_TIMEOUT"], values["NCCL_IB_RETRY_CNT"]
    values["IbRetryBudget"] = Value(
        4.096e-6 * 2**exponent.low * retries.low,
        4.096e-6 * 2**exponent.high * retries.high,
        exponent.known and retries.known,
    )
    logged = effect.attrs.get(TIMEOUT) if effect else None
    timeout = float(logged or 0.0)
    values["PrintedTimeout"] = Value(timeout, timeout, True, "printed by the program")
    return values


@cache
def example_values() -> Mapping[str, Value]:
    """Default values, for checking that a window can be computed."""
    values = {name: Value.of(default) for name, (default, _) in {**SETTINGS, **JOB_SETTINGS}.items()}
    return derived_values(values, None)
