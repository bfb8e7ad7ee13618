"""What a KIP-848 group subscribes to: names, and patterns that the coordinator resolves.

Patterns are RE2's, whose time is linear in the text, so a pattern cannot cause exponential work; the memory
of a compiled pattern is bounded here. A pattern must match the whole name of a topic. With many topics a
resolution is done in slices, between which the broker serves other requests.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Millis, Uuid
from sparklog_server.coordinator.command import Command
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.outcome import Refused

PATTERN_CHARS_MAX = 2048
PATTERN_CHARS_AT_ONCE = 64
"""The length of a pattern that is compiled in the loop: up to 10 ms, if it is made of classes of Unicode. A
longer one, which may take 150 ms to be refused, is compiled in a job first.
"""
PATTERN_MEMORY_MAX = 512 * 1024
SLICE_MATCHES = 100
"""Names matched against patterns in one slice: about a quarter of a millisecond, or 20 ms for a pattern that
is made to be slow.
"""

Describable = Callable[[Command, Sequence[str]], Collection[str]]
"""Returns those of these topics that the sender of the command may describe."""


class Resolved(msgspec.Struct, frozen=True):
    """The topics that a pattern matched, in the image at offset `version`, at Unix time `timestamp_ms`."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: Millis


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_matches", "text")

    def __init__(self, text: str) -> None:
        """Raises Refused with INVALID_REGULAR_EXPRESSION."""
        if len(text) > PATTERN_CHARS_MAX:
            raise Refused(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"the pattern has {len(text)} characters; a pattern may have {PATTERN_CHARS_MAX}",
            )
        import re2  # the import takes ten milliseconds, and most brokers never compile a pattern

        options = re2.Options()
        options.max_mem = PATTERN_MEMORY_MAX
        options.log_errors = False
        options.never_capture = True
        try:
            # Matching bytes is faster: with text, the library spends more time on the position of a match
            # than on the match.
            self._matches = re2.compile(text.encode(), options).fullmatch
        except (re2.error, UnicodeEncodeError) as error:
            raise Refused(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"{text[:80]!r} is no pattern that RE2 understands: {_reason(error)}",
            ) from None
        self.text = text

    def matches(self, topic: str) -> bool:
        """Whether the pattern matches the whole name."""
        return self._matches(topic.encode()) is not None


compiled = lru_cache(maxsize=16)(Pattern)
"""A pattern that a job has compiled for its shard, or that several shards use. Raises as `Pattern`."""


def _reason(error: Exception) -> str:
    given = error.args[0] if error.args else error
    return given.decode(errors="replace") if isinstance(given, bytes) else str(given)


class Resolution:
    """The matching of patterns against the topics of one image, for the sender of `command`."""

    __slots__ = ("_image", "_names", "_next", "_patterns", "_topics", "_wall_ms", "command")

    def __init__(
        self, patterns: Iterable[str], image: MetadataImage, command: Command, wall_ms: Millis
    ) -> None:
        self._patterns = [pattern for pattern in map(_stored, sorted(patterns)) if pattern is not None]
        self._topics: dict[str, list[str]] = {pattern.text: [] for pattern in self._patterns}
        self._names = list(image.topics_by_name)
        self._image = image
        self._next = 0
        self._wall_ms = wall_ms
        self.command = command

    @property
    def is_done(self) -> bool:
        """Whether every name has been matched."""
        return self._next >= len(self._names) or not self._patterns

    def advance(self) -> None:
        """Match the next slice of names."""
        limit = self._next + max(1, SLICE_MATCHES // max(1, len(self._patterns)))
        for pattern in self._patterns:
            self._topics[pattern.text].extend(
                name for name in self._names[self._next : limit] if pattern.matches(name)
            )
        self._next = limit

    def resolved(self, describable: Describable) -> dict[str, Resolved]:
        """The topics that each pattern matched, of those that the sender may describe; valid only
        when done.
        """
        assert self.is_done
        found = sorted({name for names in self._topics.values() for name in names})
        allowed = frozenset(describable(self.command, found)) if found else frozenset()
        return {
            text: Resolved(tuple(sorted(allowed.intersection(names))), self._image.offset, self._wall_ms)
            for text, names in self._topics.items()
        }


def _stored(text: str) -> Pattern | None:
    """A pattern from a record; None if this release cannot compile it (another broker may have
    written it).
    """
    try:
        return compiled(text)
    except Refused:
        return None


def topic_ids(names: Iterable[str], image: MetadataImage) -> frozenset[Uuid]:
    """The ids of those topics that exist."""
    by_name = image.topics_by_name
    return frozenset(by_name[name].topic_id for name in names if name in by_name)


def metadata_hash(names: Iterable[str], image: MetadataImage) -> int:
    """A signed 64-bit number that changes when one of these topics is created, deleted or extended; 0 if none
    of them exists.

    It is compared only with itself, so it need not be the number that Kafka would write. Kafka's also covers
    the racks of replicas, which no server-side assignor uses.
    """
    by_name = image.topics_by_name
    known = [by_name[name] for name in sorted(names) if name in by_name]
    if not known:
        return 0
    digest = blake2b(digest_size=8)
    for topic in known:
        digest.update(topic.topic_id)
        digest.update(len(topic.partitions).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
