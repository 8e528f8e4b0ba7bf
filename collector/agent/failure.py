"""Why something cannot be done, in one line for a person: what, where, what to do."""


class AgentError(Exception):
    """The agent cannot start or go on; the command prints the text and exits with 2."""


class Missing(Exception):  # noqa: N818 - a state of the host, no mistake of anybody
    """The device, file or tool of a source is not on this host: a status, looked for again later."""


class Denied(Exception):  # noqa: N818
    """It is there, and the agent may not read it: a status, tried again later."""
