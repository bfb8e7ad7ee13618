"""Random histories of classic groups: invariants that hold in any of them, while members join, leave, time
out or lose their connection.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from sparklog.errors import ErrorCode
from sparklog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sparklog.wire.schema import Message
from sparklog_server.coordinator.group.group_config import GroupConfig
from sparklog_server.coordinator.shard import Decision
from tests.coordinator.groups import GroupWorld, told_record
from tests.properties import examples

CLIENTS = 5
PARTITIONS = 7
PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"))
LONGEST_WAIT_S = 400
"""Beyond every session, rebalance timeout and the wait of a new member."""


class Sent(NamedTuple):
    """The token of a request."""

    client: int
    number: int


class Client:
    """The state of one consumer: its member id, its generation, and, as a leader, the members."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instance_id = f"i{number}" if number == 0 else None
        self.member_id = ""
        self.generation = -1
        self.protocol = ""
        self.followers: list[str] = []


class Group:
    """A shard, its clients, and the invariants that are checked at each step."""

    def __init__(self, size_max: int) -> None:
        self.world = GroupWorld(GroupConfig(initial_rebalance_delay_ms=1_000, size_max=size_max))
        self.clients = [Client(number) for number in range(CLIENTS)]
        self.parked: dict[Sent, Message] = {}
        self.abandoned: set[Sent] = set()
        self.answered: set[Sent] = set()
        self.sent = 0
        # The generation's result for each member since the shard was last loaded: all the same, or two
        # members read a partition
        self.agreed: dict[int, tuple[str | None, str]] = {}
        self.owners: dict[tuple[int, int], str] = {}

    # -- steps

    def ask(self, client: Client, request: Message, version: int) -> None:
        self.sent += 1
        token = Sent(client.number, self.sent)
        self.parked[token] = request
        self.take(self.world.decide(request, version, client=f"c{client.number}", token=token))

    def take(self, decision: Decision) -> None:
        for answer in decision.answers:
            assert isinstance(answer.token, Sent)
            assert answer.token not in self.answered, f"{answer.token} is answered twice"
            assert answer.token not in self.abandoned, f"{answer.token} is answered though nobody listens"
            self.answered.add(answer.token)
            request = self.parked.pop(answer.token)
            self.learn(self.clients[answer.token.client], request, answer.reply)
        assert set(self.world.shard.waiting()) == set(self.parked), (
            "the shard forgot who waits, or remembers who does not"
        )

    def learn(self, client: Client, request: Message, reply: Message) -> None:
        if isinstance(reply, JoinGroupResponse):
            self.learn_join(client, reply)
        elif isinstance(reply, SyncGroupResponse):
            assert isinstance(request, SyncGroupRequest)
            if reply.error_code == ErrorCode.NONE:
                self.own(request, reply)
        elif isinstance(reply, HeartbeatResponse):
            assert reply.error_code in {
                ErrorCode.NONE,
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.FENCED_INSTANCE_ID,
            }

    def learn_join(self, client: Client, reply: JoinGroupResponse) -> None:
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = reply.member_id
        elif reply.error_code == ErrorCode.NONE:
            assert reply.generation_id > 0
            # A static member that rejoins before version 9 gets the leader's former id; versions here are
            # newer.
            known = self.agreed.setdefault(reply.generation_id, (reply.protocol_name, ""))
            assert known[0] == reply.protocol_name, "two protocols in one generation"
            client.member_id, client.generation = reply.member_id, reply.generation_id
            client.protocol = reply.protocol_name or ""
            client.followers = (
                [member.member_id for member in reply.members] if not reply.skip_assignment else []
            )
            if reply.members:
                assert reply.leader == reply.member_id, "a follower learns of the others"
        elif reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id, client.generation = "", -1

    def own(self, request: SyncGroupRequest, reply: SyncGroupResponse) -> None:
        """In one generation no partition has two owners (a static member's next process is the same
        owner).
        """
        member = request.group_instance_id or request.member_id
        for partition in reply.assignment:
            owner = self.owners.setdefault((request.generation_id, partition), member)
            assert owner == member, (
                f"partition {partition} of generation {request.generation_id} has two owners"
            )

    def join(self, number: int, protocols: tuple[str, ...], is_anew: bool, metadata: bytes) -> None:
        client = self.clients[number]
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id="" if is_anew else client.member_id,
            group_instance_id=client.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name, metadata) for name in protocols],
        )
        self.ask(client, request, 9)

    def sync(self, number: int) -> None:
        client = self.clients[number]
        shares: dict[str, bytearray] = {member: bytearray() for member in client.followers}
        for partition in range(PARTITIONS if shares else 0):
            shares[sorted(shares)[partition % len(shares)]].append(partition)
        assignments = [SyncGroupRequestAssignment(member, bytes(share)) for member, share in shares.items()]
        request = SyncGroupRequest(
            "g",
            client.generation,
            client.member_id,
            client.instance_id,
            "consumer",
            client.protocol,
            assignments,
        )
        self.ask(client, request, 5)

    def heartbeat(self, number: int, stale_by: int) -> None:
        client = self.clients[number]
        self.ask(
            client,
            HeartbeatRequest("g", client.generation - stale_by, client.member_id, client.instance_id),
            4,
        )

    def leave(self, number: int, is_of_admin: bool) -> None:
        client = self.clients[number]
        identity = MemberIdentity("" if is_of_admin else client.member_id, client.instance_id)
        self.ask(client, LeaveGroupRequest(group_id="g", members=[identity]), 5)

    def behave(self, count: int) -> None:
        """The first clients follow the protocol: join, twice if required, wait for the others, and sync."""
        for _ in range(2):
            for number in range(count):
                if not any(token.client == number for token in self.parked):
                    self.join(number, PROTOCOLS[1], False, b"m")
        self.advance(3)
        for number in range(count):
            if not any(token.client == number for token in self.parked):
                self.sync(number)

    def cut_off(self, number: int) -> None:
        """The client's connection is closed, with all its parked requests."""
        for token in [token for token in self.parked if token.client == number]:
            del self.parked[token]
            self.abandoned.add(token)
            self.world.shard.abandoned(token)

    def advance(self, seconds: float) -> None:
        for _, decision in self.world.advance(seconds):
            self.take(decision)
        self.world.shard.waiting()

    def reload(self) -> None:
        """The shard moves: parked requests are refused, and the durable state must be the same."""
        for token in self.world.shard.waiting():
            assert isinstance(token, Sent)
            del self.parked[token]
        self.world.reload()
        self.agreed.clear()
        self.owners.clear()
        for decision, _ in self.world.took:
            self.take(decision)

    # -- invariants

    def described(self) -> tuple[str, list[tuple[str, str | None, bytes]]]:
        request = DescribeGroupsRequest(groups=["g"])
        reply = self.world.decide(request, 5, token=None).answers[0].reply
        assert isinstance(reply, DescribeGroupsResponse)
        group = reply.groups[0]
        members = [(one.member_id, one.group_instance_id, one.member_assignment) for one in group.members]
        return group.group_state, members


