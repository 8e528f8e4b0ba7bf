"""Every statement of ``faultline check`` about a site: one site that makes it appear, and one that does not.

The statements are read from the code. One without a ``SITES`` entry fails ``test_every_statement_has_a_site``; an entry
whose statement no longer exists fails there too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import polars as pl
import pytest

from collector.ingest import Ingest
from collector.senders import Limits
from correlator.engine import correlate
from faultline import checking, private
from faultline.backends import open_for_reading
from faultline.checking import check_all
from parsers import extensions
from parsers.patterns import Catalogue
from store import disowned, is_store, open_store
from store.duckdb.store import DuckStore
from tests.collector.running import ROOT
from tests.correlator.rows import rows_in
from tests.faultline import certificates
from tests.line_parser import line_parser
from web.access.passwords import SCRYPT
from web.access.users import Users, fresh_sender, hashed_password, hashed_token

#: Where statements are written; None: in every function of the file.
PLACES: dict[str, tuple[str, ...] | None] = {
    "faultline/exposure.py": None,
    "faultline/checking.py": ("check_all", "_ways_in", "_reports", "unproven_kernels"),
    "faultline/cluster_doubts.py": None,
    "faultline/forgeable.py": ("forgeable",),
    "collector/hook_spool.py": ("spool_problem",),
    "store/duckdb/archive.py": ("damaged",),
    "store/run_names.py": ("disputed",),
    "store/disowned.py": ("senders",),
}
#: What looks like a statement there and is none: headings, the last line, SQL.
NONE = ("event patterns,", "authority      lines with", "something is wrong", "SELECT ", " other hosts")
HASHED = hashed_password("correct horse")
NOW = datetime.now(UTC)


def statements() -> Iterator[str]:
    """The longest literal piece of every text with a blank in it."""
    for path, named in PLACES.items():
        for function in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef) or (named is not None and function.name not in named):
                continue
            first = function.body[0]
            pieces = {id(first.value)} if isinstance(first, ast.Expr) else set()
            nodes = list(ast.walk(function))
            pieces |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in nodes:
                if id(node) in pieces:
                    continue
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                texts = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
                longest = max(texts, key=len, default="").strip()
                if len(longest) >= 12 and " " in longest and not longest.startswith(NONE):
                    yield longest


@cache
def _rows(files: tuple[tuple[str, str], ...]) -> dict[str, pl.DataFrame]:
    """The rows of these logs: several sites have the same."""
    with TemporaryDirectory() as folder, open_store(None) as store:
        for name, text in files:
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_text(text, "utf-8")
        Ingest(store, parser=line_parser()).run([Path(folder)])
        return rows_in(store)


class Site:
    """A folder with a secure configuration: no statement is made about it."""

    def __init__(self, folder: Path, close: ExitStack) -> None:
        self.folder, self.data, self._close = folder, folder / "data", close
        private.begin(self.data)
        self.users = Users(folder / "users.toml", {"ada": HASHED})
        self.top = {"listen": '"127.0.0.1:0"', "data": f'"{self.data}"', "syslog": "[]"}
        #: In memory; None: what lies in the folder of the data, if anything does.
        self.kept: DuckStore | None = None
        self.tables: dict[str, dict[str, str]] = {
            "access": {"users": f'"{self.users.path}"', "operate": '["ada"]'},
        }

    @property
    def config(self) -> Path:
        return self.folder / "faultline.toml"

    def write(self) -> None:
        self.users.save()
        tables = (
            f"[{name}]\n" + "".join(f"{k} = {v}\n" for k, v in rows.items()) for name, rows in self.tables.items()
        )
        self.config.write_text("".join(f"{k} = {v}\n" for k, v in self.top.items()) + "".join(tables), "utf-8")
        self.config.chmod(0o600)

    def tls(self, **more: str) -> None:
        certificates.make(self.folder, "service")
        for key in self.folder.glob("*.key"):
            key.chmod(0o600)
        self.tables["tls"] = {
            "certificate": f'"{self.folder}/service.pem"', "key": f'"{self.folder}/service.key"', **more
        }  # fmt: skip

    def open(self, insecure: bool = False) -> None:
        self.top |= {"listen": '"0.0.0.0:8514"'} | ({"insecure": "true"} if insecure else {})

    def sender(
        self, days: int | None = 300, hosts: tuple[str, ...] = ("gpu01",), kinds: tuple[str, ...] = ("lines",)
    ) -> None:
        """A sender's token in the file that [ingest] names."""
        _, kept = fresh_sender(None if days is None else NOW + timedelta(days=days), Limits("agent", hosts, (), kinds))
        file = Users(self.folder / "senders.toml", senders={"agent": kept})
        file.save()
        self.tables["ingest"] = {"senders": f'"{file.path}"'}

    def token(self, days: int | None) -> None:
        ends = {} if days is None else {"expires": NOW + timedelta(days=days)}
        self.users = Users(self.users.path, {"ada": HASHED}, {"grafana": hashed_token("1", **ends)})

    def store(self, files: dict[str, str], change: Callable[[DuckStore], object] = lambda store: None) -> None:
        """The site's store, in memory: that costs half of one on disk."""
        self.kept = self._close.enter_context(open_store(None))
        self.kept.add(_rows(tuple(files.items())))
        change(self.kept)

    def told(self, capsys: pytest.CaptureFixture[str]) -> str:
        self.write()
        check_all(self.config, None)
        return capsys.readouterr().out


