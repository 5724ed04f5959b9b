"""The registry as its users run it: beside a broker, used by confluent-kafka's client and serializers."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Self

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.timestamp_pb2 import Timestamp

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.wire.cluster import Cluster
from ottla.testing import ControlledBroker, consume_all, produce
from ottla.testing.broker import BrokerDidNotStart
from tests.eventually import eventually
from tests.registry_process import ask, serving

BESIDE = {"schema.registry.listeners": "http://127.0.0.1:0"}
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "string"}, {"name": "cents", "type": "long", "default": 0}],
    }
)


@pytest.fixture(scope="module")
def broker() -> Iterator[ControlledBroker]:
    with ControlledBroker(BESIDE) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: ControlledBroker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.schema_registry_url}) as made:
        yield made


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_goes_through_a_topic_by_confluents_serializers(
    broker: ControlledBroker, client: SchemaRegistryClient
) -> None:
    serialize, deserialize = AvroSerializer(client, ORDER), AvroDeserializer(client)
    with broker.namespace() as namespace:
        topic = namespace.topic("orders")
        produce(topic, [serialize({"id": "7", "cents": 250}, value_of("orders"))])
        [message] = consume_all(topic)
        assert message.value is not None
        assert message.value[:1] == b"\0"
        assert deserialize(message.value, value_of("orders")) == {"id": "7", "cents": 250}
    version = client.get_latest_version("orders-value")
    assert version.version == 1
    assert '"name":"Order"' in str(version.schema.schema_str)


def test_avro_that_cannot_be_read_by_the_last_version_is_refused(client: SchemaRegistryClient) -> None:
    client.register_schema("refused", Schema(ORDER, "AVRO"))
    worse = json.loads(ORDER)
    worse["fields"].append({"name": "currency", "type": "string"})
    assert not client.test_compatibility("refused", Schema(json.dumps(worse), "AVRO"))
    with pytest.raises(SchemaRegistryError, match="READER_FIELD_MISSING_DEFAULT_VALUE") as raised:
        client.register_schema("refused", Schema(json.dumps(worse), "AVRO"))
    assert (raised.value.http_status_code, raised.value.error_code) == (409, 40901)
    client.set_compatibility("refused", "FORWARD")
    assert client.get_compatibility("refused") == "FORWARD"
    client.register_schema("refused", Schema(json.dumps(worse), "AVRO"))
    assert client.get_versions("refused") == [1, 2]


def test_avro_reads_records_of_an_older_version(client: SchemaRegistryClient) -> None:
    old = json.loads(ORDER)
    old["fields"] = old["fields"][:1]
    data = AvroSerializer(client, json.dumps(old))({"id": "7"}, value_of("evolved"))
    AvroSerializer(client, ORDER)({"id": "8", "cents": 1}, value_of("evolved"))
    assert AvroDeserializer(client, ORDER)(data, value_of("evolved")) == {"id": "7", "cents": 0}


def test_avro_with_references_is_found_by_confluents_client(client: SchemaRegistryClient) -> None:
    money = '{"type":"record","name":"Money","namespace":"shop","fields":[{"name":"cents","type":"long"}]}'
    client.register_schema("money", Schema(money, "AVRO"))
    priced = '{"type":"record","name":"Priced","namespace":"shop","fields":[{"name":"price","type":"shop.Money"}]}'
    schema = Schema(priced, "AVRO", [SchemaReference("shop.Money", "money", 1)])
    data = AvroSerializer(client, schema)({"price": {"cents": 5}}, value_of("priced"))
    assert AvroDeserializer(client)(data, value_of("priced")) == {"price": {"cents": 5}}
    with pytest.raises(SchemaRegistryError) as raised:
        client.delete_version("money", 1)
    assert raised.value.error_code == 42206


def test_json_goes_through_confluents_serializers(client: SchemaRegistryClient) -> None:
    schema = '{"title":"Page","type":"object","properties":{"url":{"type":"string"}},"required":["url"]}'
    serialize, deserialize = JSONSerializer(schema, client), JSONDeserializer(schema, schema_registry_client=client)
    data = serialize({"url": "/"}, value_of("pages"))
    assert deserialize(data, value_of("pages")) == {"url": "/"}
    with pytest.raises(SchemaRegistryError, match="TYPE_CHANGED at #") as raised:
        client.register_schema("pages-value", Schema('{"type":"array"}', "JSON"))
    assert raised.value.error_code == 40901
    assert not client.test_compatibility("pages-value", Schema('{"type":"array"}', "JSON"))
    wider = schema.replace('"url":{"type":"string"}', '"url":{"type":["string","null"]}')
    client.register_schema("pages-value", Schema(wider, "JSON"))
    found = client.get_latest_version("pages-value")
    assert found.version == 2
    assert found.guid is not None
    assert client.get_schema_by_guid(found.guid).schema_str == found.schema.schema_str
    assert client.get_latest_with_metadata("pages-value", {}).version == 2


def test_protobuf_goes_through_confluents_serializers_with_its_imports(client: SchemaRegistryClient) -> None:
    order = protobuf_message()
    config = {"use.deprecated.format": False}
    serialize = ProtobufSerializer(order, client, config)
    deserialize = ProtobufDeserializer(order, config, client)
    sent = order(id="7", at=Timestamp(seconds=5))
    got = deserialize(serialize(sent, value_of("protos")), value_of("protos"))
    assert got == sent
    found = client.get_latest_version("protos-value")
    assert found.schema.schema_type == "PROTOBUF"


def protobuf_message() -> Any:
    from google.protobuf.descriptor_pool import Default
    from google.protobuf.message_factory import GetMessageClass

    file = FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
    at = message.field.add(name="at", number=2, type=FieldDescriptorProto.TYPE_MESSAGE, label=1)
    at.type_name = ".google.protobuf.Timestamp"
    pool = Default()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_text_of_protobuf_is_given_to_python_as_a_descriptor(
    broker: ControlledBroker, client: SchemaRegistryClient
) -> None:
    text = 'syntax = "proto3"; package shop; message Item { string name = 1; }'
    schema_id = client.register_schema("items", Schema(text, "PROTOBUF"))
    assert client.get_schema(schema_id).schema_str == text
    assert client.lookup_schema("items", Schema(text, "PROTOBUF")).schema_id == schema_id
    # The first client has cached the text by its id.
    with SchemaRegistryClient({"url": broker.schema_registry_url}) as other:
        found = FileDescriptorProto()
        found.ParseFromString(base64.b64decode(other.get_schema(schema_id, fmt="serialized").schema_str))
    assert [message.name for message in found.message_type] == ["Item"]


def test_deletions_are_as_confluents_client_knows_them(client: SchemaRegistryClient) -> None:
    schema_id = client.register_schema("gone", Schema(ORDER, "AVRO"))
    assert client.delete_subject("gone") == [1]
    assert "gone" not in client.get_subjects()
    assert client.get_schema(schema_id).schema_str
    assert client.delete_subject("gone", permanent=True) == [1]
    with pytest.raises(SchemaRegistryError) as raised:
        client.get_versions("gone")
    assert raised.value.error_code == 40401


def test_topic_is_compacted_and_keeps_its_schemas_after_a_restart(broker: ControlledBroker) -> None:
    with SchemaRegistryClient({"url": broker.schema_registry_url}) as client:
        schema_id = client.register_schema("kept", Schema(ORDER, "AVRO"))
    broker.kill()
    broker.start()
    with SchemaRegistryClient({"url": broker.schema_registry_url}) as client:
        assert client.register_schema("kept", Schema(ORDER, "AVRO")) == schema_id
        assert client.get_versions("kept") == [1]
    with Cluster(broker.bootstrap) as cluster:
        found = Admin(cluster).describe_configs(ConfigResource(ResourceType.TOPIC, "_schemas"), ["cleanup.policy"])
    assert found["cleanup.policy"].value == "compact"


def test_registry_that_is_killed_is_started_again_by_its_broker(broker: ControlledBroker) -> None:
    before = broker.schema_registry_url
    lines = [line for line in broker.log_lines if "registry.ready" in line]
    pid = next(word.removeprefix("pid=") for word in lines[-1].split() if word.startswith("pid="))
    os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: broker.schema_registry_url, lambda url: url != before)
    assert ask("GET", f"{broker.schema_registry_url}/schemas/types")[0] == 200


def test_registry_ends_with_its_broker_also_when_that_is_killed() -> None:
    with ControlledBroker(BESIDE) as broker:
        url = broker.schema_registry_url
        broker.kill()
        eventually(lambda: refuses(url))
        broker.start()
        url = broker.schema_registry_url
        assert broker.stop() == 0
        assert refuses(url)


def refuses(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=30).close()
    except urllib.error.URLError as error:
        return isinstance(error.reason, ConnectionRefusedError)
    return False


def test_registries_of_one_topic_give_equal_answers_and_the_newest_writes() -> None:
    with ControlledBroker() as broker, serving(broker.bootstrap) as first, serving(broker.bootstrap) as second:
        # Forwarded by the first to the second.
        status, made = ask("POST", f"{first.url}/subjects/orders/versions", {"schema": ORDER})
        assert (status, made["id"]) == (200, 1)
        for server in (first, second):
            assert ask("GET", f"{server.url}/subjects/orders/versions") == (200, [1])
        second.process.kill()
        second.process.wait()
        # It cannot be reached: the first takes over.
        assert ask("POST", f"{first.url}/subjects/orders/versions", {"schema": '"int"'})[0] == 409
        status, made = ask("POST", f"{first.url}/subjects/returns/versions", {"schema": '"int"'})
        assert (status, made["id"]) == (200, 2)


def test_frozen_writer_forwards_its_requests_when_another_has_taken_over() -> None:
    with ControlledBroker() as broker, serving(broker.bootstrap) as first:
        os.kill(first.process.pid, signal.SIGSTOP)
        with serving(broker.bootstrap) as second:
            assert ask("POST", f"{second.url}/subjects/orders/versions", {"schema": ORDER})[0] == 200
            os.kill(first.process.pid, signal.SIGCONT)
            status, made = ask("POST", f"{first.url}/subjects/returns/versions", {"schema": '"int"'})
            assert (status, made["id"]) == (200, 2)


class Registering:
    """Registers one schema after the other at a registry that may die; remembers what was acknowledged."""

    def __init__(self, name: str, url: str, acknowledged: dict[str, int]) -> None:
        self._name = name
        self._url = url
        self._acknowledged = acknowledged
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.wait(0.005):
                return
            subject = f"{self._name}-{number}"
            body = {"schema": json.dumps({"type": "enum", "name": subject.replace("-", "_"), "symbols": ["A"]})}
            try:
                status, made = ask("POST", f"{self._url}/subjects/{subject}/versions", body)
            except (OSError, http.client.HTTPException):
                continue
            if status == 200:
                self._acknowledged[subject] = made["id"]


@pytest.mark.slow
def test_acknowledged_schemas_survive_kills_of_registries_and_of_the_broker() -> None:
    acknowledged: dict[str, int] = {}

    def more(count: int) -> None:
        wanted = len(acknowledged) + count
        eventually(lambda: len(acknowledged), lambda found: found >= wanted)

    with ControlledBroker() as broker:
        for turn in range(4):
            with (
                serving(broker.bootstrap) as first,
                serving(broker.bootstrap) as second,
                Registering(f"first-{turn}", first.url, acknowledged),
                Registering(f"second-{turn}", second.url, acknowledged),
            ):
                more(20)
                match turn:
                    case 0:
                        second.process.kill()
                    case 1:
                        first.process.kill()
                    case 2:
                        with broker.killed():
                            pass
                    case 3:
                        # Another registry takes over while it writes.
                        with serving(broker.bootstrap):
                            more(20)
                more(20)
        with serving(broker.bootstrap) as last:
            for subject, schema_id in acknowledged.items():
                status, found = ask("GET", f"{last.url}/schemas/ids/{schema_id}")
                assert (status, json.loads(found["schema"])["name"]) == (200, subject.replace("-", "_")), subject
                assert ask("GET", f"{last.url}/subjects/{subject}/versions/latest")[1]["id"] == schema_id
    assert len(set(acknowledged.values())) == len(acknowledged)


def test_unreachable_broker_is_reported_and_ids_are_still_served(broker: ControlledBroker) -> None:
    with ControlledBroker() as alone, serving(alone.bootstrap) as server:
        ask("POST", f"{server.url}/subjects/orders/versions", {"schema": ORDER})
        alone.kill()
        assert ask("GET", f"{server.url}/schemas/ids/1")[0] == 200
        status, told = ask("GET", f"{server.url}/subjects")
        assert (status, told["error_code"]) == (500, 50001)
        alone.start()
        assert ask("GET", f"{server.url}/subjects") == (200, ["orders"])


def test_topic_that_would_lose_schemas_is_refused(broker: ControlledBroker) -> None:
    with broker.namespace() as namespace:
        topic = namespace.topic("plain")
        command = [sys.executable, "-m", "ottla", "registry", "serve", "-b", broker.bootstrap, "--topic", topic]
        done = subprocess.run([*command, "--listen", "127.0.0.1:0"], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "cleanup.policy=delete, and would lose schemas" in done.stderr
        assert "hint: ottla topic alter" in done.stderr


def test_address_that_others_reach_is_refused() -> None:
    with pytest.raises(BrokerDidNotStart, match="refused to serve schemas on"):
        ControlledBroker({"schema.registry.listeners": "http://0.0.0.0:0"}).start()
    with pytest.raises(BrokerDidNotStart, match="needs a certificate and its private key"):
        ControlledBroker({"schema.registry.listeners": "https://127.0.0.1:0"}).start()


def test_request_that_is_too_large_is_refused(broker: ControlledBroker) -> None:
    raw = json.dumps({"schema": "x" * (2 << 20)}).encode()
    status, told = ask("POST", f"{broker.schema_registry_url}/subjects/large/versions", raw=raw)
    assert (status, told["error_code"]) == (413, 42209)
    assert ask("GET", f"{broker.schema_registry_url}/subjects/large/versions")[0] == 404
