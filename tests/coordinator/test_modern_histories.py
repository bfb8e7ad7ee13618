"""Members that join, leave, die and resubscribe, while topics change and coordinators fail: no partition ever
has two owners.
"""

import re
from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.coordinator.modern_clients import ModernClient, Place
from tests.coordinator.modern_world import ModernWorld
from tests.properties import examples

TOPICS = ("a", "b", "ab")
SUBSCRIPTIONS = [
    (("a",), ""),
    (("a", "b"), ""),
    (("b",), "a.*"),
    ((), "a.*"),
    ((), ""),
    (("ab", "a"), ""),
    ((), "[ab]+"),
]
ACTIONS = (
    "join",
    "join_static",
    "heartbeat",
    "lost",
    "revoke",
    "leave",
    "die",
    "away",
    "subscribe",
    "grow",
    "drop",
    "wait",
    "failover",
    "round",
)
Step = tuple[str, int]
steps = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 11)), min_size=5, max_size=80)


class History:
    """A group in a random history."""

    def __init__(self, assignment_interval_ms: int) -> None:
        self.world = ModernWorld(consumer_assignment_interval_ms=assignment_interval_ms, consumer_size_max=12)
        self.clients: dict[str, ModernClient] = {}
        self._ids = count(1)
        self.world.create("a", 5)
        self.world.create("b", 3)

    def step(self, action: str, which: int) -> None:
        getattr(self, "_" + action)(which)
        self.check()

    def check(self) -> None:
        """No partition is owned by two clients, or assigned to two members by the coordinator."""
        owners: dict[Place, str] = {}
        for client in self.clients.values():
            for place in client.owned:
                assert place not in owners, f"{place} is with {owners[place]} and with {client.member_id}"
                owners[place] = client.member_id
        if "g" not in self.world.groups:
            return
        held: dict[Place, str] = {}
        for member in self.world.group().members.values():
            for assigned in (member.assigned, member.revoking):
                for topic_id, partitions in assigned.items():
                    for partition in partitions:
                        assert held.setdefault((topic_id, partition), member.member_id) == member.member_id

    def settle(self) -> None:
        """Every client follows the protocol; then each subscribed partition has one of its subscribers as
        owner.
        """
        for _ in range(60):
            self._round(0)
            self.world.advance(1_000)
        self.world.check_replay()
        wanted = self._wanted()
        owners = {place: client for client in self.clients.values() for place in client.owned}
        assert sorted(owners) == sorted(wanted)
        assert all(client in wanted[place] for place, client in owners.items())
        assert all(
            client.is_settled and client.epoch == self.world.group().group_epoch
            for client in self.clients.values()
        )

    def _wanted(self) -> dict[Place, list[ModernClient]]:
        wanted: dict[Place, list[ModernClient]] = {}
        for topic in self.world.cluster.image.topics_by_name.values():
            able = [
                one
                for one in self.clients.values()
                if topic.name in one.topics or (one.regex and re.fullmatch(one.regex, topic.name))
            ]
            if able:
                wanted.update(
                    {(topic.topic_id, partition): able for partition in range(len(topic.partitions))}
                )
        return wanted

    def _pick(self, which: int) -> ModernClient | None:
        return list(self.clients.values())[which % len(self.clients)] if self.clients else None

    # -- events

    def _join(self, which: int, instance_id: str | None = None) -> None:
        if len(self.clients) >= 8:
            return
        topics, regex = SUBSCRIPTIONS[which % len(SUBSCRIPTIONS)]
        client = ModernClient(self.world, f"m{next(self._ids)}", topics, instance_id, regex)
        self.clients[client.member_id] = client
        client.heartbeat()

    def _join_static(self, which: int) -> None:
        instance_id = f"i{which % 3}"
        if all(client.instance_id != instance_id for client in self.clients.values()):
            self._join(which, instance_id)

    def _heartbeat(self, which: int) -> None:
        if client := self._pick(which):
            client.heartbeat()

    def _lost(self, which: int) -> None:
        if client := self._pick(which):
            client.heartbeat(is_lost=True)

    def _revoke(self, which: int) -> None:
        if client := self._pick(which):
            client.revoke()

    def _leave(self, which: int) -> None:
        if client := self._pick(which):
            del self.clients[client.member_id]
            client.leave()

    def _die(self, which: int) -> None:
        if client := self._pick(which):
            del self.clients[client.member_id]

    def _away(self, which: int) -> None:
        """A static member leaves for a moment, and its next process has another member id."""
        client = self._pick(which)
        if client is not None and client.instance_id is not None and client.epoch > 0:
            del self.clients[client.member_id]
            client.leave(-2)

    def _subscribe(self, which: int) -> None:
        if client := self._pick(which):
            client.subscribe(*SUBSCRIPTIONS[(which * 5 + 3) % len(SUBSCRIPTIONS)])

    def _grow(self, which: int) -> None:
        name = TOPICS[which % 3]
        topic = self.world.cluster.image.topics_by_name.get(name)
        if topic is None:
            self.world.create(name, 2)
        elif len(topic.partitions) < 9:
            self.world.change(self.world.cluster.grow(name, len(topic.partitions) + 1))

    def _drop(self, which: int) -> None:
        if TOPICS[which % 3] in self.world.cluster.image.topics_by_name:
            self.world.change(self.world.cluster.delete(TOPICS[which % 3]))

    def _wait(self, which: int) -> None:
        """Time passes; live clients send heartbeats often enough to keep their sessions, unless they
        are slow.
        """
        for _ in range(which):
            self.world.advance(3_000)
            for client in self.clients.values():
                client.heartbeat()

    def _failover(self, which: int) -> None:
        self.world.reload()

    def _round(self, which: int) -> None:
        for client in self.clients.values():
            client.revoke()
            client.heartbeat()


def run(history: list[Step], assignment_interval_ms: int) -> None:
    group = History(assignment_interval_ms)
    for action, which in history:
        group.step(action, which)
        group.world.check_replay()
    group.settle()


@given(steps, st.sampled_from([0, 1_000]))
@example([("join", 0), ("join", 1), ("away", 0), ("join_static", 1), ("away", 2), ("join_static", 1)], 0)
@examples(60)
def test_no_partition_has_two_owners_and_in_the_end_each_has_one(
    history: list[Step], assignment_interval_ms: int
) -> None:
    run(history, assignment_interval_ms)


@pytest.mark.long
@given(steps, st.sampled_from([0, 1_000]))
@examples(3_000)
def test_no_partition_has_two_owners_in_thousands_of_histories(
    history: list[Step], assignment_interval_ms: int
) -> None:
    run(history, assignment_interval_ms)
