"""Which member of a consumer group gets which partition: the assignors that run in the broker (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.groups.assignors.assignor import Assignment, Assignor, MemberSpec
from ottla.groups.assignors.range import RangeAssignor
from ottla.groups.assignors.uniform import UniformAssignor

__all__ = ["ASSIGNORS", "DEFAULT_ASSIGNOR", "Assignment", "Assignor", "MemberSpec"]

DEFAULT_ASSIGNOR: Final = UniformAssignor.name
ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {UniformAssignor.name: UniformAssignor(), RangeAssignor.name: RangeAssignor()}
)
