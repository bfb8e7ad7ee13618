"""One group's machine for tests: the time, the one question under way, and a coordinator whose answers the
test gives.
"""

from typing import TypeVar

from sparklog.client.membership.assignors import encode_assignment
from sparklog.client.membership.group import Group
from sparklog.client.membership.member import Errand, Step, Subscription
from sparklog.client.membership.offsets import Job, OffsetAndMetadata
from sparklog.errors import ErrorCode
from sparklog.model import Micros, TopicPartition
from sparklog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sparklog.wire.schema import Message
from tests.client.wire import ms, no_chance, settings

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
M = TypeVar("M", bound=Message)


class Script:
    """One group's machine, the time, and the one question under way."""

    def __init__(self, **given: object) -> None:
        self.group = Group(settings(group_id="g", **given), no_chance)
        self.now = ms(1000)
        self.errand = Errand(MetadataRequest())

    def subscribe(self, *topics: str) -> None:
        self.group.subscribe(Subscription(topics or ("t",)), self.now)
        self.group.member.polled(self.now, is_inside=True)

    def sent(self, cls: type[M]) -> M:
        """The one request that leaves now."""
        (self.errand,) = self.group.errands(self.now)
        request = self.errand.request
        assert isinstance(request, cls), request
        return request

    def answer(self, reply: Message) -> None:
        self.group.replied(self.errand, reply, self.now)

    def later(self, milliseconds: int) -> None:
        self.now = Micros(self.now + milliseconds * 1000)

    def find(self, node: int = 1) -> None:
        self.sent(FindCoordinatorRequest)
        self.answer(FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=node)]))

    def joined(self, *partitions: TopicPartition, generation: int = 1) -> None:
        """Through the two steps of joining, as a follower, up to the listener."""
        name = self.sent(JoinGroupRequest).protocols[0].name
        self.answer(
            JoinGroupResponse(generation_id=generation, protocol_name=name, leader="other", member_id="me")
        )
        self.sent(SyncGroupRequest)
        self.answer(SyncGroupResponse(assignment=encode_assignment(partitions)))

    def do(self) -> Step:
        step = self.group.member.steps.begin()
        self.group.member.step_done(self.now)
        return step

    def member(self, *partitions: TopicPartition) -> None:
        self.subscribe()
        self.find()
        self.joined(*partitions)
        self.do()

    def beat(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.later(3000)
        self.sent(HeartbeatRequest)
        self.answer(HeartbeatResponse(error_code=code))


def commit(**given: object) -> Job:
    chosen = {"deadline": ms(60_000), "offsets": {T0: OffsetAndMetadata(5, "note", 2)}} | given
    return Job(**chosen)  # type: ignore[arg-type]


def committed(code: ErrorCode = ErrorCode.NONE) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition(0, code)])]
    )
