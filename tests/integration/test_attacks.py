"""Attempts to get in, to get more than a right allows, or to see what is hidden: each fails at a running broker.

`ATTACKS` is the list.  An attack that a test elsewhere makes, with a clock that it turns or another part of the system,
is there by reference.
"""

from __future__ import annotations

import base64
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ottla.client.admin.access import delete_user, set_password
from ottla.client.admin.quotas import alter_quotas
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.model.quotas import QuotaEntity, QuotaKind
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import LENGTH_PREFIX, request_frame
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.schemas.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.schemas.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.schemas.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from ottla.protocol.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.protocol.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.security.scram import ClientFirst, ServerFirst
from ottla.security.secret import Secret
from tests.eventually import eventually
from tests.integration.guarded_broker import (
    ADMIN_PASSWORD,
    CLIENT_NONCE,
    HIDDEN,
    PASSWORD,
    SHA_256,
    SHA_512,
    USER,
    VISIBLE,
    Guarded,
    Peer,
    bearer,
    logged_in,
    plain,
    scram,
)

R = TypeVar("R")

UNIT: Final = "tests/unit/broker"
# By the name of the attack: tests of this file, and others by reference.
ATTACKS: Final[Mapping[str, tuple[str, ...]]] = {
    "1 metadata before the login": ("test_a_client_without_the_secret_is_not_served",),
    "2 authentication without a handshake": ("test_a_client_without_the_secret_is_not_served",),
    "3 600 kB before the login": ("test_a_client_without_the_secret_is_not_served",),
    "4 a thousand unfinished handshakes": (
        f"{UNIT}/net/test_tls_listener.py::test_client_connects_beside_a_thousand_unfinished_handshakes",
        f"{UNIT}/net/test_tls_listener.py::test_unfinished_handshake_is_closed_in_time",
        f"{UNIT}/net/test_pending_logins.py::test_further_connection_of_an_address_closes_the_oldest_of_that_address",
    ),
    "5 no TLS at a listener with it, and TLS at one without": (
        f"{UNIT}/net/test_tls_listener.py::test_plain_client_is_closed_with_a_hint",
        f"{UNIT}/net/test_tls_listener.py::test_client_with_tls_on_a_plain_port_is_closed_with_a_hint",
    ),
    "6 an expired certificate, or one of another authority or host": (
        f"{UNIT}/net/test_tls_listener.py::test_client_without_a_valid_certificate_of_the_authority_is_refused",
        "tests/unit/client/wire/security/test_tls.py::test_a_foreign_certificate_is_refused_with_the_setting_that_trusts_one",
        "tests/unit/client/wire/security/test_tls.py::test_an_expired_certificate_is_refused_by_name",
        "tests/unit/client/wire/security/test_tls.py::test_a_certificate_of_another_host_is_refused_unless_that_check_is_disabled",
        "tests/cluster/test_secure_cluster.py::test_brokers_do_not_log_in_with_another_password_or_trust_another_authority",
    ),
    "7 no certificate where one is required": (
        f"{UNIT}/net/test_tls_listener.py::test_client_without_a_valid_certificate_of_the_authority_is_refused",
    ),
    "8 a name in a certificate that reads as another's": (
        "test_a_certificate_whose_name_holds_another_one_is_not_that_user",
        "tests/unit/security/test_principal_mapping.py::test_first_rule_that_matches_the_whole_name_applies",
        "tests/interop/security/test_principal_names.py::test_names_and_principals_are_those_of_java",
    ),
    "9 an authorization identity of another user": ("test_a_client_without_the_secret_is_not_served",),
    "10 a nonce that is short, replayed or foreign": (
        "test_a_client_without_the_secret_is_not_served",
        "tests/unit/security/test_scram_server.py::test_every_other_nonce_is_refused_although_its_proof_is_right",
    ),
    "11 a proof by SHA-256 for SHA-512": ("test_a_client_without_the_secret_is_not_served",),
    "12 users found by answers or their time": (
        "test_unknown_users_and_wrong_passwords_have_one_answer",
        "tests/unit/security/test_scram_server.py::test_unknown_user_has_the_same_salt_each_time_and_on_each_broker",
        f"{UNIT}/security/test_credentials.py::test_unknown_user_is_challenged_with_the_iterations_of_most_users",
        f"{UNIT}/security/test_sasl_session.py::test_failures_have_one_text_and_one_delay",
    ),
    "13 a login that is renewed as another user": ("test_a_login_is_not_renewed_as_another_user",),
    "14 a request after the end of the login": (
        f"{UNIT}/security/test_sasl_session.py::test_request_after_the_end_of_the_login_closes_the_connection",
    ),
    "15 forged tokens": (
        "test_a_client_without_the_secret_is_not_served",
        f"{UNIT}/security/test_bearer_tokens.py::test_every_other_token_is_refused_without_being_quoted",
    ),
    "16 a token that names its own keys": (
        "test_a_client_without_the_secret_is_not_served",
        f"{UNIT}/security/test_bearer_tokens.py::test_key_in_the_token_itself_is_not_used",
    ),
    "17 a replica's fetch, and markers, by a client": (
        "test_a_client_is_no_replica",
        "test_a_client_is_no_coordinator_of_transactions",
        "tests/cluster/test_secure_cluster.py::test_replicas_fetch_on_no_other_listener",
        f"{UNIT}/handlers/test_authorized_fetch.py::test_a_replica_needs_the_right_to_act_for_the_cluster",
    ),
    "18 another's transactional id, and none with the bit of a transaction": (
        "test_transactions_need_their_id",
        "test_transaction_of_another_is_neither_grown_nor_ended_nor_shown",
    ),
    "19 a forbidden partition, then a commit": (
        "test_hidden_topics_are_not_read_written_or_committed",
        f"{UNIT}/authorization/test_api_guards.py::test_one_forbidden_topic_keeps_all_out_of_a_transaction",
    ),
    "20 another's group in a transaction": (
        f"{UNIT}/authorization/test_api_guards.py::test_group_of_another_does_not_get_into_a_transaction",
    ),
    "21 hidden names in lists": (
        "test_hidden_names_are_in_no_list",
        "test_a_pattern_matches_no_hidden_topic",
        f"{UNIT}/authorization/test_api_guards.py::test_pages_of_partitions_show_no_hidden_topic_in_their_cursor",
        f"{UNIT}/authorization/test_metadata_answers.py::test_equal_requests_of_two_principals_at_once_have_their_own_answers",
    ),
    "22 a topic by its id": ("test_a_topic_by_its_id_has_no_name_and_no_records",),
    "23 one of two rules is deleted": (
        "tests/integration/test_authorizer.py::test_the_verb_adds_lists_and_removes_rules",
        "tests/contract/test_acl_registry.py::test_a_pattern_whose_last_rule_is_removed_has_no_node",
    ),
    "24 rules that are created at once": (
        "tests/contract/test_acl_registry.py::test_writers_at_once_lose_no_rule_of_each_other",
    ),
    "25 names with NUL, beyond ASCII, and paths": (
        "test_users_whose_names_are_paths_are_no_other_users",
        "tests/integration/test_authorizer.py::test_each_rule_of_a_request_has_its_own_code",
        "tests/contract/test_acl_registry.py::test_a_rule_of_any_name_is_read_as_it_was_written",
    ),
    "26 secrets in settings, logs and backups": ("tests/integration/test_secrets.py",),
    "27 a quota evaded by another client id": (
        "test_another_client_id_has_the_quota_of_its_user",
        f"{UNIT}/quotas/test_usage.py::test_new_client_ids_beyond_the_bound_share_one_rate",
    ),
    "28 lines of the log that a client writes": (
        "test_a_user_name_writes_no_line_of_the_log",
        f"{UNIT}/net/test_security_log.py::test_what_a_client_sends_stays_within_its_line",
    ),
    "29 a node of the tree that everyone reads": (
        "tests/cluster/test_secure_cluster.py::test_tree_is_closed_to_every_client_but_the_brokers",
    ),
    "30 a peer between a broker and ZooKeeper": (
        "tests/contract/test_zookeeper_tls.py::test_server_of_another_ca_is_not_trusted",
        "tests/contract/test_zookeeper_tls.py::test_certificate_of_another_host_is_not_trusted",
    ),
    "31 a super user in another case": (
        "test_a_super_user_in_another_case_has_no_rights",
        "tests/unit/security/test_authorizer.py::test_a_super_user_in_another_case_is_another_user",
    ),
    "32 a removed user that stays connected": ("test_a_removed_user_renews_no_login",),
    "33 another spelling of a denied address": (
        f"{UNIT}/net/test_listener.py::test_ipv4_client_of_a_listener_for_both_families_has_its_ipv4_address",
        "tests/unit/security/test_authorizer.py::test_a_rule_applies_to_its_address_in_each_spelling",
    ),
    "34 a fetch session of another client": (
        f"{UNIT}/handlers/test_authorized_fetch.py::test_a_session_is_not_found_by_another_principal",
        f"{UNIT}/handlers/test_authorized_fetch.py::test_a_session_is_checked_again_at_each_of_its_fetches",
    ),
    "35 a join token with another host, cluster or time": (
        "tests/unit/security/test_join_token.py::"
        "test_a_head_that_was_changed_with_its_checksum_opens_with_no_passphrase",
        "tests/property/test_join_tokens.py",
    ),
    "36 a join token that was used": ("tests/cluster/test_joined_broker.py::test_token_lets_one_broker_join",),
}
TOPIC_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_each_attack_has_its_tests() -> None:
    numbers = sorted(int(name.split()[0]) for name in ATTACKS)
    assert numbers == list(range(1, len(numbers) + 1))
    here = Path(__file__)
    for name, tests in ATTACKS.items():
        assert tests, name
        for test in tests:
            path, _, function = test.rpartition("::") if "/" in test else (str(here), "", test)
            file = here.parents[2] / (path or test)
            assert file.is_file(), test
            assert not path or re.search(rf"^(async )?def {function}\b", file.read_text(), re.MULTILINE), test


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    with made.broker:
        made.lay_out()
        yield made


