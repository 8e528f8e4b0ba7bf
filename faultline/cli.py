"""The commands. Exit codes: 0 success; 1 the answer is "no" or a problem was found; 2 the command failed."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from faultline import __version__, backup_command, plan, store_command
from faultline.failure import CommandError
from faultline.meant import meant
from faultline.named_path import named_path
from faultline.options import ConfigFile, Data
from faultline.time_options import span

app = typer.Typer(
    name="faultline", no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Logs and telemetry of Slurm GPU clusters, and the answer to: why did this job die?",
)  # fmt: skip

#: More rows than this no engine counts to.
MOST_ROWS = 2**31 - 1

Server = Annotated[str | None, typer.Option("--server", help="Ask this service (or FAULTLINE_SERVER).")]
Since = Annotated[
    str | None, typer.Option("--since", help="RFC 3339 time (UTC if no zone), or an age such as 24h, 7d.")
]
Until = Annotated[str | None, typer.Option("--until", help="As --since.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Also listen where others reach it without TLS and signing in.")
]


def _print_version(asked: bool) -> None:
    if asked:
        print(f"faultline {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Runs one command; errors become one line on stderr and exit code 2."""
    from faultline import printing

    _speak_utf8()
    # Help logs nothing, and loading the logger would be most of its time.
    if arguments and not {"--help", "-h"} & set(arguments):
        from parsers import logs

        logs.set_up()  # to stderr: stdout is for the answer
    with printing.guarded():
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    if not arguments:
        app(args=["--help"], prog_name="faultline", standalone_mode=False)
        return 2
    try:
        answer = app(args=arguments, prog_name="faultline", standalone_mode=False)
        sys.stdout.flush()  # here, where a closed pipe is noticed
    except CommandError as error:
        return _refuse(str(error))
    except typer.Exit as leave:
        return int(leave.exit_code)
    except (BrokenPipeError, SystemExit) as gone:
        if isinstance(gone, SystemExit) and not isinstance(gone.__context__, BrokenPipeError):
            raise
        return _pipe_closed()  # click would exit with 1, which is an answer here
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        shown = getattr(error, "format_message", None)  # a usage error of the command line
        if shown is None:
            return _broken(error)
        named = [arguments[0]] if arguments[0] in COMMANDS else []
        return _refuse(f"{shown()} Try '{' '.join(['faultline', *named])} --help'.")
    return answer if isinstance(answer, int) else 0


def _speak_utf8() -> None:
    """Machine formats are UTF-8 whatever the locale; characters that a terminal cannot show are replaced there."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace") if stream.isatty() else stream.reconfigure(encoding="utf-8")


def _pipe_closed() -> int:
    """The reader (``| head``) has seen enough: buffered output is discarded, and nothing has failed."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _broken(error: Exception) -> int:
    """Reports a bug of ours in one line as well; exit code 1 would be an answer."""
    if os.environ.get("FAULTLINE_TRACEBACK"):
        raise error
    return _refuse(
        f"{type(error).__name__}: {error}; if this is a fault of Faultline, FAULTLINE_TRACEBACK=1 shows where"
    )


def _refuse(text: str) -> int:
    sys.stderr.write("faultline: " + " ".join(text.split("\n")) + "\n")
    return 2


def choice(value: str, allowed: tuple[str, ...], option: str = "--format") -> str:
    if value not in allowed:
        raise CommandError(f"{option} {value}: unknown; one of {', '.join(allowed)}{meant(value, allowed)}")
    return value


@app.command(epilog="Example: faultline demo")
def demo(
    listen: Annotated[str, typer.Option(help="HOST:PORT; port 0 takes a free one.")] = "127.0.0.1:8514",
    once: Annotated[bool, typer.Option("--once", help="Load, print the incident, and end.")] = False,
    insecure: Insecure = False,
) -> None:
    """Load the bundled capture of a real link flap into a temporary store and serve the pages."""
    from faultline.demo import show

    show(listen, once=once, insecure=insecure)


@app.command(epilog="Example: faultline serve --config /etc/faultline/faultline.toml --listen 0.0.0.0:8514")
def serve(
    data: Data = None,
    listen: Annotated[str | None, typer.Option(help="HOST:PORT (default 127.0.0.1:8514).")] = None,
    config: ConfigFile = None,
    insecure: Insecure = False,
) -> None:
    """The service: pages, API, hook spool, scheduled reports."""
    from faultline.config import load, validate
    from faultline.serving import serve as run_service

    settings = load(config)
    changes = {k: v for k, v in (("data", data), ("listen", listen), ("insecure", insecure or None)) if v is not None}
    if changes:
        settings = validate({**settings.model_dump(exclude_unset=True), **changes}, "command line")
    run_service(settings)


