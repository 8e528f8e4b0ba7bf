"""Failures that a command reports in one line, with what, where and what to do. They exit with 2."""


class CommandError(Exception):
    """What failed. The text is for a person; nothing else is printed."""
