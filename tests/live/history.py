"""What clients of a cluster under attack were told, and what such a history may not contain.

The value of a record is `writer:number`. A writer is idempotent and counts up in each partition, so the
values of one writer increase along the offsets of a partition.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import NamedTuple


class At(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Told(NamedTuple):
    """An offset of a partition, and the value that a client was told is there."""

    at: At
    offset: int
    value: str


Stored = Mapping[At, Mapping[int, str]]
"""The values that read_committed consumers are given at the end, by offset."""


@dataclass
class History:
    """Lists that several threads append to. A commit is (group, partition, offset), in the order in which
    the coordinator gave them out; a transaction is a set of values.
    """

    acknowledged: list[Told] = field(default_factory=list)
    seen: list[Told] = field(default_factory=list)
    commits: list[tuple[str, At, int]] = field(default_factory=list)
    committed: list[frozenset[str]] = field(default_factory=list)
    aborted: list[frozenset[str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def violations(history: History, stored: Stored, copies: Mapping[str, str] | None = None) -> list[str]:
    """Each promise that the history breaks, as a line of text; none for a correct cluster. `copies` names the
    source of each topic that is copied exactly once, partition by partition.
    """
    return [
        *_lost(history, stored),
        *_changed(history, stored),
        *_disordered(stored),
        *_backward_commits(history),
        *_torn(history, stored),
        *_miscopied(stored, copies or {}),
    ]


def _lost(history: History, stored: Stored) -> Iterator[str]:
    for at, offset, value in history.acknowledged:
        found = stored.get(at, {}).get(offset)
        if found != value:
            yield f"{_name(at)}: {value} was acknowledged at {offset}, where {found} is"


def _changed(history: History, stored: Stored) -> Iterator[str]:
    for at, offset, value in history.seen:
        found = stored.get(at, {}).get(offset)
        if found != value:
            yield f"{_name(at)}: a consumer saw {value} at {offset}, where {found} is"


def _disordered(stored: Stored) -> Iterator[str]:
    for at, values in stored.items():
        numbers: dict[str, list[int]] = defaultdict(list)
        for _, value in sorted(values.items()):
            writer, _, number = value.partition(":")
            numbers[writer].append(int(number))
        for writer, found in numbers.items():
            for earlier, later in pairwise(found):
                if later <= earlier:
                    fault = "twice" if later == earlier else "out of order"
                    yield f"{_name(at)}: {writer}:{later} is {fault}, behind {writer}:{earlier}"


def _backward_commits(history: History) -> Iterator[str]:
    reached: dict[tuple[str, At], int] = {}
    for group, at, offset in history.commits:
        before = reached.get((group, at), 0)
        if offset < before:
            yield f"{_name(at)}: the committed offset of {group} went from {before} to {offset}"
        reached[group, at] = max(before, offset)


def _torn(history: History, stored: Stored) -> Iterator[str]:
    present = {value for values in stored.values() for value in values.values()}
    for values in history.committed:
        if missing := values - present:
            yield f"a committed transaction lacks {sorted(missing)}"
    for values in history.aborted:
        if visible := values & present:
            yield f"an aborted transaction shows {sorted(visible)}"


def _miscopied(stored: Stored, copies: Mapping[str, str]) -> Iterator[str]:
    """A copy may end early; what it has is the beginning of its source."""
    for at, values in stored.items():
        if at.topic in copies:
            source = stored.get(At(copies[at.topic], at.partition), {})
            expected = [value for _, value in sorted(source.items())]
            found = [value for _, value in sorted(values.items())]
            for number, (one, other) in enumerate(zip_longest(found, expected[: len(found)])):
                if one != other:
                    yield f"{_name(at)}: copy {number} is {one}, where the source has {other}"
                    break


def _name(at: At) -> str:
    return f"{at.topic}-{at.partition}"
