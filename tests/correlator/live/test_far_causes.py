"""No edge reaches further back than a tick does: what its window does not read again is recalled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from correlator.conclusions import Basis, Conclusions
from correlator.edges.scopes import scopes
from correlator.edges.window_values import derived_values
from correlator.engine import load_edges
from correlator.evidence.weigh import NEAR_MISS_S
from correlator.live import far_causes as far
from correlator.live.lookup import Times
from correlator.live.reach import MARGIN_S, longest_window
from correlator.live.state import LiveConclusions, Memory
from correlator.model.attributes import TIMEOUT
from correlator.model.attrs import no_attrs, with_attr
from correlator.model.nouns import Edge, Fact
from correlator.site import windows
from tests.correlator.making import T0, world


@pytest.mark.parametrize("timeout", [600.0, 8 * 3600.0])
@pytest.mark.parametrize("rejected", [False, True], ids=["in the window of the edge", "listed as a rejected rival"])
def test_a_tick_knows_the_causes_of_every_edge(rejected: bool, timeout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cause is as old as its edge allows, and was over at once."""
    anywhere = {name: replace(scope, test=lambda *_: True) for name, scope in scopes().items()}
    monkeypatch.setattr(far, "scopes", lambda: anywhere)
    edges = load_edges().edges
    beyond = []
    for edge in edges:
        if anywhere[edge.scope].own_run:
            continue
        for effect_kind in edge.effect:
            effect = Fact(effect_kind, T0, T0, 1.0, "n1", None, "1", with_attr(no_attrs(), TIMEOUT, timeout))
            where = world([])
            where.facts.append(effect)
            reach = (
                longest_window(LiveConclusions(Conclusions("c", facts=[effect]), Memory(Basis(site=where.site))), edges)
                + MARGIN_S
            )
            high = high_of(edge, where.site.values_for("1"), effect)
            begun = T0 - (2 * high + NEAR_MISS_S if rejected else high) + 1.0
            if begun >= T0 - reach:
                continue
            beyond.append(edge.id)
            for kind in edge.cause:
                cause = Fact(kind, begun, begun + 1.0, 1.0, "n1", "d1")
                found = far.far_causes(where, [cause], Times.of([cause]), edges, T0 - reach, reach)
                assert found == [cause], (
                    f"{edge.id}: a tick does not see a {kind} {T0 - begun:.0f} s before {effect_kind}"
                )
    assert {"E64T", "E23"} <= set(beyond)


def high_of(edge: Edge, values: dict[str, windows.Value], effect: Fact) -> float:
    return windows.window(edge.window, derived_values(values, effect))[1]
