"""An Iceberg table, through pyiceberg: a load's numbers are in its snapshots' summaries, and in a table property.

Each snapshot of ours has all numbers.  The newest one of ours counts; other writers' snapshots (compactions) may lie
after it.  Where it has expired, the property has its numbers, which the same commit sets.  After a rollback to an
earlier snapshot its numbers count: what came after it is loaded again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyarrow import fs

from ottla.model.nearest import nearest_name
from ottla.runtime.clock import SystemClock
from ottla.runtime.installation import install_command
from ottla.spark.errors import LakeError, TableRefused
from ottla.spark.lake.columns import check_partitions, stored_type
from ottla.spark.lake.files import is_task_file, value_text
from ottla.spark.lake.lake_table import (
    ColumnBounds,
    CommitConflict,
    CommitFacts,
    DataFile,
    TableCommit,
)
from ottla.spark.lake.target import (
    ACCESS_KEY,
    ENDPOINT,
    REGION,
    SECRET_KEY,
    SESSION_TOKEN,
    LakeTarget,
    parse_target,
    s3_settings,
)

try:
    from pyiceberg import manifest
    from pyiceberg.catalog import Catalog, list_catalogs, load_catalog
    from pyiceberg.conversions import to_bytes
    from pyiceberg.exceptions import (
        CommitFailedException,
        ForbiddenError,
        NamespaceAlreadyExistsError,
        NoSuchIcebergTableError,
        NoSuchPropertyException,
        NoSuchTableError,
        NotInstalledError,
        OAuthError,
        TableAlreadyExistsError,
        UnauthorizedError,
        ValidationException,
    )
    from pyiceberg.io.pyarrow import pyarrow_to_schema
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, TableProperties
    from pyiceberg.table.snapshots import Snapshot, ancestors_of
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.typedef import Record
    from pyiceberg.types import BooleanType, DateType, IntegerType, LongType, PrimitiveType
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"Iceberg tables need the package pyiceberg: {install_command('iceberg')}", name=error.name
    ) from None

# Another writer was first.
_CONFLICTS: tuple[type[Exception], ...] = (CommitFailedException, ValidationException, TableAlreadyExistsError)
try:
    from sqlalchemy.exc import SQLAlchemyError
except ModuleNotFoundError:  # a catalog in a database needs it, and others do not
    pass
else:
    # It is locked, or another process created the same row first.
    _CONFLICTS = (*_CONFLICTS, SQLAlchemyError)
_REFUSALS: Final = (UnauthorizedError, ForbiddenError, OAuthError)
# Packages whose errors a catalog passes on: AWS's, Hive's (`hive_metastore` and `thrift`), pyiceberg's.
_LIBRARIES: Final = ("pyiceberg", "botocore", "boto3", "hive_metastore", "thrift")

# A file that they are read from ends its line.
_SECRETS: Final = ("token", "credential")
# Python's HTTP client and `requests` quote a header that they refuse.
_QUOTED_HEADER: Final = re.compile(r"^Invalid header |^Header part |\bin header (name|value): ")

T = TypeVar("T")

# Of what several first loads do at once: the database of a new catalog, its tables, a namespace.
_ATTEMPTS_MAX: Final = 10
_PAUSE_MAX_S: Final = 0.5

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NUMBERS: Final = "ottla.numbers"
# Old versions of the metadata that stay; each holds all snapshots.
_METADATA_VERSIONS_MAX: Final = 20
# So many manifests of appended files become one.
_MANIFESTS_MAX: Final = 50
# Lists of files, and of these, as commits name them.
_MANIFEST: Final = re.compile(r"metadata/(snap-[^/]+|[^/]+-m\d+)\.avro")
_NAME_MAPPING: Final = TableProperties.DEFAULT_NAME_MAPPING
# Settings of S3, and pyiceberg's names of them; of several the first counts.
_FILE_PROPERTIES: Final[Mapping[str, tuple[str, ...]]] = {
    ENDPOINT: ("s3.endpoint",),
    ACCESS_KEY: ("s3.access-key-id", "client.access-key-id"),
    SECRET_KEY: ("s3.secret-access-key", "client.secret-access-key"),
    SESSION_TOKEN: ("s3.session-token", "client.session-token"),
    REGION: ("s3.region", "client.region"),
}
_CREDENTIALS: Final = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)


class IcebergLake:
    """A `LakeTable`.  Used on the driver only."""

    def __init__(
        self,
        table: str,
        location: LakeTarget | None,
        catalog: str | Mapping[str, str] | None,
        storage: Mapping[str, str],
        first_schema: pa.Schema | None,
        partition_by: Sequence[str] = (),
    ) -> None:
        """Without `first_schema` the table must be there."""
        if location is not None and storage:
            raise LakeError(
                f"storage settings of {location.url} and others are given", hint="give them to parse_target alone"
            )
        self._given = location
        self._settings = s3_settings(storage, {}) if location is None else location.settings
        self._identifier = table
        self._catalog = _repeated(lambda: _catalog(location, catalog, self._settings))
        self._table = _repeated(lambda: _done(self._open, first_schema, partition_by))
        # Of the snapshot with this id.
        self._known: tuple[int | None, Mapping[str, int]] | None = None
        self._refuse_another_place()
        self._refuse_without_sequence()

    @property
    def name(self) -> str:
        return self._identifier

    @property
    def location(self) -> LakeTarget:
        """With the credentials that the catalog lends for the table, unless others are given."""
        if self._given is not None and not self._given.is_s3:
            return self._given
        url = _place(self._table.location())
        if not url.startswith("s3://"):
            return parse_target(url)
        return parse_target(url, {**self._catalogs_settings(), **self._settings})

    def _catalogs_settings(self) -> dict[str, str]:
        properties = self._table.io.properties
        found = {
            setting: value
            for setting, names in _FILE_PROPERTIES.items()
            if (value := next((properties[name] for name in names if properties.get(name)), None)) is not None
        }
        if ACCESS_KEY in self._settings:
            for setting in _CREDENTIALS:
                found.pop(setting, None)
        return found

    @property
    def version(self) -> int:
        """The sequence number of the newest snapshot, 0 without one."""
        newest = self._table.current_snapshot()
        return 0 if newest is None else newest.sequence_number or 0

    @property
    def schema(self) -> pa.Schema:
        found = self._table.schema().as_arrow()
        return pa.schema([pa.field(field.name, stored_type(field.name, field.type)) for field in found])

    @property
    def partition_by(self) -> tuple[str, ...]:
        schema, fields = self._table.schema(), self._table.spec().fields
        if any(not isinstance(field.transform, IdentityTransform) for field in fields):
            raise TableRefused(
                f"{self.name} is partitioned by {self._table.spec()}", hint="load into a table of its own"
            )
        return tuple(schema.find_column_name(field.source_id) or field.name for field in fields)

    def refresh(self) -> None:
        _repeated(lambda: _done(self._table.refresh))

    def number_of(self, app_id: str) -> int | None:
        return self._numbers().get(app_id)

    def _numbers(self) -> Mapping[str, int]:
        newest = self._table.current_snapshot()
        newest_id = None if newest is None else newest.snapshot_id
        if self._known is None or self._known[0] != newest_id:
            self._known = newest_id, self._read_numbers()
        return self._known[1]

    def _read_numbers(self) -> Mapping[str, int]:
        for snapshot in self._snapshots():
            found: str | None = snapshot.summary[NUMBERS] if snapshot.summary else None
            if found is not None:
                return {app_id: int(number) for app_id, number in json.loads(found).items()}
        kept = json.loads(self._table.properties.get(NUMBERS, "null"))
        if kept is None:
            return {}
        if kept["sequence"] > self.version:
            raise LakeError(
                f"{self.name} was rolled back to a snapshot whose offsets have expired",
                hint="roll it forward again, or load into a new table",
            )
        return {app_id: int(number) for app_id, number in kept["numbers"].items()}

    @property
    def widens_columns(self) -> bool:
        return True

    @property
    def takes_empty_partitions(self) -> bool:
        return True

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        if fields:
            _done(self._add_columns, pa.schema(fields))
            self.refresh()

    def commit(self, commit: TableCommit) -> int:
        _done(self._commit, commit)
        return self.version

    def newest_facts(self, commits_max: int) -> list[CommitFacts]:
        return [
            CommitFacts(each.timestamp_ms, {} if each.summary is None else each.summary.additional_properties)
            for each in islice(self._snapshots(), commits_max)
        ]

    def files(self) -> list[DataFile]:
        return [self._our_file(file, has_deletes) for file, has_deletes in _done(self._their_files)]

    def vacuum(self, older_than_hours: float, *, dry_run: bool) -> list[str]:
        """Files that tasks and commits have written, and no snapshot has.  Older snapshots expire first."""
        before = _EPOCH + timedelta(milliseconds=SystemClock().now_ms(), hours=-older_than_hours)
        if not dry_run:
            _done(self._expire, before)
        needed = _done(self._needed)
        location = self.location
        system, root = location.file_system(), location.root
        found = []
        for info in system.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True)):
            path = info.path.removeprefix(f"{root}/")
            is_file = info.type == fs.FileType.File
            is_ours = is_task_file(path) or _MANIFEST.fullmatch(path) is not None
            if is_file and is_ours and path not in needed and info.mtime < before:
                found.append(path)
        if not dry_run:
            for path in found:
                system.delete_file(f"{root}/{path}")
        return found

    def _needed(self) -> set[str]:
        """The data files of all snapshots, and the manifests that list them."""
        paths = set(self._table.inspect.all_files().column("file_path").to_pylist())
        for snapshot in self._table.snapshots():
            paths.add(snapshot.manifest_list)
            paths.update(each.manifest_path for each in snapshot.manifests(self._table.io))
        return {self._relative(path) for path in paths}

    def _expire(self, before: datetime) -> None:
        """The newest snapshots of branches, and tagged ones, stay."""
        if any(each.timestamp_ms < before.timestamp() * 1000 for each in self._table.snapshots()):
            self._table.maintenance.expire_snapshots().older_than(before).commit()
            self.refresh()

    def _snapshots(self) -> Iterator[Snapshot]:
        """From the newest backwards, as far as they have not expired."""
        newest = self._table.current_snapshot()
        return iter(()) if newest is None else iter(ancestors_of(newest, self._table.metadata))

    def _refuse_another_place(self) -> None:
        """Tasks write below the target, and the table names its files below its own location."""
        found, asked = self._table.location(), self._url
        if asked is not None and _place(found) != _place(asked):
            raise TableRefused(
                f"the table {self.name} is at {found}, and not at {asked}",
                hint="give the table's own place as the target, or another table",
            )

    def _refuse_without_sequence(self) -> None:
        if self._table.metadata.format_version < 2:
            raise TableRefused(
                f"the table {self.name} is of Iceberg's format version 1, whose snapshots have no sequence",
                hint="upgrade it to version 2",
            )

    @property
    def _url(self) -> str | None:
        """None: the catalog decides."""
        if self._given is None:
            return None
        return f"file://{self._given.url}" if self._given.is_local else self._given.url

    def _open(self, first_schema: pa.Schema | None, partition_by: Sequence[str]) -> Table:
        try:
            return self._catalog.load_table(self._identifier)
        except (NoSuchIcebergTableError, NoSuchPropertyException) as error:
            raise LakeError(
                f"{self.name} is in the catalog, and is no Iceberg table: {error}",
                hint="give another name; a Delta table is named by its place (--target)",
            ) from error
        except NoSuchTableError:
            if first_schema is None:
                raise
        # The right to create namespaces is not needed where there is one.
        namespace = Catalog.namespace_from(self._identifier)
        if not self._catalog.namespace_exists(namespace):
            with contextlib.suppress(NamespaceAlreadyExistsError):  # another load created it meanwhile
                self._catalog.create_namespace(namespace)
        return self._create(first_schema, partition_by)

    def _create(self, first_schema: pa.Schema, partition_by: Sequence[str]) -> Table:
        if self._given is not None and self._given.names_in("_delta_log"):
            raise LakeError(
                f"{self._given.url} has a Delta table", hint="load into it without --table, or use another place"
            )
        check_partitions(first_schema, partition_by)
        # Ids as the catalog will give them, so that the partitions can name them.
        schema = pyarrow_to_schema(with_ids(first_schema))
        fields = [
            PartitionField(schema.find_field(name).field_id, 1000 + index, IdentityTransform(), name)
            for index, name in enumerate(partition_by)
        ]
        properties = {
            # Our files know their columns by name.
            _NAME_MAPPING: schema.name_mapping.model_dump_json(),
            # Every commit writes all of the metadata again.
            TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
            TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: str(_METADATA_VERSIONS_MAX),
            # Every commit has a manifest of its own, and every reader reads them all.
            TableProperties.MANIFEST_MERGE_ENABLED: "true",
            TableProperties.MANIFEST_MIN_MERGE_COUNT: str(_MANIFESTS_MAX),
        }
        try:
            return self._catalog.create_table_if_not_exists(
                self._identifier,
                schema,
                location=self._url,
                partition_spec=PartitionSpec(*fields),
                properties=properties,
            )
        except ValueError as error:
            if self._given is not None:
                raise
            raise LakeError(
                f"the catalog has no table {self.name} yet, and no place for it: {error}",
                hint="give the table's place (--target), or the catalog a warehouse or its namespace a location",
            ) from error

    def _add_columns(self, fields: pa.Schema) -> None:
        with self._without_retries().transaction() as transaction, transaction.update_schema() as update:
            update.union_by_name(fields)

    def _without_retries(self) -> Table:
        """A commit after a conflict is decided again, by its numbers; the library does not know how.

        pyiceberg would commit it again as it is.  The property is changed in memory only.
        """
        properties = {**self._table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        self._table.metadata = self._table.metadata.model_copy(update={"properties": properties})
        return self._table

    def _commit(self, commit: TableCommit) -> None:
        numbers = {**self._numbers(), **commit.numbers}
        facts = {**commit.facts, NUMBERS: json.dumps(numbers)}
        removed = {file.path for file in commit.removed}
        theirs = (
            [file for file, _ in self._their_files() if self._relative(file.file_path) in removed] if removed else []
        )
        transaction = self._without_retries().transaction()
        update = transaction.update_snapshot(snapshot_properties=facts)
        with update.overwrite() if removed else update.merge_append() as snapshot:
            for file in theirs:
                snapshot.delete_data_file(file)
            for ours in commit.added:
                snapshot.append_data_file(self._their_file(ours))
        kept = {"sequence": self._table.metadata.next_sequence_number(), "numbers": numbers}
        transaction.set_properties({NUMBERS: json.dumps(kept)})
        transaction.commit_transaction()

    def _their_files(self) -> list[tuple[manifest.DataFile, bool]]:
        """Each with whether files of deletes belong to it."""
        return [(task.file, bool(task.delete_files)) for task in self._table.scan().plan_files()]

    def _their_file(self, file: DataFile) -> manifest.DataFile:
        schema, spec = self._table.schema(), self._table.spec()
        ids = {name: schema.find_field(name).field_id for name in file.bounds}
        least = {
            ids[name]: to_bytes(_kind(schema, name), n)
            for name, each in file.bounds.items()
            if (n := each.least) is not None
        }
        most = {
            ids[name]: to_bytes(_kind(schema, name), n)
            for name, each in file.bounds.items()
            if (n := each.most) is not None
        }
        values = [_value(_kind(schema, name), file.partition[name]) for name in self.partition_by]
        return manifest.DataFile.from_args(
            content=manifest.DataFileContent.DATA,
            file_path=f"{self._table.location().rstrip('/')}/{file.path}",
            file_format=manifest.FileFormat.PARQUET,
            partition=Record(*values),
            file_size_in_bytes=file.size_bytes,
            sort_order_id=None,
            spec_id=spec.spec_id,
            equality_ids=None,
            key_metadata=None,
            record_count=file.rows_count,
            column_sizes={},
            value_counts={ids[name]: file.rows_count for name in file.bounds},
            null_value_counts={ids[name]: each.nulls_count for name, each in file.bounds.items()},
            nan_value_counts={},
            lower_bounds=least,
            upper_bounds=most,
            split_offsets=None,
        )

    def _our_file(self, file: manifest.DataFile, has_deletes: bool) -> DataFile:
        values = [file.partition[index] for index in range(len(self.partition_by))]
        offset = self._table.schema().find_field("offset").field_id
        bounds = [(each or {}).get(offset) for each in (file.lower_bounds, file.upper_bounds)]
        least, most = (None if each is None else int.from_bytes(each, "little", signed=True) for each in bounds)
        return DataFile(
            self._relative(file.file_path),
            dict(zip(self.partition_by, map(value_text, values), strict=True)),
            file.file_size_in_bytes,
            file.record_count,
            pa.schema([field for field in self.schema if field.name not in self.partition_by]),
            {"offset": ColumnBounds(0, least, most)},
            has_deletes,
        )

    def _relative(self, path: str) -> str:
        """Engines may have named the place of earlier files in another form."""
        return _place(path).removeprefix(f"{_place(self._table.location())}/")


def check_catalog(name: str) -> None:
    """Raises `LakeError` where a catalog of pyiceberg's configuration cannot be used."""
    _repeated(lambda: _configured(name))


