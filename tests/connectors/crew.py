"""The members of a run's groups and its feeds, each a process, and their journals so far."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from ottla.model.identifiers import TopicPartition
from ottla.testing.running import pause_process
from tests.connectors.journal import Entry, Handed, Joined, JournalReader, Left, Sent, now_ns
from tests.connectors.member import MemberSpec
from tests.connectors.progress import Disturbance, Progress, StallWatch
from tests.eventually import eventually

# Generous: only a process that hangs reaches it.
ENDS_WITHIN_S: Final = 90.0
LINES_SHOWN: Final = 25
PLAIN_MEMBER: Final = (sys.executable, "-m", "tests.connectors.member")
FEED: Final = (sys.executable, "-m", "tests.connectors.feed")


class GroupPlace(NamedTuple):
    """The home of the groups, and how long a member may be silent there."""

    bootstrap: str | None
    zookeeper: str | None
    session_timeout_ms: int


@dataclass(eq=False)
class MemberProcess:
    spec: MemberSpec
    process: subprocess.Popen[bytes]
    output: Path
    is_paused: bool = False

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def group(self) -> str:
        return self.spec.group

    def describe_end(self, status: int | None) -> str:
        """Its exit status and its last lines of output."""
        how = f"did not end within {ENDS_WITHIN_S:.0f} s" if status is None else f"ended with status {status}"
        lines = self.output.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
        return "\n".join([f"{self.name} {how}; its last lines:", *(f"  {line}" for line in lines or ["(none)"])])


class Crew:
    """All files are in `directory`; `place` names the home of the groups, `command` starts a member."""

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        topic: str,
        place: GroupPlace,
        command: Sequence[str] = PLAIN_MEMBER,
    ) -> None:
        self._directory = directory
        self._bootstrap = bootstrap
        self.topic = topic
        self._place = place
        self._command = command
        self._readers: list[JournalReader] = []
        self._names_count = 0
        self._feeds: list[subprocess.Popen[bytes]] = []
        self._feed_outputs: list[Path] = []
        self.partitions_count = 0
        self.members: list[MemberProcess] = []
        # Of all members so far.
        self.joined: dict[str, Joined] = {}
        self.left: dict[str, Left] = {}
        self.sent: list[Sent] = []
        self.groups: dict[str, Progress] = {}
        self.disturbances: list[Disturbance] = []
        self.problems: list[str] = []
        self._stalls = StallWatch()
        self._stalls.start()

    def feed(self, partitions_count: int, per_second: float) -> None:
        """Start a feed for the partitions that have none yet, with this many messages a second to each."""
        first, self.partitions_count = self.partitions_count, partitions_count
        name = f"feed{len(self._feeds)}"
        altogether = per_second * (partitions_count - first)
        arguments = (name, self._bootstrap, self.topic, str(first), str(partitions_count), str(altogether))
        process, output = self._launch(FEED, name, arguments)
        self._feeds.append(process)
        self._feed_outputs.append(output)

    def join(self, group: str, *, streams_count: int = 1, work_ms: float = 0.0, commit_every: int = 0) -> MemberProcess:
        """Start a member, without waiting for it."""
        self._names_count += 1
        name = f"{group}-{self._names_count}"
        self.groups.setdefault(group, Progress())
        spec = MemberSpec(
            name,
            group,
            self.topic,
            *self._place,
            streams_count=streams_count,
            commit_every=commit_every,
            work_ms=work_ms,
        )
        process, output = self._launch(self._command, name, (spec.to_json(),))
        member = MemberProcess(spec, process, output)
        self.members.append(member)
        return member

    def leave(self, *members: MemberProcess) -> None:
        """Stop them, and wait for their end; any status but 0 is a problem of the run."""
        self.expect_running(*members)
        for member in members:
            self.members.remove(member)
            member.process.terminate()
        for member in members:
            status = _wait(member.process)
            if status != 0:
                self.problems.append(member.describe_end(status))

    def kill(self, *members: MemberProcess) -> None:
        """kill -9."""
        began_ns = now_ns()
        for member in members:
            self.members.remove(member)
            member.process.kill()
        for member in members:
            member.process.wait()
        ended_ns = now_ns()
        self.disturbances += [Disturbance("killed", member.name, began_ns, ended_ns) for member in members]

    def pause(self, member: MemberProcess) -> None:
        """SIGSTOP; the process is stopped when this returns."""
        member.is_paused = True
        self.disturbances.append(Disturbance("paused", member.name, now_ns(), 2**63))
        pause_process(member.process)

    def resume(self, member: MemberProcess) -> None:
        member.process.send_signal(signal.SIGCONT)
        member.is_paused = False
        pause = next(each for each in reversed(self.disturbances) if each.member == member.name)
        self.disturbances.remove(pause)
        self.disturbances.append(Disturbance("paused", member.name, pause.began_ns, now_ns()))

    def disturbed(self, what: str, began_ns: int) -> None:
        """All members were disturbed from then until now."""
        self.disturbances.append(Disturbance(what, None, began_ns, now_ns()))

    def of_group(self, group: str) -> list[MemberProcess]:
        return [member for member in self.members if member.group == group]

    def expect_running(self, *members: MemberProcess) -> None:
        """A member that has ended unexpectedly is a problem of the run."""
        for member in members or self.members:
            status = member.process.poll()
            if status is not None:
                problem = f"was not asked to end: {member.describe_end(status)}"
                if problem not in self.problems:
                    self.problems.append(problem)

    def finish(self) -> None:
        """Stop the feeds, wait until every group has delivered all acknowledged messages, and let all leave."""
        for process, output in zip(self._feeds, self._feed_outputs, strict=True):
            process.terminate()
            status = _wait(process)
            if status != 0:
                self.problems.append(f"a feed ended with status {status}: {output.read_text(errors='replace')[-2000:]}")
        try:
            eventually(self.missing_count, lambda count: not count, every_s=0.1)
        except AssertionError as missing:
            self.problems.append(f"messages that were not handed out: {missing}")
        self.leave(*self.members)
        self.look()

    def close(self) -> None:
        """Kill all processes that still run."""
        self.disturbances += self._stalls.stop()
        for process in [*(member.process for member in self.members), *self._feeds]:
            process.kill()
            process.wait()

    def last_lines(self) -> Iterator[str]:
        """The output of every member that printed anything."""
        for path in sorted(self._directory.glob("*.output")):
            lines = path.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
            if lines:
                yield from (f"--- {path.stem}", *lines)

    def _launch(
        self, command: Sequence[str], name: str, arguments: Sequence[str]
    ) -> tuple[subprocess.Popen[bytes], Path]:
        journal, output = self._directory / f"{name}.journal", self._directory / f"{name}.output"
        self._readers.append(JournalReader(journal))
        with output.open("wb") as opened:
            process = subprocess.Popen([*command, *arguments, str(journal)], stdout=opened, stderr=subprocess.STDOUT)
        return process, output

    def look(self) -> None:
        """Read the new lines of the journals."""
        for reader in self._readers:
            for entry in reader.read():
                self._take(entry)

    def _take(self, entry: Entry) -> None:
        match entry:
            case Handed():
                self.groups[entry.member.rpartition("-")[0]].add(entry)
            case Sent():
                self.sent.append(entry)
            case Joined():
                self.joined[entry.member] = entry
            case Left():
                self.left[entry.member] = entry

    def missing_count(self) -> int:
        """Acknowledged messages that some group has not delivered yet."""
        self.look()
        return sum(sum(sent.value not in progress.values for sent in self.sent) for progress in self.groups.values())

    def idle(self, group: str, since_ns: int) -> list[str]:
        """Running members without a delivery since then, and partitions without one by a running member."""
        self.look()
        progress = self.groups[group]
        running = {member.name for member in self.of_group(group) if not member.is_paused}
        found = sorted(name for name in running if progress.last_ns.get(name, 0) <= since_ns)
        for index in range(self.partitions_count):
            handed = progress.handed[TopicPartition(self.topic, index)]
            if not handed or handed[-1].got_ns <= since_ns or handed[-1].member not in running:
                found.append(f"{self.topic}-{index}")
        return found

    def not_repeated(self, group: str, since_ns: int) -> list[TopicPartition]:
        """Partitions with earlier deliveries and none since then."""
        self.look()
        return [
            partition
            for partition, handed in self.groups[group].handed.items()
            if not any(
                later.offset <= earlier.offset and later.got_ns > since_ns for earlier, later in pairwise(handed)
            )
        ]

    def owners(self, group: str) -> dict[TopicPartition, str]:
        """The last member that delivered from each partition."""
        return {partition: handed[-1].member for partition, handed in self.groups[group].handed.items() if handed}

    def wait_until_consuming(self, group: str, since_ns: int, settled_s: float) -> int:
        """Wait until all members have consumed since then, and no partition changes its owner for a while: the
        time of the first delivery of the last partition by its present member."""
        owners: dict[TopicPartition, str] = {}
        since_s = time.monotonic()

        def unsettled() -> list[str]:
            nonlocal owners, since_s
            self.expect_running()
            # It does not come back: waiting would not help.
            assert not self.problems, "a member has ended"
            found = self.idle(group, since_ns)
            now_owned = self.owners(group)
            if found or now_owned != owners:
                owners, since_s = now_owned, time.monotonic()
            if not found and time.monotonic() - since_s < settled_s:
                return ["partitions have changed their owners just now"]
            return found

        eventually(unsettled, lambda found: not found, every_s=0.05)
        return max(self._first_ns(group, partition, since_ns) for partition in owners)

    def _first_ns(self, group: str, partition: TopicPartition, since_ns: int) -> int:
        """The first delivery of the present owner, since then and without another owner between."""
        handed = self.groups[group].handed[partition]
        first_ns = handed[-1].got_ns
        for each in reversed(handed):
            if each.member != handed[-1].member or each.got_ns < since_ns:
                break
            first_ns = each.got_ns
        return first_ns


def names(members: Collection[MemberProcess]) -> str:
    return ", ".join(member.name for member in members)


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
