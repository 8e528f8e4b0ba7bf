"""The ``faultline`` program. A hook must be fast and the agent small: only their own modules are imported for them.
A user of a login node may have the bare package, which asks a service: why did my job die?"""

import os
import sys

#: Read by Polars at import, after its own settings. Freed memory returns to the system in one step, not in two a second
#: apart: 6 % less CPU and 40 MB less in a service during ingest (three alternating runs).
ALLOCATOR, AT_ONCE = "_RJEM_MALLOC_CONF", "muzzy_decay_ms:0"


def main() -> int:
    """Runs the command line; returns the exit code (0 success, 1 the answer is no, 2 failure)."""
    arguments = sys.argv[1:]
    if arguments[:2] == ["hook", "mail"]:
        from faultline.mail_line import main as mail

        return mail(arguments[2:])
    if arguments[:1] == ["hook"] and not {"--help", "-h"} & set(arguments):
        from collector.hooks import main as hook

        return hook(arguments[1:])
    if arguments[:1] == ["agent"]:
        from collector.agent.commands import main as agent

        return agent(arguments[1:])
    if arguments[:1] == ["slurm"]:
        from collector.agent.slurm_setup.commands import main as slurm

        return slurm(arguments[1:])
    os.environ.setdefault(ALLOCATOR, AT_ONCE)
    from faultline import collection

    collection.seldom()
    try:
        from faultline.cli import run
    except ModuleNotFoundError as missing:
        if arguments[:1] == ["why"]:
            from faultline.why_remote import main as why

            return why(arguments[1:])
        sys.stderr.write(
            f"faultline: {missing.name} is not installed: this machine has the agent part only, which is faultline agent, "
            "faultline slurm, faultline hook and faultline why (each with --help); install faultline[server] for the rest\n"
        )
        return 2
    return run(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