@app.command(epilog="Example: faultline ingest /var/log/cluster --timezone Europe/Berlin")
def ingest(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Log trees and files.")],
    data: Data = None,
    cluster: Annotated[str | None, typer.Option(help="The cluster, whatever its logs call it.")] = None,
    timezone: Annotated[str | None, typer.Option(help="Zone of stamps without one (IANA name; default UTC).")] = None,
    host: Annotated[str | None, typer.Option(help="The host of lines that do not say it.")] = None,
    source: Annotated[str | None, typer.Option(help="What the lines are: slurmctld, slurmd, kernel, ...")] = None,
    config: ConfigFile = None,
) -> int:
    """Load log trees and files; each is recognised by content and path. Safe to repeat."""
    from faultline.ingesting import ingest_paths

    return ingest_paths(
        [named_path(path) for path in paths], data, config, cluster=cluster, timezone=timezone, host=host, source=source
    )


@app.command(epilog="Example: faultline parse --host gpu02 /var/log/syslog | jq .event")
def parse(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE...]", help="Files; - or none: stdin. With --explain also a line."),
    ] = None,
    source: Annotated[str | None, typer.Option(help="What the lines are: slurmctld, slurmd, kernel, ...")] = None,
    host: Annotated[str | None, typer.Option(help="The host of lines that do not say it.")] = None,
    timezone: Annotated[str | None, typer.Option(help="Zone of stamps without one (IANA name; default UTC).")] = None,
    catalogue: Annotated[list[Path] | None, typer.Option(help="Try a site's event patterns (TOML).")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say on stderr why each line was read so, and which patterns are near.")
    ] = False,
) -> int:
    """Lines in, one JSON object per line out, in order. Never fails on a line."""
    from faultline.parsing import parse_streams

    return parse_streams(
        files or [], source=source, host=host, timezone=timezone, catalogue=catalogue or [], explain=explain
    )


@app.command(epilog="Example: faultline query 'Events | where Event == \"nic.link_down\" | summarize count() by Host'")
def query(
    kql: Annotated[
        str | None, typer.Argument(metavar="KQL", help="The query; - or a pipe reads standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Read the query from a file.")] = None,
    saved: Annotated[str | None, typer.Option("--saved", help="Run a saved query by name.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="Name the saved queries with their parameters.")] = False,
    history: Annotated[bool, typer.Option("--history", help="Show what was asked before.")] = False,
    data: Data = None,
    server: Server = None,
    format: Annotated[str, typer.Option("--format", help="table, json, ndjson, csv or parquet.")] = "table",
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="NAME=VALUE of a declared parameter.")
    ] = None,
    max_rows: Annotated[
        int | None, typer.Option(min=1, max=MOST_ROWS, help="Stop after so many rows (noted on stderr).")
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=0.001, help="Stop after so many seconds.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show SQL, plan and the segments that can match instead of running.")
    ] = False,
) -> int:
    """Run KQL: one query or several statements, whose answers are printed in sequence."""
    from faultline import query

    if listing or history:
        query.list_saved() if listing else query.show_history()
        return 0
    choice(format, ("table", "json", "ndjson", "csv", "parquet"))
    text = query.query_text(kql, file, saved)
    return query.ask(text, query.Options(data, server, format, tuple(parameter or ()), max_rows, timeout, explain))


@app.command(epilog="Example: faultline incidents --since 24h --format json")
def incidents(
    data: Data = None,
    server: Server = None,
    format: Annotated[str, typer.Option("--format", help="table or json (corr-result/1).")] = "table",
    since: Since = None,
    until: Until = None,
    host: Annotated[str | None, typer.Option(help="Only incidents that touch this host.")] = None,
    job: Annotated[str | None, typer.Option(help="Only incidents that ended or slowed this job.")] = None,
    bundle: Annotated[
        str | None, typer.Option(metavar="ID", help="Write this one as a page that opens offline.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file of --bundle; without it ID.html.")] = None,
    redact: Annotated[bool, typer.Option(help="Replace secrets, other users and addresses in a bundle.")] = True,
) -> None:
    """What happened, oldest first; with --bundle one incident as a file."""
    from faultline import bundling, incident_filter, terminal
    from faultline.backends import choose
    from faultline.why_remote import named_run

    if bundle is not None:
        bundling.save(choose(data, server), bundle, out, redacted=redact)
        return
    choice(format, ("table", "json"))
    low, high = span(since, until)
    with closing(choose(data, server)) as backend:
        found = backend.result()
        if job:
            job = named_run(job)
            job = backend.run_named(job) or job
    stored = found["incidents"]
    found["incidents"] = [i for i in stored if incident_filter.touches(i, low, high, host, job)]
    if job:
        found["verdicts"] = {k: v for k, v in found["verdicts"].items() if incident_filter.is_of(k, job.split("#")[0])}
    if format == "json":
        print(json.dumps(found, indent=1, sort_keys=True))
    else:
        terminal.incidents(found)
        if stored and not found["incidents"]:
            sys.stderr.write(f"faultline: {incident_filter.none_of(stored, host)}\n")


