"""All faults by their names, and which of them need namespaces of the run's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.cluster.disk_faults import DISK_FAULTS
from tests.cluster.faults import FAULTS
from tests.cluster.network_faults import NETWORK_FAULTS
from tests.cluster.scripted_orders import SCRIPTED_ORDERS, power_cut_all_unflushed
from tests.cluster.target import Fault

PRIVATE_FAULTS: Final[Mapping[str, Fault]] = {**DISK_FAULTS, **NETWORK_FAULTS, **SCRIPTED_ORDERS}
ALL_FAULTS: Final[Mapping[str, Fault]] = {**FAULTS, **PRIVATE_FAULTS}
# Loses records by intent: only the controls do it.
CONTROL_FAULTS: Final[Mapping[str, Fault]] = {"power-cut-all-unflushed": power_cut_all_unflushed}
