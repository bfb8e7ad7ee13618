"""A broker's report of its directories to the controller, if it has very many."""

from types import SimpleNamespace
from typing import Any, cast

from sparklog.model import Instant, Micros, Millis, Uuid
from sparklog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from sparklog_server.broker.broker_lifecycle import BrokerLifecycle
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.controller.topics import RECORDS_PER_REQUEST_MAX
from sparklog_server.replica.replica_move import Assignment

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
        broker_epoch=1,
        image=SimpleNamespace(offset=0),
        partitions=SimpleNamespace(moving=SimpleNamespace(assignments=assignments), directories=[]),
        propose=lambda message, *_: proposed.append(message),
    )
    standing = BrokerLifecycle(cast(Any, context), [], [], lambda *_, **__: None)
    standing.is_ready = True
    while standing.has_failures:
        standing.report_failures(NOW)
    asked = [one for one in proposed if isinstance(one, AssignReplicasToDirsRequest)]
    told = [[part.partition_index for part in one.directories[0].topics[0].partitions] for one in asked]
    assert all(len(one) <= RECORDS_PER_REQUEST_MAX for one in told)
    assert [number for one in told for number in one] == list(range(COUNT))