def with_ids(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [field.with_metadata({b"PARQUET:field_id": str(index).encode()}) for index, field in enumerate(schema, 1)]
    )


def _catalog(
    location: LakeTarget | None, given: str | Mapping[str, str] | None, settings: Mapping[str, str]
) -> Catalog:
    known = {_FILE_PROPERTIES[name][0]: value for name, value in settings.items() if name in _FILE_PROPERTIES}
    if given is None:
        if location is None or not location.is_local:
            raise LakeError(
                f"the Iceberg table{'' if location is None else f' at {location.url}'} needs a catalog",
                hint='give pyiceberg\'s properties of one, as {"type": "sql", "uri": "sqlite:////data/catalog.db"}',
            )
        os.makedirs(os.path.dirname(location.url), exist_ok=True)
        given = {"type": "sql", "uri": f"sqlite:///{location.url}.catalog.db"}
    if isinstance(given, str):
        catalog = _configured(given, **known)
    else:
        place = {} if location is None else {"warehouse": location.url}
        properties = {**place, **known, **given}
        for name in _SECRETS:
            if name in properties:
                properties[name] = properties[name].strip()
        catalog = _done(load_catalog, properties.pop("name", "default"), **properties)
    if location is None:
        _add_environment(catalog)
    return catalog


def _add_environment(catalog: Catalog) -> None:
    """pyiceberg's library of files finds credentials in the environment, and neither the endpoint nor the region."""
    found = s3_settings({}, os.environ)
    for setting in (ENDPOINT, REGION):
        names = _FILE_PROPERTIES[setting]
        if setting in found and not any(name in catalog.properties for name in names):
            catalog.properties[names[0]] = found[setting]