def test_the_right_secrets_get_in(guarded: Guarded) -> None:
    """The same steps as those of the attempts below."""
    logins: list[Callable[[Peer], SaslAuthenticateResponse]] = [
        lambda peer: peer.log_in("PLAIN", plain(USER, PASSWORD)),
        lambda peer: scram(peer, mechanism=SHA_256),
        scram,
        lambda peer: peer.log_in("OAUTHBEARER", bearer(guarded.token())),
    ]
    for log_in in logins:
        with Peer(guarded) as peer:
            assert log_in(peer).error_code == ErrorCode.NONE
            assert peer.topics() == {VISIBLE: 0}


def forged_by_public_key(guarded: Guarded) -> bytes:
    """HS256 with the public key as the secret."""
    head, body = (
        base64.urlsafe_b64encode(part).rstrip(b"=")
        for part in (b'{"alg":"HS256","kid":"1"}', base64.urlsafe_b64decode(guarded.token().split(".")[1] + "=="))
    )
    public = guarded.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed = hmac.HMAC(public, hashes.SHA256())
    signed.update(head + b"." + body)
    return head + b"." + body + b"." + base64.urlsafe_b64encode(signed.finalize()).rstrip(b"=")


def unsigned(guarded: Guarded) -> str:
    return jwt.encode(jwt.decode(guarded.token(), options={"verify_signature": False}), "", "none", {"kid": "1"})


