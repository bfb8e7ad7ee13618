"""A broker registers, sends heartbeats, reports its directories and leaves."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparklog.effects import Effect, Halt
from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, Millis, Uuid
from sparklog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from sparklog.wire.schema import Message
from sparklog_server.agenda import Agenda
from sparklog_server.broker.cluster.broker_lifecycle import (
    LEAVE_TIME_US,
    SILENCE_US,
    BrokerEpoch,
    BrokerLifecycle,
)
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.entries import Assignment
from sparklog_server.outcome import RECORDS_PER_REQUEST_MAX

NOW = Instant(Micros(0), Millis(0))
TOPIC, DIRECTORY = Uuid(bytes(range(16))), Uuid(bytes(range(16, 32)))
COUNT = 2 * RECORDS_PER_REQUEST_MAX + 1


def test_where_very_many_replicas_lie_is_told_in_requests_that_the_controller_takes() -> None:
    proposed: list[Any] = []
    assignments = {(TOPIC, number): Assignment(TOPIC, number, DIRECTORY) for number in range(COUNT)}
    settings = BrokerSettings.of({})
    context = SimpleNamespace(
        settings=settings,
        live=SimpleNamespace(settings=settings),
        broker_epoch=BrokerEpoch(1),
        controllers=None,
        image=SimpleNamespace(offset=0),
        partitions=SimpleNamespace(moving=SimpleNamespace(assignments=assignments), directories=[]),
        propose=lambda message, *_: proposed.append(message),
    )
    standing = BrokerLifecycle(cast(Any, context), [], Agenda(), [], lambda *_, **__: None)
    standing.is_ready = True
    while standing.has_failures:
        standing.report_failures(NOW)
    asked = [one for one in proposed if isinstance(one, AssignReplicasToDirsRequest)]
    told = [[part.partition_index for part in one.directories[0].topics[0].partitions] for one in asked]
    assert all(len(one) <= RECORDS_PER_REQUEST_MAX for one in told)
    assert [number for one in told for number in one] == list(range(COUNT))


class Life:
    """A broker's lifecycle in a cluster of several nodes, on virtual time."""

    def __init__(self, *, is_alone: bool = False, is_recovered: bool = True) -> None:
        settings = BrokerSettings.of({})
        self.now_us = 1_000_000
        self.asked: list[tuple[Any, Callable[[Any, Instant], None]]] = []
        self.effects: list[Effect] = []
        self.traces: list[str] = []
        self.left_at_us: int | None = None
        self.epochs: list[int] = []
        self.incarnations: list[Uuid] = []
        self.directory = SimpleNamespace(
            log_dir=SimpleNamespace(
                registers=self.incarnations.append, registered=self.epochs.append, directory_id=DIRECTORY
            ),
            is_cordoned=False,
            sync_began_us=None,
        )
        self.context = SimpleNamespace(
            settings=settings,
            live=SimpleNamespace(settings=settings),
            broker_epoch=BrokerEpoch(),
            cluster_id="c",
            image=SimpleNamespace(offset=7, features={}),
            partitions=SimpleNamespace(moving=SimpleNamespace(assignments={}), directories=[self.directory]),
            propose=lambda message, _, then, __: self.asked.append((message, then)),
            quorum=SimpleNamespace(raft=SimpleNamespace(state=SimpleNamespace(sync_began_us=None))),
            controllers=None if is_alone else object(),
            coordinators=(),
        )
        self.life = BrokerLifecycle(
            cast(Any, self.context), [], Agenda(), self.effects, lambda event, **_: self.traces.append(event)
        )
        self.life.begin(REGISTRATION, self.now, is_recovered=is_recovered)

    @property
    def now(self) -> Instant:
        return Instant(Micros(self.now_us), Millis(0))

    def run(self, us: int) -> None:
        """Let time pass, with a tick whenever one is wanted."""
        end_us = self.now_us + us
        while self.life.deadline_us is not None and self.life.deadline_us <= end_us:
            self.now_us = max(self.now_us, self.life.deadline_us)
            self.life.tick(self.now)
        self.now_us = end_us

    def answer(self, reply: Message) -> None:
        """Answer the request that waits."""
        [(_, then)], self.asked[:] = self.asked[:], []
        then(reply, self.now)

    def registered(self) -> None:
        self.answer(BrokerRegistrationResponse(broker_epoch=EPOCH))

    def started(self) -> "Life":
        self.registered()
        self.answer(UNFENCED)
        return self

    @property
    def heartbeat(self) -> BrokerHeartbeatRequest:
        """The heartbeat that waits for its answer."""
        [(message, _)] = self.asked
        assert isinstance(message, BrokerHeartbeatRequest)
        return message

    def until_asked(self) -> int:
        """Let time pass until a request is sent; returns how many ms that took."""
        begun_us = self.now_us
        while not self.asked:
            assert self.life.deadline_us is not None
            self.run(self.life.deadline_us - self.now_us)
        return (self.now_us - begun_us) // 1000

    @property
    def halted(self) -> str:
        return "".join(one.reason for one in self.effects if isinstance(one, Halt))

    def left(self, now: Instant) -> None:
        self.left_at_us = now.mono_us