KERNEL = "Feb 28 10:00:00 gpu01 kernel: [100.000100] audit: backlog limit exceeded\n"
RING = {"nodes/gpu01/dmesg": "[Sat Feb 28 10:00:00 2026] audit: backlog limit exceeded\n"}
REPORT = '[{{name = "{}", cron = "0 6 * * *", folder = "r"}}]'
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
XID_OF_RING = {"nodes/gpu01/dmesg": f"[Sat Feb 28 10:00:00 2026] {XID}"}
XID_OF_SYSLOG = {"nodes/gpu01/syslog": f"Feb 28 10:00:00 gpu01 kernel: [100.000100] {XID}"}
SYSTEM = {"nodes/gpu01/syslog": "Feb 28 10:00:00 gpu01 systemd[1]: Started x.\n"}
JOB = {"job_id": 15, "cluster": "c", "state": "FAILED", "submit": datetime(2026, 2, 28), "start": datetime(2026, 2, 28)}


def jobs(*rows: dict[str, object]) -> Callable[[DuckStore], object]:
    def change(store: DuckStore) -> None:
        store.append({"jobs": pl.DataFrame([JOB | row for row in rows])})
        correlate(store)

    return change


def sql(*texts: str) -> Callable[[DuckStore], object]:
    def change(store: DuckStore) -> None:
        with store.transaction() as connection:
            for text in texts:
                connection.execute(text)

    return change


def archived(state: str, size: int, content: bytes | None) -> Callable[[Site], None]:
    """A store whose archive has one file, by its ledger; ``content``: what is there."""

    def make(site: Site) -> None:
        row = f"INSERT INTO raw.archive (file, state, lines, bytes, digest, clusters) VALUES ('2026/a.parquet', '{state}', 3, {size}, '', [])"
        with open_store(site.data) as store:
            sql(row)(store)
        if content is not None:
            (site.data / "archive" / "2026").mkdir(parents=True)
            (site.data / "archive" / "2026" / "a.parquet").write_bytes(content)

    return make


def stray(site: Site) -> None:
    open_store(site.data).close()
    (site.data / "archive" / "2026").mkdir(parents=True)
    (site.data / "archive" / "2026" / "b.parquet").write_bytes(b"x")


def proxies(network: str) -> Callable[[Site], None]:
    def make(site: Site) -> None:
        site.tables["access"]["proxies"] = f'["{network}"]'
        site.top["user_header"] = '"X-User"'

    return make


def plain_proxies(network: str) -> Callable[[Site], None]:
    return lambda site: site.top.update(proxies=f'["{network}"]')


def mode(of: Callable[[Site], Path], bits: int) -> Callable[[Site], None]:
    """Something that is written and then given a mode; the configuration's is set after it is written."""

    def make(site: Site) -> None:
        site.write()
        of(site).chmod(bits)
        write = site.write

        def again() -> None:
            write()
            of(site).chmod(bits)

        site.write = again  # type: ignore[method-assign]

    return make


