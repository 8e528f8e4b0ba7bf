"""The service's configuration file (TOML). Every key has a default; ``faultline check --config`` validates one.

listen = "127.0.0.1:8514"
data = "/var/lib/faultline"
patterns = ["/etc/faultline/patterns.d/site.toml"]
edges = ["/etc/faultline/edges.d/site.toml"]

[slurm]                       # values that no collected file tells
SlurmdTimeout = 300

[hooks]
spool = "/var/spool/faultline/hooks"
state_save = "/var/spool/slurmctld"

[[reports]]
name = "failure-patterns"
cron = "0 6 * * mon"
folder = "/var/lib/faultline/reports"
format = "html"
days = 7
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from faultline.failure import CommandError

DEFAULT_LISTEN = "127.0.0.1:8514"
DEFAULT_DATA = Path("faultline-data")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Hooks(_Section):
    """Where hook files lie, and where Slurm keeps batch scripts (none given: scripts are not fetched)."""

    spool: Path | None = None
    state_save: Path | None = None
    slurmd_spool: Path | None = None


class ScheduledReport(_Section):
    """A report written to ``folder`` when ``cron`` (five fields, UTC) says so, over the last ``days`` days."""

    name: str
    cron: str
    folder: Path
    format: Literal["html", "md", "json"] = "html"
    days: float = Field(default=7, gt=0)

    @field_validator("cron")
    @classmethod
    def _five_fields(cls, value: str) -> str:
        from apscheduler.triggers.cron import CronTrigger

        CronTrigger.from_crontab(value)
        return value


class Config(_Section):
    listen: str = DEFAULT_LISTEN
    data: Path = DEFAULT_DATA
    cluster: str | None = None
    timezone: str | None = None
    patterns: tuple[Path, ...] = ()
    edges: tuple[Path, ...] = ()
    slurm: dict[str, str | int | float] = Field(default_factory=dict)
    hooks: Hooks = Hooks()
    reports: tuple[ScheduledReport, ...] = ()

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]") or "127.0.0.1", int(port)

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        _host, colon, port = value.rpartition(":")
        if not colon or not port.isdigit() or not 0 <= int(port) <= 65535:
            raise ValueError("must be HOST:PORT, such as 127.0.0.1:8514")
        return value


def load(path: Path | None) -> Config:
    """Reads a configuration; None gives the defaults. Raises ``CommandError`` naming file, key and reason."""
    if path is None:
        return Config()
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: not TOML: {error}") from error
    return validate(values, str(path))


def validate(values: dict[str, object], where: str) -> Config:
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise CommandError(f"{where}: {key}: {first['msg']}") from error