EPOCH = 42
REGISTRATION = BrokerRegistrationRequest(broker_id=1)
UNFENCED = BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True)
BEHIND = BrokerHeartbeatResponse(is_fenced=True, is_caught_up=False)
LEAVING = BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True, should_shut_down=False)
MAY_LEAVE = BrokerHeartbeatResponse(is_fenced=True, is_caught_up=True, should_shut_down=True)


def refused(code: ErrorCode) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=code)


def test_a_lone_broker_registers_and_sends_one_heartbeat() -> None:
    one = Life(is_alone=True).started()
    assert (one.life.is_ready, one.traces) == (True, ["broker-ready"])
    assert one.life.deadline_us is None


def test_a_lone_broker_whose_logs_are_recovered_while_a_heartbeat_waits_sends_another() -> None:
    life = Life(is_alone=True, is_recovered=False)
    life.registered()
    assert life.heartbeat.want_fence
    life.life.recovered(life.now)
    life.answer(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True))
    life.run(0)
    assert not life.heartbeat.want_fence
    life.answer(UNFENCED)
    assert life.life.is_ready
    assert life.life.deadline_us is None


def test_a_broker_of_a_cluster_sends_heartbeats_with_its_epoch_and_its_offset() -> None:
    one = Life().started()
    assert one.epochs == [EPOCH]
    one.context.image.offset = 9
    assert one.until_asked() == 2_000
    assert (one.heartbeat.broker_epoch, one.heartbeat.current_metadata_offset) == (EPOCH, 9)
    assert (one.heartbeat.want_fence, one.heartbeat.want_shut_down) == (False, False)
    one.run(10_000_000)
    assert len(one.asked) == 1, "one heartbeat at a time"


def test_heartbeats_are_10_ms_apart_until_the_broker_has_caught_up() -> None:
    one = Life()
    one.registered()
    for _ in range(3):
        one.answer(BEHIND)
        assert not one.life.is_ready
        assert one.until_asked() == 10
    one.answer(UNFENCED)
    assert one.life.is_ready
    assert one.until_asked() == 2_000
    assert one.traces == ["broker-still-fenced", "broker-ready"]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT],
)
def test_a_refused_registration_is_repeated(code: ErrorCode) -> None:
    one = Life()
    for _ in range(3):
        one.answer(refused(code))
        assert one.until_asked() == 1_000
        assert one.asked[0][0] is REGISTRATION
    one.started()
    one.run(100_000_000)
    assert one.halted == ""


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (ErrorCode.DUPLICATE_BROKER_REGISTRATION, "a live broker has the same node.id: stop it"),
        (ErrorCode.REQUEST_TIMED_OUT, "start a majority of the controllers"),
    ],
)
def test_a_broker_that_cannot_register_in_time_halts_with_what_to_do(code: ErrorCode, remedy: str) -> None:
    one = Life()
    one.answer(refused(code))
    one.run(60_000_000)
    assert remedy in one.halted