def _configured(name: str, **properties: str) -> Catalog:
    """A catalog of pyiceberg's configuration.  Raises `CommitConflict`, `LakeError`."""
    if name.lower() not in (known := list_catalogs()):
        near = nearest_name(name, known)
        raise LakeError(
            f"the catalog {name!r} is not in pyiceberg's configuration",
            hint=f"did you mean {near}?"
            if near
            else f"set PYICEBERG_CATALOG__{name.upper()}__URI and __TYPE, or write it into ~/.pyiceberg.yaml",
        )
    return _done(load_catalog, name, **properties)


def _repeated(call: Callable[[], T]) -> T:
    """The call's result; one that lost a race against another process is repeated.  Raises `LakeError`."""
    for _ in range(_ATTEMPTS_MAX - 1):
        try:
            return call()
        except CommitConflict:
            time.sleep(random.uniform(0, _PAUSE_MAX_S))
    try:
        return call()
    except CommitConflict as error:
        raise LakeError(f"the Iceberg catalog cannot be used: {error}", hint="try again") from error


def _done(call: Callable[..., T], *arguments: object, **named: object) -> T:
    """The call's result.  Raises `CommitConflict`, `LakeError`."""
    try:
        return call(*arguments, **named)
    except _CONFLICTS as error:
        raise CommitConflict(str(error)) from error
    except NoSuchTableError as error:
        raise LakeError(f"there is no table: {error}", hint="load into it first") from error
    except NotInstalledError as error:
        problem, _, remedy = str(error).partition(": ")
        raise LakeError(f"the catalog cannot be used: {problem}", hint=remedy or None) from error
    except _REFUSALS as error:
        raise LakeError(f"the Iceberg catalog refuses: {error}", hint="check its credentials and rights") from error
    except Exception as error:
        if _QUOTED_HEADER.search(str(error)):
            # The header may be the token.
            raise LakeError(
                "the Iceberg catalog cannot be used: a header of its requests has characters that no header can have",
                hint="check the catalog's token and header.* properties: each is one line",
            ) from None
        if isinstance(error, (OSError, ValueError)) or type(error).__module__.partition(".")[0] in _LIBRARIES:
            raise LakeError(f"the Iceberg table or its catalog failed: {error}") from error
        raise


def _place(url: str) -> str:
    """A location in one form, of those that catalogs and engines write."""
    for scheme, form in (("file://", ""), ("file:", ""), ("s3a://", "s3://"), ("s3n://", "s3://")):
        if url.startswith(scheme):
            url = form + url.removeprefix(scheme)
            break
    return url.rstrip("/")


def _kind(schema: Schema, name: str) -> PrimitiveType:
    kind = schema.find_field(name).field_type
    assert isinstance(kind, PrimitiveType), f"{name} is {kind}"
    return kind


def _value(kind: object, text: str | None) -> Any:
    """A partition's value as Iceberg keeps it; dates are days since 1970."""
    if text is None:
        return None
    if isinstance(kind, BooleanType):
        return text == "true"
    if isinstance(kind, (IntegerType, LongType)):
        return int(text)
    if isinstance(kind, DateType):
        return (date.fromisoformat(text) - date(1970, 1, 1)).days
    return text
