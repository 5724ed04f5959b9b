"""The source as the architecture tests see it: modules and what they import."""

from __future__ import annotations

import ast
import gc
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "src"


class Module(NamedTuple):
    name: str
    path: Path
    tree: ast.Module

    @property
    def area(self) -> str:
        """The folder below `ottla`, empty for the package itself."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""


class Import(NamedTuple):
    importer: Module
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer.path.relative_to(ROOT)}:{self.line}: {self.imported}"


def sample(name: str, source: str) -> Module:
    """A module that only a test sees: rules are tried on offences that the real source does not have."""
    return Module(name, SOURCE.joinpath(*name.split(".")).with_suffix(".py"), ast.parse(source))


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package.

    Parsed without garbage collection: a tree is all cycles and none of them garbage, and passes over the growing heap
    took six seconds of seven."""
    gc.disable()
    try:
        return tuple(
            Module(_name(path), path, ast.parse(path.read_text(encoding="utf-8")))
            for path in sorted((SOURCE / "ottla").rglob("*.py"))
        )
    finally:
        gc.enable()


@cache
def nodes(module: Module) -> tuple[ast.AST, ...]:
    """Every node of a module's tree.  Most rules read them, and walking a thousand trees takes seconds."""
    return tuple(ast.walk(module.tree))


@cache
def imports(module: Module) -> tuple[Import, ...]:
    """Every import of a module, at any depth; `from a import b` counts as `a.b` when that is a module."""
    return tuple(_imports(module))


def _imports(module: Module) -> Iterator[Import]:
    for node in nodes(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.path}:{node.lineno}: relative import"
            assert node.module is not None
            for alias in node.names:
                longer = f"{node.module}.{alias.name}"
                yield Import(module, longer if longer in _names() else node.module, node.lineno)


@cache
def _names() -> frozenset[str]:
    return frozenset(module.name for module in modules())


def files_below(folder: Path, *suffixes: str) -> Iterator[Path]:
    """Our own files, without what is built or measured: a benchmark that runs makes and removes directories there."""
    for directory, names, found in os.walk(folder):
        names[:] = sorted(set(names) - {"build", "results", "__pycache__"})
        yield from (Path(directory, name) for name in sorted(found) if name.endswith(suffixes))


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
