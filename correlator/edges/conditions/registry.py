"""Requirements of edges by name: hard filters that give a reason when they fail.

``CONDITIONS[name](world, cause, effect) -> str | None``: None if it holds, else why it does not, in words for a person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from correlator.edges.conditions import gpus, guards, hangs, io_errors, launches, links, nodes, retries, runs, storage
from correlator.facts.registry import vocabulary
from correlator.facts.world import World
from correlator.model.nouns import Fact

Condition = Callable[[World, Fact, Fact], str | None]

CONDITIONS: dict[str, Condition] = {
    "hardware xid": gpus.hardware_xid, "xid 74": gpus.xid_74, "not xid 74": gpus.not_xid_74,
    "needs a reboot": gpus.needs_reboot, "row remapped": gpus.row_remapped,
    "uncorrectable memory in the run": gpus.met_memory_error,
    "killed by the guard": guards.killed_it, "others held the memory": guards.others_held_most,
    "printed timeout": hangs.printed_timeout, "no printed timeout": hangs.no_printed_timeout,
    "did not hang": hangs.did_not_hang, "hung long before": hangs.hung_long_before,
    "slow to the end": hangs.slow_to_the_end, "while slow": hangs.while_slow,
    "input/output trouble in the run": io_errors.io_trouble,
    "client evicted or input/output trouble": io_errors.evicted_or_io,
    "launch trouble or no space in the run": io_errors.no_space, "file system given up": io_errors.gave_up,
    "killed by a bus error": io_errors.bus_error,
    "run hardly began": launches.hardly_began, "not killed with its node": launches.not_killed_with_node,
    "its job was on it": launches.job_was_on_it, "away all along": launches.away_all_along,
    "node did not answer": launches.did_not_answer, "away at the launch": launches.away,
    "management link": links.management, "fabric link": links.fabric, "still down at effect": links.still_down,
    "still down at onset": links.still_down_at_onset, "switch carries fabric": links.switch_fabric,
    "switch carries management": links.switch_management, "down at effect": links.down_at_effect,
    "same adapter": links.same_adapter, "single path": links.single_path, "far end only": links.far_end_only,
    "host told or known rail": links.host_told,
    "its share of the planes": links.its_share,
    "not back before effect": nodes.not_back_before, "a step lost its node": nodes.names_node_failure,
    "away at the boot": nodes.away_at_boot, "silent until the boot": nodes.silent_until_boot,
    "booted by itself": nodes.unasked, "named by the reason": nodes.named_by_reason, "planned work": nodes.planned_work,
    "silent until it booted": nodes.silent_till_boot, "node lived until then": nodes.lived_until_then,
    "outlasts usual retries": retries.outlasts_retries,
    "several nodes": runs.several_nodes, "no words of its own": runs.no_own_words,
    "no lost peers told": runs.no_lost_peers, "a task ended by itself": runs.ended_by_itself,
    "link carries the storage": storage.carries, "away while it waited": storage.away_while_waiting,
    "stood still from then on": storage.stood_still,
}  # fmt: skip


@cache
def conditions() -> Mapping[str, Condition]:
    """All requirements by name, including those of installed packages."""
    return vocabulary("CONDITIONS", CONDITIONS)
