"""An object gets its observers when it is constructed: no other object assigns its callbacks later.

What is cyclic subscribes to an event (broker/events.py), or calls a method that says for how long the callback counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.architecture.source_tree import ROOT, Module, modules, sample

# The name of an attribute that holds what an object calls when something happens.
CALLBACK: Final = re.compile(r"_?on_\w+|\w*(observer|observers|callback|listener|handler|hook)")
# Tests change the machine between a broker and its disk while both run.
EXEMPT_AREAS: Final = {"testing"}


def _targets(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            yield node.target


def _attributes(target: ast.expr) -> Iterator[ast.Attribute]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _attributes(element)
    elif isinstance(target, ast.Attribute):
        yield target


def _assigned_callbacks(module: Module) -> list[str]:
    return [
        f"{module.path.relative_to(ROOT)}:{attribute.lineno}: {ast.unparse(attribute)}"
        for target in _targets(module.tree)
        for attribute in _attributes(target)
        if CALLBACK.fullmatch(attribute.attr)
        and not (isinstance(attribute.value, ast.Name) and attribute.value.id in {"self", "cls"})
    ]


def test_no_module_assigns_a_callback_of_another_object() -> None:
    checked = [module for module in modules() if module.area not in EXEMPT_AREAS]
    offences = [offence for module in checked for offence in _assigned_callbacks(module)]
    assert not offences, "\n".join(offences)


def test_rule_of_callbacks_finds_each_kind_of_offence() -> None:
    offences = [
        "connection.on_close = cancel",
        "self._directory.on_offline = self._fail",
        "fetchers.on_failed: object = None",
        "a, partition.observer = 1, cluster",
        "served._on_changed = None",
        "server.request_handler = handle",
    ]
    for offence in offences:
        assert _assigned_callbacks(sample("ottla.broker.sample", offence)), offence


def test_rule_of_callbacks_lets_an_object_keep_what_it_was_given() -> None:
    allowed = [
        "self._on_close = on_close",
        "self.observer = observer",
        "connection.watch_close(cancel)",
        "partition.online = True",
        "answer.pieces = pieces",
    ]
    for line in allowed:
        assert not _assigned_callbacks(sample("ottla.broker.sample", line)), line
