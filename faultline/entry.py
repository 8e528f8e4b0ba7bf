"""The ``faultline`` program. A hook must be quick and the agent small: nothing is imported for them but themselves."""

import sys


def main() -> int:
    """Runs the command line; returns the exit code (0 fine, 1 the answer is no, 2 could not be done)."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["hook"] and not {"--help", "-h"} & set(arguments):
        from collector.hooks import main as hook

        return hook(arguments[1:])
    if arguments[:1] == ["agent"]:
        from collector.agent.commands import main as agent

        return agent(arguments[1:])
    try:
        from faultline.cli import run
    except ModuleNotFoundError as missing:
        sys.stderr.write(
            f"faultline: {missing.name} is not installed: this machine has the agent part only; "
            "install faultline[server] for this command\n"
        )
        return 2
    return run(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
