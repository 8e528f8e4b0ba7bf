"""``faultline slurm install | verify | remove``. Runs from an agent's installation: only the standard library."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from collector.agent.arguments import Parser
from collector.agent.config import DEFAULT_CONFIG, Config, load
from collector.agent.console import complain, say
from collector.agent.failure import AgentError, Missing
from collector.agent.slurm.host import Host
from collector.agent.slurm.installation import CONTROLLER, NODE, Installation, find
from collector.agent.slurm.programs import BY_EVENT, PROGRAMS, Call, Program
from collector.agent.slurm_setup import conf_side, install, remove, trial
from collector.agent.slurm_setup.changes import Record
from collector.agent.slurm_setup.conf_lines import Editor, block_lines
from collector.agent.slurm_setup.findings import Finding
from collector.agent.slurm_setup.verify import verify
from collector.agent.source import Context


def main(arguments: Sequence[str]) -> int:
    """Runs ``faultline slurm ARGUMENTS``. Returns 0 for success, 1 if the answer is "no", 2 on failure (one line on
    stderr)."""
    try:
        given = _parser().parse_args(arguments)
    except SystemExit as leave:
        return 0 if leave.code in (0, None) else 2
    try:
        return int(given.run(given))
    except (AgentError, Missing) as error:
        complain(f"faultline: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="faultline slurm", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Slurm's hooks on this host: installs them, says why one would write nothing, removes them.",
        epilog="Examples:\n  faultline slurm install --dry-run\n  faultline slurm install --yes\n"
        "  faultline slurm install --edit-slurm-conf   # on the controller, once every host has the scripts\n"
        "  faultline slurm verify\n  faultline slurm verify --job\n  faultline slurm remove --edit-slurm-conf --reconfigure",
    )  # fmt: skip
    verbs = parser.add_subparsers(dest="verb", metavar="install|verify|remove", required=True)
    put = verbs.add_parser("install", help="scripts and spools; shows the lines that slurm.conf needs")
    put.add_argument("--folders-only", action="store_true", help="only the spools (for installers and images)")
    put.set_defaults(run=_install)
    check = verbs.add_parser("verify", help="name each reason why a hook would write nothing; 1 if there is one")
    check.add_argument("--format", choices=("text", "json"), default="text")
    check.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help=f"the agent's; default {DEFAULT_CONFIG}")
    check.add_argument(
        "--job", action="store_true", help="run a job, and see that what each hook writes about it reaches the agent"
    )
    check.add_argument("--job-user", default="", metavar="USER", help="whose job it is; default: who runs this")
    check.set_defaults(run=_verify)
    take = verbs.add_parser("remove", help="undo what install did")
    take.add_argument("--reconfigure", action="store_true", help="run scontrol reconfigure after editing slurm.conf")
    take.set_defaults(run=_remove)
    for verb in (put, check, take):
        verb.add_argument(
            "--dry-run", action="store_true", help="only say what would be done; verify: run and write nothing"
        )
        verb.add_argument("--conf", default="", metavar="FILE", help="slurm.conf, where it is not found by itself")
        verb.add_argument(
            "--root", type=Path, default=Path("/"), metavar="DIR", help="a node image instead of this host"
        )
    for verb in (put, check):
        verb.add_argument("--hooks", default="", metavar="LIST", help=f"of {','.join(BY_EVENT)}; default: all")
        verb.add_argument("--controller", action="store_true", help="this host is a controller, whatever runs on it")
        verb.add_argument("--node", action="store_true", help="this host is a compute node, whatever runs on it")
    for verb in (put, take):
        verb.add_argument("--yes", action="store_true", help="do not ask")
        verb.add_argument(
            "--edit-slurm-conf", action="store_true", help="edit slurm.conf too (a copy is kept beside it)"
        )
    return parser


def _roles(given: argparse.Namespace) -> frozenset[str]:
    return frozenset({CONTROLLER} if given.controller else ()) | frozenset({NODE} if given.node else ())


def _programs(given: argparse.Namespace) -> tuple[Program, ...]:
    if not given.hooks:
        return PROGRAMS
    names = [name.strip().lower() for name in given.hooks.split(",") if name.strip()]
    unknown = [name for name in names if name not in BY_EVENT]
    if unknown or not names:
        raise AgentError(
            f"--hooks {given.hooks}: {', '.join(unknown) or 'nothing'} is no hook; known are {', '.join(BY_EVENT)}"
        )
    return tuple(program for program in PROGRAMS if program.event in names)


def _agreed(given: argparse.Namespace, question: str) -> bool:
    """Whether the person wants it. Raises ``AgentError`` where nobody can be asked."""
    if given.yes:
        return True
    if not sys.stdin.isatty():
        raise AgentError("nothing was changed: there is no terminal to ask on; --yes does it, --dry-run only shows it")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _install(given: argparse.Namespace) -> int:
    host = Host(given.root)
    found: Installation | None = None
    try:
        found = find(host, given.conf, _roles(given))
    except Missing:
        if not given.folders_only:
            raise
    if found is None or given.folders_only:
        planned = install.folders(host, found, _roles(given))
    else:
        planned = install.plan(found, _programs(given))
    for line in install.explained(planned):
        say(line)
    edits = bool(given.edit_slurm_conf and planned.lines and found)
    if given.edit_slurm_conf and found is not None and found.configless:
        raise AgentError(f"{found.conf.path} is a copy of the controller's: run this with --edit-slurm-conf there")
    if given.dry_run or (not planned.needed() and not edits):
        return 0
    if host.is_this and os.geteuid() != 0:
        raise AgentError("nothing was changed: only root can make these files; run it as root")
    if not _agreed(given, "Make these changes?"):
        complain("nothing was changed")
        return 1
    planned.apply()
    if edits and found is not None:
        say(f"done     {Editor(host, found.conf.path).put(planned.lines)}; now run scontrol reconfigure")
    say("done     faultline slurm verify says whether the hooks work")
    return 0


def _verify(given: argparse.Namespace) -> int:
    host = Host(given.root)
    if given.job and (given.dry_run or not host.is_this):
        raise AgentError("--job runs a job on this host's cluster: it goes neither with --dry-run nor with --root")
    found = find(host, given.conf, _roles(given))
    config: Config | str
    try:
        config = load(host.path(given.config))
    except AgentError as why:
        config = str(why)
    done = verify(found, config, _programs(given), given.dry_run)
    if given.job:
        done = replace(done, findings=done.findings + _tried(given, found, config, done.calls))
    if os.geteuid() != 0:
        complain(
            "faultline: not run as root: what other users may do is judged by modes alone, and no script was run as them"
        )
    if given.format == "json":
        print(json.dumps({
            "ok": not done.findings, "slurm_conf": found.conf.path, "cluster": found.cluster, "roles": sorted(found.roles),
            "hooks": [{"setting": c.program.setting, "state": c.state, "program": c.value} for c in done.calls],
            "findings": [{"code": f.code, "hook": f.hook, "what": f.what, "cure": f.cure} for f in done.findings],
            "logged": conf_side.refusals(found),
        }, indent=1))  # fmt: skip
        return 1 if done.findings else 0
    for made in done.calls:
        concerned = any(f.hook == made.program.setting for f in done.findings)
        say(f"{'WRONG' if concerned else 'ok   '}  {made.program.setting:<19} {made.value or 'not set'}")
    for finding in done.findings:
        say(f"WRONG  {finding.hook + ': ' if finding.hook else ''}{finding.what}")
        say(f"       cure: {finding.cure}")
    for line in conf_side.refusals(found) if done.findings else ():
        say(f"logged {line}")
    say(
        f"{len(done.findings)} reasons why a hook writes nothing"
        if done.findings
        else "ok: what the hooks of this host write arrives"
    )
    return 1 if done.findings else 0


def _tried(
    given: argparse.Namespace, found: Installation, config: Config | str, calls: tuple[Call, ...]
) -> tuple[Finding, ...]:
    """What a test job shows."""
    if isinstance(config, str):
        return ()  # without an agent nothing arrives: a finding of its own
    tell = say if given.format == "text" else complain
    node = config.host if NODE in found.roles else ""
    return tuple(trial.run(Context(), calls, Path(config.spool) / "status.json", node, given.job_user, tell))


def _remove(given: argparse.Namespace) -> int:
    host = Host(given.root)
    record = Record.load(host)
    try:
        found: Installation | None = find(host, given.conf)
    except Missing:
        found = None  # Slurm is gone already
    edits = bool(found and given.edit_slurm_conf and block_lines(Editor(host, found.conf.path).read()))
    for line in remove.planned(record):
        say(line)
    if edits and found is not None:
        say(f"edit     {found.conf.path}: without the lines of 'faultline slurm install'")
    if given.dry_run or not (record.made or edits):
        return 0
    if not edits and _is_called(found):
        return 1
    if host.is_this and os.geteuid() != 0:
        raise AgentError("nothing was changed: only root can remove these files; run it as root")
    if not _agreed(given, "Undo this?"):
        complain("nothing was changed")
        return 1
    if edits and found is not None:
        say(f"done     {Editor(host, found.conf.path).take_out()}")
        if given.reconfigure:
            remove.reconfigure(host)
        found = find(host, given.conf)
    if _is_called(found):
        return 1
    stays = remove.undo(record)
    for line in stays:
        complain(f"faultline: {line}")
    if not stays:
        say("done     all is as it was before")
    return 1 if stays else 0


def _is_called(found: Installation | None) -> bool:
    """Says what still calls the scripts: then none of them may go."""
    if found is None:
        return False
    in_files, in_memory = remove.still_called(found), remove.called_by_running(found.host, found)
    for line in in_files:
        complain(f"faultline: {line}: remove it first, or run this with --edit-slurm-conf")
    if in_memory and not in_files:
        complain(f"faultline: slurmctld still calls {', '.join(in_memory)}: run scontrol reconfigure, then this again")
    if in_files or in_memory:
        complain(
            "faultline: the scripts stay: Slurm drains a node whose Prolog is missing, and fails jobs without their TaskProlog"
        )
    return bool(in_files or in_memory)
