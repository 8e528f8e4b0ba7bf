"""``faultline slurm install | verify | remove``: puts the hooks where Slurm finds them, tells why one would write
nothing, and takes them away again."""
