"""The broker of one partition, for tests of the client over real sockets."""

from collections.abc import Iterator

import pytest

from sparklog.wire.messages.init_producer_id import InitProducerIdResponse
from tests.client.shell_log import Log
from tests.client.wire import ScriptedBroker


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def broker(log: Log) -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as scripted:
        scripted.handlers |= {
            "Metadata": lambda request: log.metadata(scripted, request),
            "InitProducerId": lambda _: InitProducerIdResponse(producer_id=7, producer_epoch=0),
            "Produce": log.produce,
            "Fetch": log.fetch,
            "ListOffsets": log.list_offsets,
        }
        yield scripted
