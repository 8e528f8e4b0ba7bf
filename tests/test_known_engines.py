"""Who knows DuckDB: the store, KQL's engine, and the tests and benchmarks that are listed here with a reason."""

from __future__ import annotations

from tests.test_house import ROOT, named_in

#: Who else may know DuckDB, and why. Everything else is tested and measured by the protocol.
KNOW_DUCKDB: dict[str, tuple[str, ...]] = {
    "tests of DuckDB's own store": ("tests/store/", "tests/idle_engines.py", "tests/copied_schema.py"),
    "compares KQL, or SQL that it compiles to, with the engine itself": (
        "tests/parsers/test_node_states.py", "tests/queries/kql/operators/test_branching.py", "tests/queries/kql/test_cases.py",
        "tests/queries/kql/test_edges.py", "tests/queries/kql/wall/test_few_rows.py", "tests/queries/kql/functions/test_functions.py",
        "tests/queries/kql/test_fuzz.py", "tests/queries/kql/wall/test_kept_processes.py", "tests/queries/kql/test_moments.py", "tests/queries/kql/test_own_connections.py",
        "tests/queries/kql/operators/test_patterns.py", "tests/queries/kql/test_refusals.py", "tests/queries/kql/test_run.py",
        "tests/queries/kql/functions/test_site_functions.py",
        "tests/queries/kql/operators/test_pivot_and_series.py", "tests/queries/kql/operators/test_rows_chosen.py", "tests/queries/kql/test_traps.py", "tests/queries/kql/wall/test_wall.py",
    ),
    "what the engine itself refuses to a person's view": (
        "tests/correlator/engine/test_concluded_facts.py", "tests/correlator/evidence/test_forged_evidence.py",
        "tests/queries/test_drains.py", "tests/web/access/test_own_lines.py", "tests/web/access/test_rights_by_construction.py",
    ),
    "looks at or makes DuckDB's segments, files, log or schema": (
        "tests/collector/test_pipeline.py", "tests/correlator/engine/test_archived.py", "tests/correlator/live/test_inbox.py",
        "tests/faultline/test_backup_command.py", "tests/faultline/test_service.py",
        "tests/faultline/test_store_command.py", "tests/faultline/test_upkeep.py", "tests/queries/kql/test_textindex.py",
        "tests/web/planted.py",
    ),
    "pages over tables without a store around them": ("tests/web/around.py", "tests/web/fixture.py"),
    "compares whole tables, whatever their columns are, in the engine's SQL": (
        "tests/collector/test_ingest.py", "tests/collector/test_ingest_strangers.py",
        "tests/collector/test_line_files.py", "tests/collector/test_stamps_ahead.py", "tests/correlator/rows.py",
        "tests/correlator/live/test_frozen.py", "tests/correlator/live/test_streaming.py", "tests/faultline/test_two_clusters.py",
        "tests/web/test_pictures.py",
    ),
    "changes stored rows behind the program's back, in the engine's SQL": (
        "tests/collector/test_job_output.py", "tests/correlator/gather/test_standing_everywhere.py",
        "tests/faultline/test_admin_comments.py", "tests/faultline/test_check_rules.py",
        "tests/faultline/notify/test_notify.py", "tests/faultline/notify/test_quiet_week.py", "tests/web/test_answering.py",
        "tests/web/bundle/test_bundle.py", "tests/web/fleet/test_fleet.py", "tests/web/fleet/test_moment_of_the_map.py",
        "tests/web/test_axis_measures.py", "tests/web/test_replays.py", "tests/web/test_triage.py",
        "tests/web/triaged.py",
    ),
    "the yardstick: plain DuckDB over the same lines": (
        "benchmarks/loaded_queries.py", "benchmarks/peers.py", "benchmarks/queries.py",
    ),
    "fills or measures DuckDB's own segments, files and log": (
        "benchmarks/archive.py", "benchmarks/correlation.py", "benchmarks/endurance.py", "benchmarks/ingest.py",
        "benchmarks/paired.py", "benchmarks/simulators/query_store.py", "benchmarks/simulators/ui_store.py",
        "benchmarks/soak.py", "benchmarks/ui.py",
    ),
}  # fmt: skip


def test_tests_and_benchmarks_know_duckdb_only_for_a_reason() -> None:
    """A file that needs no more than the protocol opens its store with ``open_store``; one that stopped knowing DuckDB
    leaves the list."""
    knows = {
        path.relative_to(ROOT).as_posix()
        for room in ("tests", "benchmarks")
        for path in (ROOT / room).rglob("*.py")
        if any(name.split(".")[0] == "duckdb" or name.startswith("store.duckdb") for name in named_in(path))
    }
    listed = {place for places in KNOW_DUCKDB.values() for place in places}
    assert {name for name in knows if not name.startswith(tuple(listed))} == set()
    assert {place for place in listed if not any(name.startswith(place) for name in knows)} == set()
