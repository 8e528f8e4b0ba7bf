"""How data gets in: receivers and their durable spool, files, Slurm hooks, the node agent. Must not know why a job died."""
