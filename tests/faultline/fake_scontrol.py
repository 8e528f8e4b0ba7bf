"""A ``scontrol`` on PATH: nodes are files in a folder, and other files make it hang, fail, or do it but not answer."""

from __future__ import annotations

from pathlib import Path

_PROGRAM = """#!/bin/sh
cd "{folder}" || exit 1
printf '%s|' "$@" >>calls; echo >>calls
[ -e hang ] && sleep 60
[ -e fail ] && {{ echo "slurm_update error: Access/permission denied"; exit 1; }}
case "$1" in
--oneliner) [ -n "$4" ] && exec cat "nodes/$4"; exec cat nodes/* ;;
update)
  name=${{2#NodeName=}}; old=$(cat "nodes/$name") || exit 1
  part=${{old#*Partitions=}}; part=${{part%% *}}
  if [ "$3" = State=RESUME ]; then
    echo "NodeName=$name Arch=x86_64 State=IDLE Partitions=$part " >"nodes/$name"
  else
    echo "NodeName=$name Arch=x86_64 State=IDLE+DRAIN Partitions=$part Reason=${{4#Reason=}} [slurm@$(cat now)]" >"nodes/$name"
  fi
  [ -e silent ] && sleep 60
  exit 0 ;;
esac
exit 1
"""


class FakeScontrol:
    """The cluster that the program shows."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        for made in (self.bin, folder / "nodes"):
            made.mkdir(parents=True)
        program = self.bin / "scontrol"
        program.write_text(_PROGRAM.format(folder=folder))
        program.chmod(0o755)
        self.at("2026-03-01T12:00:00")

    def at(self, moment: str) -> None:
        """The time of the next change, in Slurm's form."""
        (self.folder / "now").write_text(moment)

    def set(self, name: str, state: str = "IDLE", partitions: str = "gpu", reason: str = "") -> None:
        """What somebody set."""
        shown = f" Reason={reason}" if reason else " "
        line = f"NodeName={name} Arch=x86_64 State={state} Partitions={partitions}{shown}\n"
        (self.folder / "nodes" / name).write_text(line)

    def shown(self, name: str) -> str:
        return (self.folder / "nodes" / name).read_text()

    def behave(self, how: str, on: bool = True) -> None:
        """``hang``, ``fail``, or ``silent``: an update is done and not answered."""
        (self.folder / how).touch() if on else (self.folder / how).unlink()

    @property
    def updates(self) -> list[list[str]]:
        calls = self.folder / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [line.split("|")[:-1] for line in lines if line.startswith("update|")]
