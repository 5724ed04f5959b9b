"""The code checks itself: calls that go round the architecture, leftovers, modules that nobody imports."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from tests.architecture.source_tree import ROOT, Module, files_below, imports, modules

# A call, what to use instead, and the module that is that instead.
BANNED_CALLS: Final = {
    "time.time": ("runtime.clock", "ottla.runtime.clock"),
    "time.time_ns": ("runtime.clock", "ottla.runtime.clock"),
    "time.monotonic_ns": ("runtime.clock", "ottla.runtime.clock"),
    "datetime.now": ("runtime.clock", None),
    "asyncio.run": ("runtime.event_loop.run", None),
    "asyncio.Runner": ("runtime.event_loop.run", "ottla.runtime.event_loop"),
    "os.sendfile": ("runtime.disk", "ottla.runtime.posix_disk"),
    "os.fsync": ("runtime.disk", "ottla.runtime.posix_disk"),
    "os.fdatasync": ("runtime.disk", "ottla.runtime.posix_disk"),
    "print": ("an event, or click.echo in cli", None),
    "eval": ("nothing", None),
    "exec": ("nothing", None),
    "pickle.loads": ("nothing: it runs what a peer sends", None),
}
# The log's files go through the disk, so that the crash tests see them; Spark's own output does not.
EXEMPT: Final = {"os.fsync": {"spark"}, "os.fdatasync": {"spark"}}
# What programs start, by name: nobody imports them.
ENTRIES: Final = {"ottla.__main__", "ottla.model.configuration_page"}


def _calls(module: Module) -> list[tuple[str, int]]:
    return [(ast.unparse(node.func), node.lineno) for node in ast.walk(module.tree) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("banned", BANNED_CALLS)
def test_banned_call_is_used_only_where_it_is_wrapped(banned: str) -> None:
    instead, home = BANNED_CALLS[banned]
    offences = [
        f"{module.path.relative_to(ROOT)}:{line}: {banned}; use {instead}"
        for module in modules()
        if module.name != home and module.area not in EXEMPT.get(banned, set())
        for name, line in _calls(module)
        if name == banned
    ]
    assert not offences, "\n".join(offences)


def test_nothing_is_left_to_do() -> None:
    leftover = re.compile(r"\b(FIXME|TODO|XXX|HACK)\b")
    offences = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("src", "tests", "bench", "docs")
        for path in files_below(ROOT / folder, ".py", ".md")
        if path.name != "test_tidiness.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if leftover.search(line)
    ]
    assert not offences, "\n".join(offences)


def test_every_module_is_imported_by_another_or_named_by_one() -> None:
    """A verb of the command line and a handler are named as text, and imported when called."""
    imported = {found.imported for module in modules() for found in imports(module) if found.importer is module}
    texts = {
        node.value
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    dead = [
        module.name
        for module in modules()
        if module.path.name != "__init__.py"
        and module.name not in imported | ENTRIES
        and not any(module.name in text or text == module.name.rpartition(".")[2] for text in texts)
        and module.area != "testing"
    ]
    assert not dead, "\n".join(dead)
