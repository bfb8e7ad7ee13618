"""The time of requests, split as Kafka splits it, for each API and version: a few integer additions each.

    received ── queue ──► served ── local ──► parked ── remote ──► answered ── send ──► sent
                                                                       └─ throttle: the client rests

`queue` is the wait behind other requests: of the same turn, or of a session that is muted. `local` is the
work of the handler, encoding included. Nothing here is imported before the metrics are switched on.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sparklog.model import Instant
from sparklog.wire.messages.fetch import FetchRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.metrics.api_times import ApiTimes
from sparklog_server.broker.session import MUTING_SILENT, SILENT, Call, Parked
from sparklog_server.histogram import TABLE

if TYPE_CHECKING:
    from sparklog_server.broker.metrics.slow_requests import SlowRequests

_FETCH: Final = 1
RUN_MAX: Final = 16
_NO_RUN: Final = -1
_TABLE_US: Final = len(TABLE)
FOLLOWER: Final = 1 << 24
"""Marks the key of a Fetch of a follower."""


class RequestTimes:
    """The requests of one broker. `clock` gives monotonic nanoseconds on the clock of `Instant`.

    Requests of one API that come together are timed together, as a run: each counts with the mean time. So a
    pipelined request costs one addition, and a run one reading of the clock. `at_ns` and `received_us`
    are set before requests are served, `served` is called after each but those that go on with the run, and
    `flush` at the end. With `slow`, each request is timed by itself.
    """

    __slots__ = (
        "_clock_ns",
        "_run",
        "at_ns",
        "by_key",
        "received_us",
        "run_api",
        "run_count",
        "run_version",
        "slow",
    )

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self.by_key: dict[int, ApiTimes] = {}
        self.run_api = _NO_RUN
        """The API of the run: a request of it and of `run_version` is counted by adding to `run_count`."""
        self.run_version = self.run_count = 0
        self.slow: SlowRequests | None = None
        self._run: ApiTimes | None = None
        self.at_ns = 0  # the end of the last run, or the beginning of the turn
        self.received_us = 0  # when the requests came that are served now

    def resumed(self, received_us: int) -> None:
        """Requests that came at `received_us` are served from now on."""
        self.received_us, self.at_ns = received_us, self._clock_ns()

    def served(self, call: Call, request: Message, answer: Message | Parked, size: int) -> None:
        """A request of `size` bytes that begins a run was answered, or one was parked, which is a run of its
        own.
        """
        if self._run is not None:
            # Another API: this request has its share of the time since the run began.
            began_ns, count = self.at_ns, self.run_count
            self._record(began_ns, began_ns + (self._clock_ns() - began_ns) * count // (count + 1))
        api_key, version = call.api_key, call.version
        key = api_key << 8 | version
        if api_key == _FETCH and _is_of_follower(request):
            key |= FOLLOWER
        times = self.by_key.get(key)
        if times is None:
            times = self.by_key[key] = ApiTimes(api_key, version, is_of_follower=key >= FOLLOWER)
        call.session.times = self._run = times
        self.run_count = 1
        is_parked = type(answer) is Parked
        if not is_parked and self.slow is None:
            self.run_api, self.run_version = api_key, version
            return
        is_ended = not is_parked or answer is SILENT or answer is MUTING_SILENT
        began_ns, served_ns = self.at_ns, self._clock_ns()
        self._record(began_ns, served_ns, is_ended=is_ended)
        if self.slow is not None:
            queue_us, local_us = began_ns // 1000 - self.received_us, (served_ns - began_ns) // 1000
            self.slow.served(call, request, size, queue_us, local_us)
            if is_ended:
                self.slow.ended(call)
        if not is_ended and call.answer is None:
            call.times, call.served_us = times, served_ns // 1000
            call.spent_us = served_ns // 1000 - self.received_us

    def flush(self) -> None:
        """No request follows at once: the run ends."""
        if self._run is not None:
            self._record(self.at_ns, self._clock_ns())

    def _record(self, began_ns: int, ended_ns: int, *, is_ended: bool = True) -> None:
        """Count the requests of the run. Each waits for those before it: as many as RUN_MAX count with the
        mean of their waits.
        """
        times, left = self._run, self.run_count
        assert times is not None
        self._run, self.run_api = None, _NO_RUN
        self.at_ns = ended_ns
        local_us = (ended_ns - began_ns) // (left * 1000)
        queue_us = began_ns // 1000 - self.received_us
        if is_ended:
            times.count += left
        queue, local, total = times.queue, times.local, times.total
        while left > 0:
            count = left if left < RUN_MAX else RUN_MAX
            waited_us = queue_us + local_us * (count - 1) // 2
            spent_us = waited_us + local_us
            if waited_us >= 0 and local_us >= 0 and spent_us < _TABLE_US:  # without calls, for a short turn
                queue.buckets[TABLE[waited_us]] += count
                queue.total_us += waited_us * count
                local.buckets[TABLE[local_us]] += count
                local.total_us += local_us * count
                if is_ended:
                    total.buckets[TABLE[spent_us]] += count
                    total.total_us += spent_us * count
            else:
                queue.add_several(waited_us, count)
                local.add_several(local_us, count)
                if is_ended:
                    total.add_several(spent_us, count)
            queue_us += local_us * count
            left -= count

    def ended(self, call: Call, times: ApiTimes, now: Instant) -> None:
        """A parked request has its response."""
        remote_us = now.mono_us - call.served_us
        call.session.times, call.times = times, None
        times.remote.add(remote_us)
        times.total.add(call.spent_us + max(0, remote_us))
        times.count += 1
        if self.slow is not None:
            self.slow.ended(call, remote_us)

    def abandoned(self, call: Call) -> None:
        """A parked request will have no response: its connection has ended."""
        if self.slow is not None and call.times is not None:
            self.slow.abandoned(call, self._clock_ns() // 1000 - call.served_us)

    def throttled(self, call: Call, delay_us: int) -> None:
        """The client of a request has exceeded its quota and rests for so long."""
        times = self.by_key.get(call.api_key << 8 | call.version)
        if times is not None:
            times.throttle.add(delay_us)
        if self.slow is not None:
            self.slow.throttled(call, delay_us)


def _is_of_follower(request: Message) -> bool:
    assert isinstance(request, FetchRequest)
    state = request.replica_state
    return (request.replica_id if state is None else state.replica_id) >= 0