STRANGER: Final = ec.generate_private_key(ec.SECP256R1())


def with_token(**claims: object) -> Callable[[Peer, Guarded], object]:
    return lambda peer, guarded: peer.log_in("OAUTHBEARER", bearer(guarded.token(**claims)))  # type: ignore[arg-type]


ATTEMPTS: Final[Mapping[str, Callable[[Peer, Guarded], object]]] = {
    "metadata before the login": lambda peer, guarded: None,
    "authentication without a handshake": lambda peer, guarded: peer.ask(
        ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(plain(USER, PASSWORD))
    ),
    "a request between handshake and authentication": lambda peer, guarded: peer.handshake("PLAIN"),
    "600 kB before the login": lambda peer, guarded: peer.send(LENGTH_PREFIX.pack(600_000)),
    "a mechanism that is not enabled": lambda peer, guarded: peer.handshake("ANONYMOUS"),
    "a wrong password": lambda peer, guarded: peer.log_in("PLAIN", plain(USER, "wrong")),
    "an empty password": lambda peer, guarded: peer.log_in("PLAIN", plain(USER, "")),
    "PLAIN for another identity": lambda peer, guarded: peer.log_in("PLAIN", plain(USER, PASSWORD, "admin")),
    "SCRAM for another identity": lambda peer, guarded: scram(peer, identity="admin"),
    "a token for another identity": lambda peer, guarded: peer.log_in("OAUTHBEARER", bearer(guarded.token(), "admin")),
    "SCRAM with a nonce that ends early": lambda peer, guarded: scram(peer, nonce=lambda nonce: nonce[:-1]),
    "SCRAM with the client's nonce alone": lambda peer, guarded: scram(peer, nonce=lambda _: CLIENT_NONCE),
    "SCRAM with a foreign nonce": lambda peer, guarded: scram(peer, nonce=lambda nonce: CLIENT_NONCE + nonce[::-1]),
    "SCRAM with the proof of another hash": lambda peer, guarded: scram(peer, proof=SHA_256),
    "SCRAM with the last message of another login": lambda peer, guarded: replayed(peer, guarded),
    "an unsigned token": lambda peer, guarded: peer.log_in("OAUTHBEARER", bearer(unsigned(guarded))),
    "a token signed with the public key as a secret": lambda peer, guarded: peer.log_in(
        "OAUTHBEARER", bearer(forged_by_public_key(guarded).decode())
    ),
    "a token of another issuer's key": with_token(key=STRANGER),
    "a token with an unknown key": with_token(head={"kid": "2"}),
    "a token that names its own keys": with_token(key=STRANGER, head={"jku": "https://attacker.example/keys"}),
    "a token of another issuer": with_token(iss="https://other.example"),
    "a token for another audience": with_token(aud="other"),
    "a token that has expired": with_token(exp=int(time.time()) - 3_600),
    "a token without an end": with_token(exp=None),
    "a token that is not valid yet": with_token(nbf=int(time.time()) + 3_600),
}


