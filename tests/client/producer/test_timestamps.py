"""Timestamps that a caller gives to a producer."""

import asyncio

import pytest

from sparklog import AsyncProducer, Producer

NOBODY = "127.0.0.1:9"


@pytest.mark.parametrize("timestamp_ms", [-5, True, 1.5, "1", 1 << 63])
def test_a_timestamp_that_is_no_time_is_refused_before_anything_is_sent(timestamp_ms: object) -> None:
    with (
        Producer(bootstrap_servers=NOBODY) as producer,
        pytest.raises((TypeError, ValueError), match="timestamp_ms="),
    ):
        producer.send("t", b"v", timestamp_ms=timestamp_ms)  # type: ignore[arg-type]

    async def send() -> None:
        async with AsyncProducer(bootstrap_servers=NOBODY) as producer:
            await producer.send("t", b"v", timestamp_ms=timestamp_ms)  # type: ignore[arg-type]

    with pytest.raises((TypeError, ValueError), match="timestamp_ms="):
        asyncio.run(send())


def test_send_many_refuses_them_before_it_waits_for_the_topic() -> None:
    with Producer(bootstrap_servers=NOBODY) as producer, pytest.raises(ValueError, match="timestamp_ms=-5"):
        producer.send_many("t", [b"v"], timestamp_ms=-5)
