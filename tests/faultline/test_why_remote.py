"""``faultline why`` of a service, from the bare package: known by munge, by a Slurm token, or by nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import certificates
import pytest
import uvicorn
from joserfc import jwt
from joserfc.jwk import OctKey

from faultline.why_text import without_verdict
from tests.correlator.rows import CAPTURES, concluded
from tests.faultline.command import Done, faultline
from web.access.authentication import Authentication
from web.access.people import Role, Roles
from web.access.sessions import Sessions
from web.access.settings import SlurmIdentity
from web.access.slurm import SlurmUsers
from web.access.users import Users, hashed_token
from web.app import create_app

ROOT = Path(__file__).parents[2]
FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
KEY = b"k" * 32
ME = os.getuid()


class Site:
    """A service over one capture, in a thread. ``authentication.slurm`` is set by each test."""

    def __init__(self, url: str, authentication: Authentication, folder: Path) -> None:
        self.url, self.authentication, self.folder = url, authentication, folder

    def accepts(self, **settings: object) -> None:
        self.authentication.slurm = SlurmUsers(SlurmIdentity.model_validate(settings)) if settings else None

    def why(self, job: str, *more: str, path: Path | None = None, **environment: str) -> Done:
        """In a process without any package besides the standard library and Faultline."""
        command = [sys.executable, "-S", "-m", "faultline.entry", "why", job, *more]
        # Only the programs of this test: the machine may have a munge of its own.
        env = {"PYTHONPATH": str(ROOT), "PATH": str(path or self.folder), "FAULTLINE_SERVER": self.url, **environment}
        done = subprocess.run(command, env=env, capture_output=True, timeout=240, check=False, cwd=self.folder)
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("service")
    users = Users(folder / "users.toml", {}, {"ops": hashed_token("t-ops")})
    authentication = Authentication(
        users=users, roles=Roles({Role.OPERATE: frozenset({"ops"})}), sessions=Sessions(b"k" * 32, 3600)
    )
    users.save()
    (folder / "key").write_bytes(KEY)
    with concluded(FLAP) as store, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(store, authentication=authentication), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        until = time.monotonic() + 120
        while not server.started and time.monotonic() < until:
            time.sleep(0.02)
        yield Site(f"http://localhost:{listener.getsockname()[1]}", authentication, folder)
        server.should_exit = True
        thread.join(120)


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return folder


def token(name: str, lasts_s: float = 600) -> str:
    claims = {"exp": int(time.time() + lasts_s), "iat": int(time.time()), "sun": name}
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(KEY))


def test_the_bare_package_says_what_the_full_one_says(site: Site) -> None:
    site.accepts(jwt_key=site.folder / "key")
    alice = {"SLURM_JWT": token("alice")}
    bare = site.why("15", **alice)
    assert bare.returncode == 0, bare.stderr
    assert b"lost its network" in bare.stdout and b"Chain of evidence" in bare.stdout and b"allowed" in bare.stdout
    assert bare.stdout == faultline("why", "15", "--server", site.url, **alice).stdout
    machine = json.loads(site.why("JobId=15", "--format", "json", **alice).stdout)
    assert machine["verdict"]["category"] == "infra.network" and machine["job_id"] == "15"
    full = json.loads(faultline("why", "15", "--server", site.url, "--format", "json", **alice).stdout)
    assert machine["verdict"] == full["verdict"] and machine["incident"].keys() == full["incident"].keys()


def test_a_job_that_ended_well_and_one_that_is_not_ones_own(site: Site) -> None:
    site.accepts(jwt_key=site.folder / "key")
    well = site.why("16", SLURM_JWT=token("bob"))
    assert (well.returncode, well.stdout) == (1, b"Job 16 needs no explanation: 16 COMPLETED.\n")
    theirs, nowhere = (site.why(job, SLURM_JWT=token("bob")) for job in ("15", "77"))
    assert theirs.returncode == nowhere.returncode == 2 and not theirs.stdout
    assert theirs.stderr.replace(b"job 15:", b"job 77:") == nowhere.stderr  # the port may have these digits, too
    assert b"knows no such job that you may see" in theirs.stderr and theirs.stderr.count(b"\n") == 1
    assert site.why("16#3", SLURM_JWT=token("bob")).stderr.endswith(b"; did you mean 16?\n")


def test_a_job_whose_end_has_not_arrived_is_not_called_well() -> None:
    runs = [{"run_key": "15", "state": "NODE_FAIL"}, {"run_key": "15#1", "state": None}]
    assert (
        without_verdict("15", runs[1:])
        == "Job 15 has not ended, by what has arrived; accounting may be a minute behind."
    )
    assert without_verdict("15", runs) == "Job 15 needs no explanation: 15 NODE_FAIL, 15#1 not ended."


def test_a_token_is_made_by_scontrol(site: Site, tmp_path: Path) -> None:
    site.accepts(jwt_key=site.folder / "key")
    made = program(tmp_path, "scontrol", f'[ "$1" = token ] && echo SLURM_JWT={token("alice")}')
    assert site.why("15", path=made).returncode == 0
    refused = site.why("15", path=program(tmp_path, "scontrol", "echo 'slurm_load_jobs error: auth' >&2; exit 1"))
    assert refused.returncode == 2 and b"scontrol: slurm_load_jobs error: auth" in refused.stderr


def test_an_operator_who_is_known_by_slurm_learns_what_more_needs(site: Site) -> None:
    """An identity of Slurm's is for jobs; the refusal alone speaks of a token that nobody gave."""
    site.accepts(jwt_key=site.folder / "key")
    refused = faultline("node", "gpu02", "--server", site.url, SLURM_JWT=token("ops"))
    assert refused.returncode == 2 and b"403" in refused.stderr and b"into FAULTLINE_ACCESS_TOKEN" in refused.stderr
    allowed = faultline("node", "gpu02", "--server", site.url, FAULTLINE_ACCESS_TOKEN="t-ops")
    assert allowed.returncode == 0 and b"FAULTLINE_ACCESS_TOKEN" not in allowed.stderr