def test_a_registration_without_an_answer_halts_in_time() -> None:
    one = Life()
    one.run(59_999_999)
    assert one.halted == ""
    one.run(1)
    assert "no controller decided" in one.halted


def test_a_broker_of_another_cluster_halts_at_once() -> None:
    one = Life()
    one.answer(refused(ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert "its directories belong to another cluster" in one.halted


def test_a_deposed_incarnation_halts() -> None:
    one = Life().started()
    one.until_asked()
    one.answer(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert "another process has registered with its node.id or a copy of its directories" in one.halted
    assert one.life.deadline_us is None


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_heartbeat_that_fails_is_followed_by_the_next(code: ErrorCode) -> None:
    one = Life().started()
    one.until_asked()
    one.answer(BrokerHeartbeatResponse(error_code=code))
    assert (one.life.is_ready, one.until_asked()) == (True, 2_000)


def test_a_broker_that_was_fenced_for_its_silence_comes_back() -> None:
    one = Life().started()
    one.until_asked()
    one.answer(BrokerHeartbeatResponse(is_fenced=True, is_caught_up=True))
    assert not one.life.is_ready
    one.until_asked()
    one.answer(UNFENCED)
    assert one.life.is_ready
    assert one.traces == ["broker-ready", "broker-still-fenced", "broker-ready"]


def test_a_heartbeat_that_is_wanted_while_one_waits_follows_it_at_once() -> None:
    one = Life().started()
    one.until_asked()
    one.life.beat(one.now)
    one.life.beat(one.now)
    one.answer(UNFENCED)
    assert one.until_asked() == 0
    one.answer(UNFENCED)
    assert one.until_asked() == 2_000


def test_a_stopping_broker_waits_until_its_leaderships_are_moved() -> None:
    one = Life().started()
    one.run(700_000)
    one.life.leave(one.left, one.now)
    for _ in range(4):
        assert one.heartbeat.want_shut_down
        one.answer(LEAVING)
        assert (one.left_at_us, one.until_asked()) == (None, 50)
    one.answer(MAY_LEAVE)
    assert one.left_at_us == one.now_us
    assert one.life.deadline_us is None


def test_a_stopping_broker_waits_for_30_seconds_at_most() -> None:
    one = Life().started()
    one.life.leave(one.left, one.now)
    begun_us = one.now_us
    while one.left_at_us is None:
        if one.asked:
            one.answer(LEAVING)
        one.run(10_000)
    assert one.left_at_us - begun_us == LEAVE_TIME_US


def test_a_stopping_broker_without_a_controller_waits_for_3_seconds() -> None:
    one = Life().started()
    one.life.leave(one.left, one.now)
    begun_us = one.now_us
    one.run(LEAVE_TIME_US)
    assert one.left_at_us is not None
    assert one.left_at_us - begun_us == SILENCE_US
    assert one.traces[-1] == "controlled-shutdown-ends"


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_broker_that_leads_nothing_stops_at_once(is_alone: bool) -> None:
    one = Life(is_alone=is_alone)
    if is_alone:
        one.started()
    one.life.leave(one.left, one.now)
    assert one.left_at_us == one.now_us


@pytest.mark.parametrize("of", ["a data directory", "the metadata log"])
def test_a_broker_wants_to_be_fenced_while_a_sync_hangs(of: str) -> None:
    one = Life().started()
    syncs = one.directory if of == "a data directory" else one.context.quorum.raft.state
    syncs.sync_began_us = one.now_us
    one.until_asked()
    assert not one.heartbeat.want_fence
    one.answer(UNFENCED)
    one.until_asked()
    assert one.heartbeat.want_fence
    one.answer(BrokerHeartbeatResponse(is_fenced=True, is_caught_up=True))
    syncs.sync_began_us = None
    one.until_asked()
    assert not one.heartbeat.want_fence


def test_a_lone_broker_never_wants_to_be_fenced() -> None:
    one = Life(is_alone=True)
    one.directory.sync_began_us = -10_000_000
    one.registered()
    assert not one.heartbeat.want_fence
