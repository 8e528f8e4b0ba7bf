"""Slurm on this host as it is found: its slurm.conf, its daemons, and what the users of its hooks may do. Changes
nothing; :mod:`collector.agent.slurm_setup` does."""
