"""Metadata: the brokers, with the addresses of the request's listener, and the leaders of partitions."""

from collections.abc import Iterable, Set
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar, cast

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, Instant, NodeId, Uuid
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparklog.wire.pieces import Pieces
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.handlers.authorized_operations import operations_on_cluster, operations_on_topic
from sparklog_server.broker.handlers.coordinators import make_topic
from sparklog_server.broker.session import Call, Parked
from sparklog_server.broker.sliced_requests import SLICE, RequestSlice
from sparklog_server.controller.topic_names import check_name
from sparklog_server.coordinator.placement import INTERNAL_TOPICS
from sparklog_server.metadata.entries import PartitionImage, TopicImage
from sparklog_server.outcome import Refused
from sparklog_server.replica.replica_manager import has_room

if TYPE_CHECKING:
    from sparklog_server.broker.ports import MetadataPort


_AUTO_CREATED_MAX = 100
"""The number of missing topics that one request creates; a client that still misses some sends another."""
_EMPTY_MEANS_ALL_BEFORE = 1
_TOPIC_IDS_SINCE = 12  # versions 10 and 11 have the field, and Kafka never served it there
_TAIL_BYTES = {8: 4, 9: 4, 10: 4, 13: 2}
"""After the topics follow the authorized operations of the cluster, or the error code."""

AnswerT = TypeVar("AnswerT", bound=Message)
_Wanted: TypeAlias = MetadataRequestTopic | TopicImage


def metadata(
    context: "MetadataPort", call: Call, request: MetadataRequest, now: Instant
) -> MetadataResponse | Parked:
    """Brokers and topics; a missing topic is created if client and broker allow it, and is unknown until it
    exists.

    A response about very many topics is made over several turns, from the image at the time of the request.
    """
    suspected = context.suspected(now)
    told = _Told(context, call, request, now, suspected)
    if told.count > SLICE:
        answer = Pieces(
            _head(context, call, request, suspected),
            call.api_key,
            call.version,
            _TAIL_BYTES.get(call.version, 0),
        )
        asks = (_OfTopic(told, topic) for topic in told.topics)
        return context.slices.add(
            call, told.count, asks, partial(_fold, answer), lambda: told.finished(answer), lambda: answer.size
        )
    response = _head(context, call, request, suspected)
    response.topics = [told.of(topic) for topic in told.topics]
    return told.finished(response)


def _head(
    context: "MetadataPort", call: Call, request: MetadataRequest, suspected: Set[NodeId]
) -> MetadataResponse:
    """The response without topics."""
    response = MetadataResponse(cluster_id=context.cluster_id, controller_id=context.settings.node_id)
    response.brokers = [
        MetadataResponseBroker(
            node_id=broker.node_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
        )
        for broker in context.image.brokers.values()
        if not broker.is_fenced
        and broker.node_id not in suspected
        and (endpoint := broker.endpoint(call.session.listener)) is not None
    ]
    if request.include_cluster_authorized_operations:
        may_see = context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = operations_on_cluster(context, call) if may_see else 0
    return response


