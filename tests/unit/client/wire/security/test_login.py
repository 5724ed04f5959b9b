"""Logins on a connection, with brokers in memory: each mechanism, what refuses it, and re-authentication."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionLost,
    ListenerMismatch,
    UnsupportedByBroker,
)
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.security.setting_names import client_security
from ottla.client.wire.security.settings import ClientSecurity
from ottla.protocol.api import ApiKey, VersionRange
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from ottla.security.mechanism import SaslMechanism
from tests.unit.client.fake_cluster import FakeCluster, Fault
from tests.unit.client.fake_sasl import PASSWORD, REFUSED, TOKEN, USERNAME, FakeSasl

PASSWORD_MECHANISMS = [SaslMechanism.PLAIN, SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512]
LIFETIME_MS = 100_000


def security(mechanism: SaslMechanism, secret: str = "") -> ClientSecurity:
    names = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism is SaslMechanism.OAUTHBEARER:
        extensions = {"sasl.oauthbearer.extensions": "traceId=7"}
        return client_security(names | extensions, token_source=lambda: secret or TOKEN)
    return client_security(names | {"sasl.username": USERNAME, "sasl.password": secret or PASSWORD})


def open_connection(fake: FakeCluster, given: ClientSecurity) -> Connection:
    options = ClientOptions(security=given)
    return Connection.open(fake.brokers[1].address, fake.dial, options, fake.clock, Deadline(fake.clock, 1000))


def ask_metadata(connection: Connection, fake: FakeCluster) -> MetadataResponse:
    return connection.call(ApiKey.METADATA, MetadataRequest(topics=[]), MetadataResponse, Deadline(fake.clock, 1000))


def cluster_with(sasl: FakeSasl) -> FakeCluster:
    fake = FakeCluster()
    fake.brokers[1].sasl = sasl
    return fake


@pytest.mark.parametrize("mechanism", SaslMechanism)
def test_a_connection_logs_in_before_its_first_request(mechanism: SaslMechanism) -> None:
    fake = cluster_with(FakeSasl())
    connection = open_connection(fake, security(mechanism))
    assert ask_metadata(connection, fake).cluster_id == "fake"
    rounds_count = 2 if mechanism.is_scram else 1
    assert [api for api, _ in fake.brokers[1].seen] == [
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        *[ApiKey.SASL_AUTHENTICATE] * rounds_count,
        ApiKey.METADATA,
    ]
    assert fake.brokers[1].sasl is not None
    assert fake.brokers[1].sasl.logins == [mechanism]


def test_extensions_are_sent_with_a_token() -> None:
    sasl = FakeSasl()
    open_connection(cluster_with(sasl), security(SaslMechanism.OAUTHBEARER))
    assert sasl.extensions == [{"traceId": "7"}]


@pytest.mark.parametrize("mechanism", SaslMechanism)
def test_a_wrong_secret_fails_at_once_with_the_brokers_reason(mechanism: SaslMechanism) -> None:
    fake = cluster_with(FakeSasl())
    with pytest.raises(AuthenticationFailed, match=REFUSED) as refused:
        open_connection(fake, security(mechanism, "wrong-secret"))
    assert not refused.value.is_retriable
    assert refused.value.hint
    assert "wrong-secret" not in str(refused.value)
    assert fake.brokers[1].connections[0].is_closed


def test_a_login_fails_once_for_a_cluster_and_is_not_retried() -> None:
    fake = cluster_with(FakeSasl())
    cluster = fake.client(ClientOptions(security=security(SaslMechanism.PLAIN, "wrong")))
    with pytest.raises(AuthenticationFailed):
        cluster.refresh([])
    assert len(fake.brokers[1].connections) == 1


def test_a_mechanism_that_is_not_enabled_names_those_that_are() -> None:
    fake = cluster_with(FakeSasl([SaslMechanism.SCRAM_SHA_512, SaslMechanism.PLAIN]))
    with pytest.raises(AuthenticationFailed, match=r"accepts SCRAM-SHA-512, PLAIN") as refused:
        open_connection(fake, security(SaslMechanism.SCRAM_SHA_256))
    assert "sasl.mechanism" in str(refused.value.hint)


def test_a_listener_without_sasl_is_a_mismatch() -> None:
    fake = cluster_with(FakeSasl())
    del fake.brokers[1].versions[ApiKey.SASL_HANDSHAKE]
    with pytest.raises(ListenerMismatch, match="offers no SASL") as refused:
        open_connection(fake, security(SaslMechanism.PLAIN))
    assert "security.protocol" in str(refused.value.hint)


def test_a_broker_before_sasl_authenticate_is_too_old() -> None:
    fake = cluster_with(FakeSasl())
    del fake.brokers[1].versions[ApiKey.SASL_AUTHENTICATE]
    with pytest.raises(UnsupportedByBroker):
        open_connection(fake, security(SaslMechanism.PLAIN))
    assert fake.brokers[1].connections[0].is_closed


def test_a_broker_that_closes_the_connection_instead_of_an_answer_hints_at_the_secret() -> None:
    fake = cluster_with(FakeSasl())
    fake.brokers[1].fault_of = lambda api: Fault.CUT_BEFORE if api is ApiKey.SASL_AUTHENTICATE else None
    with pytest.raises(ConnectionLost, match="during the login of user alice") as lost:
        open_connection(fake, security(SaslMechanism.PLAIN))
    assert "secret" in str(lost.value.hint)


def test_a_connection_without_a_login_that_is_closed_at_its_first_request_hints_at_one() -> None:
    fake = FakeCluster()
    connection = open_connection(fake, client_security(None))
    fake.brokers[1].fault_of = lambda api: Fault.CUT_BEFORE
    with pytest.raises(ConnectionLost) as lost:
        ask_metadata(connection, fake)
    assert "requires a login" in str(lost.value.hint)


def test_a_connection_that_breaks_later_hints_at_nothing_of_security() -> None:
    fake = FakeCluster()
    connection = open_connection(fake, client_security(None))
    ask_metadata(connection, fake)
    fake.brokers[1].fault_of = lambda api: Fault.CUT_BEFORE
    with pytest.raises(ConnectionLost) as lost:
        ask_metadata(connection, fake)
    assert "login" not in str(lost.value.hint)


@pytest.mark.parametrize(
    "sasl",
    [
        FakeSasl(challenged=lambda challenge: challenge.replace(b"r=", b"r=x")),
        FakeSasl(challenged=lambda challenge: challenge.replace(b"i=4096", b"i=1")),
        FakeSasl(challenged=lambda challenge: b""),
        FakeSasl(signed=lambda last: last.replace(b"v=", b"v=AAAA")),
        FakeSasl(signed=lambda last: b"e=other-error"),
        FakeSasl(signed=lambda last: b""),
    ],
)
def test_a_server_that_does_not_prove_itself_gets_no_request(sasl: FakeSasl) -> None:
    fake = cluster_with(sasl)
    with pytest.raises(AuthenticationFailed):
        open_connection(fake, security(SaslMechanism.SCRAM_SHA_256))
    assert fake.brokers[1].connections[0].is_closed


@pytest.mark.parametrize("token", ["", "with blank", "ä"])
def test_a_source_that_returns_no_token_fails_the_login(token: str) -> None:
    fake = cluster_with(FakeSasl())
    names = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(AuthenticationFailed, match="no bearer token"):
        open_connection(fake, client_security(names, token_source=lambda: token))


@pytest.mark.parametrize("mechanism", SaslMechanism)
def test_a_connection_logs_in_again_before_its_session_ends(mechanism: SaslMechanism) -> None:
    sasl = FakeSasl(session_lifetime_ms=LIFETIME_MS)
    fake = cluster_with(sasl)
    connection = open_connection(fake, security(mechanism))
    fake.clock.advance(LIFETIME_MS * 80 // 100)
    ask_metadata(connection, fake)
    assert len(sasl.logins) == 1
    fake.clock.advance(LIFETIME_MS * 15 // 100)
    ask_metadata(connection, fake)
    ask_metadata(connection, fake)
    assert sasl.logins == [mechanism] * 2
    assert len(fake.brokers[1].connections) == 1


def test_requests_in_flight_get_their_responses_after_a_login_between_them() -> None:
    sasl = FakeSasl(session_lifetime_ms=LIFETIME_MS)
    fake = cluster_with(sasl)
    connection = open_connection(fake, security(SaslMechanism.SCRAM_SHA_256))
    deadline = Deadline(fake.clock, LIFETIME_MS * 2)

    def send() -> None:
        version = connection.version_of(ApiKey.METADATA)
        body = encode_request(ApiKey.METADATA, version, MetadataRequest(topics=[]))
        connection.send(ApiKey.METADATA, version, [body], deadline)

    send()
    send()
    fake.clock.advance(LIFETIME_MS)
    send()
    assert sasl.logins == [SaslMechanism.SCRAM_SHA_256] * 2
    assert connection.has_buffered()
    sent_ids = []
    for _ in range(3):
        sent, body = connection.receive(deadline)
        assert connection.decode(sent.api, sent.version, body, MetadataResponse).cluster_id == "fake"
        sent_ids.append(sent.correlation_id)
    assert sent_ids == sorted(sent_ids)
    assert not connection.in_flight
    assert not connection.has_buffered()


def test_a_login_between_requests_waits_for_late_responses_to_those_before_it() -> None:
    fake = cluster_with(FakeSasl(session_lifetime_ms=LIFETIME_MS))
    connection = open_connection(fake, security(SaslMechanism.PLAIN))
    version = connection.version_of(ApiKey.METADATA)
    body = encode_request(ApiKey.METADATA, version, MetadataRequest(topics=[]))
    options = ClientOptions()
    late_ms = (options.connect_timeout_ms + options.request_timeout_ms) // 2
    connection.send(ApiKey.METADATA, version, [body], Deadline(fake.clock, options.request_timeout_ms))
    fake.brokers[1].delay_ms = LIFETIME_MS + late_ms
    fake.brokers[1].work(fake.brokers[1].connections[0])
    fake.brokers[1].delay_ms = 0
    fake.clock.advance(LIFETIME_MS)
    began_ms = fake.clock.monotonic_ms()
    connection.send(ApiKey.METADATA, version, [body], Deadline(fake.clock, options.request_timeout_ms))
    assert connection.is_open
    assert fake.clock.monotonic_ms() - began_ms == late_ms


def test_a_password_that_was_changed_ends_the_connection_at_the_next_login() -> None:
    sasl = FakeSasl(session_lifetime_ms=LIFETIME_MS)
    fake = cluster_with(sasl)
    connection = open_connection(fake, security(SaslMechanism.PLAIN))
    sasl.password = "another"
    fake.clock.advance(LIFETIME_MS)
    with pytest.raises(AuthenticationFailed):
        ask_metadata(connection, fake)
    assert not connection.is_open


def test_a_session_that_lives_for_ever_has_one_login() -> None:
    sasl = FakeSasl()
    fake = cluster_with(sasl)
    connection = open_connection(fake, security(SaslMechanism.PLAIN))
    fake.clock.advance(10**12)
    ask_metadata(connection, fake)
    assert len(sasl.logins) == 1


def test_version_0_of_sasl_authenticate_has_no_session_lifetime() -> None:
    fake = cluster_with(FakeSasl(session_lifetime_ms=LIFETIME_MS))
    fake.brokers[1].versions[ApiKey.SASL_AUTHENTICATE] = VersionRange(0, 0)
    connection = open_connection(fake, security(SaslMechanism.PLAIN))
    fake.clock.advance(LIFETIME_MS)
    ask_metadata(connection, fake)
    assert (ApiKey.SASL_AUTHENTICATE, 0) in fake.brokers[1].seen


def test_a_password_file_that_is_missing_or_empty_fails_the_login_with_its_path(tmp_path: Path) -> None:
    file = tmp_path / "password"
    names = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USERNAME}
    given = client_security(names | {"sasl.password.file": str(file)})
    fake = cluster_with(FakeSasl())
    with pytest.raises(AuthenticationFailed, match="cannot read"):
        open_connection(fake, given)
    file.write_text("\n")
    with pytest.raises(AuthenticationFailed, match="empty"):
        open_connection(fake, given)
    file.write_text(PASSWORD + "\n")
    open_connection(fake, given)


def test_errors_of_a_login_are_errors_of_the_client() -> None:
    assert issubclass(AuthenticationFailed, ClientError)
    assert issubclass(ListenerMismatch, ClientError)
