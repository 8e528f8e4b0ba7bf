"""Launches that failed: files that Slurm could not open, and nodes and controllers that could not start a run."""
