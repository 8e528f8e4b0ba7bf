"""Dashboards: saved queries with charts on a page, as files (TOML) that are shipped, brought by packages, or a site's own.

``model`` is what a dashboard is, ``reading`` reads a file of one, ``registry`` knows where the files are.
"""

from queries.dashboards.model import Dashboard, Panel
from queries.dashboards.registry import GROUP, all_dashboards, faults, installed

__all__ = ["GROUP", "Dashboard", "Panel", "all_dashboards", "faults", "installed"]
