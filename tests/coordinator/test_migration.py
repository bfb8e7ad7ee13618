"""Members of both protocols in one group, while it changes its type: no partition has two owners, and at the
end no partition lacks one.
"""

from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.errors import ErrorCode
from sparklog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_prefixed,
    encode_prefixed,
)
from sparklog.wire.messages.heartbeat import HeartbeatRequest
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sparklog_server.coordinator.group.modern import ModernGroup
from tests.coordinator.modern_clients import ModernClient, Place
from tests.coordinator.modern_world import ModernWorld
from tests.properties import examples

PROTOCOL = "cooperative"
REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


class ClassicClient:
    """A consumer of the cooperative classic protocol, which owns its partitions until it joins
    without them.
    """

    def __init__(self, world: ModernWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.owned: set[Place] = set()
        self._request: object = None
        self._is_joined = False
        self._is_stable = False

    @property
    def is_settled(self) -> bool:
        return self._is_stable and self._request is None

    def act(self) -> None:
        """Take the next step: read a reply, join, sync, or send a heartbeat."""
        if self._request is not None:
            reply = self.world.answer(self._request)
            if reply is None:
                return
            self._request = None
            if isinstance(reply, JoinGroupResponse):
                self._joined(reply)
            else:
                self._synced(reply)
            return
        if not self._is_joined:
            self._join()
            return
        reply = self.world.ask(HeartbeatRequest("g", self.generation, self.member_id), 4)
        if reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._lost()
        elif reply.error_code in REJOIN:
            self._is_joined = self._is_stable = False

    def leave(self) -> None:
        self.owned = set()
        self.world.send(LeaveGroupRequest("g", members=[MemberIdentity(self.member_id)]), 5)

    def _lost(self) -> None:
        self.member_id = ""
        self.owned = set()
        self._is_joined = self._is_stable = False

    def _join(self) -> None:
        owned = [TopicPartitions(name, partitions) for name, partitions in self._by_name(self.owned).items()]
        metadata = encode_prefixed(ConsumerProtocolSubscription(topics=["a"], owned_partitions=owned), 3)
        protocols = [JoinGroupRequestProtocol(PROTOCOL, metadata)]
        self._request = self.world.send(
            JoinGroupRequest("g", 10_000, 30_000, self.member_id, None, "consumer", protocols), 9
        )

    def _joined(self, reply: JoinGroupResponse) -> None:
        code = ErrorCode(reply.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            return
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._lost()
            return
        if code in REJOIN:
            return
        assert code is ErrorCode.NONE, code.name
        self.member_id, self.generation, self._is_joined = reply.member_id, reply.generation_id, True
        assignments = self._assign(reply) if reply.leader == self.member_id else []
        self._request = self.world.send(
            SyncGroupRequest("g", self.generation, self.member_id, None, "consumer", PROTOCOL, assignments), 5
        )

    def _assign(self, reply: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Assign as a cooperative leader: owned partitions stay in this generation, and the others go to the
        member with the fewest.
        """
        topic = self.world.cluster.image.topics_by_name["a"]
        shares: dict[str, list[int]] = {}
        for member in reply.members:
            owned = decode_prefixed(ConsumerProtocolSubscription, member.metadata).owned_partitions
            shares[member.member_id] = [index for one in owned for index in one.partitions]
        taken = {index for share in shares.values() for index in share}
        quota = -(-len(topic.partitions) // len(shares))
        for share in shares.values():
            del share[quota:]
        for index in range(len(topic.partitions)):
            if index not in taken:
                min(shares.values(), key=len).append(index)
        return [
            SyncGroupRequestAssignment(
                member_id,
                encode_prefixed(
                    ConsumerProtocolAssignment(assigned_partitions=[TopicPartitions("a", share)]), 3
                ),
            )
            for member_id, share in shares.items()
        ]

    def _synced(self, reply: SyncGroupResponse) -> None:
        code = ErrorCode(reply.error_code)
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._lost()
            return
        if code in REJOIN:
            self._is_joined = False
            return
        assert code is ErrorCode.NONE, code.name
        by_name = self.world.cluster.image.topics_by_name
        assigned: set[Place] = set()
        if reply.assignment:
            told = decode_prefixed(ConsumerProtocolAssignment, reply.assignment).assigned_partitions
            assigned = {(by_name[one.topic].topic_id, index) for one in told for index in one.partitions}
        gives_back = bool(self.owned - assigned)
        self.owned = assigned
        self._is_stable = not gives_back
        # A member that revokes partitions rejoins at once, so that others can own them.
        self._is_joined = not gives_back

    def _by_name(self, places: set[Place]) -> dict[str, list[int]]:
        named: dict[str, list[int]] = {}
        for topic_id, index in sorted(places):
            named.setdefault(self.world.cluster.name_of(topic_id), []).append(index)
        return named


class Mixture:
    """One group with clients of both kinds."""

    def __init__(self) -> None:
        self.world = ModernWorld(consumer_assignment_interval_ms=0, initial_rebalance_delay_ms=0)
        self.world.create("a", 7)
        self.modern: dict[str, ModernClient] = {}
        self.classic: dict[str, ClassicClient] = {}
        self._ids = count(1)

    def step(self, action: str, which: int) -> None:
        getattr(self, "_" + action)(which)
        self.world.advance(0)
        self.check()

    def check(self) -> None:
        owners: dict[Place, str] = {}
        for name, owned in [
            *((one.member_id, one.owned) for one in self.modern.values()),
            *((n, c.owned) for n, c in self.classic.items()),
        ]:
            for place in owned:
                assert owners.setdefault(place, name) == name, (
                    f"{place} is with {owners[place]} and with {name}"
                )

    def settle(self) -> None:
        """Every client follows the protocol until no step is left; then each partition has an owner."""
        for _ in range(80):
            self._round(0)
            self.world.advance(1_000)
        self.world.check_replay()
        everyone: list[ModernClient | ClassicClient] = [*self.modern.values(), *self.classic.values()]
        assert all(one.is_settled for one in everyone)
        assert sum(len(one.owned) for one in everyone) == (7 if everyone else 0)
        if everyone:
            assert isinstance(self.world.groups["g"], ModernGroup) == bool(self.modern)

    def _join(self, which: int) -> None:
        if len(self.modern) < 4:
            client = ModernClient(self.world, f"m{next(self._ids)}", ["a"])
            self.modern[client.member_id] = client
            client.heartbeat()

    def _join_classic(self, which: int) -> None:
        if len(self.classic) < 4:
            name = f"c{next(self._ids)}"
            self.classic[name] = ClassicClient(self.world, name)
            self.classic[name].act()

    def _modern_acts(self, which: int) -> None:
        if self.modern:
            client = list(self.modern.values())[which % len(self.modern)]
            if which % 2:
                client.revoke()
            client.heartbeat()

    def _classic_acts(self, which: int) -> None:
        if self.classic:
            list(self.classic.values())[which % len(self.classic)].act()

    def _leave(self, which: int) -> None:
        if self.modern:
            self.modern.pop(list(self.modern)[which % len(self.modern)]).leave()

    def _leave_classic(self, which: int) -> None:
        if self.classic:
            self.classic.pop(list(self.classic)[which % len(self.classic)]).leave()

    def _die(self, which: int) -> None:
        if self.modern:
            del self.modern[list(self.modern)[which % len(self.modern)]]

    def _die_classic(self, which: int) -> None:
        if self.classic:
            del self.classic[list(self.classic)[which % len(self.classic)]]

    def _round(self, which: int) -> None:
        """Every client takes `which` steps: a classic client needs six steps from its first request to its
        partitions.
        """
        for _ in range(which + 1):
            for modern in self.modern.values():
                modern.revoke()
                modern.heartbeat()
            for classic in self.classic.values():
                classic.act()
            self.world.advance(0)
            self.check()


ACTIONS = (
    "join",
    "join_classic",
    "modern_acts",
    "classic_acts",
    "leave",
    "leave_classic",
    "die",
    "die_classic",
    "round",
    "round",
)
steps = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7)), min_size=5, max_size=60)


def run(history: list[tuple[str, int]]) -> None:
    mixture = Mixture()
    for action, which in history:
        mixture.step(action, which)
    mixture.settle()


@given(steps)
@example(
    [
        ("join_classic", 0),
        ("join_classic", 0),
        ("round", 7),
        ("round", 7),
        ("join", 0),
        ("round", 7),
        ("leave", 0),
        ("round", 7),
    ]
)
# Two changes and back, while the classic member has not revoked any partition yet.
@example(
    [("join_classic", 0), ("round", 0), ("round", 0), ("round", 0), ("join", 0), ("leave", 0), ("join", 0)]
)
# The reply that revokes a partition of a cooperative member is still on its way.
@example([("join_classic", 0), ("join_classic", 0), ("classic_acts", 0), ("round", 5), ("join", 0)])
@examples(50)
def test_in_a_group_of_both_protocols_no_partition_has_two_owners_and_in_the_end_each_has_one(
    history: list[tuple[str, int]],
) -> None:
    run(history)


@pytest.mark.long
@given(steps)
@examples(2_000)
def test_no_partition_has_two_owners_in_thousands_of_mixed_histories(history: list[tuple[str, int]]) -> None:
    run(history)
