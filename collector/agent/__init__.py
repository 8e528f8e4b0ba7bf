"""Runs on compute nodes beside jobs: reads, keeps a bounded spool, sends. Imports nothing of ours and no package but zstandard."""
