"""Bytes that are no login, sent to a running broker: it closes the connection or answers an error, and serves others.

A failure shows the seed, with which the same bytes are sent again (`SEED`).
"""

from __future__ import annotations

import os
import random
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import LENGTH_PREFIX, request_frame
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.api_versions import ApiVersionsRequest
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.schemas.sasl_handshake import SaslHandshakeRequest
from ottla.security.scram import ClientFinal, ClientFirst
from tests.integration.guarded_broker import PASSWORD, USER, VISIBLE, Guarded, Peer, bearer, plain, scram
from tests.integration.raw_peer import RawPeer, resident_bytes
from tests.property.property_settings import examples_max, exhaustive

SEED: Final = int(os.environ.get("OTTLA_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
CONNECTIONS_COUNT: Final = 100
# What the process itself needs for a hundred handshakes; the frames would take 100 kB each, and those that lie about
# their size 2 GB.
MEMORY_BYTES_MAX: Final = 24 << 20


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    with made.broker:
        made.lay_out()
        yield made


def frames_of(guarded: Guarded, chance: random.Random) -> list[bytes]:
    """The frames of a login, which may be one, as a client sends them."""

    def frame(api: ApiKey, version: int, request: object) -> bytes:
        return request_frame(api, version, 1, "fuzz", encode_request(api, version, request))

    tokens = {
        "PLAIN": [plain(USER, chance.choice([PASSWORD, "wrong"]))],
        "SCRAM-SHA-256": [ClientFirst(USER, "nonce").to_bytes(), ClientFinal("nonce", b"proof").to_bytes()],
        "SCRAM-SHA-512": [ClientFirst("unknown", "nonce").to_bytes(), ClientFinal("nonce", bytes(64)).to_bytes()],
        "OAUTHBEARER": [bearer(guarded.token(sub="x" * chance.randint(1, 30_000))), b"\x01"],
    }
    mechanism = chance.choice(list(tokens))
    return [
        frame(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("fuzz", "1")),
        frame(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism)),
        *(
            frame(ApiKey.SASL_AUTHENTICATE, chance.randint(0, 2), SaslAuthenticateRequest(each))
            for each in tokens[mechanism]
        ),
    ]


def mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(changed) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            changed[place : place + 1] = chance.randbytes(1)
        elif kind == 1:
            changed[place:place] = chance.randbytes(chance.randint(1, 40))
        elif kind == 2:
            del changed[place : place + chance.randint(1, 40)]
        elif kind == 3:
            changed[place : place + 4] = chance.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4)])
        else:
            del changed[place:]
    return bytes(changed)


def sent_in_tls(guarded: Guarded, chance: random.Random) -> None:
    with Peer(guarded) as peer:
        exchange(peer.socket, [mutated(data, chance) for data in frames_of(guarded, chance)])


def sent_instead_of_tls(guarded: Guarded, chance: random.Random) -> None:
    with RawPeer(guarded.address("SASL_SSL")) as peer:
        exchange(peer.socket, [mutated(client_hello(), chance), *frames_of(guarded, chance)])


def sent_in_the_midst_of_a_handshake(guarded: Guarded, chance: random.Random) -> None:
    with RawPeer(guarded.address("SASL_SSL")) as peer:
        exchange(peer.socket, [client_hello(), chance.randbytes(chance.randint(1, 2_000))])


def sent_without_tls(guarded: Guarded, chance: random.Random) -> None:
    size = chance.choice([-1, 0, 1, 65_537, 600_000, 0x7FFFFFFF])
    with RawPeer(guarded.address("SASL_SSL")) as peer:
        exchange(peer.socket, [LENGTH_PREFIX.pack(size), chance.randbytes(200)])


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def exchange(connection: socket.socket, frames: list[bytes]) -> None:
    """Send all, and read until the broker has closed the connection or is silent."""
    connection.settimeout(0.05)
    try:
        for data in frames:
            connection.sendall(data)
        while connection.recv(65_536):
            continue
    except OSError:
        # Closed, or waiting for the rest of a frame.
        return


WAYS: Final[list[Callable[[Guarded, random.Random], None]]] = [
    sent_in_tls,
    sent_in_tls,
    sent_instead_of_tls,
    sent_in_the_midst_of_a_handshake,
    sent_without_tls,
]


@exhaustive
def test_a_broker_serves_after_bytes_that_are_no_login(guarded: Guarded) -> None:
    chance = random.Random(SEED)
    print(f"OTTLA_TEST_SEED={SEED}")  # noqa: T201
    with Peer(guarded) as peer:
        assert scram(peer).error_code == ErrorCode.NONE
    before_bytes = resident_bytes(guarded.broker)
    for _ in range(examples_max(CONNECTIONS_COUNT)):
        chance.choice(WAYS)(guarded, chance)
    assert resident_bytes(guarded.broker) - before_bytes < MEMORY_BYTES_MAX
    assert not [line for line in guarded.broker.log_lines if "Traceback" in line or " ERROR " in line]
    with Peer(guarded) as peer:
        assert scram(peer).error_code == ErrorCode.NONE
        assert peer.topics() == {VISIBLE: 0}