def ingest(**rows: str) -> Callable[[Site], None]:
    return lambda site: site.tables.update(ingest=rows)


def several(*parts: Callable[[Site], object]) -> Callable[[Site], None]:
    def make(site: Site) -> None:
        for part in parts:
            part(site)

    return make


def syslog(address: str) -> Callable[[Site], None]:
    return lambda site: site.top.update(syslog=f'[{{listen = "{address}", transport = "udp"}}]')


def relays(address: str) -> Callable[[Site], None]:
    return lambda site: site.top.update(relays=f'["{address}"]')


def sent_in_the_name_of(*hosts: str) -> Callable[[DuckStore], object]:
    """An address from which lines in the name of these hosts came."""
    return lambda store: store.set_fact(disowned.FACT, disowned.fact((), (("c", "10.9.9.9", host) for host in hosts)))


def came_by(file: str, entities: str = "{}") -> Callable[[DuckStore], object]:
    """The stored lines, as if they had come this way."""
    return sql(f"UPDATE raw.logs SET file = '{file}', entities = '{entities}'")


def enrolment(**keys: str) -> Callable[[Site], None]:
    azure = '{ subscriptions = ["s"], certificates = "/c.pem" }'
    return lambda site: site.tables.update(enrolment={"hosts": '["gpu01"]', "azure": azure, **keys})


def client_hosts(bound: str) -> Callable[[Site], None]:
    def make(site: Site) -> None:
        site.tls()
        site.tables["tls"] |= {"client_ca": '"/ca.pem"', "client_hosts": bound}

    return make


def no_access(site: Site) -> None:
    site.tables.pop("access")


def own_spool(bits: int) -> Callable[[Site], None]:
    def make(site: Site) -> None:
        (site.folder / "spool").mkdir()
        (site.folder / "spool").chmod(bits)
        site.tables["hooks"] = {"spool": f'"{site.folder}/spool"'}

    return make


def old_passwords(kept: str) -> Callable[[Site], None]:
    return lambda site: setattr(site, "users", Users(site.users.path, {"ada": HASHED, "eve": kept}))


class Sites(NamedTuple):
    """``shown``: makes a secure site one about which the statement is made; ``not_shown``: a similar site without it."""

    shown: Callable[[Site], object]
    not_shown: Callable[[Site], object]


