"""An object's state is changed by its own class: other modules neither assign its fields nor use what is private."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ottla.broker.fetching.fetch_plans import FetchService
from ottla.broker.fetching.fetch_session import FetchSession
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.partitions.waiting_requests import WaitingRequests
from ottla.broker.replicas.replica_fetcher import FetcherTotals
from ottla.client.producing.produce_queue import PendingBatch
from ottla.client.streams.reading import HandOut, Reading
from ottla.storage.log.flush import FlushScheduler
from ottla.storage.log.log import Log
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_list import SegmentList
from tests.architecture.source_tree import ROOT, Module, modules, nodes, sample

# The type of `x` in `x.field = ...` is not known here, so a field's name alone counts, on any object.
OWNED: Final = (Log, Segment, SegmentList, FlushScheduler)
FIELDS: Final = frozenset(name for owner in OWNED for name in owner.__slots__)
# The same for a class and the module that defines it.  Names that other classes have, too, are not in this list.
OF_CLIENT: Final = (HandOut, PendingBatch, Reading)
OF_BROKER: Final = (FetchService, FetchSession, FetcherTotals, Partition, PartitionTable, WaitingRequests)
OF_OTHERS_TOO: Final = {
    *("batch", "claim", "committed", "epoch", "index", "order", "partition", "partitions_count", "requested", "start"),
    *("tag", "token", "waiting"),
}
OF_A_MODULE: Final = {
    name: owner.__module__
    for owner in (*OF_CLIENT, *OF_BROKER)
    for name in owner.__slots__
    if name not in OF_OTHERS_TOO
}
# It counts up a value of its own that has the names of a log's ends: what it found in another broker's directory.
EXEMPT: Final = {"ottla.maintenance.log_import"}
# Part of NamedTuple's, of `os`'s and of `enum`'s public face.
PUBLIC: Final = {"_asdict", "_exit", "_make", "_replace", "_value_"}
# PySpark has no other doors to its Java process, and one module of ours goes through them.
PUBLIC_IN: Final = {
    "ottla.spark.jvm": {"_ensure_initialized", "_instantiatedSession", "_jdf", "_jsc", "_jsparkSession", "_jvm"}
}


def _attributes_in(target: ast.expr) -> Iterator[ast.Attribute]:
    """The attributes that an assignment to `target` changes, also in one of their items."""
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _attributes_in(element)
    elif isinstance(target, ast.Starred | ast.Subscript):
        yield from _attributes_in(target.value)
    elif isinstance(target, ast.Attribute):
        yield target


def _assigned(module: Module) -> Iterator[ast.Attribute]:
    for node in nodes(module):
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr):
            targets = [node.target]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            targets = [node.optional_vars]
        else:
            continue
        for target in targets:
            yield from _attributes_in(target)


def _is_own(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id in {"self", "cls"}


def _place(module: Module, attribute: ast.Attribute) -> str:
    return f"{module.path.relative_to(ROOT)}:{attribute.lineno}: {ast.unparse(attribute)}"


def _foreign_assignments(module: Module) -> list[str]:
    if module.name in EXEMPT:
        return []
    foreign = [each for each in _assigned(module) if not _is_own(each)]
    return [
        _place(module, each)
        for each in foreign
        if each.attr in FIELDS or OF_A_MODULE.get(each.attr, module.name) != module.name
    ]


def _foreign_privates(module: Module) -> list[str]:
    """Private names of an object that is not `self`, unless this module defines them."""
    attributes = [node for node in nodes(module) if isinstance(node, ast.Attribute)]
    defined = {node.name for node in nodes(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    defined |= {each.attr for each in _assigned(module) if _is_own(each)}
    return [
        _place(module, each)
        for each in attributes
        if each.attr.startswith("_")
        and not each.attr.startswith("__")
        and each.attr not in defined | PUBLIC | PUBLIC_IN.get(module.name, set())
        and not _is_own(each)
    ]


def test_no_module_assigns_a_field_of_a_log_a_reading_or_a_batch_from_outside() -> None:
    offences = [offence for module in modules() for offence in _foreign_assignments(module)]
    assert not offences, "\n".join(offences)


def test_no_module_uses_what_is_private_to_another() -> None:
    offences = [offence for module in modules() for offence in _foreign_privates(module)]
    assert not offences, "\n".join(offences)


def test_rule_of_assignments_finds_each_kind_of_offence() -> None:
    offences = [
        "log.flushed_end = 1",
        "log.stable_end += 1",
        "del log._segments[0]",
        "a, self.log.is_deleted = 1, True",
        "partition.log.failure: object = None",
        "log._segments[0] = None",
        "hand_out.until_ns = 0",
        "buffer.reading.hand_out = None",
        "batch.was_unanswered = True",
    ]
    for offence in offences:
        assert _foreign_assignments(sample("ottla.broker.sample", offence)), offence
    for allowed in ("self.flushed_end = 1", "end = log.flushed_end", "log.failures = 1", "log.flushed_end == 1"):
        assert not _foreign_assignments(sample("ottla.broker.sample", allowed)), allowed


def test_rule_of_private_names_finds_an_offence() -> None:
    assert _foreign_privates(sample("ottla.broker.sample", "log._segments.append(1)"))
    assert not _foreign_privates(sample("ottla.broker.sample", "self._segments.append(row._replace(x=1))"))
    assert not _foreign_privates(sample("ottla.broker.sample", "class A:\n  def _f(self): ...\nA()._f()"))
