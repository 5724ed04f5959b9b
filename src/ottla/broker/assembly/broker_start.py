"""One start of a broker: what it was given, what it closes at the end, and the events between its parts."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import NamedTuple

from ottla.broker.events import BrokerEvents
from ottla.broker.net.socket_loop import SocketLoop
from ottla.broker.tree.tree_backend import TreeBackend
from ottla.coordination.tree_retries import TreeRetries
from ottla.model.identifiers import NodeId
from ottla.model.serve_options import ServeOptions
from ottla.model.settings import BrokerSettings
from ottla.runtime.clock import Clock
from ottla.runtime.posix_disk import PosixDisk


class BrokerStart(NamedTuple):
    """Each step takes it, and pushes on `closing` what ends the parts that it has started."""

    options: ServeOptions
    # With the node id that the data directory has, in a cluster.
    settings: BrokerSettings
    node_id: NodeId
    # No other broker can share the tree.
    is_sole: bool
    # The tree that other brokers of this process share; the caller closes it.  None: it follows from the options.
    backend: TreeBackend | None
    clock: Clock
    loop: asyncio.AbstractEventLoop
    disk: PosixDisk
    # None: those of the operating system, unchanged.
    sockets: SocketLoop | None
    # None: the number of open files is not limited.
    open_files_max: int | None
    # How long calls of the tree are repeated during the start.
    retries: TreeRetries
    events: BrokerEvents
    closing: AsyncExitStack
