"""The periodic work beside the requests, and the processes beside the broker's."""

from __future__ import annotations

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.listening import Listening
from ottla.broker.assembly.log_parts import OpenLogs
from ottla.broker.upkeep.compaction import Compaction
from ottla.broker.upkeep.housekeeping import Housekeeping
from ottla.model import broker_settings as setting


def start_housekeeping(start: BrokerStart, logs: OpenLogs) -> Housekeeping:
    housekeeping = Housekeeping(
        logs.directory,
        logs.partitions,
        start.clock,
        start.loop,
        start.settings[setting.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS],
    )
    start.closing.push_async_callback(housekeeping.stop)
    housekeeping.start()
    return housekeeping


def start_compaction(start: BrokerStart, logs: OpenLogs) -> None:
    settings = start.settings
    if not settings[setting.LOG_CLEANER_ENABLE]:
        return
    compaction = Compaction(
        logs.directory,
        start.clock,
        settings[setting.LOG_CLEANER_BACKOFF_MS],
        settings[setting.LOG_CLEANER_DEDUPE_BUFFER_SIZE],
        settings[setting.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND],
    )
    start.closing.push_async_callback(compaction.stop)
    compaction.start()


def start_audit(start: BrokerStart, listening: Listening) -> None:
    settings = start.settings
    if not settings[setting.AUDIT_ENABLE]:
        return
    # Most brokers run without it.
    from ottla.broker.child_processes import audit_process

    listener = start.options.processes_listener_index
    assert listener is not None, "the options were checked"
    counting = audit_process(
        listening.addresses[listener],
        start.node_id,
        settings[setting.AUDIT_WINDOW_MS],
        settings[setting.AUDIT_INTERVAL_MS],
        settings[setting.PROCESSES_COMMAND_CONFIG],
        start.clock,
    )
    start.closing.push_async_callback(counting.stop)
    counting.start()
