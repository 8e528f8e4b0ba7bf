"""The agent that runs on compute nodes beside jobs: it reads, keeps a bounded spool and sends. It imports nothing of
ours and no package but zstandard."""
