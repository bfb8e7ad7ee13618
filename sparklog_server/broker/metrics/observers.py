"""What is noted of requests, each only if the settings ask for it: times, slow requests, errors and spans."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from sparklog.model import Instant, Micros, SessionId
from sparklog.wire.schema import Message
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.broker.session import Call, Session
from sparklog_server.replica.directory import Trace

if TYPE_CHECKING:
    from sparklog_server.broker.metrics.request_errors import RequestErrors
    from sparklog_server.broker.metrics.request_spans import RequestSpans
    from sparklog_server.broker.metrics.request_times import RequestTimes
    from sparklog_server.broker.metrics.slow_requests import SlowRequests

_PRODUCE: Final = 0


class Observers:
    """`is_on` tells whether there is one. The limit of slow requests may change while the broker runs."""

    def __init__(
        self,
        live: DynamicBrokerConfig,
        work_ns: Callable[[], int],
        *,
        entropy: Callable[[int], bytes],
        trace: Trace,
    ) -> None:
        self.times: RequestTimes | None = None
        self.slow: SlowRequests | None = None
        self.errors: RequestErrors | None = None
        self.spans: RequestSpans | None = None
        self.is_on = False
        self._live = live
        self._work_ns = work_ns
        self._trace = trace
        if live.settings.http.listener is not None:
            from sparklog_server.broker.metrics import request_errors  # only where they are shown

            self.errors = request_errors.RequestErrors()
        self._sample(entropy)
        self._measure()
        live.followers.append(self._measure)

    def _measure(self) -> None:
        """Measure the times that the settings of the moment need."""
        settings = self._live.settings
        limit_us = settings.lines.slow_request_ms * 1000
        if not limit_us:
            self.slow = None
        elif self.slow is not None:
            self.slow.limit_us = limit_us
        else:
            from sparklog_server.broker.metrics import slow_requests  # only where they are logged

            self.slow = slow_requests.SlowRequests(limit_us, self._trace)
        if self.slow is None and settings.http.listener is None:
            self.times = None
        elif self.times is None:
            from sparklog_server.broker.metrics import request_times  # only where they are shown

            self.times = request_times.RequestTimes(self._work_ns)
        if self.times is not None:
            self.times.slow = self.slow
        self.is_on = self.times is not None or self.spans is not None

    def _sample(self, entropy: Callable[[int], bytes]) -> None:
        """Sample requests for traces, if the settings name a collector."""
        telemetry = self._live.settings.telemetry
        if telemetry.otlp_endpoint is None:
            return
        from sparklog_server.broker.metrics import otlp, request_spans  # most nodes have no collector

        if otlp.is_installed():
            self.spans = request_spans.RequestSpans(telemetry.otlp_sample_ratio, self._work_ns, entropy)

    def received(self, at_us: Micros) -> None:
        """The next requests were received at that time."""
        if (times := self.times) is not None:
            times.received_us, times.at_ns = at_us, at_us * 1000
        if self.spans is not None:
            self.spans.received_us = at_us

    def resumed(self, since_us: Micros) -> None:
        """The next requests have waited since that time on a muted session."""
        if self.times is not None:
            self.times.resumed(since_us)
        if self.spans is not None:
            self.spans.received_us = since_us

    def answered(self, call: Call, message: Message, now: Instant) -> None:
        """A response is on its way."""
        if self.errors is not None and (
            call.api_key != _PRODUCE or call.has_error or call.times is not None  # None: answered at once
        ):
            self.errors.count(call.api_key, message)
        if call.times is not None and self.times is not None:
            self.times.ended(call, call.times, now)
        if call.span is not None and self.spans is not None:
            until_us = call.session.throttled_until_us
            self.spans.ended(call.span, message, 0 if until_us is None else until_us - now.mono_us)
            call.session.span = call.span

    def sent(self, session: Session, duration_us: int) -> None:
        """The responses of a session were sent, of which the socket had not taken all at once."""
        if session.times is not None:
            session.times.send.add(duration_us)
        if session.span is not None:
            session.span.send_us, session.span = duration_us, None
        if self.slow is not None:
            self.slow.sent(session.id, duration_us)

    def disconnected(self, session_id: SessionId, owed: Iterable[Call]) -> None:
        """A session has ended that owes the responses of these calls."""
        if self.slow is not None:
            self.slow.disconnected(session_id)
        if self.times is not None:
            for call in owed:
                self.times.abandoned(call)
