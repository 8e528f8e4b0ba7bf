"""Queries that cost more than they seem to, by class, all from a user with read access only."""

from tests.queries.attack import Attack
from tests.queries.attacks_known import KNOWN, doubling_union, nested_lets
from tests.queries.attacks_red_team import RED_TEAM

ATTACKS = [*KNOWN, *RED_TEAM]

__all__ = ["ATTACKS", "Attack", "doubling_union", "nested_lets"]
