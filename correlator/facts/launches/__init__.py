"""Knows which launches failed: files that Slurm could not open, and nodes and controllers that could not start a run.

Must not decide which run failed for it, nor know edges.
"""
