"""The duration of rebalances of KIP-848 groups in virtual time, and the number of heartbeats, with clients
that obey the heartbeat interval.
"""

from collections.abc import Callable

import pytest

from tests.coordinator.modern_clients import ModernClient
from tests.coordinator.modern_world import ModernWorld

ROUND_TRIP_MS = 1


class Members:
    """Clients that send a heartbeat when it is due, and at once after a revocation."""

    def __init__(self, partitions: int, **settings: int) -> None:
        self.world = ModernWorld(**settings)
        self.world.create("a", partitions)
        self.clients: list[ModernClient] = []

    def join(self, how_many: int) -> None:
        for _ in range(how_many):
            client = ModernClient(self.world, f"m{len(self.clients):03}", ["a"])
            self.clients.append(client)
            self._heartbeat(client)

    def run_until(self, is_done: Callable[[], bool]) -> float:
        """The seconds until the condition holds."""
        start_us = self.world.now.mono_us
        for _ in range(200_000):
            if is_done():
                return (self.world.now.mono_us - start_us) / 1e6
            client = min(self.clients, key=lambda one: one.next_us)
            self.world.advance(max(0, client.next_us - self.world.now.mono_us) / 1000)
            self._heartbeat(client)
        raise AssertionError("it is never done")

    def run_for(self, seconds: float) -> float:
        end_us = self.world.now.mono_us + seconds * 1e6
        return self.run_until(lambda: self.world.now.mono_us >= end_us)

    def _heartbeat(self, client: ModernClient) -> None:
        client.heartbeat()
        client.next_us += ROUND_TRIP_MS * 1000
        if not client.is_settled:
            client.revoke()
            client.next_us = self.world.now.mono_us + ROUND_TRIP_MS * 1000

    def is_balanced(self) -> bool:
        """Every member has its assignment, and has received it."""
        group = self.world.group()
        shares = [len(client.owned) for client in self.clients]
        return (
            group.state_name() == "Stable"
            and len(group.members) == len(self.clients)
            and max(shares) - min(shares) <= 1
        )

    def heartbeats_of(self, act: Callable[[], float]) -> tuple[float, float]:
        """The seconds of a rebalance, and the average number of heartbeats of a member meanwhile."""
        before = sum(client.heartbeats for client in self.clients)
        seconds = act()
        return seconds, (sum(client.heartbeats for client in self.clients) - before) / len(self.clients)


def test_ten_members_that_join_at_once_are_balanced_when_the_next_target_may_be_computed() -> None:
    members = Members(100)
    members.join(10)
    seconds, heartbeats = members.heartbeats_of(lambda: members.run_until(members.is_balanced))
    assert seconds < 1.5
    assert heartbeats < 8


def test_without_an_assignment_interval_ten_members_are_balanced_within_a_second() -> None:
    members = Members(100, consumer_assignment_interval_ms=0)
    members.join(10)
    seconds, heartbeats = members.heartbeats_of(lambda: members.run_until(members.is_balanced))
    assert seconds < 0.6
    assert heartbeats < 8


def test_ten_members_join_a_hundred_within_one_heartbeat_interval_and_a_half() -> None:
    members = Members(500)
    members.join(90)
    members.run_until(members.is_balanced)
    members.run_for(60)
    members.join(10)
    assert members.run_until(members.is_balanced) < 7.5


def test_a_hundred_members_go_on_without_one_within_one_heartbeat_interval() -> None:
    members = Members(500)
    members.join(100)
    members.run_until(members.is_balanced)
    members.run_for(60)
    members.clients.pop(7).leave()
    assert members.run_until(members.is_balanced) < 5.1


@pytest.mark.parametrize("size", [1, 10, 100])
def test_a_group_that_has_come_to_rest_sends_heartbeats_at_the_interval_that_is_set(size: int) -> None:
    members = Members(100)
    members.join(size)
    members.run_until(members.is_balanced)
    _, heartbeats = members.heartbeats_of(lambda: members.run_for(60))
    assert heartbeats < 32  # twelve, and the twenty of the time in which the group epoch is new
    _, heartbeats = members.heartbeats_of(lambda: members.run_for(60))
    assert heartbeats <= 13
