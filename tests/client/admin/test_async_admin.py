"""Administration in an event loop."""

import asyncio
import inspect

import pytest

import sparklog
from sparklog.client.admin.admin import Admin
from sparklog.client.admin.async_admin import AsyncAdmin
from sparklog.client.failures import ClientClosed
from tests.client.loops import Run, every_loop

SHELL = {"close", "from_settings", "start", "stop"}


def calls(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(one)
        for name, one in vars(kind).items()
        if not name.startswith("_") and name not in SHELL
    }


def test_every_call_is_there_with_its_parameters_and_its_result() -> None:
    assert calls(AsyncAdmin) == calls(Admin)


@every_loop
def test_calls_are_made_one_after_another_and_a_cancelled_one_goes_on(run: Run) -> None:
    async def main(servers: str) -> None:
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            created = await asyncio.gather(*[admin.create_topics({f"t{number}": 1}) for number in range(5)])
            assert [list(one) for one in created] == [[f"t{number}"] for number in range(5)]
            cancelled = asyncio.create_task(admin.create_topics({"cancelled": 1}))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            topics = await admin.list_topics()
            assert {f"t{number}" for number in range(5)} <= set(topics)
            with pytest.raises(sparklog.BrokerError, match="TOPIC_ALREADY_EXISTS"):
                await admin.create_topics({"t0": 1})
        with pytest.raises(ClientClosed):
            await admin.list_topics()

    with sparklog.embedded() as broker:
        run(lambda: main(broker.bootstrap_servers))
