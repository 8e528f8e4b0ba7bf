"""What is open at a site: who can reach what without authentication. Logged at the start and reported by ``faultline
check``."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from collector.receivers.syslog import DEFAULT_PORT
from collector.senders import CLUSTER, Sender
from correlator.site.senders import relays
from faultline.config import Config
from faultline.failure import CommandError
from web.access.passwords import is_old
from web.access.users import Users, UsersError

#: A token that expires within this time is reported in advance.
SOON = timedelta(days=30)
#: A network of proxies with more addresses than this is reported: each of them is trusted.
MANY_ADDRESSES = 256


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach an address. A name counts as what it resolves to; one that does
    not resolve is not a loopback address."""
    try:
        found = [ipaddress.ip_address(host.strip("[]").partition("%")[0])]
    except ValueError:
        try:
            resolved = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return False
        found = [ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in resolved]
    return all((getattr(one, "ipv4_mapped", None) or one).is_loopback for one in found)


def missing(config: Config) -> list[str]:
    """What an address that others can reach needs and the configuration lacks."""
    if is_loopback(config.address[0]):
        return []
    needs = []
    if config.tls is None:
        needs.append("[tls]: passwords, tokens and job output would go over the network in the clear")
    if config.access is None:
        needs.append("[access]: whoever reaches the address would read everything")
    return needs


def refuse(config: Config) -> None:
    """Raises ``CommandError`` for an address that others can reach without HTTPS and sign-in, unless that is
    intended."""
    if not config.insecure and (needs := missing(config)):
        raise CommandError(f"{config.listen}: {_needs(needs)}")


def _needs(needs: list[str]) -> str:
    return (
        f"others reach this address, and the configuration has no {'; and no '.join(needs)}. Configure that "
        "(docs/security.md), listen on 127.0.0.1, or say --insecure where something in front does it"
    )


def startup_warnings(config: Config) -> list[str]:
    """Warnings about open addresses."""
    return [*_of_address(config), *_of_receivers(config)]


def wrong_and_open(config: Config, file: Path | None, users: Users | None) -> tuple[list[str], list[str]]:
    """What ``serve`` would refuse; and what is open, intended or not."""
    needs = [] if config.insecure else missing(config)
    wrong = [f"{config.listen}: {_needs(needs)}"] if needs else []
    open_to_all = [*_of_machine(config), *_of_proxies(config), *_of_files(config, file)]
    open_to_all += [*_of_senders(config), *_of_certificates(config), *_of_enrolment(config)]
    return wrong, [*startup_warnings(config), *open_to_all, *(_of_people(users) if users is not None else ())]


def _of_address(config: Config) -> Iterator[str]:
    if config.insecure:
        for need in missing(config):
            yield f"{config.listen}: insecure, without {need}"


def _of_machine(config: Config) -> Iterator[str]:
    if config.access is None and is_loopback(config.address[0]):
        yield f"{config.listen}: no [access]: every user of this machine reads everything"


def _of_receivers(config: Config) -> Iterator[str]:
    certified = config.tls is not None and config.tls.client_ca is not None
    asks_for_token = config.ingest.asks_for_token or config.enrolment.is_on
    if not is_loopback(config.address[0]) and not asks_for_token and not certified:
        yield (
            f"{config.listen}: whoever reaches it may send lines as any host; give [ingest] senders or [tls] client_ca"
        )
    if config.syslog is None:
        host = config.listen.rpartition(":")[0] or config.address[0]
        listeners: list[tuple[str, str, Path | None]] = [
            (f"{host}:{DEFAULT_PORT}", "udp", None),
            (f"{host}:{DEFAULT_PORT}", "tcp", None),
        ]
    else:
        listeners = [(one.listen, str(one.transport), one.client_ca) for one in config.syslog]
    for address, transport, client_ca in listeners:
        if client_ca is None and not is_loopback(address.rpartition(":")[0]):  # anybody may send
            yield (
                f"syslog {transport} {address}: whoever reaches it may write lines as any host; let a firewall name the senders, "
                "use transport tls with client_ca, or switch it off (syslog = [])"
            )
    if loopback := sorted(address for address in relays(config.site) if is_loopback(address)):
        yield f"relays {', '.join(loopback)}: every program of this machine may write in a controller's name; give the forwarder TLS"


