"""Whether a change shows another set of log hosts, whose lines in their own names anybody can have sent
(``correlator.gather.addresses.of_log_hosts``). That changes what earlier lines count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import TYPE_CHECKING

from correlator.gather.addresses import of_log_hosts
from correlator.gather.collected import log_host_folders_of
from correlator.site.open_lines import owner_of
from parsers.host_names import short_key

if TYPE_CHECKING:
    from correlator.conclusions import Basis
    from correlator.live.arrivals import Change
    from correlator.model.nouns import Run


def has_new(before: Basis, change: Change, nodes: Callable[[], Collection[str]]) -> bool:
    """Does a host keep lines of others among its own for the first time? ``nodes`` returns where jobs ran."""
    folders = log_host_folders_of(change.collected) - before.collected.log_host_folders
    return bool(folders) and bool(_of_log_hosts(folders, before, nodes))


def run_jobs(before: Basis, change: Change, runs: Iterable[Run], nodes: Callable[[], Collection[str]]) -> bool:
    """Do jobs run now on one that was believed to be a log host?"""
    folders = before.believed.senders.log_host_folders
    if not folders:
        return False
    owners = {owner_of(f"{folder}/") for folder in folders}
    used = chain.from_iterable(r.nodes for r in runs if r.job_id in change.jobs)
    return not owners.isdisjoint(map(short_key, used)) and _of_log_hosts(folders, before, nodes) != folders


def _of_log_hosts(folders: frozenset[str], before: Basis, nodes: Callable[[], Collection[str]]) -> frozenset[str]:
    return of_log_hosts(folders, nodes(), before.inventory.settings if before.inventory else ())
