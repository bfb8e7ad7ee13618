"""Samples requests for traces: each sampled request becomes one span, whose parts are those of
`request_times`.

    next request ── drawn? ──► begun ── handler ──► served ──► answered ──► waiting for the exporter ─► taken
                                                                                └─ no room: dropped

Kafka's protocol has no trace context, so each span is a trace of its own. Spans that wait are bounded: an
exporter that cannot send costs the broker nothing but these. Nothing here is imported before
`sparklog.otlp.endpoint` is set.
"""

from collections import Counter, deque
from collections.abc import Callable
from math import log, log1p
from typing import Final

from sparklog.model import Instant
from sparklog.wire.schema import Message
from sparklog_server.broker.metrics.span import Span
from sparklog_server.broker.session import SOFTWARE_CHARS_MAX, Call

WAITING_MAX: Final = 1_024
"""The spans that wait for the exporter."""
SPAN_BYTES: Final = 1_800
"""With a client id whose characters have four bytes."""
_NEVER: Final = 1 << 62
_ID_BITS: Final = 53


class RequestSpans:
    """The sampled requests of one broker. `left` requests come before the next one that is sampled;
    `received_us` is set before requests are served. `counts` has what became of the spans.
    """

    def __init__(self, ratio: float, clock_ns: Callable[[], int], entropy: Callable[[int], bytes]) -> None:
        self._ratio = ratio
        self._clock_ns = clock_ns
        self._entropy = entropy
        self._waiting: deque[Span] = deque()
        self.counts: Counter[str] = Counter()
        self.received_us = 0
        self.left = self._drawn()

    def begin(self, call: Call, request_bytes: int, now: Instant) -> Span:
        """The span of the request that was drawn."""
        self.left = self._drawn()
        ids = self._entropy(24)  # zeros, which are no ids, come once in 2^64
        wall_ns = now.wall_ms * 1_000_000 - (now.mono_us - self.received_us) * 1000
        session = call.session
        span = Span(
            ids,
            (call.api_key, call.version),
            (call.client_id or "")[:SOFTWARE_CHARS_MAX],
            listener=session.listener,
            address=session.host,
            request_bytes=request_bytes,
            received_us=self.received_us,
            wall_ns=wall_ns,
        )
        span.begun_us = max(self._clock_ns() // 1000, self.received_us)
        span.queue_us = span.begun_us - self.received_us
        return span

    def served(self, span: Span) -> None:
        """The handler has parked the request."""
        span.served_us = max(self._clock_ns() // 1000, span.begun_us)
        span.local_us = span.served_us - span.begun_us

    def ended(self, span: Span, message: Message | None, throttle_us: int = 0) -> None:
        """The request has its response, or will have none."""
        ended_us = max(self._clock_ns() // 1000, span.served_us, span.begun_us)
        if span.served_us:
            span.remote_us = ended_us - span.served_us
        else:
            span.local_us = ended_us - span.begun_us
        span.total_us = ended_us - span.received_us
        span.throttle_us = max(throttle_us, 0)
        span.error_code = getattr(message, "error_code", 0)
        if len(self._waiting) >= WAITING_MAX:
            self.counts["dropped"] += 1
        else:
            self._waiting.append(span)

    def take(self, most: int) -> list[Span]:
        """The oldest spans that wait, which wait no longer."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    @property
    def waiting(self) -> int:
        """How many spans wait."""
        return len(self._waiting)

    def _drawn(self) -> int:
        """How many requests are left out before the next one: each is sampled with the same probability."""
        if self._ratio >= 1:
            return 0
        if self._ratio <= 0:
            return _NEVER
        drawn = (int.from_bytes(self._entropy(7), "big") >> 3) + 1
        return int(log(drawn / (1 << _ID_BITS)) / log1p(-self._ratio))
