"""The replicas of partitions, compared byte for byte in the files of stopped nodes."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import trio


def differences(nodes: Mapping[int, trio.Node], topics: Sequence[str]) -> list[str]:
    """Stop the nodes; the partitions whose replicas differ. The topics are not compacted, and every replica
    is in sync.
    """
    for node in nodes.values():
        node.stop()
    return [*_differences([node.directory / "data" for node in nodes.values()], topics)]


def _differences(directories: Sequence[Path], topics: Sequence[str]) -> Iterator[str]:
    for topic in topics:
        for partition in sorted(found.name for found in directories[0].glob(f"{topic}-[0-9]*")):
            yield from differing(partition, directories)


def differing(partition: str, directories: Sequence[Path]) -> Iterator[str]:
    """A line if the replicas of a partition in these data directories differ."""
    contents = {directory: _digest(directory / partition) for directory in directories}
    if len(set(contents.values())) > 1:
        sizes = ", ".join(f"{directory} has {size} bytes" for directory, (size, _) in contents.items())
        yield f"{partition}: the replicas differ: {sizes}"


def _digest(partition: Path) -> tuple[int, str]:
    """The size and the digest of all segments, wherever each one begins."""
    digest, size = hashlib.sha256(), 0
    for segment in sorted(partition.glob("*.log")):
        content = segment.read_bytes()
        digest.update(content)
        size += len(content)
    return size, digest.hexdigest()
