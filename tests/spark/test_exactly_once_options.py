"""How the options say whether writes count once, and by what name their sink is known."""

from collections.abc import Callable

import pytest

pytest.importorskip("pyspark.sql", reason="needs pyspark")

from sparklog.errors import SettingsError
from sparklog.spark.delivery import AtLeastOnce, Task
from sparklog.spark.exactly_once import ExactlyOnce, SinkWritten, delivery_for_batch, delivery_for_stream
from sparklog.spark.options import Options


def options(**given: str) -> Options:
    return Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **given})


def test_streams_are_written_exactly_once_unless_told_otherwise() -> None:
    assert isinstance(delivery_for_stream(options()), ExactlyOnce)
    assert isinstance(delivery_for_stream(options(delivery="at_least_once")), AtLeastOnce)


def test_batches_are_written_at_least_once_unless_told_otherwise() -> None:
    assert isinstance(delivery_for_batch(options()), AtLeastOnce)
    assert isinstance(delivery_for_batch(options(delivery="exactly_once")), ExactlyOnce)
    assert isinstance(delivery_for_batch(options(txnAppId="a", txnVersion="0")), ExactlyOnce)


@pytest.mark.parametrize(
    ("make", "given", "reason"),
    [
        (delivery_for_batch, {"txnAppId": "a"}, "belong together"),
        (delivery_for_batch, {"txnVersion": "1"}, "belong together"),
        (
            delivery_for_batch,
            {"txnAppId": "a", "txnVersion": "1", "delivery": "at_least_once"},
            "leave out delivery",
        ),
        (delivery_for_stream, {"kafka.transactional.id": "mine"}, "cannot be set"),
        (
            delivery_for_stream,
            {"delivery": "exactly_once", "kafka.acks": "1", "kafka.enable.idempotence": "false"},
            "kafka.acks=all",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    make: Callable[[Options], object], given: dict[str, str], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        make(options(**given))


def test_the_sink_is_named_by_its_option_then_by_the_checkpoint_then_by_the_query() -> None:
    def identity(**given: str) -> str:
        delivery = delivery_for_stream(options(**given))
        message = delivery.nothing_written(Task(0, 0, "query", 0))
        assert isinstance(message, SinkWritten)
        return message.identity

    assert identity(sinkId="s", checkpointLocation="/ck") == "s"
    assert identity(checkpointLocation="/ck/") == "/ck"
    assert identity() == "query"
