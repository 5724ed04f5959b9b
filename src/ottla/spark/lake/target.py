"""The place of a lake table's files: a URL and its storage settings, for the table's library and for tasks that write.

`/data/lake`, `file:///data/lake`, `s3://bucket/prefix` (`s3a://` too), `hdfs://namenode:8020/lake`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from ottla.model.nearest import nearest_name
from ottla.spark.errors import LakeError

# The storage settings, named as AWS's environment variables; the environment's count where none is given.
ACCESS_KEY: Final = "AWS_ACCESS_KEY_ID"
SECRET_KEY: Final = "AWS_SECRET_ACCESS_KEY"
SESSION_TOKEN: Final = "AWS_SESSION_TOKEN"
REGION: Final = "AWS_REGION"
DEFAULT_REGION: Final = "AWS_DEFAULT_REGION"
ENDPOINT: Final = "AWS_ENDPOINT_URL"
S3_ENDPOINT: Final = "AWS_ENDPOINT_URL_S3"
ALLOW_HTTP: Final = "AWS_ALLOW_HTTP"
S3_SETTINGS: Final = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, REGION, ENDPOINT, ALLOW_HTTP)
_SAME_AS: Final = {DEFAULT_REGION: REGION, S3_ENDPOINT: ENDPOINT}

_LOCAL_MASTERS: Final = ("local", "local[", "local-cluster[")


@dataclass(frozen=True, slots=True)
class LakeTarget:
    """A table's place.  Small and picklable: tasks on other machines open it too, with the settings of the driver.

    `url`: an absolute path where the table is on this machine.  `settings`: those of S3, else none.
    """

    url: str
    settings: Mapping[str, str] = field(repr=False)

    @property
    def is_local(self) -> bool:
        return self.url.startswith("/")

    @property
    def is_s3(self) -> bool:
        return self.url.startswith("s3://")

    @property
    def storage_options(self) -> dict[str, str] | None:
        """For deltalake."""
        return dict(self.settings) or None

    @property
    def root(self) -> str:
        """The table's path inside of its file system, without a slash at the end."""
        if self.is_local:
            return self.url
        parts = urlsplit(self.url)
        return (parts.netloc + parts.path if self.is_s3 else parts.path).rstrip("/")

    def file_system(self) -> fs.FileSystem:
        """Not to be pickled: each process opens its own.  Raises `LakeError`."""
        if self.is_local:
            return fs.LocalFileSystem()
        if self.is_s3:
            return self._s3()
        return self._hdfs()

    def names_in(self, directory: str) -> list[str]:
        """Of the files in a directory below the table's place; none where there is no such directory."""
        found = self.file_system().get_file_info(fs.FileSelector(f"{self.root}/{directory}", allow_not_found=True))
        return [info.base_name for info in found]

    def join(self, *names: str) -> LakeTarget:
        return LakeTarget("/".join((self.url.rstrip("/"), *names)), self.settings)

    def refuse_remote_master(self, master: str) -> None:
        """Raises `LakeError` for a path of this machine and a Spark whose tasks run on others."""
        if self.is_local and not master.startswith(_LOCAL_MASTERS):
            raise LakeError(
                f"the table {self.url} is on this machine, Spark runs on {master}",
                hint="name a target that every worker reaches (s3://bucket/prefix, hdfs://...), or use a local master",
            )

    def _s3(self) -> fs.FileSystem:
        endpoint = self.settings.get(ENDPOINT)
        parts = urlsplit(endpoint) if endpoint else None
        return fs.S3FileSystem(
            access_key=self.settings.get(ACCESS_KEY),
            secret_key=self.settings.get(SECRET_KEY),
            session_token=self.settings.get(SESSION_TOKEN),
            region=self.settings.get(REGION),
            scheme=parts.scheme if parts else None,
            endpoint_override=parts.netloc if parts else None,
        )

    def _hdfs(self) -> fs.FileSystem:
        parts = urlsplit(self.url)
        try:
            return fs.HadoopFileSystem(parts.hostname or "default", parts.port or 0)
        except OSError as error:
            raise LakeError(
                f"{self.url} cannot be opened: {error}",
                hint="hdfs:// needs Hadoop's libhdfs: set ARROW_LIBHDFS_DIR, HADOOP_HOME, JAVA_HOME and CLASSPATH "
                "(`hadoop classpath --glob`) on the driver and on every worker",
            ) from error


