"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from faultline.named_path import named_path

Data = Annotated[Path | None, typer.Option("--data", parser=named_path, metavar="PATH", help="The store's folder.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="The service's configuration (TOML).")]