def replayed(peer: Peer, guarded: Guarded) -> SaslAuthenticateResponse:
    """What a listener in the network would have: the messages of a login that succeeded."""
    sent: list[bytes] = []

    class Recorded(Peer):
        def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
            sent.append(token)
            return super().authenticate(token)

    with Recorded(guarded) as other:
        assert scram(other).error_code == ErrorCode.NONE
    peer.handshake(SHA_512)
    peer.authenticate(sent[0])
    return peer.authenticate(sent[1])


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS.keys())
def test_a_client_without_the_secret_is_not_served(
    guarded: Guarded, attempt: Callable[[Peer, Guarded], object]
) -> None:
    with Peer(guarded) as peer:
        attempt(peer, guarded)
        assert peer.topics() is None


def test_unknown_users_and_wrong_passwords_have_one_answer(guarded: Guarded) -> None:
    answers = []
    for user in (USER, "unknown"):
        with Peer(guarded) as peer:
            answers.append(peer.log_in("PLAIN", plain(user, "wrong")))
    assert answers[0] == answers[1]
    assert answers[0].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    challenges = []
    for user in (USER, "unknown"):
        with Peer(guarded) as peer:
            peer.handshake(SHA_512)
            challenges.append(ServerFirst.parse(peer.authenticate(ClientFirst(user, "n").to_bytes()).auth_bytes))
    assert challenges[0].iterations == challenges[1].iterations
    assert len(challenges[0].salt) == len(challenges[1].salt)


