"""Knows every way in which Slurm ends a job and what the verdict says about it, as data. Must not decide anything: no verdict reads it."""
