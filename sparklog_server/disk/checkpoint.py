"""Kafka's small text files: checkpoints of offsets and epochs, and property files. Pure text to values and
back.

    0                        version          #comment
    2                        entries          key=value
    orders 0 1200            one line each
    orders 1 980

A file that does not parse raises CheckpointCorrupt: its reader decides whether to rebuild or to refuse it.
"""

from collections.abc import Iterable, Mapping

from sparklog.model import Offset, TopicPartition

VERSION = 0


class CheckpointCorrupt(Exception):
    """The text does not have the format of its version."""


def render_lines(lines: Iterable[str]) -> bytes:
    """The bytes of a checkpoint with these entry lines."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(entries)), *entries)).encode()


def parse_lines(content: bytes) -> list[list[str]]:
    """The entries of a checkpoint, split at blanks. Raises CheckpointCorrupt."""
    try:
        version, count, *entries = content.decode().splitlines()
        if int(version) != VERSION or int(count) != len(entries):
            raise CheckpointCorrupt(f"version {version}, {count} entries promised, {len(entries)} found")
    except ValueError as error:
        raise CheckpointCorrupt(str(error)) from error
    return [entry.split() for entry in entries]


def render_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """`topic partition offset` per line, in the order of topic and partition."""
    return render_lines(
        f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())
    )


def parse_offsets(content: bytes) -> dict[TopicPartition, Offset]:
    """The offsets of a checkpoint. Raises CheckpointCorrupt."""
    offsets: dict[TopicPartition, Offset] = {}
    for entry in parse_lines(content):
        try:
            topic, partition, offset = entry
            offsets[TopicPartition(topic, int(partition))] = Offset(int(offset))
        except ValueError as error:
            raise CheckpointCorrupt(str(error)) from error
    return offsets


def render_properties(properties: Mapping[str, str]) -> bytes:
    """A Java property file of plain keys and values."""
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def parse_properties(content: bytes) -> dict[str, str]:
    """The properties of a file, comments and blank lines left out. Raises CheckpointCorrupt."""
    properties: dict[str, str] = {}
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise CheckpointCorrupt(str(error)) from error
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            raise CheckpointCorrupt(f"no `=` in {stripped!r}")
        properties[key.strip()] = value.strip()
    return properties