def test_a_login_is_not_renewed_as_another_user(guarded: Guarded) -> None:
    with logged_in(guarded) as peer:
        response = peer.log_in("PLAIN", plain("admin", ADMIN_PASSWORD))
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert peer.topics() is None


def test_a_removed_user_renews_no_login(guarded: Guarded) -> None:
    with Cluster(guarded.broker.bootstrap) as cluster:
        set_password(cluster, USER, Secret(PASSWORD), [SHA_256, SHA_512])
        with Peer(guarded) as peer:
            response = scram(peer)
            assert (response.error_code, response.session_lifetime_ms) == (0, 3_600_000)
            assert scram(peer).error_code == ErrorCode.NONE
            delete_user(cluster, USER)
            # Until its login ends the connection is served.
            assert peer.topics() == {VISIBLE: 0}
            assert scram(peer).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert peer.topics() is None
        set_password(cluster, USER, Secret(PASSWORD), [SHA_256, SHA_512])


def test_users_whose_names_are_paths_are_no_other_users(guarded: Guarded) -> None:
    names = [f"x/../{USER}", f"../users/{USER}", f"{USER}/", f"{USER}%2F", "größe", "a,n=admin"]
    with Cluster(guarded.broker.bootstrap) as cluster:
        for name in names:
            set_password(cluster, name, Secret("another"), [SHA_512])
            with Peer(guarded) as peer:
                assert scram(peer).error_code == ErrorCode.NONE, name
                assert peer.topics() == {VISIBLE: 0}
            delete_user(cluster, name)
        with Peer(guarded) as peer:
            assert scram(peer).error_code == ErrorCode.NONE


def test_a_user_name_writes_no_line_of_the_log(guarded: Guarded) -> None:
    mark = uuid.uuid4().hex

    def lines_of_a_login() -> list[str]:
        # The first of many alike is logged.
        with Peer(guarded) as peer:
            peer.log_in("PLAIN", plain(f"x\n2026-01-01T00:00:00Z WARN {mark}\r\x1b[2J", "wrong"))
        return [line for line in guarded.broker.log_lines if mark in line]

    found = eventually(lines_of_a_login)
    assert all("login.failed" in line and "\x1b" not in line for line in found)


def test_a_super_user_in_another_case_has_no_rights(guarded: Guarded) -> None:
    for user, password, topics in (("admin", ADMIN_PASSWORD, {HIDDEN: 0, VISIBLE: 0}), ("Admin", PASSWORD, {})):
        with Peer(guarded) as peer:
            assert peer.log_in("PLAIN", plain(user, password)).error_code == ErrorCode.NONE
            found = peer.topics()
            assert found is not None
            assert {name: code for name, code in found.items() if name != "__consumer_offsets"} == topics


def test_a_certificate_whose_name_holds_another_one_is_not_that_user(guarded: Guarded) -> None:
    """The rule takes what precedes the first comma, if it is letters."""
    for name, is_admin in (("admin", True), ("admin,OU=x", False), ("x,CN=admin", False), ("admin\0", False)):
        with Peer(guarded, "SSL", guarded.certificate(name)) as peer:
            topics = peer.topics()
        assert topics is not None
        assert (HIDDEN in topics) is is_admin, name


def test_hidden_names_are_in_no_list(guarded: Guarded) -> None:
    with logged_in(guarded) as peer:
        assert peer.topics() == {VISIBLE: 0}
        groups = peer.call(ApiKey.LIST_GROUPS, 4, ListGroupsRequest(), ListGroupsResponse)
        assert [group.group_id for group in groups.groups] == ["hers"]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("hers", topics=None)])
        offsets = peer.call(ApiKey.OFFSET_FETCH, 8, request, OffsetFetchResponse)
        assert [topic.name for topic in offsets.groups[0].topics] == [VISIBLE]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("theirs", topics=None)])
        offsets = peer.call(ApiKey.OFFSET_FETCH, 8, request, OffsetFetchResponse)
        assert (offsets.groups[0].error_code, offsets.groups[0].topics) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])


