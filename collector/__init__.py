"""How data gets in: receivers and their durable spool, files, Slurm hooks, the node agent. Knows nothing about why a
job died."""