STEPS = st.one_of(
    st.tuples(
        st.just(Group.join),
        st.integers(0, CLIENTS - 1),
        st.sampled_from(PROTOCOLS),
        st.booleans(),
        st.sampled_from((b"", b"m", b"n")),
    ),
    st.tuples(
        st.just(Group.join), st.integers(0, CLIENTS - 1), st.just(PROTOCOLS[0]), st.just(False), st.just(b"m")
    ),
    st.tuples(st.just(Group.sync), st.integers(0, CLIENTS - 1)),
    st.tuples(st.just(Group.heartbeat), st.integers(0, CLIENTS - 1), st.integers(0, 1)),
    st.tuples(st.just(Group.leave), st.integers(0, CLIENTS - 1), st.booleans()),
    st.tuples(st.just(Group.cut_off), st.integers(0, CLIENTS - 1)),
    st.tuples(st.just(Group.advance), st.sampled_from((0, 0.5, 1, 3, 9.5, 30))),
    st.tuples(st.just(Group.reload)),
    st.tuples(st.just(Group.behave), st.integers(2, CLIENTS)),
    st.tuples(st.just(Group.behave), st.integers(2, CLIENTS)),
)
HISTORIES = st.lists(STEPS, max_size=60)
SIZES = st.sampled_from((2, 4, 100))


def _tell(history: list[tuple[Callable[..., None], *tuple[object, ...]]], size_max: int) -> Group:
    group = Group(size_max)
    for step, *arguments in history:
        step(group, *arguments)
        state, members = group.described()
        if state == "Stable":
            # The durable state equals the log: a shard that replays it describes the same group.
            again = GroupWorld(group.world.settings)
            again.log = group.world.log
            again.shard = again.make_shard()
            reply = again.decide(DescribeGroupsRequest(groups=["g"]), 5).answers[0].reply
            assert isinstance(reply, DescribeGroupsResponse)
            assert reply.groups[0].group_state == "Stable"
            replayed = [
                (one.member_id, one.group_instance_id, one.member_assignment)
                for one in reply.groups[0].members
            ]
            assert sorted(replayed) == sorted(members), [told_record(record) for record in group.world.log]
    return group


def _end(group: Group) -> None:
    group.advance(LONGEST_WAIT_S)
    assert not group.parked, f"{group.parked} were never answered"
    state, members = group.described()
    assert (state, members) in [("Empty", []), ("Dead", [])], "members outlive their sessions"


@examples(150, suppress_health_check=list(HealthCheck))
@given(HISTORIES, SIZES)
def test_every_history_agrees_answers_everyone_once_and_survives_a_reload(
    history: list[tuple[Callable[..., None], *tuple[object, ...]]], size_max: int
) -> None:
    _end(_tell(history, size_max))


@pytest.mark.long
@examples(5_000, suppress_health_check=list(HealthCheck))
@given(HISTORIES, SIZES)
def test_many_histories_agree_answer_everyone_once_and_survive_a_reload(
    history: list[tuple[Callable[..., None], *tuple[object, ...]]], size_max: int
) -> None:
    _end(_tell(history, size_max))
