"""The state of the run, collected from the processes' messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.audit.comparison import TierLine
from ottla.audit.results import result_from_json
from ottla.demo.messages import Audited, Checked, Loaded, Message, Produced, Producing, Running, SetAside, Watched


class Stage(NamedTuple):
    """A stage of the jobs; `took_ms` is None while it runs."""

    name: str
    took_ms: int | None


@dataclass(slots=True)
class Progress:
    """`acknowledged` and `produced` by producing process; results that have not arrived yet are None."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    produced: dict[str, Produced] = field(default_factory=dict)
    watched: Watched = field(default_factory=lambda: Watched(0, 0, 0, [], 0))
    loaded: Loaded | None = None
    set_aside: SetAside | None = None
    audited: Audited | None = None
    checked: Checked | None = None
    _begun: list[Running] = field(default_factory=list)

    def take(self, name: str, message: Message) -> None:
        match message:
            case Producing():
                self.acknowledged[name] = message.acknowledged_count
            case Produced():
                self.produced[name] = message
                self.acknowledged[name] = message.acknowledged_count
            case Watched():
                self.watched = message
            case Running():
                self._begun.append(message)
            case Loaded():
                self.loaded = message
            case SetAside():
                self.set_aside = message
            case Audited():
                self.audited = message
            case Checked():
                self.checked = message

    @property
    def acknowledged_count(self) -> int:
        return sum(self.acknowledged.values())

    @property
    def producing_ms(self) -> int:
        """From the first process's first event to the last acknowledgement."""
        ended = self.produced.values()
        return max(each.ended_ms for each in ended) - min(each.began_ms for each in ended)

    @property
    def caught_up_ms(self) -> int:
        """The time from the last acknowledgement until the online consumer had everything; 0 when it was faster."""
        return max(0, self.watched.latest_ms - max(each.ended_ms for each in self.produced.values()))

    @property
    def stages(self) -> list[Stage]:
        """The jobs' stages so far, in their order."""
        moments = [each.began_ms for each in self._begun[1:]]
        ends = [*moments, None if self.audited is None else self.audited.ended_ms]
        return [
            Stage(each.stage, None if end_ms is None else end_ms - each.began_ms)
            for each, end_ms in zip(self._begun, ends, strict=False)
        ]

    @property
    def tier_lines(self) -> list[TierLine]:
        """What the audit has compared: each topic, hour and tier."""
        assert self.audited is not None, "the audit has not run"
        return [result_from_json(line.encode())[0] for line in self.audited.lines]
