"""Clients that push metrics to a simulated node, and OTLP as they write it."""

from collections.abc import Callable
from typing import NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    MetricsData,
    NumberDataPoint,
)

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID
from sparklog.record.compression import Codec, compress
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from sparklog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from sparklog_server.broker.metrics.report import BrokerReport
from sparklog_server.metrics_text import Text
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.configuring import METRICS, set_to
from tests.broker.world import World
from tests.metrics.scraping import Scrape, parsed

PIECE_CHARS_MAX = 40_000


def pushing_world(**given: str) -> World:
    """A node that takes pushes."""
    settings = {"sparklog.http.listener": "http://127.0.0.1:0"}
    settings |= {name.replace("_", "."): value for name, value in given.items()}
    world = World(seed=1, **settings)
    world.node.start()
    world.settle()
    return world


def subscribe(world: World, name: str = "all", **values: str) -> None:
    """Create or change a subscription."""
    given = {"interval_ms": "1000", "metrics": "*", **values}
    assert set_to(world, world.node.connect(), METRICS, name, **given) == (ErrorCode.NONE, None)


class Counted(NamedTuple):
    """A metric of one point."""

    name: str
    value: float
    attributes: tuple[tuple[str, str], ...] = ()
    is_gauge: bool = False


def otlp(*metrics: Counted, change: Callable[[MetricsData], None] = lambda _: None) -> bytes:
    """The bytes of a push, each metric in a ResourceMetrics of its own, as Java's client has it."""
    data = MetricsData()
    for one in metrics:
        metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name=one.name)
        if one.is_gauge:
            point = metric.gauge.data_points.add()
        else:
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
            point = metric.sum.data_points.add()
        _fill(point, one)
    change(data)
    return data.SerializeToString()


def _fill(point: NumberDataPoint, one: Counted) -> None:
    if isinstance(one.value, int):
        point.as_int = one.value
    else:
        point.as_double = one.value
    for key, value in one.attributes:
        point.attributes.add(key=key).value.string_value = value


class Pusher:
    """A client that knows its subscription."""

    def __init__(self, world: World, client_id: str = "c", software: tuple[str, str] | None = None) -> None:
        self.world = world
        self.connection = world.node.connect(client_id)
        self.instance_id = ZERO_UUID
        self.subscription_id = 0
        if software is not None:
            request = ApiVersionsRequest(
                client_software_name=software[0], client_software_version=software[1]
            )
            world.ask(self.connection, request, 3, ApiVersionsResponse)

    def get(self) -> GetTelemetrySubscriptionsResponse:
        """Ask for the subscription, and take it."""
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id)
        answer = self._ask(request, GetTelemetrySubscriptionsResponse)
        assert isinstance(answer, GetTelemetrySubscriptionsResponse)
        if answer.error_code == 0:
            self.instance_id, self.subscription_id = answer.client_instance_id, answer.subscription_id
        return answer

    def push(
        self,
        metrics: bytes,
        codec: int = Codec.NONE,
        *,
        is_compressed: bool = False,
        terminating: bool = False,
        subscription_id: int | None = None,
    ) -> ErrorCode:
        """Push; the error of the response."""
        content = metrics if is_compressed or codec not in set(Codec) else compress(Codec(codec), metrics)
        request = PushTelemetryRequest(
            client_instance_id=self.instance_id,
            subscription_id=self.subscription_id if subscription_id is None else subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=bytes(content),
        )
        answer = self._ask(request, PushTelemetryResponse)
        assert isinstance(answer, PushTelemetryResponse)
        return ErrorCode(answer.error_code)

    def _ask(self, request: object, reply: type) -> object:
        """Send, and wait for the response in steps of 50 ms."""
        before = len(self.connection.replies)
        self.connection.send(request, 0, reply)  # type: ignore[arg-type]
        for _ in range(20):
            self.world.settle(50)
            if len(self.connection.replies) > before:
                return self.connection.replies[-1]
        raise AssertionError("no answer")


def scraped(world: World, connection: SimulatedConnection | None = None) -> Scrape:
    """/metrics of the node."""
    assert world.node.broker is not None
    report = BrokerReport(*world.node.broker.observed)
    pieces = list(report.render(Text(is_openmetrics=False), 1.0, world.clock.now))
    assert max(map(len, pieces)) <= PIECE_CHARS_MAX
    return parsed("".join(pieces))
