"""Errors in one line for a person: what, where, what to do."""


class AgentError(Exception):
    """The agent cannot start or continue; the command prints the text and exits with 2."""


class Missing(Exception):  # noqa: N818 - a state of the host, no mistake of anybody
    """The device, file or tool of a source is not on this host: a status, checked again later."""


class Denied(Exception):  # noqa: N818
    """It exists, but the agent may not read it: a status, retried later."""
