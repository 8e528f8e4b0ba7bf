"""The service's configuration file (TOML). Every key has a default; ``faultline check --config`` validates one.

listen = "127.0.0.1:8514"
data = "/var/lib/faultline"
patterns = ["/etc/faultline/patterns.d/site.toml"]
edges = ["/etc/faultline/edges.d/site.toml"]
dashboards = ["/etc/faultline/dashboards.d"] # files (*.toml) or folders of them
queries = ["/etc/faultline/queries.d"]       # saved queries (*.kql) or folders of them
user_header = "X-Remote-User" # set by a proxy in front to the user's name; none: people sign their answers themselves
proxies = ["10.0.0.1"]        # trusted for X-Forwarded-For, X-Forwarded-Proto and user_header; none: nobody
users_can_write_syslog = true # false: no user can write to the nodes' syslog files (no logger, no /dev/log)
users_can_send_syslog = true # false: only root of a node can send syslog packets to Faultline and to log hosts (a firewall)
relays = ["10.0.0.5"]         # hosts that forward syslog lines of others: only these may send in a controller's name
insecure = false              # true: allow an address that others can reach, without [tls] and [access]

[slurm]                       # values that no collected file contains
SlurmdTimeout = 300

[interfaces]                  # if names do not show it: shell patterns of interfaces for the jobs' data, and for Slurm
fabric = ["ens*np*", "eth[1-8]"]
management = ["ens1f0"]

[hooks]
spool = "/var/spool/faultline/hooks"
state_save = "/var/spool/slurmctld"

[ingest]
tokens = ["...", { token = "...", name = "racks 1 to 4", expires = 2027-11-24T00:00:00Z, hosts = ["gpu[001-064]"], clusters = ["alps"],
  data = ["lines", "output"] }] # none: anyone who reaches the address may send; a table expires, and is limited to what it names
senders = "/etc/faultline/senders.toml"         # written by `faultline access sender`; changes apply without a restart
workers = 1

[enrolment]                   # none: agents need tokens or certificates; see faultline/enrolment/settings.py
hosts = ["gpu[001-064]"]

[connections]                 # HTTP and syslog together; a quarter of the file handles is reserved for other uses
most = 16384
per_address = 8192            # from one address: a proxy or NAT may represent a whole cluster

[tls]                         # none: the service uses HTTP, and a proxy in front does the rest
certificate = "/etc/faultline/tls/service.pem"
key = "/etc/faultline/tls/service.key"
client_ca = "/etc/faultline/tls/senders-ca.pem" # a sender with a certificate from it needs no token
client_hosts = true           # and may send as the hosts of its DNS names only

[access]                      # none: anyone who reaches the address sees everything
users = "/etc/faultline/users.toml"             # written by `faultline access`
operate = ["ada", "@hpc-admins"]
read = ["@hpc-support", "grafana"]
own = ["*"]                   # every other authenticated user: their own jobs

[access.provider]             # OpenID Connect
issuer = "https://login.example.org/realms/hpc"
client_id = "faultline"
secret_file = "/etc/faultline/oidc.secret"

[access.slurm]                # none: no identity of Slurm; users then see their own jobs by `faultline why`
munge = true                  # this machine has the cluster's munge.key, and munged runs
jwt_key = "/etc/faultline/jwt_hs256.key"        # a copy of slurmctld's, for tokens of `scontrol token`
users = { 20001 = "alice" }   # names of uids that this machine does not know

[store]
hot_days = 2                  # older days are closed: each becomes one Parquet file or a few
early_minutes = 30            # after so long, lines of other days move into files, too; 0: only with their day
retention_days = 400          # none: nothing is ever deleted

[[syslog]]
listen = "0.0.0.0:514"
transport = "udp"

[[scrape]]
url = "http://gpu01:9400/metrics"
host = "gpu01"

[[reports]]
name = "failure-patterns"
cron = "0 6 * * mon"
folder = "/var/lib/faultline/reports"
format = "html"
days = 7

[[notify]]
kind = "webhook"              # or alertmanager, command, email
severity = ["impact"]
options = { url = "https://chat.example.org/hooks/abc" }
"""

from __future__ import annotations

import socket
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from collector.senders import Sender, SenderError
from correlator.site.interfaces import FABRIC_SETTING, MANAGEMENT_SETTING
from correlator.site.senders import RELAYS_SETTING, SENDING_SETTING, USERS_SETTING, relays
from faultline.defaults import DEFAULT_DATA, DEFAULT_LISTEN
from faultline.enrolment.settings import Enrolment
from faultline.failure import CommandError
from faultline.notify import notifiers
from web.access.addresses import Networks
from web.access.settings import Provider, SlurmIdentity


