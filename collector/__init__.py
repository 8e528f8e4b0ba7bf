"""How data gets in: receivers and their durable spool, files, Slurm hooks, the node agent. Knows nothing about why a
job died.

Three spools keep what is on its way, and differ in what their writer can bear. ``spool.Spool`` is the service's: segments
of acknowledged batches, which nothing may drop; a full disk refuses. ``agent.spool.AgentSpool`` is a node's: it has a cap
and drops the oldest batches, counted, and it remembers how far each source was read. It imports nothing of ours, so the
two share no code, and each writes its own format. ``hook_spool.HookSpool`` takes the files that hooks leave: a hook has
milliseconds, and writes one file.
"""
