"""Enforcement of client quotas: the quotas of each client, its recent use, and its throttle time (KIP-13,
KIP-219, KIP-599).

    request served ─► its use is recorded ─┬─► within the quota ─► answered
                                           └─► above it ────────► answered with throttle_time_ms, and the
                                                                  session is muted that long

A rate is measured over the samples of the last `quota.window.num` windows, including the present one. The
quota is that of the most specific entity that has one, kind by kind: user and client id, user and any client
id, user, any user and client id, any user and any client id, any user, client id, any client id. The clients
of one user entity share the rate; a default entity is a rate for each client.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from heapq import heapify, heappop, heappush

from sparklog.effects import Chunk
from sparklog.model import Instant, Micros
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.connection_rates import ConnectionRates, Rate, TokenBucket
from sparklog_server.broker.session import Call, Session
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.client_quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Quotas,
)

_PRODUCE = 0
_FETCH = 1
_CLIENTS_MAX = 10_000
"""The maximum number of clients in the table; the longest idle ones are dropped and begin anew."""
_NS_PER_PERCENT_SECOND = 10_000_000
_UNLIMITED = 1 << 62
_SWEPT_FROM = 1024
_FLEXIBLE_FETCH = 12

WorkClock = Callable[[], int]
"""Monotonic nanoseconds, to measure the time of a request for `request_percentage`."""


class Kind(IntEnum):
    """The limited resource."""

    PRODUCE = 0
    FETCH = 1
    REQUEST = 2
    MUTATION = 3


_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)


class _Client:
    """The quotas of one user and client id: (limit per second, measured use) by kind, None where there is no
    limit.
    """

    __slots__ = ("fetch", "mutation", "produce", "request")

    def __init__(self) -> None:
        self.produce: tuple[float, Rate] | None = None
        self.fetch: tuple[float, Rate] | None = None
        self.request: tuple[float, Rate] | None = None
        self.mutation: tuple[float, TokenBucket] | None = None


class ClientQuotas:
    """The quotas of the published image and their use on this broker.

    `is_set` is False while no quota can apply to a request: the broker then calls only `published` and
    `deadline`. `is_timed` asks for `work_ns` before each request. Invariant: each entry of `resting` has
    `is_throttled` set until `rested` returns it.
    """

    def __init__(self, settings: BrokerSettings, work_clock: WorkClock) -> None:
        self.is_set = False
        self.is_timed = False
        self.work_ns = work_clock
        self._window = (settings.quotas.quota_window_num, settings.quotas.quota_window_size_seconds * 1000)
        self._mutation_window = (
            settings.quotas.controller_quota_window_num,
            settings.quotas.controller_quota_window_size_seconds * 1000,
        )
        self._limits: tuple[dict[tuple[str | None, str | None], float], ...] = ({}, {}, {}, {})
        self._clients: dict[tuple[str, str | None], _Client] = {}
        self._rates: dict[tuple[int, str, str], Rate | TokenBucket] = {}
        self.connections = ConnectionRates(*self._window)
        self.resting: list[tuple[Micros, int, Session]] = []
        self._sequence = 0
        self._swept_at = _SWEPT_FROM

    def published(self, quotas: Quotas) -> None:
        """Apply the quotas of a new image; measured use is kept."""
        self.connections.published(quotas)
        limits: tuple[dict[tuple[str | None, str | None], float], ...] = ({}, {}, {}, {})
        for entity, numbers in quotas.items():
            names = dict(entity)
            level = (_level(names, USER), _level(names, CLIENT_ID))
            for kind, key in enumerate(_KEYS):
                if key in numbers:
                    limits[kind][level] = numbers[key]
        self._limits = limits
        self._clients.clear()
        self.is_set = any(limits)
        self.is_timed = bool(limits[Kind.REQUEST])
        if not self.is_set:
            self._rates.clear()

    def served(self, call: Call, request_bytes: int, begun_ns: int) -> None:
        """Record that a request ran, since `begun_ns` if requests are timed; its response is charged
        later.
        """
        work_ns = self.work_ns() - begun_ns if self.is_timed else 0
        call.used = (request_bytes, work_ns, 0 if call.used is None else call.used[2])

    def charge_silent(self, call: Call, now: Instant) -> None:
        """Charge a Produce without a response for its bytes only, as Kafka does."""
        limited = self._client_of(call).produce
        if limited is not None and call.used is not None:
            self._rest(call.session, limited[1].charge(call.used[0], limited[0], now.mono_us // 1000), now)

    def charged(self, call: Call, message: Message, chunks: list[Chunk], now: Instant) -> Message | None:
        """The throttled response in place of this one if its client exceeds a quota; None to send the encoded
        response.
        """
        if call.used is None:
            return None  # the request ran before any quota was set
        request_bytes, work_ns, delay_ms = call.used
        client = self._clients.get((call.session.principal, call.client_id)) or self._client_of(call)
        now_ms = now.mono_us // 1000
        api_key = call.api_key
        if client.request is not None:
            limit, rate = client.request
            # Kafka bounds this throttle time by one window.
            delay_ms = max(delay_ms, min(rate.charge(work_ns, limit, now_ms), self._window[1]))
        if api_key == _PRODUCE:
            if client.produce is not None:
                limit, rate = client.produce
                # No `max()`, since nearly every response passes: it would take a tenth of the whole time.
                over_ms = rate.charge(request_bytes, limit, now_ms)
                if over_ms > delay_ms:
                    delay_ms = over_ms
        elif api_key == _FETCH:
            if client.fetch is not None:
                limit, rate = client.fetch
                size = _size_of_fetch(call, chunks)
                delay_ms = max(delay_ms, rate.charge(size, limit, now_ms))
                if delay_ms:
                    rate.charge(-size, limit, now_ms)
            if delay_ms:
                message = FetchResponse()  # withheld records are neither sent nor counted
        if not delay_ms:
            return None
        self._rest(call.session, delay_ms, now)
        if "throttle_time_ms" not in message.__struct_fields__:
            return None
        message.throttle_time_ms = delay_ms  # type: ignore[attr-defined]
        return message

    def fetch_bytes_max(self, call: Call) -> int:
        """The largest Fetch response of this client that cannot certainly exceed its quota, if it had used
        nothing yet.
        """
        limited = self._client_of(call).fetch
        return (
            _UNLIMITED
            if limited is None
            else int(min(limited[0] * (self._window[0] - 1) * (self._window[1] // 1000), _UNLIMITED))
        )

    def admits(self, call: Call, partitions: int, *, is_strict: bool, now: Instant) -> bool:
        """Charge `partitions` created or deleted to the client's mutation quota; False if the quota is used
        up and the request must be refused. A forwarded request was charged by the broker that forwards it.
        """
        limited = self._client_of(call).mutation
        if limited is None or call.session.is_controller:
            return True
        per_second, bucket = limited
        now_ms = now.mono_us // 1000
        if is_strict and (delay_ms := bucket.delay_ms(per_second, now_ms)):
            call.used = (0, 0, delay_ms)
            return False
        bucket.record(partitions, per_second, now_ms)
        if not is_strict:
            call.used = (0, 0, bucket.delay_ms(per_second, now_ms))
        return True

    def give_back(self, call: Call, partitions: int) -> None:
        """Return a charge that was not used: the controller refused the change."""
        limited = self._client_of(call).mutation
        if limited is not None and partitions and not call.session.is_controller:
            limited[1].give_back(partitions, limited[0])

    # -- throttled sessions

    def rested(self, now: Instant) -> list[Session]:
        """The sessions whose throttle time has ended since the last call."""
        done = []
        while self.resting and self.resting[0][0] <= now.mono_us:
            until_us, _, session = heappop(self.resting)
            if until_us == session.throttled_until_us:  # otherwise its throttle time was extended
                session.throttled_until_us = None
                done.append(session)
        return done

    def deadline(self) -> Micros | None:
        """The next time at which `rested` returns a session."""
        while self.resting and self.resting[0][2].is_closing:
            heappop(self.resting)
        return self.resting[0][0] if self.resting else None

    def _rest(self, session: Session, delay_ms: int, now: Instant) -> None:
        if not delay_ms:
            return
        until_us = Micros(now.mono_us + delay_ms * 1000)
        if session.throttled_until_us is None or until_us > session.throttled_until_us:
            session.throttled_until_us = until_us
            self._sequence += 1
            if len(self.resting) >= self._swept_at:
                self._sweep()
            heappush(self.resting, (until_us, self._sequence, session))

    def _sweep(self) -> None:
        """Drop the sessions that were closed, or whose throttle time was extended: a client may reconnect
        as a new session any number of times.
        """
        self.resting = [
            one for one in self.resting if not one[2].is_closing and one[0] == one[2].throttled_until_us
        ]
        heapify(self.resting)
        self._swept_at = max(_SWEPT_FROM, 2 * len(self.resting))

    # -- quotas of each client

    def _client_of(self, call: Call) -> _Client:
        key = (call.session.principal, call.client_id)
        client = self._clients.get(key)
        return client if client is not None else self._resolve(key)

    def _resolve(self, key: tuple[str, str | None]) -> _Client:
        """Find the quotas of a client that has none yet, or whose quotas may have changed."""
        user, client_id = key[0].partition(":")[2], key[1] or ""
        client = _Client()
        client.produce = self._limited(Kind.PRODUCE, user, client_id)
        client.fetch = self._limited(Kind.FETCH, user, client_id)
        client.request = self._limited(Kind.REQUEST, user, client_id)
        found = self._find(Kind.MUTATION, user, client_id)
        if found is not None:
            limit, owner = found
            bucket = self._rates.setdefault((Kind.MUTATION, *owner), TokenBucket(*self._mutation_window))
            assert isinstance(bucket, TokenBucket)
            client.mutation = (limit, bucket)
        while len(self._clients) >= _CLIENTS_MAX:
            del self._clients[next(iter(self._clients))]
        while len(self._rates) > 4 * _CLIENTS_MAX:
            del self._rates[next(iter(self._rates))]
        self._clients[key] = client
        return client

    def _limited(self, kind: Kind, user: str, client_id: str) -> tuple[float, Rate] | None:
        found = self._find(kind, user, client_id)
        if found is None:
            return None
        limit, owner = found
        if kind is Kind.REQUEST:
            limit *= _NS_PER_PERCENT_SECOND
        rate = self._rates.setdefault((kind, *owner), Rate(*self._window))
        assert isinstance(rate, Rate)
        return limit, rate

    def _find(self, kind: Kind, user: str, client_id: str) -> tuple[float, tuple[str, str]] | None:
        """The quota that applies, and the entity whose use counts towards it; a client without an id has no
        entity.
        """
        limits = self._limits[kind]
        for level, owner in _levels(user, client_id):
            if level in limits:
                return limits[level], owner
        return None


_DEFAULT = ""
_ANY: None = None


def _level(names: dict[str, str | None], kind: str) -> str | None:
    """The name of one type in an entity: None if it does not have the type, empty for its default."""
    return (names[kind] or _DEFAULT) if kind in names else _ANY


def _levels(user: str, client_id: str) -> Iterable[tuple[tuple[str | None, str | None], tuple[str, str]]]:
    """The quota entity and the key of the shared use, from the most specific on."""
    both = (user, client_id)
    if client_id:
        yield (user, client_id), both
        yield (user, _DEFAULT), both
    yield (user, _ANY), (user, "")
    if client_id:
        yield (_DEFAULT, client_id), both
        yield (_DEFAULT, _DEFAULT), both
    yield (_DEFAULT, _ANY), (user, "")
    if client_id:
        yield (_ANY, client_id), ("", client_id)
        yield (_ANY, _DEFAULT), ("", client_id)


def _size_of_fetch(call: Call, chunks: list[Chunk]) -> int:
    """The size of a reply as Kafka counts it: with the length field, without the header."""
    return sum(map(len, chunks)) - (5 if call.version >= _FLEXIBLE_FETCH else 4)
