"""The quotas: read before the first client connects, and followed as the tree changes."""

from __future__ import annotations

from typing import Final

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.tree_parts import TreeParts
from ottla.broker.events import Event
from ottla.broker.net.address_limits import AddressLimits
from ottla.broker.net.client_quotas import ClientQuotas, Muting, QuotasOf
from ottla.broker.quotas.quota_limits import QuotaLimits
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.quotas.rate import Window
from ottla.broker.quotas.stored_quotas import quotas_in
from ottla.broker.quotas.usage import QuotaUsage
from ottla.coordination.configs import ConfigsView
from ottla.model import broker_settings as setting
from ottla.runtime.loop_offload import Timers


class QuotaParts:
    """`limits_changed` is reported when the first quota of a client was set, or the last one deleted."""

    def __init__(self, quotas: Quotas, addresses: AddressLimits, timers: Timers) -> None:
        self.quotas: Final = quotas
        self.addresses: Final = addresses
        self.limits_changed: Final[Event[[]]] = Event()
        self._timers: Final = timers

    def follow(self, view: ConfigsView) -> None:
        """These are the settings of the tree now."""
        found, before = quotas_in(view), self.quotas.limits
        if found == before.by_entity:
            return
        after = QuotaLimits(before.version + 1, found)
        self.quotas.follow(after)
        if after.has_clients is not before.has_clients:
            self.limits_changed()

    def quotas_of(self, connection: Muting, principal: str) -> ClientQuotas | None:
        """`QuotasOf` a listener for clients."""
        if not self.quotas.limits.has_clients:
            return None
        return ClientQuotas(self.quotas, connection, principal.partition(":")[2], self._timers)

    def of_listener(self, name: str, inter_broker_name: str | None) -> QuotasOf | None:
        """None on a listener for brokers, whose requests are not throttled."""
        return None if name == inter_broker_name else self.quotas_of


def start_quotas(start: BrokerStart, tree: TreeParts) -> QuotaParts:
    """Raises `ConfigError`."""
    settings = start.settings
    sample_ms = settings[setting.QUOTA_WINDOW_SIZE_SECONDS] * 1_000
    usage = QuotaUsage(
        Window(settings[setting.QUOTA_WINDOW_NUM], sample_ms),
        Window(
            settings[setting.CONTROLLER_QUOTA_WINDOW_NUM],
            settings[setting.CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * 1_000,
        ),
    )
    quotas = Quotas(usage, start.clock, sample_ms)
    overrides = setting.parse_address_counts(settings[setting.MAX_CONNECTIONS_PER_IP_OVERRIDES])
    parts = QuotaParts(quotas, AddressLimits(quotas, settings[setting.MAX_CONNECTIONS_PER_IP], overrides), start.loop)
    parts.follow(tree.coordination.configs.view)
    start.events.configs_changed.subscribe(parts.follow)
    return parts
