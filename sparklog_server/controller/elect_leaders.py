"""ElectLeaders: leader election on request (KIP-460)."""

from collections.abc import Sequence

from sparklog.errors import ErrorCode
from sparklog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from sparklog.wire.schema import Message
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import NO_LEADER
from sparklog_server.outcome import RECORDS_PER_REQUEST_MAX, TOO_MANY_RECORDS, Outcome, Refused

from .elections import Election, PartitionChangeBuilder, SettingsFor, acceptable, rules_for

PREFERRED = 0
UNCLEAN = 1
_ELECTIONS = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, settings_for: SettingsFor
) -> Outcome[Message, ElectLeadersResponse]:
    """Elect the preferred replicas, or any replica where there is no leader; without a list of partitions,
    the reply names only those that needed an election.
    """
    if request.election_type not in (PREFERRED, UNCLEAN):
        return _election_refused(
            request, ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    asked: list[tuple[str, Sequence[int]]]
    if request.topic_partitions is None:
        asked = [
            (
                name,
                [
                    index
                    for index, one in enumerate(topic.partitions)
                    if _needs_election(one, request.election_type)
                ],
            )
            for name, topic in image.topics_by_name.items()
        ]
    else:
        asked = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    records: list[Message] = []
    chosen: dict[
        tuple[str, int], None
    ] = {}  # elected by this request already; the image does not contain it yet
    results: list[ReplicaElectionResult] = []
    for name, indexes in asked:
        partition_results = []
        for index in indexes:
            result = PartitionResult(partition_id=index, error_message=None)
            try:
                if (name, index) in chosen:
                    raise Refused(
                        ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
                    )
                records.append(_elected(image, name, index, request.election_type, settings_for))
                chosen[name, index] = None
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
            partition_results.append(result)
        results.append(ReplicaElectionResult(topic=name, partition_result=partition_results))
    if len(records) > RECORDS_PER_REQUEST_MAX:
        return _election_refused(request, ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS)
    return Outcome(tuple(records), ElectLeadersResponse(replica_election_results=results), is_atomic=False)


def _election_refused(
    request: ElectLeadersRequest, code: ErrorCode, message: str
) -> Outcome[Message, ElectLeadersResponse]:
    return Outcome((), election_refusal(request, code, message))


def election_refusal(
    request: ElectLeadersRequest, code: ErrorCode, message: str | None
) -> ElectLeadersResponse:
    """The reply that gives every requested partition this error."""
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=one, error_code=code, error_message=message)
                for one in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _needs_election(partition: PartitionImage, election_type: int) -> bool:
    return (
        partition.leader != partition.replicas[0]
        if election_type == PREFERRED
        else partition.leader == NO_LEADER
    )


def _elected(
    image: MetadataImage, name: str, index: int, election_type: int, settings_for: SettingsFor
) -> Message:
    """The record that gives one partition its leader; raises Refused."""
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    partition = topic.partitions[index]
    if not _needs_election(partition, election_type):
        raise Refused(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    change = PartitionChangeBuilder(
        partition,
        topic.topic_id,
        index,
        rules_for(image, topic, settings_for(name)),
        acceptable(image, partition),
    ).build(election=_ELECTIONS[election_type])
    if change is None and election_type == PREFERRED:
        raise Refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    if change is None:
        raise Refused(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
        )
    return change