SITES: dict[str, Sites] = {
    "[tls]: passwords, tokens": Sites(Site.open, several(Site.open, Site.tls)),
    "[access]: whoever reaches": Sites(several(Site.open, no_access), Site.open),
    ". Configure that (docs/security.md)": Sites(Site.open, lambda site: site.open(insecure=True)),
    ": insecure, without": Sites(lambda site: site.open(insecure=True), lambda site: site.top.update(insecure="true")),
    ": no [access]: every user": Sites(no_access, several(no_access, Site.open)),
    ": whoever reaches it may send lines": Sites(Site.open, several(Site.open, ingest(tokens='["t"]'))),
    ": whoever reaches it may write lines": Sites(syslog("0.0.0.0:514"), syslog("127.0.0.1:514")),
 ": every program of this machine may write in a controller": Sites(relays("127.0.0.1"), relays("10.0.0.5")),
    ", whose address it is not; they": Sites(
        lambda site: site.store(SYSTEM, sent_in_the_name_of("ctl")), lambda site: site.store(SYSTEM, sent_in_the_name_of())
    ),
    "never end and may send anything": Sites(ingest(tokens='["t"]'), Site.sender),
    ": its token never ends": Sites(lambda site: site.sender(None), Site.sender),
    ": what it sends is refused": Sites(lambda site: site.sender(-1), Site.sender),
    "; make it anew before": Sites(lambda site: site.sender(3), lambda site: site.sender(31)),
    ": may send accounting and slurm.conf of the whole cluster": Sites(lambda site: site.sender(kinds=()), Site.sender),
    ": may send as any host": Sites(lambda site: site.sender(hosts=()), Site.sender),
    "[tls] client_ca: every certificate": Sites(client_hosts("false"), client_hosts("true")),
    "[enrolment] privileged_port = false": Sites(enrolment(privileged_port="false"), enrolment()),
    "[enrolment] resolve = false": Sites(enrolment(resolve="false"), enrolment()),
    "[enrolment] data: an enrolled": Sites(enrolment(data='["lines", "cluster"]'), enrolment()),
    "who asks and from where": Sites(proxies("127.0.0.1"), plain_proxies("127.0.0.1")),
    "from where it asks": Sites(plain_proxies("127.0.0.1"), plain_proxies("10.0.0.1")),
    "; a socket of its own or another host": Sites(plain_proxies("127.0.0.1"), plain_proxies("10.0.0.1")),
    "addresses may say": Sites(plain_proxies("10.0.0.0/16"), plain_proxies("10.0.0.0/24")),
    ": believed of nobody": Sites(
        lambda site: site.top.update(user_header='"X-User"'),
        lambda site: site.top.update(user_header='"X-User"', proxies='["10.0.0.1"]'),
    ),
    ": others may change it": Sites(mode(lambda site: site.config, 0o620), mode(lambda site: site.config, 0o640)),
    ": every user of this machine may open it": Sites(
        mode(lambda site: site.users.path, 0o604), mode(lambda site: site.users.path, 0o640)
    ),
    ": others may look into it": Sites(mode(lambda site: site.data, 0o750), mode(lambda site: site.data, 0o700)),
    ": readable by others": Sites(
        several(lambda site: (site.data / "x").write_text(""), mode(lambda site: site.data / "x", 0o644), mode(lambda site: site.data, 0o755)),
        several(lambda site: (site.data / "x").write_text(""), mode(lambda site: site.data / "x", 0o644)),
    ),
    ": old hashes, which still fit": Sites(old_passwords(f"{SCRYPT}32768:8:3:AAAA:AAAA"), old_passwords(HASHED)),
    ": never ends; faultline access token": Sites(lambda site: site.token(None), lambda site: site.token(300)),
    "; faultline access remove": Sites(lambda site: site.token(-1), lambda site: site.token(300)),
    "rows without their raw line": Sites(
        lambda site: site.store(SYSTEM, sql("UPDATE raw.logs SET raw = NULL")), lambda site: site.store(SYSTEM)
    ),
    "; the service takes that for the same one": Sites(
        several(lambda site: site.top.update(cluster='"Alps"'), lambda site: site.store(SYSTEM, several_changes("Alps", "alps"))),
        several(lambda site: site.top.update(cluster='"alps"'), lambda site: site.store(SYSTEM, several_changes("alps", "alps"))),
    ),
    ", of which there is no line": Sites(
        several(lambda site: site.top.update(cluster='"Alps"'), lambda site: site.store(SYSTEM, several_changes("Alps", "eiger", "rigi"))),
        several(lambda site: site.top.update(cluster='"alps"'), lambda site: site.store(SYSTEM, several_changes("alps", "alps"))),
    ),
    ": collected only from logs that keep no facility": Sites(
        lambda site: site.store({"nodes/gpu01/syslog": KERNEL}), lambda site: site.store({"nodes/gpu01/syslog": KERNEL, **RING})
    ),
    ": known by facility kern only": Sites(
        lambda site: site.store({"nodes/gpu01/syslog": KERNEL, "nodes/gpu01/kern.log": KERNEL}),
        lambda site: site.store({"nodes/gpu01/kern.log": KERNEL, **RING}),
    ),
    ": any user of their hosts can write such lines": Sites(
        lambda site: site.store({**XID_OF_SYSLOG, **XID_OF_RING}), lambda site: site.store(XID_OF_RING)
    ),
    ": whoever reaches the log host can send such lines": Sites(
        lambda site: site.store(XID_OF_SYSLOG, came_by("syslog:gpu01", '{"sender": "10.9.9.9"}')),
        lambda site: site.store(XID_OF_SYSLOG, came_by("syslog:gpu01")),
    ),
    ": their senders name no file": Sites(
        lambda site: site.store(XID_OF_SYSLOG, came_by("loki:gpu01")),
        lambda site: site.store(XID_OF_SYSLOG, came_by("gpu01:/var/log/syslog")),
    ),
    "is not a report; known are": Sites(
        lambda site: site.top.update(reports=REPORT.format("no-such")), lambda site: site.top.update(reports=REPORT.format("usage"))
    ),
    "is not read: users write into it": Sites(own_spool(0o1733), own_spool(0o700)),
    "lines are not found: bring it back": Sites(archived("kept", 1, None), archived("gone", 1, None)),
    ": is not what was written": Sites(archived("kept", 5, b"x"), archived("kept", 1, b"x")),
    ": not a file of this store": Sites(stray, archived("kept", 1, b"x")),
    "); it is shown to neither": Sites(
        lambda site: site.store(SYSTEM, jobs({"user": "alice", "uid": 1, "source": "sacct"}, {"user": "bob", "uid": 2, "source": "scontrol"})),
        lambda site: site.store(SYSTEM, jobs({"user": "alice", "uid": 1, "source": "sacct"}, {"user": "bob", "uid": 2, "source": "task_hook"})),
    ),
}  # fmt: skip


