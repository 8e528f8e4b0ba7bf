"""The page's own modules as one script, for a page without a server: a browser loads no module from a file's folder."""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r"^import \{([^}]*)\} from '([^']+)';\n", re.M)
_EXPORT = re.compile(r"^export ((?:async )?(?:class|function|const|let) (\w+))", re.M)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.M)


def one_script(folder: Path, entry: str) -> str:
    """A module of a folder with all that it imports, each in a scope of its own.

    Our modules import names, and export declarations. Raises ``ValueError`` for any other form.
    """
    done: dict[str, str] = {}
    _add(folder, entry, done)
    return "'use strict';\nconst modules = {};\n" + "".join(done.values())


def _add(folder: Path, name: str, done: dict[str, str]) -> None:
    if name in done:
        return
    text = (folder / name).read_text(encoding="utf-8")

    def imported(found: re.Match[str]) -> str:
        target = (folder / name).parent.joinpath(found[2]).resolve().relative_to(folder.resolve()).as_posix()
        _add(folder, target, done)
        return f"const {{{found[1].replace(' as ', ': ')}}} = modules['{target}'];\n"

    text = _IMPORT.sub(imported, text)
    exported = [found[2] for found in _EXPORT.finditer(text)]
    text = _EXPORT.sub(r"\1", text)
    if (left := _LEFT.search(text)) is not None:
        raise ValueError(f"{name}: {left[0]!r} is a form of import or export that a bundle does not know")
    done[name] = f"modules['{name}'] = (() => {{\n{text}\nreturn {{ {', '.join(exported)} }};\n}})();\n"
