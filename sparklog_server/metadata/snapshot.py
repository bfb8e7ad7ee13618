"""An image as the records that recreate it, in the order of Kafka's snapshots (KIP-630).

    features, metadata.version first ─ brokers ─ controllers ─ each topic and its partitions ─ configs
      ─ quotas ─ the block of producer ids ─ access rules ─ carried records

Replayed at the offset of the image's last record, they give the same image, except that `registered_at` of
every broker is that offset, as in Kafka.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from sparklog.wire.schema import Message

from .acls import record_of as record_of_acl
from .client_quotas import records_of_quotas
from .entries import BrokerImage, ControllerImage, Endpoint, PartitionImage
from .features import METADATA_VERSION
from .image import MetadataImage
from .records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    encode_value,
)


def records_of_image(image: MetadataImage) -> Iterator[Message]:
    """The records of an image, one at a time. The image must not be inside a metadata transaction."""
    assert image.open_transaction is None
    for name in sorted(image.features, key=lambda feature: (feature != METADATA_VERSION, feature)):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker in image.brokers.values():
        yield _broker_record(broker)
    for controller in image.controllers.values():
        yield _controller_record(controller)
    for topic_id, topic in image.topics_by_id.items():
        yield TopicRecord(name=topic.name, topic_id=topic_id)
        for index, partition in enumerate(topic.partitions):
            yield _partition_record(topic_id, index, partition)
    for (resource_type, resource_name), texts in image.configs.items():
        for name, value in texts.items():
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    yield from records_of_quotas(image.quotas)
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    for acl_id, rule in image.acls.items():
        yield record_of_acl(acl_id, rule)
    yield from image.carried.values()


def digest(image: MetadataImage) -> bytes:
    """A digest of an image without `registered_at`: equal for all nodes at one offset."""
    from hashlib import sha256

    found = sha256(b"%d" % image.offset)
    settled = image if image.open_transaction is None else structs.replace(image, open_transaction=None)
    for record in records_of_image(settled):
        found.update(encode_value(record))
    for offset, record in image.open_transaction or ():
        found.update(b"%d" % offset + encode_value(record))
    return found.digest()


def _broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.node_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=_endpoints(broker.endpoints),
        features=_features(broker.features),
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.is_in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=list(broker.cordoned_directories) or None,
    )


def _controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.node_id,
        incarnation_id=controller.incarnation_id,
        end_points=_endpoints(controller.endpoints),
        features=_features(controller.features),
    )


def _endpoints(endpoints: Iterable[Endpoint]) -> list[BrokerEndpoint]:
    return [BrokerEndpoint(one.name, one.host, one.port, one.protocol) for one in endpoints]


def _features(ranges: Mapping[str, tuple[int, int]]) -> list[BrokerFeature]:
    return [BrokerFeature(name, lowest, highest) for name, (lowest, highest) in ranges.items()]


def _partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=int(partition.is_recovering),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )
