"""The embedded tree's rules against the plainest model: a dictionary that is copied before each request."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordination.embedded.node_table import NodeTable, Origin, Staging
from ottla.coordination.tree import (
    ANY_VERSION,
    NO_OWNER,
    BadVersion,
    CheckNode,
    CreateNode,
    DeleteNode,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetNode,
    TreeError,
    parent_of,
)
from tests.property.property_settings import examples_max

ModelNode = tuple[bytes, int, int]  # data, version, owner
Model = dict[str, ModelNode]

paths = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/p", "/b/x", "/"])
versions = st.sampled_from([ANY_VERSION, 0, 1, 2])
data = st.binary(max_size=3)
operations = st.one_of(
    st.builds(CreateNode, paths, data, st.booleans()),
    st.builds(SetNode, paths, data, versions),
    st.builds(DeleteNode, paths, versions),
    st.builds(CheckNode, paths, versions),
)
requests = st.lists(operations, max_size=4)
SESSION = 9


def model_apply(model: Model, request: Sequence[Operation]) -> tuple[Model, type[TreeError] | None, int]:
    after = dict(model)
    for index, operation in enumerate(request):
        error = model_step(after, operation)
        if error is not None:
            return model, error, index
    return after, None, len(request)


def model_step(model: Model, operation: Operation) -> type[TreeError] | None:
    path = operation.path
    node = model.get(path)
    if isinstance(operation, CreateNode):
        if node is not None:
            return NodeExists
        if parent_of(path) not in model:
            return NoNode
        if model[parent_of(path)][2] != NO_OWNER:
            return NoChildrenForEphemerals
        model[path] = (operation.data, 0, SESSION if operation.ephemeral else NO_OWNER)
        return None
    if node is None:
        return NoNode
    if operation.version not in (ANY_VERSION, node[1]):
        return BadVersion
    if isinstance(operation, SetNode):
        model[path] = (operation.data, node[1] + 1, node[2])
    elif isinstance(operation, DeleteNode):
        if path == "/" or any(parent_of(other) == path for other in model if other != "/"):
            return NotEmpty
        del model[path]
    return None


def as_model(table: NodeTable) -> Model:
    return {path: (node.data, node.version, node.ephemeral_owner) for path, node in table.items()}


def assert_whole(table: NodeTable) -> None:
    assert table.orphan() is None
    for path in as_model(table):
        below = sorted(
            other.rpartition("/")[2] for other, _ in table.items() if other != "/" and parent_of(other) == path
        )
        assert sorted(table.children(path)) == below
        assert table.stat(path).children_count == len(below)


@settings(max_examples=examples_max(300))
@given(st.lists(st.tuples(st.lists(requests, max_size=4), st.booleans()), max_size=6))
def test_batches_of_requests_have_the_effects_of_the_model(batches: list[tuple[list[list[Operation]], bool]]) -> None:
    committed = NodeTable()
    staging = Staging(committed.copy())
    model: Model = {"/": (b"", 0, NO_OWNER)}
    zxid = 0
    for batch, is_complete in batches:
        before = model
        for request in batch:
            zxid += 1
            model, error, index = model_apply(model, request)
            try:
                results = staging.apply(request, Origin(SESSION, zxid, 1))
            except TreeError as failure:
                outcome: tuple[type[TreeError] | None, int | None] = (type(failure), failure.operation_index)
            else:
                outcome = (None, len(results))
            assert outcome == (error, index)
            assert as_model(staging.table) == model
        if is_complete:
            committed.apply(staging.summary())
            staging.commit()
        else:
            staging.roll_back()
            model = before
        assert as_model(staging.table) == as_model(committed) == model
        assert_whole(staging.table)
        assert_whole(committed)


@settings(max_examples=examples_max(200))
@given(st.lists(requests, max_size=6))
def test_change_ids_of_a_node_are_those_of_its_creation_and_last_change(batch: list[list[Operation]]) -> None:
    staging = Staging(NodeTable())
    created: dict[str, int] = {}
    modified: dict[str, int] = {}
    for zxid, request in enumerate(batch, start=1):
        try:
            staging.apply(request, Origin(SESSION, zxid, 1))
        except TreeError:
            continue
        for operation in request:
            if isinstance(operation, CreateNode):
                created[operation.path] = modified[operation.path] = zxid
            elif isinstance(operation, SetNode):
                modified[operation.path] = zxid
    for path, node in staging.table.items():
        if path in created:
            assert (node.czxid, node.mzxid) == (created[path], modified[path])
