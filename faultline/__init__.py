"""The front door: commands, configuration, the service that wires the rooms."""

__version__ = "0.1.0"
