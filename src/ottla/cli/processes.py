"""`ottla serve --processes N`: the brokers of one data directory, and the supervisor that is this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from ottla.broker.net.listener import CHOOSE_ANOTHER, AddressTaken, bind
from ottla.broker.processes.plan import (
    admin_address,
    has_several_replicas,
    planned,
    require_supported,
    settings_of,
)
from ottla.broker.processes.ports import hold_ports
from ottla.broker.processes.recorded import BrokerProcess, fingerprint_of
from ottla.broker.processes.supervisor import stop_left, supervise
from ottla.cli.output import say
from ottla.coordination.local import SOCKET_FILE
from ottla.maintenance.resize import is_resize_due, resize
from ottla.maintenance.resize_steps import ResizeResult
from ottla.model.broker_settings import NODE_ID, TREE_SOCKET, ZOOKEEPER_CONNECT
from ottla.model.counted import listed
from ottla.model.errors import ConfigError
from ottla.model.identifiers import NodeId
from ottla.model.listener import address_text
from ottla.model.partition_state import NO_BROKER_EPOCH
from ottla.model.serve_options import ServeOptions
from ottla.model.version import __version__
from ottla.runtime.event_loop import run
from ottla.runtime.posix_disk import PosixDisk
from ottla.runtime.process import raise_open_files_limit, usable_cores_count
from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.directory.log_completeness import record_complete_from
from ottla.storage.directory.process_places import (
    PROCESSES_FILE,
    ProcessPlaces,
    folder_of,
    read_places,
    remove_places,
    write_places,
)
from ottla.storage.errors import DirectoryLocked, DirectoryUnusable, ForeignDirectory

PROCESSES_MAX: Final = 64
# As many as there are cores, and no fewer than before.
AUTO: Final = "auto"
LOWERED_SHOWN_MAX: Final = 5
LEFT_SHOWN_MAX: Final = 5


class ServeFlags(NamedTuple):
    """The flags of `ottla serve` that each broker gets as they were given."""

    config: Path | None
    assignments: Sequence[str]
    insecure_listen: bool
    log_level: str


def serve_processes(options: ServeOptions, processes: str | None, flags: ServeFlags) -> int | None:
    """Run the brokers until they are stopped; the exit status, or None where one broker without a supervisor serves.

    `processes` is the flag, None where it is not given.  Raises `OttlaError`.
    """
    given_count = None if processes is None else _count_of(processes)
    data_dir, disk = os.path.abspath(options.data_dir), PosixDisk()
    if given_count is not None and given_count > 1:
        _require_own_tree(options)
    saved = read_places(disk, data_dir)
    count = given_count
    if processes == AUTO and given_count is not None and saved is not None:
        # A container with a smaller share for a while must not move partitions, twice.
        count = max(given_count, len(saved.brokers))
    if saved is None and (count is None or count == 1):
        return None
    if sys.platform != "linux":
        raise ConfigError(
            "--processes needs Linux: elsewhere the kernel does not spread the connections of a port over processes",
            hint="leave it out, or run Ottla in a container or a virtual machine with Linux",
        )
    _require_descriptors_of_processes()
    first_node_id = _node_id(disk, data_dir, options)
    with ExitStack() as closing:
        _claim_folder(disk, data_dir, first_node_id, saved, closing)
        places = planned(saved, count, first_node_id, options, _free_port)
        require_supported(options, len(places.brokers))
        commands = {
            place.node_id: _command(places, index, options, data_dir, flags)
            for index, place in enumerate(places.brokers)
        }
        node_ids = [each.node_id for each in places.brokers]
        is_changed = len(node_ids) == 1 or is_resize_due(disk, data_dir, node_ids)
        fingerprint = _fingerprint(flags.config)

        def is_wanted(process: BrokerProcess) -> bool:
            # One that was not ready yet is started again: nothing would say when it is, or why it ended.
            is_same = (process.command, process.fingerprint) == (commands.get(process.node_id), fingerprint)
            return not is_changed and is_same and process.is_ready

        left = stop_left(data_dir, is_wanted)
        _prepare_first(disk, data_dir, first_node_id, left, was_standalone=saved is None)
        if is_changed:
            report(run(resize(data_dir, node_ids, lambda: write_places(disk, data_dir, places))))
        if len(node_ids) == 1:
            remove_places(disk, data_dir)
            return None
        _hold_ports(places, left, closing)
        write_places(disk, data_dir, places)
        if has_several_replicas(options):
            say("note: replicas on one machine protect against the loss of one process's directory only", err=True)
        raise_open_files_limit()
        bootstrap = ",".join(address_text(each.host, each.port) for each in places.listeners)
        admin = options.admin_listener
        uses_tls = any(each.uses_tls for each in options.listeners) or (admin is not None and admin.uses_tls)
        supervising = supervise(
            data_dir, commands, left, bootstrap, fingerprint=fingerprint, reloads_certificates=uses_tls
        )
        return run(supervising)


def report(result: ResizeResult) -> None:
    """What a user must know of a change of the number of processes."""
    if result.lowered:
        partitions = listed([*map(str, result.lowered)], LOWERED_SHOWN_MAX)
        say(f"note: there are fewer processes than {partitions} had replicas: they have fewer now", err=True)
    for path, names in result.kept:
        left = f"these are left in it: {listed(names, LEFT_SHOWN_MAX)}" if names else "is a mount point or a link"
        say(f"note: {path} has no partitions any more, and {left}: remove it yourself", err=True)


def _count_of(text: str) -> int:
    if text == AUTO:
        return min(usable_cores_count(), PROCESSES_MAX)
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= PROCESSES_MAX:
        raise ConfigError(
            f"--processes {text!r} is no count of processes", hint=f"write a number from 1 to {PROCESSES_MAX}, or auto"
        )
    return int(text)


def _require_descriptors_of_processes() -> None:
    """Before anything is written: a broker that cannot be watched must not be started."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        raise ConfigError(
            f"--processes needs descriptors of processes (pidfd_open), and this system has none for it: {error}",
            hint="it needs Linux 5.3 or later, a Python that was built for it, and a container whose rules (seccomp) "
            "allow the call; or leave --processes out",
        ) from None


