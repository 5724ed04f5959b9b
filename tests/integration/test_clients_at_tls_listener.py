"""Ottla's clients at Ottla's own listener with TLS that demands certificates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import trustme

import ottla
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.options import ClientOptions
from ottla.errors import OttlaError, TlsFailed
from ottla.testing.broker import RunningBroker
from tests.command_line import ottla as run_verb

MESSAGES_COUNT: Final = 300
# More than what is encrypted at once, in a message and in a fetch.
BIG_BYTES: Final = 800_000


class TlsBroker(NamedTuple):
    bootstrap: str
    ca_path: Path
    client_path: Path

    @property
    def security(self) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.ca_path),
            "ssl.certificate.location": str(self.client_path),
        }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    ca_path, server_path, client_path = (directory / name for name in ("ca.pem", "server.pem", "client.pem"))
    authority.cert_pem.write_to_path(str(ca_path))
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(str(server_path))
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(client_path))
    settings = {
        "ssl.keystore.location": str(server_path),
        "ssl.truststore.location": str(ca_path),
        "ssl.client.auth": "required",
    }
    with RunningBroker(listen="SSL://127.0.0.1:0", settings=settings) as running:
        yield TlsBroker(running.bootstrap, ca_path, client_path)


def test_messages_pass_through_tls(broker: TlsBroker) -> None:
    values = [b"%d" % number for number in range(MESSAGES_COUNT)] + [bytes(BIG_BYTES)] * 4
    with ottla.Producer(broker.bootstrap, security=broker.security) as producer:
        producer.send("passes", values)
    with ottla.ConsumerConnector(
        broker.bootstrap, group="readers", auto_offset_reset="earliest", security=broker.security
    ) as connector:
        stream = connector.create_message_streams({"passes": 1})["passes"][0]
        found = [next(stream).value for _ in values]
    assert sorted(value for value in found if value is not None) == sorted(values)


def test_the_command_line_passes_through_tls(broker: TlsBroker, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={text}\n" for name, text in broker.security.items()))
    for verb in (["topic", "create", "by-command"], ["topic", "list"], ["group", "list"], ["cluster", "status"]):
        run_verb(*verb, "-b", broker.bootstrap, "--command-config", config)


def refusal(broker: TlsBroker, security: dict[str, str]) -> OttlaError:
    options = ClientOptions(security=ottla.client_security(security))
    with Cluster(broker.bootstrap, options) as cluster, pytest.raises(OttlaError) as refused:
        cluster.refresh_once([], cluster.retrying.deadline())
    return refused.value


def test_a_client_without_tls_gets_a_hint(broker: TlsBroker) -> None:
    assert "SASL_SSL" in str(refusal(broker, {}).hint)


def test_a_client_without_a_certificate_gets_a_hint(broker: TlsBroker) -> None:
    error = refusal(broker, {"security.protocol": "SSL", "ssl.ca.location": str(broker.ca_path)})
    assert isinstance(error, TlsFailed), error
    assert "ssl.certificate.location" in str(error.hint)


def test_a_client_with_a_foreign_certificate_is_refused(broker: TlsBroker, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.pem"
    trustme.CA().issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(foreign))
    error = refusal(broker, broker.security | {"ssl.certificate.location": str(foreign)})
    assert isinstance(error, TlsFailed), error
    assert "client's certificate" in str(error)
