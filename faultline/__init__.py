"""The entry points: commands, configuration, and the service that wires the packages together."""

__version__ = "0.1.0"
