"""What pip puts into a ``bin`` folder of this checkout, laid out without pip: the scripts that pyproject.toml names, and its program."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def lay_out(folder: Path, python: str) -> Path:
    """Makes ``folder``; gives the path of ``faultline`` there. ``python``: the text of the program in Python, a script."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folder.mkdir()
    for name in declared["tool"]["setuptools"]["script-files"]:
        shutil.copy(ROOT / name, folder)
    (entry,) = declared["project"]["scripts"]
    (folder / entry).write_text(python)
    (folder / entry).chmod(0o755)
    return folder / "faultline"