def host_and_port(value: str) -> str:
    _host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:8514")
    return value


def networks(value: tuple[str, ...]) -> tuple[str, ...]:
    Networks(value)
    return value


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Hooks(_Section):
    """The folder of hook files, and where Slurm keeps batch scripts (not given: scripts are not fetched)."""

    spool: Path | None = None
    state_save: Path | None = None
    slurmd_spool: Path | None = None


class ScheduledReport(_Section):
    """A report over the last ``days`` days, written to ``folder`` at the times of ``cron`` (five fields, UTC). It names
    users and jobs: ``mode`` is the file's mode ("0644" for a folder that a web server serves)."""

    name: str
    cron: str
    folder: Path
    format: Literal["html", "md", "json"] = "html"
    days: float = Field(default=7, gt=0)
    mode: str = Field(default="0600", pattern=r"^0?[0-7]{3}$")

    @field_validator("cron")
    @classmethod
    def _five_fields(cls, value: str) -> str:
        from apscheduler.triggers.cron import CronTrigger

        CronTrigger.from_crontab(value)
        return value


class Notify(_Section):
    """A receiver of notifications about incidents, silent sources and forged lines. The store records sent notifications under
    ``name`` (default: the kind); ``options`` are specific to the kind."""

    kind: str
    name: str = ""
    severity: tuple[Literal["impact", "degraded", "benign"], ...] = ("impact",)
    least_confidence: float = Field(default=0.0, ge=0, le=1)
    sources: bool = True
    forgeries: bool = True
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _options_in_their_table(cls, values: Any) -> Any:
        """Names the mistake that Pydantic would only call an extra input: an option beside ``kind``."""
        beside = sorted(set(values) - set(cls.model_fields)) if isinstance(values, dict) else []
        if beside:
            raise ValueError(
                f"{beside[0]}: there is no such key; known are {', '.join(cls.model_fields)}. "
                f"What the kind itself knows belongs in options = {{ ... }}"
            )
        return values

    @model_validator(mode="after")
    def _options_fit(self) -> Notify:
        known = notifiers()
        if self.kind not in known:
            raise ValueError(f"kind {self.kind!r} is unknown; known are {', '.join(sorted(known))}")
        known[self.kind].sender(self.options)
        return self


class Ingest(_Section):
    """How batches are accepted. ``tokens``, the lines of ``token_file`` and the entries of the file ``senders`` may
    send; a token given as a table may expire and is limited (``collector.senders``). ``workers`` processes parse."""

    tokens: tuple[str | dict[str, Any], ...] = ()
    token_file: Path | None = None
    senders: Path | None = None
    spool: Path | None = None
    workers: int = Field(default=1, ge=1, le=64)
    min_free_mb: int = Field(default=256, ge=0)
    max_waiting_mb: int = Field(default=4096, ge=16)

    @field_validator("tokens")
    @classmethod
    def _tokens_can_be_used(cls, tokens: tuple[str | dict[str, Any], ...]) -> tuple[str | dict[str, Any], ...]:
        _bound(tokens)
        return tokens

    @property
    def bound(self) -> tuple[Sender, ...]:
        """Tokens of the configuration that expire or are limited."""
        return _bound(self.tokens)

    @property
    def asks_for_token(self) -> bool:
        """Whether senders must authenticate. Raises ``CommandError`` if a file cannot be read."""
        return bool(self.all_tokens() or self.bound or self.senders is not None)

    def all_tokens(self) -> tuple[str, ...]:
        """Tokens without expiry and limits. Raises ``CommandError`` if their file cannot be read."""
        plain = tuple(one for one in self.tokens if isinstance(one, str))
        if self.token_file is None:
            return plain
        try:
            lines = self.token_file.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{self.token_file}: cannot be read: {error}") from error
        return (*plain, *lines)


def _bound(tokens: tuple[str | dict[str, Any], ...]) -> tuple[Sender, ...]:
    found = []
    for place, entry in enumerate((one for one in tokens if not isinstance(one, str)), 1):
        rest = {name: value for name, value in entry.items() if name not in ("token", "name")}
        token, name = entry.get("token"), str(entry.get("name", f"[ingest] tokens, table {place}"))
        if not isinstance(token, str) or not token or "hash" in rest:
            raise ValueError(f"{name}: a table needs token = '...', beside name, expires, hosts, clusters and data")
        try:
            found.append(Sender.of_token(token, rest, name))
        except SenderError as error:
            raise ValueError(f"{name}: {error}") from error
    return tuple(found)