def several_changes(lines: str, *accounted: str) -> Callable[[DuckStore], object]:
    """Lines of one cluster, and jobs of others on a node with such lines."""

    def change(store: DuckStore) -> None:
        sql(f"UPDATE raw.logs SET cluster = '{lines}'")(store)
        jobs(*({"job_id": 20 + n, "cluster": name, "user": "a", "source": "sacct", "nodes": ["gpu01"]} for n, name in enumerate(accounted)))(store)  # fmt: skip

    return change


@cache
def _installed(group: str) -> EntryPoints:
    """A look through all packages takes 3 ms of CPU, and a check takes several."""
    return entry_points(group=group)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(checking, "_edges", lambda paths, catalogue, every_test: [])  # test_edge_tests runs them
    monkeypatch.setattr(Catalogue, "check", lambda catalogue: [])  # test_house runs it
    monkeypatch.setattr(checking, "_dashboards", lambda settings: [])  # test_check_dashboards runs it
    monkeypatch.setattr(extensions, "entry_points", _installed)
    with ExitStack() as close:
        made = Site(tmp_path, close)
        monkeypatch.setattr(checking, "is_store", lambda folder: made.kept is not None or is_store(folder))
        monkeypatch.setattr(checking, "open_for_reading", lambda folder: nullcontext(made.kept) if made.kept else open_for_reading(folder))  # fmt: skip
        yield made


def test_every_statement_has_a_site() -> None:
    written = list(statements())
    assert len(written) > 30
    assert [text for text in written if not any(text.startswith(begin) for begin in SITES)] == []
    assert [begin for begin in SITES if not any(text.startswith(begin) for text in written)] == []


def test_a_shut_site_is_reported_nothing(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    reported = site.told(capsys)
    assert "all is well" in reported and "OPEN" not in reported and "WRONG" not in reported


@pytest.mark.parametrize("begin", SITES)
def test_it_appears(begin: str, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    SITES[begin].shown(site)
    reported = site.told(capsys)
    assert _said(begin, reported), reported


@pytest.mark.parametrize(
    "begin", [pytest.param(b, marks=pytest.mark.long if n % 3 else ()) for n, b in enumerate(SITES)]
)
def test_it_does_not_appear(begin: str, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    SITES[begin].not_shown(site)
    reported = site.told(capsys)
    assert not _said(begin, reported), reported


def test_where_no_user_can_write_to_syslog_its_lines_are_not_reported(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.store(XID_OF_SYSLOG)
    site.top["users_can_write_syslog"] = "true"
    assert "say users_can_write_syslog = false" in site.told(capsys)
    site.top["users_can_write_syslog"] = "false"
    reported = site.told(capsys)
    assert "can write such lines" not in reported and "keep no facility" not in reported, reported


def _said(begin: str, reported: str) -> bool:
    """Does a line that is no heading contain the text?"""
    return any(begin in line for line in reported.splitlines() if re.match(r"OPEN |WRONG |cluster ", line))