def test_a_pattern_matches_no_hidden_topic(guarded: Guarded) -> None:
    with logged_in(guarded) as peer:
        member_id = str(uuid.uuid4())
        join = ConsumerGroupHeartbeatRequest(
            "hers", member_id, 0, rebalance_timeout_ms=1_000, subscribed_topic_regex=".*", topic_partitions=[]
        )
        joined = peer.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join, ConsumerGroupHeartbeatResponse)
        assert (joined.error_code, joined.assignment is not None) == (0, True)
        assert joined.assignment is not None
        assert [each.topic_id for each in joined.assignment.topic_partitions] == [guarded.visible_id]
        leave = ConsumerGroupHeartbeatRequest("hers", member_id, -1)
        peer.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, leave, ConsumerGroupHeartbeatResponse)


def test_a_topic_by_its_id_has_no_name_and_no_records(guarded: Guarded) -> None:
    with logged_in(guarded) as peer:
        request = MetadataRequest([MetadataRequestTopic(guarded.hidden_id, None)])
        metadata = peer.call(ApiKey.METADATA, 12, request, MetadataResponse)
        assert [(topic.name, topic.error_code) for topic in metadata.topics] == [(None, TOPIC_DENIED)]
        fetched = peer.call(ApiKey.FETCH, 13, fetch(FetchTopic(topic_id=guarded.hidden_id)), FetchResponse)
        assert fetched.responses[0].partitions[0].error_code == TOPIC_DENIED


def fetch(topic: FetchTopic, replica_id: int = -1) -> FetchRequest:
    topic.partitions = [FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000)]
    return FetchRequest(replica_id=replica_id, max_wait_ms=0, max_bytes=1_000, topics=[topic])


def produce(topic: str, value: bytes = b"value", **fields: Any) -> ProduceRequest:
    batch = bytes(build_batch([Record(0, 1_767_225_600_000, None, value)], **fields))
    return ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(topic, [PartitionProduceData(0, batch)])]
    )


