"""`ottla topic alter --partitions`, against both brokers."""

from __future__ import annotations

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName
from tests.integration.test_client_command_line import ottla


def test_partitions_of_a_topic_can_be_added_and_never_removed(
    bootstrap: str, cluster: Cluster, new_topic: NewTopicName
) -> None:
    topic = new_topic(1)
    done = ottla(bootstrap, "topic", "alter", topic, "--partitions", "3", "--config", "max.message.bytes=2000")
    assert done.stdout.decode() == f"altered topic {topic}\ntopic {topic} has 3 partitions now\n"
    eventually(lambda: len(Admin(cluster).describe_topics([topic])[0].partitions) == 3)
    ottla(bootstrap, "produce", topic, "--key-separator", ":", stdin="".join(f"k{n}:v{n}\n" for n in range(50)))
    read = ottla(bootstrap, "consume", topic, "--from-beginning", "--until-end").stdout.decode()
    assert sorted(read.split()) == sorted(f"v{n}" for n in range(50))
    for count in ("3", "2"):
        done = ottla(bootstrap, "topic", "alter", topic, "--partitions", count, status=1)
        error = done.stderr.decode().splitlines()[0]
        # Each broker says it in its own words, some with the topic's name in them.
        assert error.startswith("error: ")
        assert error.count(topic) == 1
        assert "3 partition" in error
    done = ottla(bootstrap, "topic", "alter", "no-such-topic", "--partitions", "3", status=1)
    assert b"no-such-topic" in done.stderr
    assert b"Give a change" in ottla(bootstrap, "topic", "alter", topic, status=2).stderr


def test_adding_partitions_can_be_validated_only(cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic(1)
    assert Admin(cluster).create_partitions({topic: 4}, validate_only=True) == {topic: None}
    assert len(Admin(cluster).describe_topics([topic])[0].partitions) == 1