def test_an_access_token_comes_first(site: Site) -> None:
    site.accepts()
    assert site.why("15", FAULTLINE_ACCESS_TOKEN="t-ops").returncode == 0
    wrong = site.why("15", FAULTLINE_ACCESS_TOKEN="t-else")
    assert wrong.returncode == 2 and b"401" in wrong.stderr and b"FAULTLINE_ACCESS_TOKEN" in wrong.stderr


def test_each_failure_is_one_line_that_says_what_to_do(site: Site, tmp_path: Path) -> None:
    def said(**environment: str) -> str:
        done = site.why("15", **environment)
        assert done.returncode == 2 and not done.stdout and done.stderr.count(b"\n") == 1, done.stderr
        return done.stderr.decode()

    site.accepts()
    assert "accepts neither munge nor Slurm tokens" in said(SLURM_JWT=token("alice"))
    site.accepts(munge=True)
    assert "no program munge here; ask on a login node" in said()
    site.accepts(munge=True, jwt_key=site.folder / "key")
    both = said()
    assert "no program munge here" in both and "SLURM_JWT is not set, and there is no scontrol" in both
    assert "seconds ago. Make a new one: scontrol token" in said(SLURM_JWT=token("alice", -90))
    assert "not signed with this site's key" in said(SLURM_JWT="a.b.c")
    assert "which service?" in said(FAULTLINE_SERVER="")
    assert "not reachable" in said(FAULTLINE_SERVER="http://127.0.0.1:9")


def test_a_certificate_of_the_sites_own_ca_is_named_as_the_reason(site: Site, tmp_path: Path) -> None:
    """A login node that does not know the CA; the way that the message gives is tried as well."""
    certificates.make(tmp_path, "service")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "service.pem", tmp_path / "service.key")
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        where = {"FAULTLINE_SERVER": f"https://127.0.0.1:{server.server_port}"}
        try:
            unknown = site.why("15", **where)
            known = site.why("15", SSL_CERT_FILE=str(tmp_path / "ca.pem"), **where)
        finally:
            server.shutdown()
            serving.join()
    assert unknown.returncode == 2 and b"its certificate is not trusted here" in unknown.stderr
    assert b"SSL_CERT_FILE" in unknown.stderr and b"certificate" not in known.stderr and b"501" in known.stderr


def test_a_slurm_token_is_not_sent_where_others_could_read_it(site: Site, tmp_path: Path) -> None:
    """Whoever has it is that user for slurmrestd as well."""
    from faultline import slurm_credentials

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_JWT", token("alice"))
        with pytest.raises(slurm_credentials.UnavailableError, match="ask by https"):
            slurm_credentials.header("Slurm-JWT", "http://faultline.example.org:8514")
        for server in ("https://faultline.example.org:8514", "http://127.0.0.1:8514"):
            assert slurm_credentials.header("Slurm-JWT", server).startswith("Slurm-JWT ey")