def produced(peer: Peer, request: ProduceRequest) -> int:
    response = peer.call(ApiKey.PRODUCE, 9, request, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


def test_hidden_topics_are_not_read_written_or_committed(guarded: Guarded) -> None:
    with logged_in(guarded) as peer:
        assert produced(peer, produce(VISIBLE)) == ErrorCode.NONE
        assert produced(peer, produce(HIDDEN)) == TOPIC_DENIED
        fetched = peer.call(ApiKey.FETCH, 11, fetch(FetchTopic(HIDDEN)), FetchResponse)
        assert fetched.responses[0].partitions[0].error_code == TOPIC_DENIED
        for group, topic, code in (
            ("hers", VISIBLE, 0),
            ("hers", HIDDEN, TOPIC_DENIED),
            ("theirs", VISIBLE, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ):
            topics = [OffsetCommitRequestTopic(topic, [OffsetCommitRequestPartition(0, 7)])]
            committed = peer.call(
                ApiKey.OFFSET_COMMIT, 7, OffsetCommitRequest(group, topics=topics), OffsetCommitResponse
            )
            assert committed.topics[0].partitions[0].error_code == code


def test_another_client_id_has_the_quota_of_its_user(guarded: Guarded) -> None:
    def throttle_ms(client_id: str, value: bytes) -> int:
        with logged_in(guarded) as peer:
            body = encode_request(ApiKey.PRODUCE, 9, produce(VISIBLE, value))
            peer.send(request_frame(ApiKey.PRODUCE, 9, 1, client_id, body))
            _, response = peer.answer(ApiKey.PRODUCE, 9)
        assert isinstance(response, ProduceResponse)
        return response.throttle_time_ms

    assert throttle_ms("a", bytes(1_000)) == 0
    user, kind = QuotaEntity(user=USER), QuotaKind.PRODUCER_BYTE_RATE
    with Cluster(guarded.broker.bootstrap) as cluster:
        alter_quotas(cluster, user, {kind: 1_000.0})
        assert throttle_ms("a", bytes(50_000)) > 0
        assert throttle_ms("b", bytes(10)) > 0
        alter_quotas(cluster, user, {kind: None})


def test_a_client_is_no_replica(guarded: Guarded) -> None:
    """A replica reads beyond the high watermark, and moves it."""
    with logged_in(guarded) as peer:
        fetched = peer.call(ApiKey.FETCH, 11, fetch(FetchTopic(VISIBLE), replica_id=1), FetchResponse)
        assert fetched.responses[0].partitions[0].error_code == TOPIC_DENIED


def test_transactions_need_their_id(guarded: Guarded) -> None:
    with logged_in(guarded) as peer:
        request = InitProducerIdRequest("theirs", 60_000)
        found = peer.call(ApiKey.INIT_PRODUCER_ID, 3, request, InitProducerIdResponse)
        assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        request = InitProducerIdRequest(None)
        found = peer.call(ApiKey.INIT_PRODUCER_ID, 3, request, InitProducerIdResponse)
        assert found.error_code == ErrorCode.NONE
        fields: dict[str, Any] = {"producer_id": found.producer_id, "producer_epoch": 0, "base_sequence": 0}
        assert produced(peer, produce(VISIBLE, is_transactional=True, **fields)) != ErrorCode.NONE


def test_a_client_is_no_coordinator_of_transactions(guarded: Guarded) -> None:
    """A marker ends any producer's transaction, and a broker adds to it without the client's rights."""
    with logged_in(guarded) as peer:
        marker = WritableTxnMarker(1, 0, topics=[WritableTxnMarkerTopic(VISIBLE, [0])])
        written = peer.call(ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse)
        assert written.markers[0].topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        of_broker = AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction("theirs", 1, 0)])
        added = peer.call(ApiKey.ADD_PARTITIONS_TO_TXN, 4, of_broker, AddPartitionsToTxnResponse)
        assert added.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_transaction_of_another_is_neither_grown_nor_ended_nor_shown(guarded: Guarded) -> None:
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with logged_in(guarded) as peer:
        topics = [AddPartitionsToTxnTopic(VISIBLE, [0])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="theirs", v3_and_below_producer_id=1, v3_and_below_topics=topics
        )
        added = peer.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, AddPartitionsToTxnResponse)
        [topic] = added.results_by_topic_v3_and_below
        assert [each.partition_error_code for each in topic.results_by_partition] == [denied]
        offsets = AddOffsetsToTxnRequest("theirs", 1, 0, "group")
        assert peer.call(ApiKey.ADD_OFFSETS_TO_TXN, 3, offsets, AddOffsetsToTxnResponse).error_code == denied
        read = [TxnOffsetCommitRequestTopic(VISIBLE, [TxnOffsetCommitRequestPartition(0, 9)])]
        commit = TxnOffsetCommitRequest("theirs", "group", 1, 0, topics=read)
        committed = peer.call(ApiKey.TXN_OFFSET_COMMIT, 3, commit, TxnOffsetCommitResponse)
        assert [each.error_code for each in committed.topics[0].partitions] == [denied]
        end = EndTxnRequest("theirs", 1, 0, True)
        assert peer.call(ApiKey.END_TXN, 3, end, EndTxnResponse).error_code == denied
        described = peer.call(
            ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(["theirs"]), DescribeTransactionsResponse
        )
        assert [each.error_code for each in described.transaction_states] == [denied]
        listed = peer.call(ApiKey.LIST_TRANSACTIONS, 0, ListTransactionsRequest(), ListTransactionsResponse)
        assert (listed.error_code, listed.transaction_states) == (ErrorCode.NONE, [])