def parse_target(
    target: str | Path | LakeTarget,
    storage: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> LakeTarget:
    """`storage`: settings of S3 by AWS's names, in any case; the others are taken from the environment's variables.

    Raises `LakeError` for a URL that cannot be used, and for a setting that is unknown or not the target's.
    """
    if isinstance(target, LakeTarget):
        return target
    url = os.fspath(target)
    scheme, _, _ = url.partition("://")
    if "://" not in url:
        parsed = LakeTarget(os.path.abspath(url), {})
    elif scheme == "file":
        parsed = LakeTarget(_file_path(url), {})
    elif scheme in {"s3", "s3a"}:
        return LakeTarget(_s3_url(url), s3_settings(storage or {}, os.environ if environment is None else environment))
    elif scheme == "hdfs":
        parsed = LakeTarget(url.rstrip("/"), {})
    else:
        raise LakeError(
            f"the target {url!r} cannot be used", hint="use a path, file:///, s3://bucket/prefix or hdfs://"
        )
    if storage:
        raise LakeError(f"{parsed.url} has no setting {min(storage)!r}", hint="storage settings are those of S3")
    return parsed


def _file_path(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
        raise LakeError(f"the target {url!r} names another machine", hint="write file:///path with three slashes")
    return os.path.abspath(unquote(parts.path))


def _s3_url(url: str) -> str:
    parts = urlsplit(url)
    if not parts.netloc or parts.query or parts.fragment:
        raise LakeError(f"the target {url!r} is no S3 URL", hint="write s3://bucket/prefix")
    return f"s3://{parts.netloc}{parts.path.rstrip('/')}"


def s3_settings(storage: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """By the names of `S3_SETTINGS`; those of `storage` win.  Raises `LakeError` for an unknown name."""
    given: dict[str, str] = {}
    for name, value in storage.items():
        known = name.upper() if name.upper().startswith("AWS_") else f"AWS_{name.upper()}"
        if known not in S3_SETTINGS and known not in _SAME_AS:
            nearest = nearest_name(known, S3_SETTINGS)
            hint = f"did you mean {nearest}?" if nearest else f"known: {', '.join(S3_SETTINGS)}"
            raise LakeError(f"the storage setting {name!r} is unknown", hint=hint)
        given[_SAME_AS.get(known, known)] = value
    has_credentials = ACCESS_KEY in given
    for name in (S3_ENDPOINT, DEFAULT_REGION, *S3_SETTINGS):
        # A token of the environment belongs to the environment's key.
        if environment.get(name) and not (has_credentials and name in {SECRET_KEY, SESSION_TOKEN}):
            given.setdefault(_SAME_AS.get(name, name), environment[name])
    endpoint = given.get(ENDPOINT)
    if endpoint is not None:
        _check_endpoint(endpoint, given)
    return given


def _check_endpoint(endpoint: str, given: dict[str, str]) -> None:
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/"):
        raise LakeError(f"{ENDPOINT} is {endpoint!r}", hint="write http://host:port or https://host:port")
    if parts.scheme == "http" and given.setdefault(ALLOW_HTTP, "true").lower() != "true":
        raise LakeError(f"{ENDPOINT} is {endpoint!r}, and {ALLOW_HTTP} forbids it", hint=f"set {ALLOW_HTTP}=true")
    # Servers other than Amazon's take any region, and both libraries want one.
    given.setdefault(REGION, "us-east-1")
