"""librdkafka's own tests of logins and access rules pass on Ottla, with a runner that is built with OpenSSL."""

from __future__ import annotations

import pytest
import trustme

from ottla.client.admin.access import set_password
from ottla.client.wire.cluster import Cluster
from ottla.security.mechanism import SaslMechanism
from ottla.security.secret import Secret
from ottla.testing.broker import RunningBroker
from tests.interop.expected_failures import Result
from tests.interop.librdkafka.build import runner_dir
from tests.interop.librdkafka.plan import SECURE, SETTINGS, WITH_LOGIN, write_kafka_tools
from tests.interop.librdkafka.runner import Job, Outcome, run_jobs
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(BROUGHT_WITHIN_S + 600)]

PASSWORD = "secret of alice"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    scratch = tmp_path_factory.mktemp("librdkafka")
    try:
        runner = runner_dir(with_tls=True)
        tools = write_kafka_tools(scratch)
    except (PeerUnavailable, KafkaUnavailable) as reason:
        pytest.skip(f"librdkafka's tests, or Apache Kafka's tools that one of them calls, are not available: {reason}")
    authority = trustme.CA()
    ca, keystore = str(scratch / "ca.pem"), str(scratch / "broker.pem")
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(keystore)
    settings = {
        **SETTINGS,
        "ssl.keystore.location": keystore,
        "connections.max.reauth.ms": "3000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    login = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "ssl.ca.location": ca,
    }
    with RunningBroker(settings=settings, also_listen=["SASL_SSL://127.0.0.1:0"]) as broker:
        with Cluster(broker.bootstrap) as cluster:
            set_password(cluster, "alice", Secret(PASSWORD), [SaslMechanism.SCRAM_SHA_512])
        plain = [job for job in SECURE if job.number not in WITH_LOGIN]
        secured = [job for job in SECURE if job.number in WITH_LOGIN]
        return {
            **run_jobs(plain, runner, broker.bootstrap, scratch, tools),
            **run_jobs(secured, runner, broker.addresses["SASL_SSL"], scratch, tools, login),
        }


@pytest.mark.parametrize("job", SECURE, ids=lambda job: job.name)
def test_librdkafka_tests_of_security_pass(job: Job, outcomes: dict[str, Outcome]) -> None:
    of_job = [outcome for name, outcome in outcomes.items() if job.is_of(name)]
    assert of_job
    assert {outcome.result for outcome in of_job} == {Result.PASSED}, "\n".join(outcome.output for outcome in of_job)
