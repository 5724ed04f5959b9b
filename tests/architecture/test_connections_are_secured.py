"""Every connection of the client, the command line and the pipeline has the security that its user gave: none is
plain by accident.

A `ClientOptions` without `security` would connect in plain text, and so would a `Cluster` without options, a group's
membership without them, and a producer or a consumer without `security`.
`dataclasses.replace` keeps what there was.
"""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.architecture.source_tree import ROOT, Module, modules, nodes, sample

AREAS: Final = {"audit", "cli", "client", "dead_letters", "demo", "lost_offsets", "mirror", "registry", "spark"}
TAKE_SECURITY: Final = {"AuditTopic", "ClientOptions", "ConsumerConnector", "Producer", "SimpleConsumer"}
# What takes a client's options, and at which position.
TAKE_OPTIONS: Final = {"Cluster": (1, "options"), "kafka_group_membership": (3, "client_options")}
# Where plain text is right, and why.
ALLOWED: Final = {
    "ottla.cli.testing": "the broker that the verb has started, on loopback",
    "ottla.client.wire.cluster": "the default of `Cluster` itself",
    "ottla.client.membership.kafka_group.membership": "the default of the function itself",
    "ottla.demo.checking": "the demo's broker, on loopback",
    "ottla.demo.jobs": "the demo's broker, on loopback",
    "ottla.demo.producing": "the demo's broker, on loopback",
    "ottla.demo.run": "the demo's broker, on loopback",
    "ottla.demo.watching": "the demo's broker, on loopback",
    "ottla.mirror.mirrored_cluster": "the default of a side, of which `security` is set then",
    "ottla.spark.options.connection": "the defaults of the other options",
}


def _plain_connections(module: Module) -> list[str]:
    if module.area not in AREAS or module.name in ALLOWED:
        return []
    where = module.path.relative_to(ROOT)
    return [
        f"{where}:{node.lineno}: {ast.unparse(node)}"
        for node in nodes(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _is_plain(node, node.func.id)
    ]


def _is_plain(call: ast.Call, name: str) -> bool:
    keywords = {keyword.arg for keyword in call.keywords}
    if name in TAKE_SECURITY:
        return "security" not in keywords
    position, keyword = TAKE_OPTIONS.get(name, (0, ""))
    return bool(keyword) and len(call.args) <= position and keyword not in keywords


def test_clients_and_verbs_connect_with_the_security_that_was_given() -> None:
    offences = [offence for module in modules() for offence in _plain_connections(module)]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(
    "source",
    [
        "Cluster('localhost:9092')",
        "with Cluster(bootstrap, dial=dial) as cluster:\n    pass",
        "options = ClientOptions(client_id='x')",
        "Cluster(bootstrap, ClientOptions())",
        "kafka_group_membership(bootstrap, group_id, options)",
        "AuditTopic(bootstrap)",
    ],
)
def test_rule_of_connections_finds_an_offence(source: str) -> None:
    assert _plain_connections(sample("ottla.cli.sample", source))
    assert not _plain_connections(sample("ottla.storage.sample", source))


@pytest.mark.parametrize(
    "source",
    [
        "Cluster(bootstrap, ClientOptions(client_id='x', security=given_security()))",
        "Cluster(bootstrap, options, dial=dial)",
        "Cluster(bootstrap, options=replace(options, client_id='x'))",
        "kafka_group_membership(bootstrap, group_id, options, cluster.options)",
        "Producer(bootstrap, security=security)",
    ],
)
def test_rule_of_connections_lets_through_what_is_secured(source: str) -> None:
    assert not _plain_connections(sample("ottla.client.sample", source))


@pytest.mark.parametrize("name", ALLOWED)
def test_each_exception_is_still_one(name: str) -> None:
    module = next(each for each in modules() if each.name == name)
    assert any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _is_plain(node, node.func.id)
        for node in nodes(module)
    )
