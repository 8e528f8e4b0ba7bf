"""``faultline agent``: run, enroll, status and probe. Imports nothing else of Faultline: a node has only this
package."""

from __future__ import annotations

import argparse
import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

from collector.agent.arguments import Parser
from collector.agent.config import DEFAULT_CONFIG, Config, load
from collector.agent.console import complain, say
from collector.agent.failure import AgentError


def main(arguments: Sequence[str]) -> int:
    """Runs ``faultline agent ARGUMENTS``. Returns 0 for success, 1 if the answer is "no", 2 on failure (one line on
    stderr)."""
    parser = _parser()
    try:
        given = parser.parse_args(_with_verb(arguments))
    except SystemExit as leave:
        return 0 if leave.code in (0, None) else 2
    try:
        return int(given.run(given))
    except AgentError as error:
        complain(f"faultline: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


def _with_verb(arguments: Sequence[str]) -> list[str]:
    """``faultline agent --config F`` runs the agent: the form in the contract has no verb."""
    verbs = {"run", "enroll", "status", "probe"}
    if any(a in verbs for a in arguments) or {"-h", "--help"} & set(arguments):
        return list(arguments)
    return ["run", *arguments]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="faultline agent", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="The node agent: reads logs, kernel, links, GPUs and counters of this host and delivers them.",
        epilog="Examples:\n  faultline agent enroll --server https://faultline:8514 --token T\n"
        "  faultline agent --config /etc/faultline/agent.toml\n  faultline agent status",
    )  # fmt: skip
    verbs = parser.add_subparsers(dest="verb", metavar="[run]|enroll|status|probe", required=True)
    run = verbs.add_parser("run", help="run until SIGTERM (what --config alone does)")
    run.set_defaults(run=_run)
    enrol = verbs.add_parser("enroll", help="write the configuration of this host after asking the service")
    enrol.add_argument("--server", required=True, help="the service's address, such as https://faultline:8514")
    enrol.add_argument("--token", default="", help="the token that the service expects; or FAULTLINE_TOKEN")
    enrol.add_argument("--instance", default="", choices=("azure", "aws"), help="no token: the agent enrols by what this "
                       "cloud says of the machine")  # fmt: skip
    enrol.add_argument("--ca", default="", help="certificate file that signs the service's certificate")
    enrol.add_argument("--cert", default="", help="client certificate file")
    enrol.add_argument("--key", default="", help="key file of the client certificate")
    enrol.add_argument("--cluster", default="", help="the Slurm cluster's name")
    enrol.add_argument("--controller", action="store_true", help="this host runs slurmctld")
    enrol.add_argument("--spool", default="", help="folder of the spool")
    enrol.add_argument("--image", action="store_true", help="do not ask the service (building a node image)")
    enrol.add_argument("--force", action="store_true", help="replace a configuration that is there")
    enrol.set_defaults(run=_enroll)
    status = verbs.add_parser("status", help="how the agent and its sources stand; 1 where something is wrong")
    status.add_argument("--format", choices=("table", "json"), default="table")
    status.set_defaults(run=_status)
    probe = verbs.add_parser("probe", help="ask every source once and say what it gives; delivers nothing")
    probe.set_defaults(run=_probe)
    for verb in (run, enrol, status, probe):
        verb.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help=f"default {DEFAULT_CONFIG}")
    return parser


def _run(given: argparse.Namespace) -> int:
    config = load(given.config)
    from collector.agent.agent import main as run

    return run(config)


def _enroll(given: argparse.Namespace) -> int:
    from collector.agent.enrol import enroll

    if not given.instance:
        given.token = given.token or os.environ.get("FAULTLINE_TOKEN", "")
    for line in enroll(
        config=given.config, server=given.server, token=given.token, ca=given.ca, cert=given.cert, key=given.key,
        cluster=given.cluster, controller=given.controller, spool=given.spool, ask=not given.image, force=given.force,
        instance=given.instance,
    ):  # fmt: skip
        complain(line)
    return 0


def _status(given: argparse.Namespace) -> int:
    config = load(given.config)
    path = Path(config.spool) / "status.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AgentError(f"{path}: no status of a running agent ({error}); is faultline-agent started?") from error
    running = _runs(config)
    if given.format == "json":
        print(json.dumps({**found, "running": running}, indent=1))
    else:
        _print_status(found, running)
    fine = running and not found["delivery"]["trouble"] and not found["spool"]["trouble"]
    return 0 if fine and all(s["state"] in ("ok", "absent", "off") for s in found["sources"]) else 1


def _print_status(found: dict[str, object], running: bool) -> None:
    spool, delivery = dict(found["spool"]), dict(found["delivery"])  # type: ignore[call-overload]
    say(f"agent     {'running' if running else 'NOT RUNNING'} as of {found['at']}, version {found['version']}")
    say(f"delivery  {delivery['trouble'] or 'ok'}; {delivery['lines']} lines in {delivery['batches']} batches")
    say(f"spool     {spool['batches']} batches wait, {spool['bytes']} of {spool['cap']} bytes, "
         f"{spool['dropped_lines']} lines dropped{'; ' + spool['trouble'] if spool['trouble'] else ''}")  # fmt: skip
    gate = found.get("gate")
    if isinstance(gate, dict):
        refuses = ", jobs are refused" if gate["refuses"] else ""
        why = "; ".join(gate["reasons"])
        if gate["trouble"] and gate["trouble"] not in why:
            why = "; ".join(filter(None, (why, gate["trouble"])))
        say(f"gate      {gate['fitness'] or 'no answer yet'} ({gate['mode']}{refuses}){': ' + why if why else ''}")
    for source in found["sources"]:  # type: ignore[attr-defined]
        say(f"  {source['name']:<12} {source['state']:<7} {source['detail']}")


def _runs(config: Config) -> bool:
    """Whether an agent holds the spool."""
    import fcntl

    try:
        with (Path(config.spool) / "lock").open("ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _probe(given: argparse.Namespace) -> int:
    from collector.agent import wire
    from collector.agent.runner import Runner
    from collector.agent.source import Context

    config = load(given.config) if given.config.exists() else _trial(given.config)
    context = Context(host=config.host, node_names=config.node_names)
    for name, (kind, options) in config.enabled().items():
        runner = Runner(kind, options, context, {})
        readings = list(runner.poll())
        lines = sum(reading.lines for reading in readings)
        first = next((row for reading in readings for row in wire.records(reading.body)), {})
        example = str(first.get("lines") or first.get("raw") or "").split("\n")[0][:100]
        say(f"{name:<12} {runner.status.state:<7} {lines:>7} lines  {runner.status.detail or example}")
        runner.close()
    return 0


def _trial(path: Path) -> Config:
    from collector.agent.config import validate

    return validate(tomllib.loads('server = "http://127.0.0.1:8514"\ncontroller = true'), str(path))
