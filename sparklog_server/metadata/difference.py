"""The changes between two images that no known records lead from one to the other: a snapshot has taken the
place of the metadata log.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from sparklog.model import TopicPartition

from .entries import TopicImage
from .image import MetadataDelta, MetadataImage, PartitionChanged

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def difference(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """As if one batch of records had led from `before` to `after`."""
    old, new = before.topics_by_id, after.topics_by_id
    return MetadataDelta(
        before=before,
        after=after,
        topics_created=tuple(topic for topic_id, topic in new.items() if topic_id not in old),
        topics_deleted=tuple(topic for topic_id, topic in old.items() if topic_id not in new),
        partitions_changed=tuple(_partitions_changed(before, new.values())),
        brokers_changed=_changed(before.brokers, after.brokers),
        configs_changed=_changed(before.configs, after.configs),
        features_changed=_changed(before.features, after.features),
        quotas_changed=_changed(before.quotas, after.quotas),
        acls_changed=_changed(before.acls, after.acls),
    )


def _partitions_changed(before: MetadataImage, topics: Iterable[TopicImage]) -> Iterator[PartitionChanged]:
    for topic in topics:
        known = before.topics_by_id.get(topic.topic_id)
        partitions = () if known is None else known.partitions
        for index, partition in enumerate(topic.partitions):
            old = partitions[index] if index < len(partitions) else None
            if old != partition:
                yield PartitionChanged(TopicPartition(topic.name, index), topic.topic_id, old, partition)


def _changed(before: Mapping[_Key, _Value], after: Mapping[_Key, _Value]) -> tuple[_Key, ...]:
    """The keys that are new, changed or gone."""
    kept = [key for key, value in after.items() if before.get(key) != value]
    return (*kept, *(key for key in before if key not in after))