class Connections(_Section):
    """How many connections may be open at once, in total and from one address. Those that finished nothing yet are
    closed first."""

    most: int = Field(default=16384, ge=16)
    per_address: int = Field(default=8192, ge=1)


class Store(_Section):
    """``hot_days``: days before today that are not closed. Lines move into files before their day closes, ``early_minutes``
    after they arrived (0: with their day). ``retention_days``: days before today that are stored at all (not given: all)."""

    hot_days: int = Field(default=2, ge=0)
    early_minutes: int = Field(default=30, ge=0)
    retention_days: int | None = Field(default=None, ge=1)


class SyslogListener(_Section):
    """One syslog socket. TLS needs ``certificate`` and ``key``; ``client_ca`` requires senders' certificates from
    it."""

    listen: str
    transport: Literal["udp", "tcp", "tls"] = "tcp"
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    timezone: str | None = None

    @model_validator(mode="after")
    def _has_certificate(self) -> SyslogListener:
        if self.transport == "tls" and not (self.certificate and self.key):
            raise ValueError("transport tls needs certificate and key")
        return self

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        return host_and_port(value)


class Tls(_Section):
    """HTTPS of the service itself. ``client_ca``: senders with a certificate from it need no token; ``client_hosts``: such a
    certificate stands for the hosts of its DNS names only."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    client_hosts: bool = False


class Access(_Section):
    """Who may use the pages. ``operate``, ``read`` and ``own`` list names, ``@groups`` and ``*`` (any authenticated
    user); the highest right counts.

    ``proxies`` are the addresses and networks trusted for ``user_header`` and ``groups_header``, and for the client's
    address.
    """

    users: Path | None = None
    operate: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    groups_header: str | None = None
    session_hours: float = Field(default=12, gt=0, le=24 * 90)
    provider: Provider | None = None
    slurm: SlurmIdentity | None = None

    @field_validator("proxies")
    @classmethod
    def _are_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return networks(value)

    @model_validator(mode="after")
    def _somebody_may(self) -> Access:
        if self.users is None and self.provider is None and self.slurm is None and not self.proxies:
            raise ValueError("nobody could sign in; give users, provider, slurm or proxies")
        if not (self.operate or self.read or self.own or self.slurm):
            raise ValueError("nobody has a role; list names in operate, read or own")
        return self


class Scrape(_Section):
    """A Prometheus endpoint scraped every ``interval_s`` seconds; its samples belong to ``host``."""

    url: str
    host: str | None = None
    interval_s: float = Field(default=30, ge=1)
    timeout_s: float = Field(default=10, gt=0)


class Gate(_Section):
    """How many nodes of a cluster may refuse jobs by the gate within an hour: at most so many, and at most this share of
    them (but one). 0 nodes: none."""

    nodes_per_hour: int = Field(default=2, ge=0)
    share_per_hour: float = Field(default=0.02, ge=0, le=1)


class AdminComment(_Section):
    """Whether the verdict on each finished job is written into Slurm's AdminComment: at most ``per_minute`` jobs, of those
    that ended within the last ``hours``."""

    enabled: bool = False
    sacct: str = "sacct"
    sacctmgr: str = "sacctmgr"
    per_minute: int = Field(default=20, ge=1, le=600)
    hours: float = Field(default=6, gt=0, le=168)


class DrainAdvisor(_Section):
    """Whether the repair list's advice to drain is carried out, and what must hold for it; docs/drain-advisor.md.

    ``floor``: the share of a partition's nodes that must stay able to run jobs, ``floors`` that of single partitions.
    ``check``: a program and its arguments, to which the node's name is added; exit 0 is a passed check. ``bridge``: one that
    receives each drain and resume, as JSON on its standard input.
    """

    acting: bool = False
    scontrol: str = "scontrol"
    nodes_per_hour: int = Field(default=2, ge=0)
    share_per_hour: float = Field(default=0.02, ge=0, le=1)
    floor: float = Field(default=0.9, ge=0, le=1)
    floors: dict[str, float] = Field(default_factory=dict)
    fresh_minutes: float = Field(default=30, gt=0, le=1440)
    respect_hours: float = Field(default=24, ge=0)
    resume: bool = False
    check: tuple[str, ...] = ()
    check_timeout_s: float = Field(default=120, gt=0, le=900)
    bridge: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _resumes_only_what_was_checked(self) -> DrainAdvisor:
        if self.resume and not self.check:
            raise ValueError("resume needs check, the program that says whether a node is well again")
        return self


class Interfaces(_Section):
    fabric: tuple[str, ...] = ()
    management: tuple[str, ...] = ()


class Config(_Section):
    listen: str = DEFAULT_LISTEN
    data: Path = DEFAULT_DATA
    cluster: str | None = None
    timezone: str | None = None
    patterns: tuple[Path, ...] = ()
    edges: tuple[Path, ...] = ()
    dashboards: tuple[Path, ...] = ()
    queries: tuple[Path, ...] = ()
    user_header: str | None = None
    #: Addresses and networks whose X-Forwarded-For and X-Forwarded-Proto are trusted; without [access] their
    #: user_header, too.
    proxies: tuple[str, ...] = ()
    #: Whether an address that others can reach may be served without HTTPS and sign-in.
    insecure: bool = False
    slurm: dict[str, str | int | float] = Field(default_factory=dict)
    interfaces: Interfaces = Interfaces()
    hooks: Hooks = Hooks()
    ingest: Ingest = Ingest()
    enrolment: Enrolment = Enrolment()
    connections: Connections = Connections()
    tls: Tls | None = None
    access: Access | None = None
    store: Store = Store()
    gate: Gate = Gate()
    admin_comment: AdminComment = AdminComment()
    drain_advisor: DrainAdvisor = DrainAdvisor()
    #: None: UDP and TCP on port 5514 of ``listen``'s host, if it is free.
    syslog: tuple[SyslogListener, ...] | None = None
    #: Addresses and small networks that forward syslog lines of other hosts, a controller's included.
    relays: tuple[str, ...] = ()
    #: Whether users can write to the syslog files of the nodes, with ``logger`` or to /dev/log. If not, these files show
    #: what their programs wrote.
    users_can_write_syslog: bool = True
    users_can_send_syslog: bool = True
    scrape: tuple[Scrape, ...] = ()
    reports: tuple[ScheduledReport, ...] = ()
    notify: tuple[Notify, ...] = ()
    #: The address at which people reach the pages; none: ``listen``.
    public_url: str | None = None

    @field_validator("relays")
    @classmethod
    def _are_few_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        relays({RELAYS_SETTING: value})
        return value

    @property
    def site(self) -> dict[str, object]:
        """What the site states about itself, in the correlator's form: values of Slurm, and the roles of interfaces."""
        settings = {FABRIC_SETTING: self.interfaces.fabric, MANAGEMENT_SETTING: self.interfaces.management}
        return {
            **self.slurm,
            **settings,
            RELAYS_SETTING: self.relays,
            USERS_SETTING: self.users_can_write_syslog,
            SENDING_SETTING: self.users_can_send_syslog,
        }

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]") or "127.0.0.1", int(port)

    @property
    def all_proxies(self) -> tuple[str, ...]:
        """Proxies trusted for the user or the address: one that is trusted for names is trusted for addresses."""
        return (*self.proxies, *(self.access.proxies if self.access is not None else ()))

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def pages(self) -> str:
        """The address of the pages in notifications: if the service listens everywhere, its host's name is used."""
        host, port = self.address
        everywhere = host in ("0.0.0.0", "::")
        return (self.public_url or f"{self.scheme}://{socket.gethostname() if everywhere else host}:{port}").rstrip("/")

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        return host_and_port(value)

    @field_validator("proxies")
    @classmethod
    def _are_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return networks(value)

    @model_validator(mode="after")
    def _proxies_say_who(self) -> Config:
        if self.access is not None and self.access.proxies and not self.user_header:
            raise ValueError("access.proxies needs user_header, the header in which they say who asks")
        return self

    @field_validator("notify")
    @classmethod
    def _names_differ(cls, value: tuple[Notify, ...]) -> tuple[Notify, ...]:
        names = [one.name or one.kind for one in value]
        if again := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two targets are called {min(again)}; give each a name")
        return value


def load(path: Path | None) -> Config:
    """Reads a configuration; None gives the defaults. Raises ``CommandError`` with file, key and reason."""
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
        raise CommandError(f"{where}: {key}: {first['msg'].removeprefix('Value error, ')}") from error
