"""The power is cut before each call to the disk in turn: no acknowledged commit is lost or goes back, none
that was shown is unsaid.
"""

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.find_coordinator import FindCoordinatorResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupResponse
from sparklog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from sparklog.wire.messages.offset_fetch import OffsetFetchResponse
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sparklog.wire.schema import Message
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.groups import (
    COMMIT,
    FETCH,
    FIND,
    JOIN,
    SYNC,
    ask_coordinator,
    commit,
    committed,
    fetch_offsets,
    find,
    join,
    offsets,
    started,
)

GROUPS = [f"g{number}" for number in range(4)]


class PowerCut(BaseException):
    """The machine is off."""


class History:
    """Commits of rising offsets by a few groups, and one consumer that joins its group; all that was
    answered before the power went.
    """

    def __init__(self, seed: int) -> None:
        self.world = started(seed)
        self.random = Random(seed)
        self.sent = dict.fromkeys(GROUPS, 0)
        self.acknowledged = dict.fromkeys(GROUPS, -1)
        self.shown = dict.fromkeys(GROUPS, -1)
        self.member: tuple[str, int] | None = None
        self.has_joined = False
        self._asked: list[tuple[SimulatedConnection, list[Message]]] = []

    def run(self, cut_at: int | None) -> int:
        """Live until the disk is called for the `cut_at`th time, or to the end; how often it was called."""
        calls = 0

        def fault(call: str, path: str) -> None:
            nonlocal calls
            calls += 1
            if calls == cut_at:
                raise PowerCut

        self.world.disk.fault = fault
        with suppress(PowerCut):
            for _ in self._lives():
                pass
        self.world.disk.fault = None
        self._learn()
        return calls

    def _lives(self) -> Iterator[None]:
        world, random = self.world, self.random
        for round_number in range(6):
            client = world.node.connect()
            requests: list[Message] = []
            self._asked.append((client, requests))
            self._send(client, requests, find("g0"), FIND, FindCoordinatorResponse)
            world.settle(60)
            for _ in range(random.randint(1, 5)):
                group = random.choice(GROUPS)
                self.sent[group] += random.randint(1, 9)
                self._send(client, requests, commit(group, self.sent[group]), COMMIT, OffsetCommitResponse)
                if random.random() < 0.5:
                    world.clock.run(until_us=world.clock.now.mono_us + random.randint(0, 4000))
            self._send(client, requests, fetch_offsets(*GROUPS), FETCH, OffsetFetchResponse)
            if round_number == 1 and not self.has_joined:
                self.has_joined = (
                    True  # once: who may be a member without having heard of it would be waited for
                )
                self._join(world.node.connect())
            world.clock.run(until_us=world.clock.now.mono_us + random.randint(0, 30_000))
            yield

    def _join(self, client: SimulatedConnection) -> None:
        world = self.world
        asked = world.ask(client, join("members"), JOIN, JoinGroupResponse)
        assert isinstance(asked, JoinGroupResponse)
        joined = world.ask(client, join("members", asked.member_id), JOIN, JoinGroupResponse)
        assert isinstance(joined, JoinGroupResponse)
        shares = [SyncGroupRequestAssignment(joined.member_id, b"everything")]
        request = SyncGroupRequest("members", joined.generation_id, joined.member_id, assignments=shares)
        synced = world.ask(client, request, SYNC, SyncGroupResponse)
        if isinstance(synced, SyncGroupResponse) and synced.error_code == 0:
            self.member = joined.member_id, joined.generation_id

    def _send(
        self,
        client: SimulatedConnection,
        requests: list[Message],
        request: Message,
        version: int,
        reply: type[Message],
    ) -> None:
        requests.append(request)
        client.send(request, version, reply)

    def _learn(self) -> None:
        for client, requests in self._asked:
            for request, answer in zip(requests, client.replies, strict=False):
                if isinstance(request, OffsetCommitRequest):
                    assert committed(answer) is ErrorCode.NONE
                    offset = request.topics[0].partitions[0].committed_offset
                    self.acknowledged[request.group_id] = max(self.acknowledged[request.group_id], offset)
                elif isinstance(answer, OffsetFetchResponse):
                    for group, (offset,) in zip(GROUPS, offsets(answer), strict=True):
                        self.shown[group] = max(self.shown[group], offset)

    def after(self) -> None:
        """Check the invariants after the power is back."""
        world = self.world
        world.node.kill()
        world.node.start()
        world.settle()
        client = world.node.connect()
        assert ask_coordinator(world, client, "g0") is ErrorCode.NONE
        found = offsets(world.ask(client, fetch_offsets(*GROUPS), FETCH, OffsetFetchResponse))
        for group, (offset,) in zip(GROUPS, found, strict=True):
            assert offset >= self.acknowledged[group], f"{group}: an acknowledged commit is gone"
            assert offset >= self.shown[group], f"{group}: a commit that was shown is gone"
            assert offset <= self.sent[group]
        if self.member is not None:
            member_id, generation = self.member
            heartbeat = world.ask(
                client, HeartbeatRequest("members", generation, member_id), 4, HeartbeatResponse
            )
            assert isinstance(heartbeat, HeartbeatResponse)
            assert heartbeat.error_code == ErrorCode.NONE, (
                "a member that knows its share is not known any more"
            )


def sweep(seed: int, step: int) -> None:
    calls = History(seed).run(None)
    assert calls > 50
    for cut_at in range(1 + seed % step, calls, step):
        history = History(seed)
        history.run(cut_at)
        history.after()


@pytest.mark.parametrize("seed", range(4))
def test_no_acknowledged_commit_is_lost_or_goes_back_wherever_the_power_is_cut(seed: int) -> None:
    sweep(seed, step=11)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 110))
def test_no_acknowledged_commit_is_lost_at_any_call_to_the_disk(seed: int) -> None:
    sweep(seed, step=1)


def test_commits_of_many_lives_never_go_back() -> None:
    for seed in range(5):
        history = History(seed)
        for _ in range(3):
            history.run(history.random.randint(5, 150))
            history.after()
