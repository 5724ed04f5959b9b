"""Names from other clients are printed as text of one line by every verb that shows them."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Consumer

from ottla.cli.program import run
from ottla.client.admin.admin import Admin, NewTopic
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually

TOPIC: Final = TopicPartition("foreign", 0)
# Clears the screen, forges a row, hides what follows, turns its direction, and names the window (C1).
HOSTILE: Final = "x\x1b[2J\nforged classic range Stable\r\x1b[8m\u202e\u2066\x9d0;owned\x07\x7f\u2028y"
# As Python has an argument that is not UTF-8.
SURROGATE: Final = "\udcff\ud800"


@pytest.fixture(scope="module")
def bootstrap(ottla_broker: RunningBroker) -> Iterator[str]:
    """A broker where everything that a client may choose is hostile."""
    with Cluster(ottla_broker.bootstrap) as cluster:
        Admin(cluster).create_topics([NewTopic(TOPIC.topic, 1, configs={"retention.ms": "-1"})])
        with RawProducer(cluster) as producer:
            text = HOSTILE.encode()
            producer.send(TOPIC, build_batch([Record(0, 0, text, text, ((HOSTILE, text), (HOSTILE, None)))]))
            producer.flush()
        admin = GroupAdmin(cluster)
        admin.commit(f"left {HOSTILE}", {TOPIC: CommittedOffset(0, metadata=HOSTILE)})
        admin.commit(HOSTILE, {TOPIC: CommittedOffset(0, metadata=HOSTILE)})
        consumer = Consumer(
            {
                "bootstrap.servers": ottla_broker.bootstrap,
                "group.id": HOSTILE,
                "client.id": HOSTILE,
                "group.instance.id": HOSTILE,
            }
        )
        consumer.subscribe([TOPIC.topic])
        eventually(lambda: consumer.poll(0.1) or any(member.assignment for member in admin.describe(HOSTILE).members))
        yield ottla_broker.bootstrap
        consumer.close()


def shown_lines(bootstrap: str, *arguments: str) -> list[str]:
    """The verb's whole output, checked to be text."""
    written = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(each, "utf-8", newline="") for each in written)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        run([*arguments, "--bootstrap-server", bootstrap])
        out.flush()
        err.flush()
    lines = [line for each in written for line in each.getvalue().decode().split("\n")]
    for line in lines:
        assert line.replace("\t", "").isprintable(), f"{arguments}: {line!r}"
        assert not line.lstrip().startswith("forged"), f"{arguments}: {lines}"
    return lines


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "list"],
        ["group", "list", "--long"],
        ["group", "list", "--json"],
        ["group", "describe", HOSTILE],
        ["group", "describe", HOSTILE, "--members"],
        ["group", "describe", HOSTILE, "--state"],
        ["group", "describe", HOSTILE, "--json"],
        ["group", "describe", "--all-groups"],
        ["group", "describe", f"left {HOSTILE}"],
        ["group", "reset-offsets", HOSTILE, "--all-topics", "--to-earliest"],
        ["group", "reset-offsets", f"left {HOSTILE}", "--all-topics", "--to-earliest"],
        ["group", "reset-offsets", f"new {HOSTILE}", "--topic", TOPIC.topic, "--to-earliest"],
        ["group", "reset-offsets", f"left {HOSTILE}", "--all-topics", "--to-earliest", "--json"],
        ["group", "delete", HOSTILE],
        ["group", "delete", f"absent {HOSTILE}"],
        ["group", "delete-offsets", HOSTILE, "--topic", TOPIC.topic],
        ["group", "describe", HOSTILE + SURROGATE],
        ["consume", TOPIC.topic, "--from-beginning", "--until-end", "--json"],
        ["consume", HOSTILE],
        ["consume", SURROGATE],
        ["consume", TOPIC.topic, "--offset", HOSTILE],
        ["topic", "create", HOSTILE],
        ["topic", "create", SURROGATE],
        ["topic", "describe", HOSTILE],
        ["topic", "describe", SURROGATE],
        ["topic", "delete", HOSTILE],
        ["topic", "alter", TOPIC.topic, "--config", f"retention.ms={HOSTILE}"],
        ["topic", "alter", TOPIC.topic, "--config", f"{HOSTILE}=1"],
        ["dead-letter", "list", HOSTILE],
        ["audit", "status", HOSTILE],
        ["cluster", "status"],
        [HOSTILE],
        [SURROGATE],
    ],
    ids=lambda arguments: " ".join(arguments).encode("unicode_escape").decode()[:60],
)
def test_foreign_text_stays_text_of_one_line(bootstrap: str, arguments: list[str]) -> None:
    assert any(shown_lines(bootstrap, *arguments))


def test_hostile_group_is_one_row(bootstrap: str) -> None:
    names = [row.split()[0] for row in shown_lines(bootstrap, "group", "list", "--long") if row]
    # The broker has other tests' groups as well.
    assert (names[0], names.count("left"), names.count("x\\x1b[2J\\nforged")) == ("GROUP", 1, 1)


def test_json_of_a_hostile_record_is_the_record(bootstrap: str) -> None:
    (line, *_) = shown_lines(bootstrap, "consume", TOPIC.topic, "--from-beginning", "--until-end", "--json")
    found = json.loads(line)
    assert (found["key"], found["value"], found["headers"][0]["name"]) == (HOSTILE, HOSTILE, HOSTILE)
