"""What `ottla cluster up` starts, and in whose directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ottla.client.wire.destination.local_cluster import LocalCluster, LocalClusterError
from ottla.model.counted import counted
from ottla.model.listener import PORT_MAX

_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


@contextmanager
def claimed_local_cluster(data_dir: Path) -> Iterator[None]:
    """Make the directory if it is new, and keep every other `cluster up` out of it meanwhile.

    Raises `LocalClusterError` when another one has it, or when it is a broker's own, which is not changed.
    """
    from ottla.storage.checkpoints import META_PROPERTIES_FILE
    from ottla.storage.directory.directory_lock import FileLock
    from ottla.storage.errors import DirectoryLocked

    if (data_dir / META_PROPERTIES_FILE).exists():
        raise LocalClusterError(
            f"{data_dir} is the data directory of one broker: it holds {META_PROPERTIES_FILE}",
            hint="choose another --data-dir for the cluster; `ottla serve --data-dir` starts that broker",
        )
    lock = FileLock()
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock.acquire(str(data_dir))
    except DirectoryLocked as error:
        raise LocalClusterError(
            f"another `ottla cluster up` has this directory: {error}",
            hint="end that one first, or choose another --data-dir (and --port 0 for free ports)",
        ) from None
    except OSError as error:
        raise LocalClusterError(
            f"{data_dir} cannot be the directory of a cluster: {error.strerror or error}",
            hint="choose another --data-dir, where this user may write",
        ) from None
    try:
        yield
    finally:
        lock.release()


def planned(
    saved: LocalCluster | None,
    brokers_count: int | None,
    port: int | None,
    zookeeper_port: int | None,
    racks: Sequence[str] = (),
    settings: Mapping[str, str] = _NO_SETTINGS,
    *,
    has_zookeeper: bool = False,
    is_secure: bool = False,
) -> LocalCluster:
    """What to start: as saved, unless flags say otherwise.  The first port is `port`, and the others follow it.

    A setting without a value is one that was saved, and holds no more.  Raises `LocalClusterError` for fewer brokers
    than there were, whose replicas would be missing without a word, for brokers without a rack beside others, for a
    plain cluster that should be secure: its tree is elsewhere, and open; and for one that should get a ZooKeeper.
    """
    if saved is not None and is_secure and not saved.is_secure:
        raise LocalClusterError(
            "this cluster was made without --secure",
            hint="choose another --data-dir for a secure one, and copy its topics with `ottla mirror`",
        )
    wants_zookeeper = has_zookeeper or zookeeper_port is not None or is_secure
    if saved is not None and wants_zookeeper and not saved.has_zookeeper:
        raise LocalClusterError(
            "this cluster was made without a ZooKeeper, and its topics are in the tree that it has",
            hint="choose another --data-dir for one with --zookeeper, and copy its topics with `ottla mirror`",
        )
    count = brokers_count or (3 if saved is None else len(saved.ports))
    if saved is not None and count < len(saved.ports):
        known = counted(len(saved.ports), "broker")
        raise LocalClusterError(
            f"the cluster has {known}, and {count} would leave out the replicas of the others",
            hint=f"start it with --brokers {len(saved.ports)}, or without the flag",
        )
    if port is None and saved is not None:
        ports = (*saved.ports, *(saved.ports[-1] + number for number in range(1, count - len(saved.ports) + 1)))
    elif port == 0:
        ports = (0,) * count
    else:
        first = 9092 if port is None else port
        ports = tuple(range(first, first + count))
    racks = tuple(racks) if racks or saved is None else saved.racks
    if racks and len(racks) != count:
        raise LocalClusterError(
            f"known: {counted(len(racks), 'rack')} for {counted(count, 'broker')}",
            hint="give --rack for each broker, in order",
        )
    if max(ports) > PORT_MAX:
        raise LocalClusterError(f"port {max(ports)} is above {PORT_MAX}", hint="choose a lower --port")
    if zookeeper_port is None and saved is not None:
        zookeeper_port = saved.zookeeper_port
    elif zookeeper_port is None and wants_zookeeper:
        zookeeper_port = 0 if port == 0 else 2181
    wanted = {**({} if saved is None else saved.settings), **settings}
    is_secure = is_secure if saved is None else saved.is_secure
    kept = {name: value for name, value in wanted.items() if value}
    return LocalCluster(zookeeper_port, ports, racks, kept, is_secure)
