"""`ottla dead-letter`: records that could not be processed: which there are, what was wrong, and back with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import bootstrap_flag, moment_ms, open_cluster, output_flag
from ottla.cli.exit_status import FAILED
from ottla.cli.output import data_lines, say, table
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.cli.pipeline.job_settings import config_flag
from ottla.cli.verb_group import VerbGroup
from ottla.model.counted import counted

if TYPE_CHECKING:
    from ottla.client.wire.cluster import Cluster
    from ottla.dead_letters import Replayed
    from ottla.dead_letters.erasing import ErasedLetters, LetterPlace
    from ottla.dead_letters.topics import StoredLetter

CLIENT_ID: Final = "ottla-dead-letter"
_SHOWN_MAX: Final = 1_000
_TEXT_CHARS: Final = 60
Selects = Callable[["StoredLetter"], bool]


@click.group(name="dead-letter", cls=VerbGroup)
def command() -> None:
    """List, show, put back and erase records that could not be processed.

    TOPIC is the topic where they failed; its dead letters are in TOPIC.dead-letter.
    """


_topic = click.argument("topic", metavar="TOPIC")
_letters_flag = click.option(
    "--dead-letter-topic", "letters_topic", metavar="TOPIC", help="Where they are.  [default: TOPIC.dead-letter]"
)
_error_flag = click.option("--error", metavar="CLASS", help="Only those with an error of this class.")
_since_flag = click.option("--since", metavar="TIME", help="Only those set aside at or after 2026-03-01T12:00 (UTC).")
_until_flag = click.option("--until", metavar="TIME", help="Only those set aside before this.")


@command.command(name="list")
@config_flag("dead-letter", "list")
@_topic
@_letters_flag
@bootstrap_flag
@_error_flag
@_since_flag
@_until_flag
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", default=_SHOWN_MAX, show_default=True, help="Show so many."
)
@output_flag()
def list_letters(
    topic: str,
    letters_topic: str | None,
    bootstrap: str,
    error: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    as_data: bool,
) -> None:
    """Show the dead letters of a topic: where each comes from, what was wrong, and whether it was put back.

    \b
    ottla dead-letter list orders --since 2026-03-01T12:00
    """
    from ottla.dead_letters.topics import letters_of

    selects = _selects(error, since, until, ())
    with open_cluster(bootstrap, CLIENT_ID) as cluster:
        name = _letters_topic(cluster, topic, letters_topic)
        is_back = _returned(cluster)
        found = list(islice(filter(selects, letters_of(cluster, name)), limit + 1))
    shown = found[:limit]
    if as_data:
        for stored in shown:
            say(*data_lines({**_facts(stored), "put_back": is_back(stored)}))
    else:
        rows = [_row(stored, is_back(stored)) for stored in shown]
        say(*table(["LETTER", "ORIGIN", "SET-ASIDE", "BACK", "STAGE", "ERROR"], rows))
    if len(found) > limit:
        say(f"note: there are more than {limit}; --limit shows more, --error and --since fewer", err=True)


@command.command()
@config_flag("dead-letter", "show")
@_topic
@click.argument("letter", metavar="PARTITION:OFFSET")
@_letters_flag
@bootstrap_flag
@output_flag()
def show(topic: str, letter: str, letters_topic: str | None, bootstrap: str, as_data: bool) -> int:
    """Show one dead letter: its origin, its error, and the record as it was read.

    \b
    ottla dead-letter show orders 0:17
    """
    from ottla.cli.log.lines import record_object
    from ottla.dead_letters.topics import StoredLetter, letter_or_none, message_at
    from ottla.model.identifiers import TopicPartition
    from ottla.records.record import Record

    partition, offset = _place(letter)
    with open_cluster(bootstrap, CLIENT_ID) as cluster:
        name = _letters_topic(cluster, topic, letters_topic)
        place = TopicPartition(name, partition)
        cluster.leader(place)
        message = message_at(cluster, place, offset)
        if message is None:
            say(f"error: {place} has no record at offset {offset}", err=True)
            return FAILED
        stored = StoredLetter(message, letter_or_none(message))
        found = stored.letter
        headers = message.headers if found is None else found.headers
        record = record_object(Record(offset, message.timestamp_ms, message.key, message.value, headers))
        facts = {**_facts(stored), "put_back": _returned(cluster)(stored)}
    facts |= {name: value for name, value in record.items() if name not in {"offset", "timestamp_ms"}}
    if as_data:
        say(*data_lines(facts))
        return 0
    for field, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        say(f"{field}: {text}")
    return 0


@command.command()
@config_flag("dead-letter", "replay")
@_topic
@_letters_flag
@bootstrap_flag
@_error_flag
@_since_flag
@_until_flag
@click.option("--letter", "letters", multiple=True, metavar="PARTITION:OFFSET", help="Only these; may be repeated.")
@click.option("--to", metavar="TOPIC", help="Put them into this topic.  [default: where each comes from]")
@click.option(
    "--transactional",
    is_flag=True,
    help="Put records back in transactions: exact for readers of committed records, see the guide.",
)
@click.option("--dry-run", is_flag=True, help="Only count.")
@output_flag()
def replay(
    topic: str,
    letters_topic: str | None,
    bootstrap: str,
    error: str | None,
    since: str | None,
    until: str | None,
    letters: tuple[str, ...],
    to: str | None,
    transactional: bool,
    dry_run: bool,
    as_data: bool,
) -> int:
    """Put records back where they come from, each once, also after kills of earlier runs.

    \b
    ottla dead-letter replay orders --error ValueError --dry-run
    ottla dead-letter replay orders --letter 0:17

    What was put back is known to the cluster (topic ottla-dead-letter-replays): a second run puts back what has been
    set aside since.  A record that fails again is a dead letter again, and can be put back again.
    """
    from ottla.dead_letters import Replay

    selects = _selects(error, since, until, letters)
    with open_cluster(bootstrap, CLIENT_ID) as cluster, JobProgress() as progress:
        name = _letters_topic(cluster, topic, letters_topic)

        def shown(step: str) -> None:
            progress.show(f"{name}: {counted(run.outcome.put_back, 'record')} put back")

        run = Replay(
            cluster,
            name,
            to=to,
            selects=selects,
            step=shown,
            is_transactional=transactional,
            note=lambda text: say(f"note: {text}", err=True),
        )
        outcome = run.run(is_dry=dry_run)
    if as_data:
        say(*data_lines({**asdict(outcome), "dry_run": dry_run}))
    else:
        say(_line(outcome, dry_run))
    for reason, count in outcome.refused.items():
        say(f"warning: {counted(count, 'record')} not put back: {reason}", err=True)
    return FAILED if outcome.refused else 0


@command.command(name="erase")
@config_flag("dead-letter", "erase")
@_topic
@_letters_flag
@bootstrap_flag
@click.option(
    "--key", "keys", multiple=True, required=True, metavar="KEY", help="Of the records, in UTF-8; may be repeated."
)
@click.option("--dry-run", is_flag=True, help="Only show them.")
@output_flag()
def erase(
    topic: str, letters_topic: str | None, bootstrap: str, keys: tuple[str, ...], dry_run: bool, as_data: bool
) -> int:
    """Erase the dead letters of a key: the others are written again, and the topic's log is deleted before them.

    \b
    ottla dead-letter erase orders --key 7

    Stop what sets letters of the key aside first.  Where the broker refuses the deletion, the letters that still have
    the key are shown, with the time until which they are kept, and the exit status is 1.
    """
    with open_cluster(bootstrap, CLIENT_ID) as cluster:
        name = _letters_topic(cluster, topic, letters_topic)
        found = erased_letters(cluster, name, [key.encode() for key in keys], dry_run)
    if as_data:
        say(*data_lines(erased_facts(found)))
    return say_erased(found, dry_run, as_data)


def erased_letters(cluster: Cluster, letters_topic: str, keys: Iterable[bytes], is_dry: bool = False) -> ErasedLetters:
    from ottla.dead_letters.erasing import erase_letters

    with JobProgress() as progress:
        progress.show(f"{letters_topic}: looking for the letters")
        return erase_letters(cluster, letters_topic, frozenset(keys), is_dry=is_dry)


def erased_facts(found: ErasedLetters) -> dict[str, object]:
    left = [{"letter": str(each), "until_ms": found.left_until_ms(each)} for each in found.left]
    return {
        "letters": [str(each) for each in found.erased],
        "rewritten": found.rewritten_count,
        "left": left,
        "reason": found.reason,
        "has_tombstones": found.has_tombstones,
    }


def say_erased(found: ErasedLetters, is_dry: bool, as_data: bool) -> int:
    """The exit status: of an erasure that left letters, that it failed."""
    if not as_data:
        places = f": {', '.join(map(str, found.erased))}" if is_dry and found.erased else ""
        say(f"{'would erase' if is_dry else 'erased'} {counted(len(found.erased), 'dead letter')}{places}")
        if found.erased and not is_dry:
            say("hint: their bytes are in the log's files until its segments roll and are deleted", err=True)
    for each in found.left[:_SHOWN_MAX]:
        say(f"warning: the letter {each} still has the key, {_until(found, each)}: {found.reason}", err=True)
    if len(found.left) > _SHOWN_MAX:
        say(f"warning: and {counted(len(found.left) - _SHOWN_MAX, 'letter')} more", err=True)
    return FAILED if found.left else 0


def _until(found: ErasedLetters, place: LetterPlace) -> str:
    if found.has_tombstones:
        return "until compaction removes it: a tombstone of the key was written"
    until_ms = found.left_until_ms(place)
    if until_ms is None:
        return "and is kept until it is deleted"
    return f"until {datetime.fromtimestamp(until_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ} or a little later"


def _line(outcome: Replayed, is_dry: bool) -> str:
    line = f"{'would put' if is_dry else 'put'} {counted(outcome.put_back, 'record')} back"
    if outcome.were_back:
        line += f", {outcome.were_back} were back before"
    if outcome.left_out:
        line += f", {outcome.left_out} left out"
    if outcome.not_letters:
        line += f", {outcome.not_letters} without an origin"
    return line


def letters_topic_or_none(cluster: Cluster, topic: str) -> str | None:
    """None: nothing of the topic was set aside.  Raises `UnknownTopic` where there is no such topic either."""
    from ottla.dead_letters import dead_letter_topic

    name = dead_letter_topic(topic)
    if _is_topic(cluster, name):
        return name
    cluster.topic(topic)
    return None


def _letters_topic(cluster: Cluster, topic: str, given: str | None) -> str:
    from ottla.client.wire.errors import UnknownTopic
    from ottla.dead_letters import dead_letter_topic

    name = dead_letter_topic(topic, given)
    if not _is_topic(cluster, name):
        raise UnknownTopic(
            f"there is no topic {name}: nothing of {topic} was set aside",
            hint="--dead-letter-topic names another; `ottla topic list` shows those that there are",
        )
    return name


def _is_topic(cluster: Cluster, name: str) -> bool:
    from ottla.client.wire.errors import UnknownTopic

    try:
        cluster.topic(name)
    except UnknownTopic:
        return False
    return True


def _returned(cluster: Cluster) -> Callable[[StoredLetter], bool]:
    """Whether a letter was put back into the topic that it comes from."""
    from ottla.dead_letters.claims_log import ClaimsLog
    from ottla.dead_letters.letter import replay_key

    log = ClaimsLog(cluster)
    log.read()

    def is_back(stored: StoredLetter) -> bool:
        if stored.letter is None:
            return False
        origin = stored.letter.origin
        return replay_key(origin.topic, origin.identity) in log.claims.taken

    return is_back


def _selects(error: str | None, since: str | None, until: str | None, letters: tuple[str, ...]) -> Selects:
    from_ms = None if since is None else moment_ms(since, "--since")
    until_ms = None if until is None else moment_ms(until, "--until")
    places = {_place(text) for text in letters}

    def selects(stored: StoredLetter) -> bool:
        message = stored.message
        if error is not None and (stored.letter is None or stored.letter.error_class != error):
            return False
        if from_ms is not None and message.timestamp_ms < from_ms:
            return False
        if until_ms is not None and message.timestamp_ms >= until_ms:
            return False
        return not places or (message.partition, message.offset) in places

    return selects


def _place(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
        raise click.UsageError(f"A letter is PARTITION:OFFSET in its topic, as `list` shows it, not {text!r}.")
    return int(partition), int(offset)


def _row(stored: StoredLetter, is_back: bool) -> list[object]:
    message, letter = stored
    when = message.timestamp
    error = "" if letter is None else ": ".join(each for each in (letter.error_class, letter.error_message) if each)
    return [
        f"{message.partition}:{message.offset}",
        None if letter is None else str(letter.origin),
        None if when is None else when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "yes" if is_back else "no",
        None if letter is None else letter.stage,
        error if len(error) <= _TEXT_CHARS else f"{error[:_TEXT_CHARS]}...",
    ]


def _facts(stored: StoredLetter) -> dict[str, object]:
    from ottla.model.identifiers import uuid_to_text

    message, letter = stored
    found: dict[str, object] = {
        "letter": f"{message.partition}:{message.offset}",
        "set_aside_ms": message.timestamp_ms,
    }
    if letter is not None:
        origin = letter.origin
        found |= {
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": origin.offset,
            "timestamp_ms": origin.timestamp_ms,
            "topic_id": uuid_to_text(origin.topic_id),
            "cluster_id": origin.cluster_id,
            "stage": letter.stage,
            "error_class": letter.error_class,
            "error_message": letter.error_message,
        }
    return found
