"""Records with a schema of a registry, decoded by columns.

    from ottla.spark.schemas import from_registry

    orders = frame.select(from_registry("value", "http://localhost:8081", subject="orders-value").alias("order"))
    orders.select("order.value.*").where("order.error is null")

Importing this package imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.runtime.installed import require_modules

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["from_registry"]


def from_registry(
    column: Column | str,
    registry: str,
    *,
    subject: str | None = None,
    schema: str | None = None,
    message: str | None = None,
    security: Mapping[str, str] | None = None,
) -> Column:
    """Decode keys or values that a registry's serializer has written: Confluent's wire format, a byte 0 and an id.

    The result is a struct of three: `value`, in the columns of the reader's schema; `error`, why a record could not be
    decoded, which then has no value; `schema_id`, with which it was written.  Null stays null.  Records of different
    versions are read side by side, each by the schema that it was written with.

    registry    its address; several with commas between
    subject     its latest version is the reader's schema
    schema      the reader's schema itself instead: Avro's JSON, or a Protobuf file's text
    message     the full name of a Protobuf message; without it the first of the file
    security    TLS and login by the names of Confluent's client: `ssl.ca.location`, `ssl.certificate.location`,
                `ssl.key.location`, `basic.auth.user.info` (NAME:PASSWORD, or `basic.auth.user.info.file`),
                `bearer.auth.token`.  Files are read in each process

    JSON is given as text, which `pyspark.sql.functions.from_json` reads with a schema of Spark's.  An id that the
    registry does not know is the record's error; a registry that does not answer fails the task, and Spark tries it
    again.

    Raises `NotInThisSpark` with Spark 4.0, `ConfigError` for what is not installed, and of
    `ottla.spark.schemas.registry_reader` `RegistryUnreachable`, `RegistryRefused`, `UnknownSchema`, and
    `UnreadableSchema` when the reader's schema has no columns: it refers to itself, or has a union of several types.
    """
    require_modules("from_registry", ("fastavro",), "schemas")

    from ottla.spark.schemas.registry_decoder import registry_column
    from ottla.spark.schemas.registry_security import RegistrySecurity

    found = RegistrySecurity.of(security or {})
    return registry_column(column, registry, subject=subject, schema=schema, message=message, security=found)
