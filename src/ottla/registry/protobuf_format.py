"""Protobuf: a schema is a file, as text (Java's clients) or as its descriptor in base64 (Python's).

Text becomes a descriptor by the compiler of protobuf (grpcio-tools), in a process of its own: its input comes from
any client that can reach the registry.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from ottla.registry.errors import invalid_schema

# The name of a file without one.
DEFAULT_FILE: Final = "schema.proto"
# Built into the compiler; no schema need refer to them.
WELL_KNOWN: Final = "google/protobuf/"
_SETS_KEPT: Final = 256
_ERROR_CHARS_MAX: Final = 500


def read_protobuf(text: str, referenced: Mapping[str, str]) -> str:
    """The text as it is kept.  `referenced`: the texts of the files that it imports, all of them, by their paths.

    Raises `RegistryError`.
    """
    kept = text.strip()
    pool_of(descriptors(kept, referenced))
    return kept


def serialized(text: str, referenced: Mapping[str, str]) -> str:
    """The descriptor in base64, as Python's clients request it.  Raises `RegistryError`."""
    return base64.b64encode(descriptors(text, referenced)[-1].SerializeToString()).decode()


def descriptors(text: str, referenced: Mapping[str, str]) -> tuple[FileDescriptorProto, ...]:
    """Of the file and of all that it imports; its own is the last.  Raises `RegistryError`."""
    return _descriptors(text, tuple(sorted(referenced.items())))


def pool_of(files: tuple[FileDescriptorProto, ...]) -> DescriptorPool:
    """A pool of these files, each after its imports.  Raises `RegistryError` when they do not fit together."""
    pool = DescriptorPool()
    for file in files:
        try:
            pool.Add(file)
        except TypeError as error:
            raise invalid_schema(f"no Protobuf schema: {error}") from None
    return pool


@lru_cache(maxsize=_SETS_KEPT)
def _descriptors(text: str, referenced: tuple[tuple[str, str], ...]) -> tuple[FileDescriptorProto, ...]:
    given = _from_base64(text)
    if given is None:
        return _compiled({**dict(referenced), _unused_name(referenced): text}, _unused_name(referenced))
    files: dict[str, FileDescriptorProto] = {}
    for name, other in referenced:
        parsed = _from_base64(other)
        # A descriptor's imports are among the referenced themselves: following them from each would take 2^n steps.
        *imported, own = (
            _descriptors(other, tuple(pair for pair in referenced if pair[0] != name)) if parsed is None else (parsed,)
        )
        for file in imported:
            if file.name not in files and file.name != given.name:
                files[file.name] = file
        files[name] = _renamed(own, name)
    missing = sorted({name for file in (given, *files.values()) for name in file.dependency if name not in files})
    if missing:
        files |= {file.name: file for file in _well_known(missing)}
    files[given.name] = given
    return _after_imports(files, given.name)


def _from_base64(text: str) -> FileDescriptorProto | None:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    file = FileDescriptorProto()
    try:
        file.ParseFromString(data)
    except DecodeError as error:
        raise invalid_schema(f"no Protobuf schema: base64, but of no descriptor: {error}") from None
    if not file.name:
        file.name = DEFAULT_FILE
    return file


def _renamed(file: FileDescriptorProto, name: str) -> FileDescriptorProto:
    renamed = FileDescriptorProto()
    renamed.CopyFrom(file)
    renamed.name = name
    return renamed


def _unused_name(referenced: tuple[tuple[str, str], ...]) -> str:
    taken = {name for name, _ in referenced}
    return next(name for name in (DEFAULT_FILE, *(f"schema_{n}.proto" for n in range(len(taken)))) if name not in taken)


def _well_known(names: list[str]) -> tuple[FileDescriptorProto, ...]:
    unknown = [name for name in names if not name.startswith(WELL_KNOWN)]
    if unknown:
        raise invalid_schema(f"no Protobuf schema: it imports {', '.join(unknown)}, and no reference has this name")
    imports = "".join(f'import "{name}";\n' for name in names)
    return _compiled({DEFAULT_FILE: f'syntax = "proto3";\n{imports}'}, DEFAULT_FILE)[:-1]


def _compiled(texts: Mapping[str, str], name: str) -> tuple[FileDescriptorProto, ...]:
    """The file called `name` and its imports, as the compiler orders them."""
    with tempfile.TemporaryDirectory(prefix="ottla-protobuf-") as scratch:
        root = Path(scratch)
        sources = root / "in"
        for path, text in texts.items():
            place = _inside(sources, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            other = _from_base64(text)
            if other is not None:
                raise invalid_schema(
                    f"no Protobuf schema: it is text, and its reference {path} is a descriptor; register both alike"
                )
            place.write_text(text)
        out = root / "out"
        # The module's own `main` adds the folder of the well-known types.
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{sources}", "--include_imports"]
        # It has no deadline here: it ends with the process that checks, of whose group it is (check_process.py).
        done = subprocess.run(
            [*command, f"--descriptor_set_out={out}", str(sources / name)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise invalid_schema(
                f"no Protobuf schema: {done.stderr.strip().replace(f'{sources}/', '')[:_ERROR_CHARS_MAX]}"
            )
        found = FileDescriptorSet()
        found.ParseFromString(out.read_bytes())
    return tuple(found.file)


def _inside(root: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise invalid_schema(f"a reference called {name!r} is no path of an import")
    return root / path


def _after_imports(files: Mapping[str, FileDescriptorProto], last: str) -> tuple[FileDescriptorProto, ...]:
    ordered: dict[str, FileDescriptorProto] = {}
    begun: set[str] = set()

    def add(name: str) -> None:
        if name in ordered:
            return
        if name in begun or name not in files:
            raise invalid_schema(f"no Protobuf schema: {name} is imported in a circle, or has no reference")
        begun.add(name)
        for other in files[name].dependency:
            add(other)
        ordered[name] = files[name]

    add(last)
    return tuple(ordered.values())