def _of_senders(config: Config) -> Iterator[str]:
    """Tokens that never expire or may send anything."""
    if plain := len(config.ingest.all_tokens()):
        yield (
            f"[ingest]: {plain} token{'s' if plain > 1 else ''} never end and may send anything as any host; "
            "faultline access sender NAME --host ... makes one that ends and is bound"
        )
    file: dict[str, Sender] = {}
    if config.ingest.senders is not None:
        try:
            file = Users.load(config.ingest.senders).senders
        except UsersError as error:
            raise CommandError(str(error)) from error
    now = datetime.now(UTC)
    for sender in [*config.ingest.bound, *file.values()]:
        if sender.expires is None:
            yield f"sender {sender.name!r}: its token never ends"
        elif sender.is_over(now):
            yield f"sender {sender.name!r}: its token ended {sender.expires:%Y-%m-%d}: what it sends is refused"
        elif sender.expires - now < SOON:
            yield f"sender {sender.name!r}: its token ends {sender.expires:%Y-%m-%d}; make it anew before"
        if not sender.limits.hosts:
            yield f"sender {sender.name!r}: may send as any host"
        elif not sender.limits.kinds:
            yield (
                f"sender {sender.name!r}: may send accounting and slurm.conf of the whole cluster; for a compute node, make it "
                "anew with --data-kind lines --data-kind output --data-kind metrics --data-kind documents"
            )


def _of_certificates(config: Config) -> Iterator[str]:
    if config.tls is not None and config.tls.client_ca is not None and not config.tls.client_hosts:
        yield "[tls] client_ca: every certificate of it may send anything as any host; client_hosts = true binds it to its names"


def _of_enrolment(config: Config) -> Iterator[str]:
    """What enrolment does not ask for."""
    settings = config.enrolment
    if not settings.is_on:
        return
    if not settings.privileged_port:
        yield (
            "[enrolment] privileged_port = false: every user of a machine can ask for its document, and enrol it before its "
            "agent does, or in the agent's place once that was silent for 15 minutes"
        )
    if not settings.resolve:
        yield "[enrolment] resolve = false: a machine may take any name of hosts that no other one has"
    if CLUSTER in settings.data:
        yield "[enrolment] data: an enrolled machine may send accounting and slurm.conf of the whole cluster"


def _of_proxies(config: Config) -> Iterator[str]:
    for given in config.all_proxies:
        network = ipaddress.ip_network(given)
        believed = (
            "who asks and from where" if config.access and given in config.access.proxies else "from where it asks"
        )
        if network.is_loopback:
            yield f"proxies {given}: every user of this machine may say {believed}; a socket of its own or another host is better"
        elif network.num_addresses > MANY_ADDRESSES:
            yield f"proxies {given}: each of {network.num_addresses:,} addresses may say {believed}"
    if config.user_header and not config.all_proxies:
        yield f"user_header {config.user_header}: believed of nobody, since proxies names no proxy; people sign answers themselves"


def _of_files(config: Config, file: Path | None) -> Iterator[str]:
    access, secret = (
        config.access,
        [config.ingest.token_file, config.ingest.senders, config.tls.key if config.tls else None],
    )
    if access:
        secret += [access.users, access.provider.secret_file if access.provider else None]
        secret += [access.slurm.jwt_key if access.slurm else None]
    secret += [one.key for one in config.syslog or ()]
    if config.ingest.tokens:
        secret.append(file)
    for path in dict.fromkeys(one for one in secret if one is not None):
        if (mode := _mode(path)) is not None and mode & 0o007:
            yield f"{path}: mode {mode:04o}: every user of this machine may open it; chmod o= it"
    if file is not None and (mode := _mode(file)) is not None and mode & 0o022:
        yield f"{file}: mode {mode:04o}: others may change it; chmod go-w it"
    for folder in (config.data, config.ingest.spool):
        if folder is not None and (mode := _mode(folder)) is not None and mode & 0o077:
            yield f"{folder}: mode {mode:04o}: others may look into it; chmod 0700 it (serve does that to a data folder of its own)"
    if config.data.is_dir() and os.access(config.data, os.R_OK | os.X_OK):
        wide = sorted(one.name for one in config.data.iterdir() if (_mode(one) or 0) & 0o077)
        if wide and (_mode(config.data) or 0) & 0o077:
            yield f"{config.data}: {', '.join(wide[:5])}{', ...' if len(wide) > 5 else ''}: readable by others"


def _of_people(users: Users) -> Iterator[str]:
    now = datetime.now(UTC)
    for name, token in sorted(users.tokens.items()):
        if token.expires is None:
            yield f"token {name!r}: never ends; faultline access token {name!r} --days 365 makes it anew"
        elif token.is_over(now):
            yield f"token {name!r}: ended {token.expires:%Y-%m-%d}; faultline access remove {name!r}, or make it anew"
        elif token.expires - now < SOON:
            yield f"token {name!r}: ends {token.expires:%Y-%m-%d}; make it anew before"
    if old := sorted(name for name, kept in users.people.items() if is_old(kept)):
        yield f"passwords of {', '.join(old)}: old hashes, which still fit; made anew by signing in or by faultline access password"


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
