"""A broker where clients must log in and have few rights, and a client of one socket that may try anything there."""

from __future__ import annotations

import json
import ssl
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import ec

from ottla.client.admin.access import create_acls, set_password
from ottla.client.admin.admin import Admin
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.address import Address, parse_bootstrap
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import decode_response
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.acl import (
    AccessEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram import ClientFinal, ClientFirst, ServerFirst, auth_message, scram_hash
from ottla.security.secret import Secret
from ottla.testing.broker import RunningBroker
from tests.integration.raw_peer import RawPeer

R = TypeVar("R")

USER, PASSWORD = "alice", "secret-of-alice"
ADMIN_PASSWORD: Final = "secret-of-admin"
SHA_256, SHA_512 = SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
HIDDEN, VISIBLE = "hidden", "visible"
CLIENT_NONCE: Final = "client-nonce"


class Guarded:
    """A broker where alice may use one topic, a group and nothing else, and the administrator is on loopback."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.ca)
        keystore = str(folder / "broker.pem")
        self.authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(keystore)
        users = folder / "users"
        users.write_text(f"{USER}={PASSWORD}\nadmin={ADMIN_PASSWORD}\nAdmin={PASSWORD}\n")
        users.chmod(0o600)
        self.key = ec.generate_private_key(ec.SECP256R1())
        public = jwt.get_algorithm_by_name("ES256").to_jwk(self.key.public_key(), as_dict=True)
        keys = folder / "keys.json"
        keys.write_text(json.dumps({"keys": [{**public, "kid": "1", "use": "sig"}]}))
        self.folder = folder
        self.broker = RunningBroker(
            settings={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:admin;User:ANONYMOUS",
                "ssl.keystore.location": keystore,
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
                "sasl.plain.users.file": str(users),
                "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
                "sasl.oauthbearer.expected.issuer": ISSUER,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "connections.max.reauth.ms": "3600000",
                "connection.failed.authentication.delay.ms": "10",
                "listener.name.ssl.ssl.client.auth": "required",
                "listener.name.ssl.ssl.truststore.location": self.ca,
                "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+),.*$/$1/,DEFAULT",
            },
            also_listen=["SASL_SSL://127.0.0.1:0", "SSL://127.0.0.1:0"],
        )

    def lay_out(self) -> None:
        with Cluster(self.broker.bootstrap) as cluster:
            admin = Admin(cluster)
            self.hidden_id = admin.create_topic(HIDDEN, 1).topic_id
            self.visible_id = admin.create_topic(VISIBLE, 1).topic_id
            set_password(cluster, USER, Secret(PASSWORD), [SHA_256, SHA_512])
            for group in ("hers", "theirs"):
                offsets = {TopicPartition(topic, 0): CommittedOffset(1) for topic in (HIDDEN, VISIBLE)}
                GroupAdmin(cluster).commit(group, offsets)
            rules = [
                (ResourceType.TOPIC, VISIBLE, Operation.READ),
                (ResourceType.TOPIC, VISIBLE, Operation.WRITE),
                (ResourceType.GROUP, "hers", Operation.READ),
            ]
            create_acls(
                cluster,
                [
                    Acl(
                        ResourcePattern(resource_type, PatternType.LITERAL, name),
                        AccessEntry(f"User:{USER}", "*", operation, Permission.ALLOW),
                    )
                    for resource_type, name, operation in rules
                ],
            )

    def address(self, listener: str) -> Address:
        return parse_bootstrap(self.broker.addresses[listener])[0]

    def token(self, key: Any = None, algorithm: str = "ES256", head: Mapping[str, str] = {}, **claims: object) -> str:
        now_s = int(time.time())
        body = {"iss": ISSUER, "aud": AUDIENCE, "sub": USER, "iat": now_s, "exp": now_s + 600, **claims}
        return jwt.encode(body, key or self.key, algorithm, {"kid": "1", **head})

    def certificate(self, name: str) -> str:
        """The path of a client's certificate with this common name."""
        path = self.folder / f"{uuid.uuid4().hex}.pem"
        issued = self.authority.issue_cert("client.example", common_name=name, organization_unit_name="ops")
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)


class Peer(RawPeer):
    """A client of the listener with logins, or with certificates."""

    def __init__(self, guarded: Guarded, listener: str = "SASL_SSL", certificate: str | None = None) -> None:
        super().__init__(guarded.address(listener))
        context = ssl.create_default_context(cafile=guarded.ca)
        if certificate is not None:
            context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def call(self, api: ApiKey, version: int, request: object, response_class: type[R]) -> R:
        self.ask(api, version, request)
        _, response = self.answer(api, version)
        assert isinstance(response, response_class)
        return response

    def handshake(self, mechanism: str) -> int:
        request = SaslHandshakeRequest(mechanism)
        return self.call(ApiKey.SASL_HANDSHAKE, 1, request, SaslHandshakeResponse).error_code

    def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        return self.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(token), SaslAuthenticateResponse)

    def log_in(self, mechanism: str, token: bytes) -> SaslAuthenticateResponse:
        self.handshake(mechanism)
        return self.authenticate(token)

    def topics(self) -> dict[str | None, int] | None:
        """By name, with their error codes; None: the broker has closed the connection."""
        try:
            self.ask(ApiKey.METADATA, 9, MetadataRequest(None))
            frame = self.frame()
        except OSError:
            return None
        if frame is None:
            return None
        # The correlation id, and the empty tags of the head.
        response = decode_response(ApiKey.METADATA, 9, frame[5:])
        assert isinstance(response, MetadataResponse)
        return {topic.name: topic.error_code for topic in response.topics}


def plain(user: str, password: str, identity: str = "") -> bytes:
    return f"{identity}\0{user}\0{password}".encode()


def bearer(token: str, identity: str = "") -> bytes:
    return f"n,{f'a={identity}' if identity else ''},\x01auth=Bearer {token}\x01\x01".encode()


def scram(
    peer: Peer,
    *,
    mechanism: SaslMechanism = SHA_512,
    proof: SaslMechanism | None = None,
    identity: str = "",
    nonce: Callable[[str], str] = lambda nonce: nonce,
) -> SaslAuthenticateResponse:
    """A login with alice's password, in which `identity`, the nonce of the last message and the hash may be others."""
    peer.handshake(mechanism)
    first = ClientFirst(USER, CLIENT_NONCE, identity)
    challenged = peer.authenticate(first.to_bytes())
    if challenged.error_code:
        return challenged
    challenge = ServerFirst.parse(challenged.auth_bytes)
    hashed = scram_hash(proof or mechanism)
    salted = hashed.salted_password(Secret(PASSWORD), challenge.salt, challenge.iterations)
    final = ClientFinal(nonce(challenge.nonce), b"")
    message = auth_message(first, challenge, final)
    return peer.authenticate(final._replace(proof=hashed.client_proof(hashed.client_key(salted), message)).to_bytes())


def logged_in(guarded: Guarded) -> Peer:
    peer = Peer(guarded)
    assert peer.log_in("PLAIN", plain(USER, PASSWORD)).error_code == ErrorCode.NONE
    return peer