@app.command(epilog="Example: faultline why 812345, or: faultline why '812345#1' for its first restart")
def why(
    jobid: Annotated[str, typer.Argument(metavar="JOBID[#RESTART]")],
    data: Data = None,
    server: Server = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> int:
    """The verdict on one job run, its evidence, and why rival causes were rejected."""
    from faultline.backends import choose
    from faultline.query import explain_job

    choice(format, ("text", "json"))
    with closing(choose(data, server)) as backend:
        return explain_job(backend, jobid, format)


@app.command(epilog="Example: faultline node gpu042 --format json")
def node(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The node; HOST@CLUSTER where several clusters have it.")],
    data: Data = None,
    server: Server = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Whether a node is fit for a job, with reasons, its states, open incidents, and what to do."""
    from faultline.backends import choose
    from faultline.node import show

    choice(format, ("text", "json"))
    with closing(choose(data, server)) as backend:
        show(backend, name, format)


@app.command(epilog="Example: faultline trace nodes/gpu042/syslog:1181")
def trace(
    line_id: Annotated[str, typer.Argument(metavar="LINE_ID", help="FILE:LINE, or the id of a cited event.")],
    data: Data = None,
    server: Server = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """One line's way: its times, who can have written it, how it was read, what cites it."""
    from faultline.backends import choose
    from faultline.trace import show

    choice(format, ("text", "json"))
    with closing(choose(data, server)) as backend:
        show(backend, line_id, format)


@app.command(epilog="Example: faultline report failure-patterns --since 7d --format html --out week.html")
def report(
    name: Annotated[str | None, typer.Argument(metavar="NAME")] = None,
    listing: Annotated[bool, typer.Option("--list", help="Name the reports.")] = False,
    data: Data = None,
    server: Server = None,
    since: Since = None,
    until: Until = None,
    format: Annotated[str, typer.Option("--format", help="html, md or json.")] = "md",
    out: Annotated[Path | None, typer.Option(help="Write to a file.")] = None,
) -> None:
    """Failure-pattern reports."""
    from faultline.backends import choose
    from queries import reports

    if listing:
        for known in reports.all_reports().values():
            print(f"{known.name}\t{known.title}")
        return
    if name is None or name not in reports.all_reports():
        near = meant(name or "", reports.all_reports())
        raise CommandError(f"report {name or '?'}: unknown; known are {', '.join(sorted(reports.all_reports()))}{near}")
    choice(format, ("html", "md", "json"))
    low, high = span(since, until)
    with closing(choose(data, server)) as backend:
        text = backend.report(name, low, high, format)
    if out is None:
        print(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{out}: cannot be written: {error.strerror}") from error


@app.command(epilog="Example: faultline sources --only silent")
def sources(
    data: Data = None,
    server: Server = None,
    format: Annotated[str, typer.Option("--format", help="table or json (as GET /api/v1/sources).")] = "table",
    search: Annotated[str | None, typer.Option(help="Only streams with this in host, file or source.")] = None,
    only: Annotated[str | None, typer.Option(help="Only those in trouble: late, silent, unparsed or ahead.")] = None,
    outputs: Annotated[bool, typer.Option("--outputs", help="Each file of job output, not one row a host.")] = False,
) -> int:
    """Who sends data: last seen, lag, rate, blind periods. Exit 1 if a source is silent or a batch was set aside."""
    from faultline.backends import choose
    from faultline.sources import list_sources

    choice(format, ("table", "json"))
    choice(only or "late", ("late", "silent", "unparsed", "ahead"), "--only")
    with closing(choose(data, server)) as backend:
        return list_sources(backend.sources(search, outputs=outputs), format, only)


@app.command(epilog="Examples: faultline agent --config /etc/faultline/agent.toml; faultline agent --help")
def agent(config: Annotated[Path, typer.Option("--config", help="The agent's configuration (TOML).")]) -> int:
    """The node agent: run it, or enroll, status, probe (faultline.entry starts it without the rest of Faultline)."""
    from collector.agent.commands import main

    return main(["--config", str(config)])


@app.command(epilog="Examples: faultline slurm install --dry-run; faultline slurm verify; faultline slurm --help")
def slurm(verb: Annotated[str, typer.Argument(metavar="VERB", help="install, verify or remove.")]) -> int:
    """Slurm's hooks on this host (faultline.entry starts it without the rest of Faultline)."""
    from collector.agent.slurm_setup.commands import main

    return main([verb])


@app.command(epilog="Example, in Slurm's Epilog: faultline hook epilog")
def hook(
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT", help="prolog, epilog, prologslurmctld, epilogslurmctld, taskprolog, healthcheck."
        ),
    ],
) -> int:
    """Hand a job's environment to the local spool; called by Slurm's scripts, always exits 0."""
    from collector.hooks import main

    return main([event])


@app.command(
    epilog="Examples: faultline access password ada --users FILE; faultline access token 'grafana' --scope query --days 90 --users FILE"
)
def access(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="password, token, sender, remove, list or first.")],
    name: Annotated[str, typer.Argument(help="Who; of a token the first word is whom it stands for.")] = "",
    users: Annotated[
        Path, typer.Option("--users", help="The file that [access] users, or [ingest] senders, names.")
    ] = Path("/etc/faultline/users.toml"),
    days: Annotated[float, typer.Option("--days", min=0, help="A token ends after so many days; 0: never.")] = 365,
    scope: Annotated[
        str, typer.Option("--scope", help="What a token is for: all, read, query, jobs, metrics or backup.")
    ] = "all",
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="Hosts that a sender stands for: gpu[001-064] or 'gpu*'. None: all."),
    ] = None,
    clusters: Annotated[
        list[str] | None, typer.Option("--cluster", help="Clusters that a sender stands for. None: all.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data-kind", help="What a sender sends: lines, output, metrics, documents, cluster. None: all."),
    ] = None,
    config: ConfigFile = None,
) -> int:
    """Give people passwords and programs tokens, for pages and API; the service picks up changes by itself."""
    from collector.senders import KINDS, Limits
    from faultline.users_file import ACTIONS, run
    from web.access.scopes import SCOPES

    choice(scope, tuple(SCOPES), "--scope")
    if choice(action, ACTIONS, "access") == "first":
        from faultline.config import load
        from faultline.first import again

        print(again(load(config)))
        return 0
    for kind in data or ():
        choice(kind, KINDS, "--data-kind")
    bound = Limits(name, tuple(hosts or ()), tuple(clusters or ()), tuple(data or ()))
    if bound and action != "sender":
        raise CommandError("--host, --cluster and --data-kind belong to: faultline access sender NAME")
    return run(action, name, users, days, scope, bound)