def _require_own_tree(options: ServeOptions) -> None:
    for setting in (ZOOKEEPER_CONNECT, TREE_SOCKET):
        if options.settings[setting] is not None:
            raise ConfigError(
                f"--processes is for the brokers of one machine, and {setting.name} names a tree that others share",
                hint="leave one of them out; several brokers of a cluster on one machine are several `ottla serve`, "
                "each with its own node.id, --data-dir and port",
            )


def _node_id(disk: PosixDisk, data_dir: str, options: ServeOptions) -> NodeId:
    given = options.settings.given(NODE_ID)
    found = None if given is not None else directory_tree.node_id_of(disk, data_dir)
    return NodeId(options.settings[NODE_ID] if found is None else found)


def _claim_folder(
    disk: PosixDisk, data_dir: str, node_id: NodeId, saved: ProcessPlaces | None, closing: ExitStack
) -> None:
    """Make the supervisor's folder, and keep other supervisors out of it.  Raises `OttlaError`."""
    folder, lock = folder_of(data_dir), FileLock()
    try:
        disk.make_directory(data_dir)
        # Before anything is written there.
        directory_identity.check(disk, data_dir, node_id, None)
        home = directory_tree.shared_home(disk, data_dir)
        if home == directory_tree.SHARED:
            directory_tree.require_own_tree(disk, data_dir)
        if home == directory_tree.OF_PROCESSES and saved is None:
            raise ForeignDirectory(
                f"{data_dir} was served by several processes, and {folder}/{PROCESSES_FILE} is not there",
                hint="restore the file from a backup: it names the brokers that have its partitions",
            )
        disk.make_directory(folder)
        lock.acquire(folder)
    except DirectoryLocked as error:
        hint = "another `ottla serve` runs these brokers: stop it first, or choose another --data-dir"
        raise DirectoryLocked(str(error), hint=hint) from None
    except OSError as error:
        raise DirectoryUnusable(f"{data_dir} cannot be a data directory: {error.strerror or error}") from error
    closing.callback(lock.release)


def _prepare_first(
    disk: PosixDisk, data_dir: str, node_id: NodeId, left: Sequence[BrokerProcess], *, was_standalone: bool
) -> None:
    """Claim the data directory for its first broker.  Raises `OttlaError`."""
    if any(process.node_id == node_id for process in left):
        return
    lock = FileLock()
    directory_identity.claim(disk, data_dir, node_id, lock)
    try:
        if was_standalone and directory_tree.cluster_id_of(disk, data_dir) is not None:
            # As after `ottla cluster adopt`: its logs hold all that it reported so far.
            record_complete_from(disk, data_dir, NO_BROKER_EPOCH)
    finally:
        lock.release()


def _command(
    places: ProcessPlaces, index: int, options: ServeOptions, data_dir: str, flags: ServeFlags
) -> tuple[str, ...]:
    """The command of the broker at `index`: the user's, with what is its own over it."""
    place = places.brokers[index]
    python = [sys.executable, *(["-P"] if sys.flags.safe_path else [])]
    words = [*python, "-m", "ottla", "serve", "--data-dir", place.path(data_dir)]
    if flags.config is not None:
        words += ["--config", str(flags.config)]
    socket_path = f"{folder_of(data_dir)}/{SOCKET_FILE}"
    own = [f"{name}={text}" for name, text in settings_of(places, index, options, socket_path).items()]
    for assignment in (*flags.assignments, *own):
        words += ["--set", assignment]
    admin = admin_address(options, index)
    if admin is not None:
        words += ["--admin-listen", f"{admin.url_scheme}://{address_text(admin.host, admin.port)}"]
    if flags.insecure_listen:
        words.append("--insecure-listen")
    return (*words, "--log-level", flags.log_level, "--log-broker", str(place.node_id), "--start-line")


def _fingerprint(config: Path | None) -> str:
    """Raises `ConfigError`."""
    try:
        content = b"" if config is None else config.read_bytes()
    except OSError as error:
        raise ConfigError(f"{config} cannot be read: {error.strerror}", hint="is it removed at this moment?") from error
    return fingerprint_of(__version__, content, os.environ)


def _hold_ports(places: ProcessPlaces, left: Sequence[BrokerProcess], closing: ExitStack) -> None:
    """Raises `ConfigError`."""
    try:
        hold_ports(places, {process.node_id for process in left}, closing)
    except AddressTaken as error:
        from ottla.cli.port_holder import holder_of

        error.hint = f"{holder_of(error.host, error.port)}: {CHOOSE_ANOTHER}"
        raise


def _free_port(host: str) -> int:
    with bind(host, 0, listens=False) as listening:
        address: tuple[str, int] = listening.getsockname()[:2]
        return address[1]
