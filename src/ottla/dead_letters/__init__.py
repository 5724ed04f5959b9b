"""Dead letters: records that could not be processed, set aside with what was wrong, and put back once.

    from ottla.dead_letters import DeadLetters

    with DeadLetters("localhost:9092") as dead_letters:
        for message in stream:
            with dead_letters.guard(message):
                handle(message)

DeadLetters     sets messages aside, for consumers of ottla, confluent-kafka and kafka-python
DeadLetter      one of them: key, value and headers as they were, where it comes from, and the error
Origin          where a record was read
letter_of       a dead letter of a message of the dead-letter topic
Replay          puts dead letters back, each once
erase_letters   erases those of a key

`ottla.spark.dead_letters` does the same for streams of Spark, in the same form.
"""

from __future__ import annotations

from ottla.dead_letters.erasing import ErasedLetters, erase_letters
from ottla.dead_letters.letter import DeadLetter, NotADeadLetter, Origin, letter_of
from ottla.dead_letters.replay import Replay, Replayed
from ottla.dead_letters.topics import SUFFIX, dead_letter_topic
from ottla.dead_letters.writing import DeadLetters

__all__ = [
    "SUFFIX",
    "DeadLetter",
    "DeadLetters",
    "ErasedLetters",
    "NotADeadLetter",
    "Origin",
    "Replay",
    "Replayed",
    "dead_letter_topic",
    "erase_letters",
    "letter_of",
]
