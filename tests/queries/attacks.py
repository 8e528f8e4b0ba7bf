"""Queries that cost more than they look, by class. What they have in common: somebody who may only read sent them."""

from tests.queries.attack import Attack
from tests.queries.attacks_known import KNOWN, doubling_union, nested_lets
from tests.queries.attacks_red_team import RED_TEAM

ATTACKS = [*KNOWN, *RED_TEAM]

__all__ = ["ATTACKS", "Attack", "doubling_union", "nested_lets"]
