"""Every script against both brokers, and which differences between their answers are known."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.probes.answers import Difference, differences
from tests.interop.probes.scripts import (
    classic_groups,
    committed_offsets,
    configs,
    consumer_groups,
    framing,
    group_configs,
    records,
    topic_partitions,
    topics,
    transactional_records,
    transactions,
)
from tests.interop.probes.talk import Talk

Script = Callable[[Talk], None]

DIFFERENCES_FILE: Final = Path(__file__).with_name("differences.txt")
SETTINGS: Final = {
    "node.id": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "5000",
    "auto.create.topics.enable": "true",
}
# Since 4.2 or later an assignment is computed in another thread, and not more than once in an interval: the answer to a
# heartbeat would depend on its time.
APACHE_KAFKA_SETTINGS: Final = {
    **SETTINGS,
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
    # Else it looks for transactions that ran out of time every ten seconds.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
_MODULES: Final = (
    framing,
    topics,
    topic_partitions,
    records,
    configs,
    group_configs,
    classic_groups,
    committed_offsets,
    consumer_groups,
    transactions,
    transactional_records,
)
SCRIPTS: Final[dict[str, Script]] = {
    name.removeprefix("probe_"): script
    for module in _MODULES
    for name, script in vars(module).items()
    if name.startswith("probe_")
}
# Apache Kafka counts the first join and its subscription separately (4.1 did not): all epochs of such a group are one
# higher than here, and are compared as such.
FIRST_EPOCH_IS_TWO: Final = frozenset({"handover", "848_subscriptions", "848_commits"})
_EPOCHS: Final = frozenset({"member_epoch", "group_epoch", "assignment_epoch"})
_LINE: Final = re.compile(r"(\w+) \| (.+?) \| (.+?) -- (\S.*)")


class Known(NamedTuple):
    """An intended difference; `label` and `field` are patterns as of file names."""

    script: str
    label: str
    field: str
    reason: str

    def covers(self, script: str, difference: Difference) -> bool:
        return (
            script == self.script
            and fnmatch.fnmatchcase(difference.label, self.label)
            and fnmatch.fnmatchcase(difference.field.replace("[", "(").replace("]", ")"), self.field)
        )


def read_known(path: Path = DIFFERENCES_FILE) -> list[Known]:
    """Lines `script | label | field -- reason`; in fields, [0] is written (0).  Raises ValueError with the line."""
    known: list[Known] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = _LINE.fullmatch(line.strip())
        if parts is None:
            raise ValueError(f"{path.name}:{number}: not `script | label | field -- reason`: {line!r}")
        known.append(Known(*parts.groups()))
    return known


def compare(script: str, ottla: str, apache_kafka: str) -> list[Difference]:
    """Run the script against each (`host:port`) and compare."""
    answers = []
    for bootstrap in (ottla, apache_kafka):
        talk = Talk(bootstrap)
        try:
            SCRIPTS[script](talk)
        finally:
            talk.close()
        answers.append(talk.answers)
    return [each for each in differences(*answers) if not is_one_epoch_more(script, each)]


def is_one_epoch_more(script: str, difference: Difference) -> bool:
    return (
        script in FIRST_EPOCH_IS_TWO
        and difference.field.rpartition(".")[2] in _EPOCHS
        and isinstance(difference.ottla, int)
        and difference.apache_kafka == difference.ottla + 1
    )


def unexplained(script: str, found: Sequence[Difference], known: Sequence[Known]) -> list[str]:
    """Sentences: differences that no line covers, and lines of this script that cover none."""
    here = [line for line in known if line.script == script]
    problems = [str(each) for each in found if not any(line.covers(script, each) for line in here)]
    stale = [line for line in here if not any(line.covers(script, each) for each in found)]
    return problems + [f"listed and not there: {line.label} | {line.field} ({line.reason})" for line in stale]
