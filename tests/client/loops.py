"""Runs a test's coroutine in each event loop that is installed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
PATIENCE_S = 60.0


def in_asyncio(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run in the loop of the standard library; a task that hangs fails the test."""
    return asyncio.run(_in_time(main))


def in_uvloop(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run in uvloop, if it is installed."""
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_in_time(main))


async def _in_time(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await main()


every_loop = pytest.mark.parametrize("run", [in_asyncio, in_uvloop], ids=["asyncio", "uvloop"])
Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
