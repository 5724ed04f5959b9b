"""All faults by their names, and which of them need namespaces of the run's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.cluster.disk_faults import DISK_FAULTS
from tests.cluster.faults import FAULTS
from tests.cluster.network_faults import NETWORK_FAULTS
from tests.cluster.target import Fault

PRIVATE_FAULTS: Final[Mapping[str, Fault]] = {**DISK_FAULTS, **NETWORK_FAULTS}
ALL_FAULTS: Final[Mapping[str, Fault]] = {**FAULTS, **PRIVATE_FAULTS}