class _Told:
    """Makes the topics of one response, one by one; missing topics that may be created are created at the
    end.
    """

    def __init__(
        self,
        context: "MetadataPort",
        call: Call,
        request: MetadataRequest,
        now: Instant,
        suspected: Set[NodeId],
    ) -> None:
        self.now = now
        self._suspected = suspected
        self._context = context
        self._call = call
        self._image = context.image
        self._reachable = {
            broker.node_id
            for broker in context.image.brokers.values()
            if not broker.is_fenced and broker.endpoint(call.session.listener) is not None
        }
        self._online = {
            directory for node in self._reachable for directory in context.image.brokers[node].directories
        }
        self._with_operations = request.include_topic_authorized_operations
        self._creates = request.allow_auto_topic_creation and context.settings.auto_create_topics_enable
        self._missing: list[str] = []
        wanted, version = request.topics, call.version
        self.topics: Iterable[_Wanted]
        if wanted is None or (not wanted and version < _EMPTY_MEANS_ALL_BEFORE):
            self.count = len(self._image.topics_by_name)
            self.topics = (
                topic
                for topic in self._image.topics_by_name.values()
                if context.may(call, Operation.DESCRIBE, Resource.TOPIC, topic.name)
            )
            self._is_refused = False
        else:
            # Each once, as Kafka: a name that is repeated would make the response many times its request.
            once = {(asked.topic_id, asked.name): asked for asked in wanted}.values()
            self.count, self.topics = len(once), once
            self._is_refused = version < _TOPIC_IDS_SINCE and any(
                asked.name is None or asked.topic_id != ZERO_UUID for asked in wanted
            )

    def of(self, wanted: _Wanted) -> MetadataResponseTopic:
        """The response for one topic."""
        if isinstance(wanted, TopicImage):
            told = self._of_known(wanted)
        elif self._is_refused:
            return MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=wanted.name or "", topic_id=wanted.topic_id
            )
        else:
            told = self._of_asked(wanted.name or "", Uuid(wanted.topic_id))
        if (
            self._with_operations
            and told.name is not None
            and told.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ):
            told.topic_authorized_operations = operations_on_topic(self._context, self._call, told.name)
        return told

    def _of_asked(self, name: str, topic_id: Uuid) -> MetadataResponseTopic:
        is_by_name = topic_id == ZERO_UUID
        known = self._image.topics_by_name.get(name) if is_by_name else self._image.topics_by_id.get(topic_id)
        if known is None and not is_by_name:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        if not self._may_see(name if known is None else known.name):
            # Each of name and id only if the request has it, so that neither is told for the other.
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return MetadataResponseTopic(
                error_code=code, name=name if is_by_name else None, topic_id=topic_id
            )
        if known is not None:
            return self._of_known(known)
        if self._creates and not self._may_create(name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)
        if not _is_topic_name(name):
            return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
        self._missing.append(name)
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, is_internal=name in INTERNAL_TOPICS
        )

    def _of_known(self, topic: TopicImage) -> MetadataResponseTopic:
        told = _topic(topic)
        for index, partition in enumerate(topic.partitions):
            if not (
                partition.leader >= 0
                and self._reachable.issuperset(partition.replicas)
                and self._online.issuperset(partition.directories)
            ):
                told.partitions[index].offline_replicas = self._offline_replicas(partition)
        if self._suspected:
            _without_suspected(told, self._suspected)
        if self._context.partitions.has_offline:
            _without_offline(self._context, told)
        return told

    def _offline_replicas(self, partition: PartitionImage) -> list[int]:
        # At its only use: rarely is a replica offline.
        from sparklog_server.broker.handlers.describe_topics import offline_replicas

        return offline_replicas(self._image, partition, self._call.session.listener)

    def _may_see(self, name: str) -> bool:
        return self._context.allow(self._call, Operation.DESCRIBE, Resource.TOPIC, name)

    def _may_create(self, name: str) -> bool:
        context, call = self._context, self._call
        return context.may(call, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME) or context.allow(
            call, Operation.CREATE, Resource.TOPIC, name
        )

    def finished(self, answer: AnswerT) -> AnswerT:
        """The whole response."""
        if self._creates and self._missing:
            _create(self._context, self._call, self._missing, self.now)
        return answer


class _OfTopic(NamedTuple):
    """One topic of a response that is made in slices."""

    told: _Told
    topic: _Wanted

    def send(self, whole: RequestSlice, index: int, now: Instant) -> None:
        self.told.now = now
        whole.put(index, self.told.of(self.topic))


def _fold(answer: Pieces, parts: list[Message]) -> None:
    answer.add(MetadataResponse(topics=cast(list[MetadataResponseTopic], parts)), len(parts))


def _is_topic_name(name: str) -> bool:
    try:
        check_name(name)
    except Refused:
        return False
    return True


def _without_offline(context: "MetadataPort", told: MetadataResponseTopic) -> None:
    """Set no leader for an offline partition: the controller may not know yet that the disk of its log
    failed.
    """
    for part in told.partitions:
        if part.leader_id == context.settings.node_id and context.partitions.is_offline(
            told.name or "", part.partition_index
        ):
            part.error_code, part.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, -1
            part.offline_replicas = [context.settings.node_id]


def _without_suspected(told: MetadataResponseTopic, suspected: Set[NodeId]) -> None:
    """Set no leader for the partitions that a broker leads whose process seems to have ended."""
    for part in told.partitions:
        if part.leader_id in suspected:
            part.error_code, part.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, -1


def _topic(topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
            )
            for index, partition in enumerate(topic.partitions)
        ],
    )


def _create(context: "MetadataPort", call: Call, names: list[str], now: Instant) -> None:
    """Create missing topics: a coordinator's topic with the settings that the coordinator needs, any other
    with the cluster's defaults.
    """
    creatable = dict.fromkeys(names)
    for shards in context.coordinators:
        if shards.topic in creatable:
            make_topic(context, shards, now)
    wanted = [
        name for name in creatable if name not in INTERNAL_TOPICS and name not in context.auto_creations
    ][:_AUTO_CREATED_MAX]
    if not wanted or not has_room(context.partitions.directories, now):
        return
    context.auto_creations.update(wanted)
    topics = [CreatableTopic(name=name, num_partitions=-1, replication_factor=-1) for name in wanted]
    context.propose(
        CreateTopicsRequest(topics=topics, timeout_ms=30_000),
        CreateTopicsResponse,
        lambda _reply, _now: context.auto_creations.difference_update(wanted),
        now,
        call,
    )
