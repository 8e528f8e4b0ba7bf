"""Failures that a command tells in one line, with what, where and what to do. They exit with 2."""


class CommandError(Exception):
    """What could not be done. The text is for a person; nothing else is printed."""
