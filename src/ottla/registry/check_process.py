"""The process that checks schemas: each line of its input is a check, each line of its output the outcome.

Its limits of memory and CPU are its own, so they hold, too, when the registry is gone.
"""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import sys
from functools import lru_cache
from typing import Any, Final

from ottla.model.limits import MIB
from ottla.observe.events import DEFAULT_LEVEL, start_logging
from ottla.registry.avro_format import PROBLEMS_SHOWN, AvroSchema, problems_of_reader, read_avro
from ottla.registry.checks import Answer, Check, Comparison, Descriptor, KeptForm, Source, check_of, schema_too_large
from ottla.registry.errors import RegistryError, invalid_schema
from ottla.registry.json_compatibility import json_problems
from ottla.registry.json_format import json_root, read_json_schema
from ottla.registry.protobuf_compatibility import protobuf_problems
from ottla.registry.protobuf_format import descriptors, read_protobuf, serialized
from ottla.registry.schema import SchemaType

# A subject's newest version is compared with one schema after the other.
_AVRO_KEPT: Final = 32


def answer(check: Check) -> Answer:
    """Raises `RegistryError` for an invalid schema."""
    match check:
        case KeptForm(source, normalize):
            return _kept(source, normalize=normalize)
        case Comparison(reader, writer):
            return problems(reader, writer)
        case Descriptor(source):
            return serialized(source.text, dict(source.referenced))


def _kept(source: Source, *, normalize: bool) -> str:
    match source.type:
        case SchemaType.AVRO:
            return read_avro(source.text, [text for _, text in source.referenced], normalize=normalize).text
        case SchemaType.JSON:
            return read_json_schema(source.text, normalize=normalize)
        case SchemaType.PROTOBUF:
            return read_protobuf(source.text, dict(source.referenced))


def problems(reader: Source, writer: Source) -> list[str]:
    """Why `reader` cannot read what `writer` writes; empty when it can."""
    if reader.type is not writer.type:
        return [f"SCHEMA_TYPE_CHANGED from {writer.type} to {reader.type}"]
    match reader.type:
        case SchemaType.AVRO:
            return problems_of_reader(_avro(reader), _avro(writer))
        case SchemaType.JSON:
            found = json_problems(*(json_root(each.text, each.referenced) for each in (reader, writer)))
        case SchemaType.PROTOBUF:
            found = protobuf_problems(*(descriptors(each.text, dict(each.referenced)) for each in (reader, writer)))
    more = [f"{len(found) - PROBLEMS_SHOWN} more"] if len(found) > PROBLEMS_SHOWN else []
    return [*found[:PROBLEMS_SHOWN], *more]


@lru_cache(maxsize=_AVRO_KEPT)
def _avro(source: Source) -> AvroSchema:
    return read_avro(source.text, [text for _, text in source.referenced])


log = logging.getLogger(__name__)

# Of one check, and apart from it of the compiler that it may start.
CPU_S_MAX: Final = 5
# Of addresses, as the kernel limits them; with nothing to do it has 40 MiB.
MEMORY_BYTES_MAX: Final = 256 * MIB
# Python returns little of its memory, and the next check needs some, too.
RETIRES_ABOVE_BYTES: Final = 128 * MIB
# The broker and the registry beside it come first.
NICENESS: Final = 10

READY: Final = b"ready\n"
_KIB: Final = 1_024


def main() -> None:
    start_logging(DEFAULT_LEVEL)
    os.nice(NICENESS)
    _limit(resource.RLIMIT_AS, MEMORY_BYTES_MAX)
    _limit(resource.RLIMIT_CORE, 0)
    _write(READY)
    for line in sys.stdin.buffer:
        _limit(resource.RLIMIT_CPU, math.ceil(_cpu_s()) + CPU_S_MAX)
        outcome = _outcome(line)
        _write(json.dumps(outcome).encode() + b"\n")
        if outcome["retires"]:
            return


def _outcome(line: bytes) -> dict[str, Any]:
    try:
        try:
            found = {"answer": answer(check_of(json.loads(line)))}
        except RecursionError:
            raise invalid_schema("the schema is nested too deeply") from None
    except RegistryError as error:
        return {"code": error.code, "message": str(error), "retires": _is_large()}
    except MemoryError:
        limit = schema_too_large(f"the check of the schema needs more than {MEMORY_BYTES_MAX // MIB} MiB of memory")
        return {"code": limit.code, "message": str(limit), "is_limit": True, "retires": True}
    except Exception:
        # A bug of ours, or of a library: the registry answers so, and other checks are done.
        log.exception("check.bug")
        return {"bug": True, "retires": True}
    return {**found, "retires": _is_large()}


def _is_large() -> bool:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB > RETIRES_ABOVE_BYTES


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