def test_credentials_go_nowhere_that_was_not_named(site: Site) -> None:
    """Another user of a login node may listen on the default port, and a service may send people elsewhere."""
    from faultline.failure import CommandError
    from faultline.remote import Service

    site.accepts(jwt_key=site.folder / "key")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_JWT", token("alice"))
        patch.delenv("FAULTLINE_ACCESS_TOKEN", raising=False)
        assert b"network" in Service(site.url).ask("/api/v1/jobs/15")
        with pytest.raises(CommandError, match="only to a service that you name"):
            Service(site.url, named=False).ask("/api/v1/jobs/15")
        with sends_elsewhere(site.url) as there, pytest.raises(CommandError, match="302: moved to http"):
            Service(there).ask("/api/v1/jobs/15")


@contextlib.contextmanager
def sends_elsewhere(target: str) -> Iterator[str]:
    """A server that redirects every request."""

    class Redirects(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", target + self.path)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Redirects) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


# -- munge ---------------------------------------------------------------------------------------------------------------


def munge_programs(folder: Path) -> Path:
    """The programs of munge, without what else the machine has."""
    folder.mkdir(exist_ok=True)
    for name in ("munge", "unmunge"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return folder


@contextlib.contextmanager
def munged(folder: Path) -> Iterator[Path]:
    """munged with a key of its own; its socket."""
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o600)
    files = [f"--{name}-file={folder / name}" for name in ("key", "pid", "log", "seed")]
    started = subprocess.run(
        ["munged", "--force", f"--socket={folder / 'socket'}", *files], capture_output=True, check=False
    )
    assert started.returncode == 0, started.stderr
    try:
        yield folder / "socket"
    finally:
        subprocess.run(["munged", "--stop", f"--socket={folder / 'socket'}"], check=False, capture_output=True)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if shutil.which("munged") is None:
        pytest.skip("munge is not installed")
    with munged(tmp_path_factory.mktemp("realm") / "munge") as opened:
        yield opened


def test_a_user_of_a_login_node_is_known_by_munge(site: Site, realm: Path, tmp_path: Path) -> None:
    programs = munge_programs(tmp_path / "bin")
    mine = {"path": programs, "FAULTLINE_MUNGE_SOCKET": str(realm)}
    site.accepts(munge=True, munge_socket=realm, users={str(ME): "alice"})
    found = site.why("15", **mine)  # type: ignore[arg-type]
    assert found.returncode == 0 and b"lost its network" in found.stdout, found.stderr
    site.accepts(munge=True, munge_socket=realm, users={str(ME): "bob"})
    theirs = site.why("15", **mine)  # type: ignore[arg-type]
    assert theirs.returncode == 2 and b"knows no such job that you may see" in theirs.stderr


def test_munge_refuses_replays_and_other_realms(site: Site, realm: Path, tmp_path: Path) -> None:
    site.accepts(munge=True, munge_socket=realm, users={str(ME): "alice"})

    def made(socket: Path, *more: str) -> str:
        command = ["munge", "--string=faultline-why/1\nlocalhost", f"--socket={socket}", *more]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def said(credential: str) -> str:
        fixed = program(tmp_path / "fixed", "munge", f"echo {credential}")
        done = site.why("15", path=fixed)
        return done.stderr.decode() if done.returncode else "answered"

    once = made(realm)
    # The command asks twice, for the job and its incident, so the second credential is a replay.
    assert "it was used before" in said(once)
    with munged(tmp_path / "other") as elsewhere:
        assert "not of this service's munge realm" in said(made(elsewhere))
    assert "munge: what it printed is no credential" in said("")


def test_a_dead_munged_is_named_on_either_side(site: Site, realm: Path, tmp_path: Path) -> None:
    programs = munge_programs(tmp_path / "bin")
    site.accepts(munge=True, munge_socket=realm)
    here = site.why("15", path=programs, FAULTLINE_MUNGE_SOCKET=str(tmp_path / "none"))
    assert here.returncode == 2 and b"is munged running here?" in here.stderr
    site.accepts(munge=True, munge_socket=tmp_path / "none")
    there = site.why("15", path=programs, FAULTLINE_MUNGE_SOCKET=str(realm))
    assert there.returncode == 2 and b"munged of this service cannot be asked" in there.stderr