@app.command(epilog="Example: faultline check --config /etc/faultline/faultline.toml")
def check(
    config: ConfigFile = None,
    data: Data = None,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Back-test: what would the edges in --edges conclude? Exit 1 if it differs."),
    ] = False,
    edges: Annotated[
        list[Path] | None, typer.Option("--edges", help="Edge file to check or to try, on top of today's.")
    ] = None,
    since: Since = None,
    until: Until = None,
    answers: Annotated[
        bool, typer.Option("--answers", help="What operators' answers say of priors and base rates; changes nothing.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option("--write", help="With --answers: write edges with those priors, and base rates.")
    ] = None,
    every_test: Annotated[
        bool, typer.Option("--every-test", help="Also the edges' tests that no file of this site can change; seconds.")
    ] = False,
) -> int:
    """Validate configuration, event catalogue, causal edges and store; say what is wrong and where."""
    from faultline.checking import back_test, check_all, count_answers

    if write is not None and not answers:
        raise CommandError("--write belongs to --answers; add it")
    if answers:
        return count_answers(config, data, write)
    if replay:
        return back_test(config, data, edges or [], *span(since, until))
    if since or until:
        raise CommandError("--since and --until belong to --replay; add it")
    return check_all(config, data, edges or [], every_test=every_test)


for more in (store_command, backup_command, plan):
    more.register(app)
COMMANDS = {str(command.callback.__name__) for command in app.registered_commands if command.callback}
