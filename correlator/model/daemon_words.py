"""Where a Slurm daemon's own words begin in its messages.

slurmd and slurmstepd repeat what users chose: the path of a program, a working folder, a file for output, TMPDIR. Such a
text may read like any other message of theirs. So what a message says is known by how it begins.
"""

from __future__ import annotations

#: What precedes the words: a step, a level, and the functions that log. pyxis passes on what a container's start printed.
HEAD = r"^(?:\[[\w.+-]+\] )?(?:(?:error|fatal): )?(?:(?!pyxis: )\w+: )*"
