"""Who may say what: a user writes every text of the catalogue into every place that a user can write to, and changes nothing
for anybody else; and which words count of those who may speak."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from parsers.patterns import load
from tests.correlator.attacked import ALICES, CHANNELS, Channel, judged, others, words, written


@cache
def in_peace() -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        return judged(Path(folder), {})


def after(channels: tuple[Channel, ...], texts: tuple[str, ...]) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        return judged(Path(folder), written(channels, texts))


def harm(channels: tuple[Channel, ...], texts: tuple[str, ...]) -> str:
    """What these words changed for others, or did for their writer; nothing if they did nothing."""
    found, peace = after(channels, texts), in_peace()
    told = []
    for name, was in others(peace).items():
        if (now := others(found)[name]) != was:
            told.append(f"{name}: {was} -> {now}" if name == "lemons" else f"{name} differ")
    own = found["verdicts"][str(ALICES)]
    if own["category"].startswith("infra.") or own["incident_id"] is not None:
        told.append(f"alice's own: {own['category']} {own['confidence']}")
    return "; ".join(told)


def culprits(channels: tuple[Channel, ...], texts: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """The words that do harm, found by halving."""
    if not harm(channels, texts):
        return []
    if len(channels) > 1:
        half = len(channels) // 2
        return [*culprits(channels[:half], texts), *culprits(channels[half:], texts)][:5]
    if len(texts) > 1:
        half = len(texts) // 2
        return [*culprits(channels, texts[:half]), *culprits(channels, texts[half:])][:3]
    return [(channels[0].name, texts[0], harm(channels, texts))]


def test_the_cluster_without_an_attack() -> None:
    verdicts = in_peace()["verdicts"]
    assert {job: v["category"] for job, v in verdicts.items()} == {
        "41": verdicts["41"]["category"], "42": "app.error", "43": "infra.network", "45": verdicts["45"]["category"], "46": "app.error",
    }  # fmt: skip
    assert not verdicts["45"]["category"].startswith("infra") and len(in_peace()["incidents"]) == 1


@pytest.mark.parametrize("place", sorted({channel.place for channel in CHANNELS}))
def test_no_text_of_the_catalogue_touches_another(place: str) -> None:
    channels, texts = tuple(c for c in CHANNELS if c.place == place), words()
    found = harm(channels, texts)
    print(f"{place}: {len(load().entries)} patterns, {len(texts)} texts, {len(channels)} channels, {len(texts) * len(channels)} lines")
    assert not found, culprits(channels, texts)


@pytest.mark.long
@pytest.mark.parametrize("channel", CHANNELS, ids=lambda c: c.name)
def test_no_channel_alone_touches_another(channel: Channel) -> None:
    assert not harm((channel,), words()), culprits((channel,), words())
