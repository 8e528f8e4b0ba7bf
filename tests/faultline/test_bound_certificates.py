"""A certificate of the senders' CA stands for the hosts that it names, if the site says so."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import certificates
import pytest
import uvicorn

from collector.intake import CERTIFICATE, NAMES, Intake, certificate_of
from collector.receivers.refusals import Refused
from collector.senders import Sender
from collector.spool import Spool
from faultline import tls
from faultline.config import Tls


def test_the_names_in_the_certificate_of_a_connection_are_known(tmp_path: Path) -> None:
    certificates.make(tmp_path, "service", "gpu01")
    seen: list[tuple[Any, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope[CERTIFICATE], scope[NAMES]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    config = Tls(certificate=tmp_path / "service.pem", key=tmp_path / "service.key", client_ca=tmp_path / "ca.pem")
    server = uvicorn.Server(
        uvicorn.Config(app, http=tls.Connection, lifespan="off", log_config=None, **tls.options(config))
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            for own in (True, False):
                context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
                if own:
                    context.load_cert_chain(tmp_path / "gpu01.pem", tmp_path / "gpu01.key")
                connection = http.client.HTTPSConnection(*listener.getsockname(), context=context)
                connection.request("GET", "/")
                assert connection.getresponse().status == 204
                connection.close()
        finally:
            server.should_exit = True
            thread.join()
    assert seen == [(True, ("gpu01",)), (False, ())]


@pytest.fixture
def intake(tmp_path: Path) -> Any:
    spool = Spool(tmp_path / "spool")
    yield Intake(spool, certificates=True, named=True)
    spool.close()


def test_it_is_bound_to_them_with_and_without_their_domain(intake: Intake) -> None:
    sender = intake.allowed({}, True, ("gpu01.cluster.example.org", "login1"))
    assert sender is not None
    assert {name.lower() for name in sender.limits.hosts} == {"gpu01.cluster.example.org", "gpu01", "login1"}
    stands = {
        host: sender.limits.stands_for(host, None) for host in ("gpu01", "gpu01.cluster.example.org", "login1", "gpu02")
    }
    assert stands == {"gpu01": True, "gpu01.cluster.example.org": True, "login1": True, "gpu02": False}
    assert intake.sender_about({}, "gpu01", None, certified=True, names=("gpu01",)) is not None
    with pytest.raises(Refused, match="does not stand for gpu02"):
        intake.sender_about({}, "gpu02", None, certified=True, names=("gpu01",))


@pytest.mark.parametrize(
    "names", [(), ("*.cluster.example.org",), ("gpu[01-99]",)], ids=["none", "all of a domain", "a list"]
)
def test_one_that_names_no_host_is_refused(intake: Intake, names: tuple[str, ...]) -> None:
    with pytest.raises(Refused, match="names no host"):
        intake.allowed({}, True, names)


def test_a_token_beside_it_narrows_it(tmp_path: Path) -> None:
    """Neither widens the other, and a token that is wrong is refused whatever certificate is shown."""
    tokens = {name: Sender.of_token(name, limits, name) for name, limits in {
        "lines": {"hosts": ["gpu[01-02]"], "data": ["lines"], "clusters": ["blue"]}, "other": {"hosts": ["gpu09"]}, "all": {},
        "spelled": {"hosts": ["Gpu01", "Gpu02"]}, "pattern": {"hosts": ["Gpu*"]},
    }.items()}  # fmt: skip
    spool = Spool(tmp_path / "spool")
    named, unnamed = (
        Intake(spool, certificates=True, named=named, senders=lambda: list(tokens.values())) for named in (True, False)
    )

    def allowed(intake: Intake, token: str) -> Any:
        sender = intake.allowed({"authorization": f"Bearer {token}"}, True, ("gpu01.site",))
        assert sender is not None
        limits = sender.limits
        return (
            {name for name in ("gpu01", "Gpu01", "gpu02", "Gpu02", "gpu09") if limits.stands_for(name, None)},
            limits.kinds,
            limits.clusters,
        )

    assert allowed(named, "lines") == ({"gpu01"}, ("lines",), ("blue",))
    assert allowed(unnamed, "lines") == ({"gpu01", "gpu02"}, ("lines",), ("blue",))
    assert allowed(named, "all") == ({"gpu01"}, (), ())
    assert allowed(named, "spelled") == ({"Gpu01"}, (), ())
    for name in ("other", "pattern"):
        with pytest.raises(Refused, match="does not stand for the host of its certificate"):
            allowed(named, name)
    with pytest.raises(Refused, match="not one of this service's"):
        allowed(named, "stolen")
    spool.close()


def test_without_the_setting_it_is_bound_to_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    assert Intake(spool, certificates=True).allowed({}, True, ("gpu01",)) is None
    spool.close()


def test_one_for_an_address_stands_for_no_other_host() -> None:
    limits = certificate_of(("10.0.0.1",)).limits
    stands = {host: limits.stands_for(host, None) for host in ("10.0.0.1", "10", "10.9.9.9")}
    assert stands == {"10.0.0.1": True, "10": False, "10.9.9.9": False}


def test_the_names_of_a_certificate_count_in_any_case() -> None:
    for name in ("GPU001.site", "gpu001.site"):
        limits = certificate_of((name,)).limits
        assert (
            limits.stands_for("GPU001", None)
            and limits.stands_for("gpu001", None)
            and not limits.stands_for("GPU002", None)
        )
