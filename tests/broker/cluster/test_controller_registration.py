"""A controller registers until the image has its incarnation."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, Millis, NodeId, Uuid
from sparklog.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from sparklog_server.broker.cluster.broker_lifecycle import ControllerRegistration
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.features import INITIAL

OWN = Uuid(bytes(range(16)))
SETTINGS = BrokerSettings.of(
    {
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
    }
)


class Node:
    def __init__(self) -> None:
        self.asked: list[tuple[ControllerRegistrationRequest, Callable[[Any, Instant], None]]] = []
        self.image = SimpleNamespace(features={}, controllers={})
        context = SimpleNamespace(
            settings=SETTINGS,
            image=self.image,
            propose=lambda request, _, then, __: self.asked.append((request, then)),
        )
        self.registration = ControllerRegistration(cast(Any, context), OWN)

    def answer(self, code: ErrorCode, at_us: int) -> None:
        self.asked[-1][1](ControllerRegistrationResponse(error_code=code), _at(at_us))


def _at(us: int) -> Instant:
    return Instant(Micros(us), Millis(0))


def test_a_controller_registers_once_the_cluster_has_begun() -> None:
    node = Node()
    node.registration.published(_at(0))
    assert node.asked == []
    node.image.features = INITIAL
    node.registration.published(_at(1))
    node.registration.published(_at(2))
    [(request, _)] = node.asked
    assert (request.incarnation_id, [one.name for one in request.listeners]) == (OWN, ["CONTROLLER"])
    node.answer(ErrorCode.NONE, 3)
    node.image.controllers = {NodeId(1): SimpleNamespace(incarnation_id=OWN)}
    node.registration.published(_at(4))
    assert (len(node.asked), node.registration.deadline_us) == (1, None)


def test_a_refused_registration_is_repeated_after_growing_pauses() -> None:
    node, now_us, pauses = Node(), 0, []
    node.image.features = INITIAL
    node.registration.published(_at(0))
    for _ in range(12):
        node.answer(ErrorCode.REQUEST_TIMED_OUT, now_us)
        due_us = node.registration.deadline_us
        assert due_us is not None
        pauses.append((due_us - now_us) // 1000)
        node.registration.published(_at(due_us - 1))
        now_us = due_us
        node.registration.tick(_at(now_us))
    assert len(node.asked) == 13
    assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 102400, 120000]


def test_an_earlier_incarnation_of_this_controller_does_not_count() -> None:
    node = Node()
    node.image.features = INITIAL
    node.image.controllers = {NodeId(1): SimpleNamespace(incarnation_id=Uuid(bytes(16)))}
    node.registration.published(_at(0))
    assert len(node.asked) == 1
