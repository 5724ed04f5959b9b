"""`ottla lake`: what is done to a lake table besides loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.client_flags import bootstrap_flag, open_cluster, output_flag
from ottla.cli.output import data_lines, say
from ottla.cli.pipeline.dead_letter import CLIENT_ID, erased_facts, erased_letters, letters_topic_or_none, say_erased
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.cli.pipeline.load import lake_target, target_flags
from ottla.model.counted import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.lake.erasure import Erasure


@click.command(name="erase")
@target_flags
@click.option(
    "--key",
    "keys",
    multiple=True,
    required=True,
    metavar="COLUMN=VALUE",
    help="Of the rows to erase; several columns are a key together, and of each as many values as there are keys.",
)
@click.option(
    "--dead-letters-of",
    "letters_of",
    multiple=True,
    metavar="TOPIC",
    help="Also from the dead letters of this topic, by the record's key (--key key=VALUE alone); may be repeated.",
)
@bootstrap_flag
@output_flag()
def erase(
    target: str | None,
    storage: tuple[str, ...],
    table: str | None,
    catalog: tuple[str, ...],
    keys: tuple[str, ...],
    letters_of: tuple[str, ...],
    bootstrap: str,
    as_data: bool,
) -> int:
    """Erase the rows of a key from a lake table: of loads, of upserts, or of dead letters.

    \b
    ottla lake erase --key member=7 --target /data/lake

    A backfill does not bring them back.  `ottla load vacuum` then removes the files that had them.  Dead letters in
    topics are erased with --dead-letters-of, as by `ottla dead-letter erase`.
    """
    record_keys = _record_keys(keys) if letters_of else []
    place = lake_target(target, storage, table, catalog)
    from ottla.dead_letters.erasing import ErasedLetters
    from ottla.spark.lake import erasure

    letters: dict[str, ErasedLetters] = {}
    with ExitStack() as stack:
        letters_topics: dict[str, str | None] = {}
        if letters_of:
            # Before the table's commit: a wrong topic is refused while nothing is erased.
            cluster = stack.enter_context(open_cluster(bootstrap, CLIENT_ID))
            letters_topics = {topic: letters_topic_or_none(cluster, topic) for topic in letters_of}
        with JobProgress() as progress:
            progress.show("looking for the rows")
            done = erasure.erase(place, _values(place.open(None).schema, keys))
        if not as_data:
            _say_rows(done)
        for topic, name in letters_topics.items():
            letters[topic] = ErasedLetters() if name is None else erased_letters(cluster, name, record_keys)
    if as_data:
        facts = {"rows": done.rows_count, "files": done.files_count, "table_version": done.version}
        of_letters = {f"dead_letters_of_{topic}": erased_facts(each) for topic, each in letters.items()}
        say(*data_lines({**facts, **of_letters}))
    return max((say_erased(each, is_dry=False, as_data=as_data) for each in letters.values()), default=0)


def _say_rows(done: Erasure) -> None:
    if done.version is None:
        say("no such rows")
        return
    say(f"erased {counted(done.rows_count, 'row')} from {counted(done.files_count, 'file')}")
    say("hint: readers of earlier versions have them until `ottla load vacuum` removes those files", err=True)


def _record_keys(keys: Iterable[str]) -> list[bytes]:
    """Of the records: the column of the table that has them is `key`.

    Another column would narrow the rows and not the letters, whose columns are not known.
    """
    parts = [each.partition("=") for each in keys]
    if any(name != "key" for name, _, _ in parts):
        raise click.UsageError("--dead-letters-of needs the key of the records alone: give --key key=VALUE.")
    return [text.encode() for _, _, text in parts]


def _values(schema: pa.Schema, keys: Iterable[str]) -> Mapping[str, list[Any]]:
    """The texts in the types of the table's columns; bytes are texts in UTF-8."""
    import pyarrow as pa

    found: dict[str, list[Any]] = {}
    for each in keys:
        name, is_given, text = each.partition("=")
        if not is_given:
            raise click.UsageError(f"--key {each!r} is not COLUMN=VALUE.")
        kind = schema.field(name).type if name in schema.names else pa.string()
        try:
            value = pa.scalar(text, pa.string()).cast(kind).as_py()
        except pa.ArrowInvalid:
            raise click.UsageError(f"--key {each!r}: the column is {kind}.") from None
        found.setdefault(name, []).append(value)
    return found
