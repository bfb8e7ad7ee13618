"""The time of requests, split as Kafka splits it, for each API and version: a few integer additions each.

    received ── queue ──► served ── local ──► parked ── remote ──► answered ── send ──► sent
                                                                       └─ throttle: the client rests

`queue` is the wait behind other requests: of the same turn, or of a session that is muted. `local` is the
work of the handler, encoding included. Nothing here is imported before the metrics are switched on.
"""

from collections.abc import Callable
from typing import Final

from sparklog.model import Instant
from sparklog.wire.messages.fetch import FetchRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.api_times import ApiTimes
from sparklog_server.broker.session import MUTING_SILENT, SILENT, Call, Parked
from sparklog_server.histogram import TABLE

_FETCH: Final = 1
_TABLE_US: Final = len(TABLE)
FOLLOWER: Final = 1 << 24
"""Marks the key of a Fetch of a follower."""


class RequestTimes:
    """The requests of one broker. `clock` gives monotonic nanoseconds on the clock of `Instant`."""

    __slots__ = ("_clock_ns", "at_ns", "by_key")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self.by_key: dict[int, ApiTimes] = {}
        self.at_ns = 0
        """When the last request was served, or its turn began: the next one is served from then on."""

    def ended(self, call: Call, times: ApiTimes, now: Instant) -> None:
        """A parked request has its response."""
        remote_us = now.mono_us - call.served_us
        call.session.times, call.times = times, None
        times.remote.add(remote_us)
        times.total.add(call.spent_us + max(0, remote_us))
        times.count += 1

    def throttled(self, call: Call, delay_us: int) -> None:
        """The client of a request has exceeded its quota and rests for so long."""
        times = self.by_key.get(call.api_key << 8 | call.version)
        if times is not None:
            times.throttle.add(delay_us)

    def resumed(self) -> None:
        """A session that was muted is served from now on."""
        self.at_ns = self._clock_ns()

    def served(self, call: Call, request: Message, answer: Message | Parked, received_us: int) -> None:
        """A request that came at `received_us` was answered, or parked."""
        began_ns = self.at_ns
        self.at_ns = served_ns = self._clock_ns()
        api_key, version = call.api_key, call.version
        key = api_key << 8 | version
        if api_key == _FETCH and _is_of_follower(request):
            key |= FOLLOWER
        times = self.by_key.get(key)
        if times is None:
            times = self.by_key[key] = ApiTimes(api_key, version, is_of_follower=key >= FOLLOWER)
        # `Histogram.add` three times would take twice the time of all this.
        local_us = (served_ns - began_ns) // 1000
        spent_us = served_ns // 1000 - received_us
        queue_us = spent_us - local_us
        if queue_us >= 0 and spent_us < _TABLE_US:
            histogram = times.queue
            histogram.buckets[TABLE[queue_us]] += 1
            histogram.total_us += queue_us
            histogram = times.local
            histogram.buckets[TABLE[local_us]] += 1
            histogram.total_us += local_us
        else:
            times.queue.add(queue_us)
            times.local.add(local_us)
        call.session.times = times
        if type(answer) is Parked and answer is not SILENT and answer is not MUTING_SILENT:
            call.times, call.served_us, call.spent_us = times, served_ns // 1000, spent_us
        else:
            times.total.add(spent_us)
            times.count += 1


def _is_of_follower(request: Message) -> bool:
    assert isinstance(request, FetchRequest)
    state = request.replica_state
    return (request.replica_id if state is None else state.replica_id) >= 0
