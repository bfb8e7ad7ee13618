"""Subscriptions to client metrics, and the pushes of clients (KIP-714)."""

import re
import sys
from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID
from sparklog.record.compression import Codec
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.header import encode_request
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.dispatch import TELEMETRY_APIS
from sparklog_server.broker.metrics import otlp as optional
from sparklog_server.config.client_metrics import subscription_of
from sparklog_server.metrics import METRICS as METRICS_DECLARED
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.configuring import DELETE, METRICS, alter, resource
from tests.broker.metrics.pushing import Counted, Pusher, otlp, pushing_world, scraped, subscribe
from tests.broker.world import World
from tests.wire.arbitrary import arbitrary
from tests.wire.hostile import mutations

SENT = Counted("org.apache.kafka.producer.record.send.total", 5.0)
COUNTER, GAUGE = "sparklog_client_counter_total", "sparklog_client_gauge"


@pytest.fixture
def world() -> World:
    return pushing_world()


def advertised(world: World) -> set[int]:
    request = ApiVersionsRequest(client_software_name="n", client_software_version="1")
    answer = world.ask(world.node.connect(), request, 3, ApiVersionsResponse)
    assert isinstance(answer, ApiVersionsResponse)
    return {one.api_key for one in answer.api_keys}


# -- what is advertised


def test_the_apis_are_served_where_the_metrics_are_shown(world: World) -> None:
    assert advertised(world) >= TELEMETRY_APIS
    without = World(seed=1)
    without.node.start()
    without.settle()
    assert not advertised(without) & TELEMETRY_APIS
    client = without.node.connect()
    client.send(PushTelemetryRequest(), 0, PushTelemetryResponse)
    without.settle()
    assert client.is_closed


def test_the_apis_are_not_served_without_the_optional_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional, "PACKAGE", "no_package_of_that_name.proto")
    optional.is_installed.cache_clear()
    try:
        assert not advertised(pushing_world()) & TELEMETRY_APIS
    finally:
        optional.is_installed.cache_clear()


def test_a_broken_installation_costs_the_push_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    subscribe(world)
    pusher = Pusher(world)
    pusher.get()
    content = otlp(SENT)
    optional.metrics_classes.cache_clear()
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.metrics.v1.metrics_pb2", None)
    monkeypatch.delattr("opentelemetry.proto.metrics.v1.metrics_pb2")
    assert pusher.push(content) is ErrorCode.INVALID_RECORD
    assert advertised(world) >= TELEMETRY_APIS


# -- subscriptions


def test_a_subscription_that_only_kafka_takes_means_no_client() -> None:
    java = subscription_of({"metrics": "*", "match": "client_id=(?!x).*"})
    assert java is None
    other = subscription_of({"metrics": "a,b", "interval.ms": "5", "of.a.later.release": "x"})
    assert other is not None
    assert (other.metrics, other.interval_ms, other.patterns) == (("a", "b"), 5, {})


def test_a_client_without_a_subscription_is_asked_for_nothing_every_five_minutes(world: World) -> None:
    answer = Pusher(world).get()
    assert (answer.error_code, answer.requested_metrics, answer.push_interval_ms) == (0, [], 300_000)
    assert answer.accepted_compression_types == [Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY]
    assert (answer.telemetry_max_bytes, answer.delta_temporality) == (1_048_576, True)
    assert answer.client_instance_id != ZERO_UUID


def test_the_subscriptions_that_mean_a_client_are_united(world: World) -> None:
    subscribe(world, "a", metrics="org.a,org.b", interval_ms="5000")
    subscribe(world, "b", metrics="org.b,org.c", interval_ms="2000", match="client_id=one.*")
    one, two = Pusher(world, "one-1").get(), Pusher(world, "two").get()
    assert (one.requested_metrics, one.push_interval_ms) == (["org.a", "org.b", "org.c"], 2_000)
    assert (two.requested_metrics, two.push_interval_ms) == (["org.a", "org.b"], 5_000)
    subscribe(world, "c", metrics="*", interval_ms="9000")
    assert Pusher(world, "three").get().requested_metrics == ["*"]


@pytest.mark.parametrize(
    ("match", "is_meant"),
    [
        ("client_id=c", True),
        ("client_id=.*", True),
        ("client_id=", None),
        ("client_id=x", False),
        ("client_id=c.", False),
        ("client_software_name=apache-.*,client_software_version=4\\..*", True),
        ("client_software_name=apache-.*,client_software_version=3\\..*", False),
        ("client_source_address=client", True),
        ("client_source_address=127.*", False),
        ("client_source_port=[0-9]+", True),
        ("client_instance_id=[A-Za-z0-9_-]{22}", True),
        ("client_instance_id=short", False),
    ],
)
def test_a_pattern_must_match_an_attribute_as_a_whole(
    world: World, match: str, is_meant: bool | None
) -> None:
    if is_meant is None:
        with pytest.raises(AssertionError):
            subscribe(world, match=match)
        return
    subscribe(world, match=match)
    answer = Pusher(world, "c", ("apache-kafka-java", "4.3.1")).get()
    assert (answer.requested_metrics == ["*"]) == is_meant


def test_a_client_that_does_not_say_its_software_is_unknown(world: World) -> None:
    subscribe(world, match="client_software_name=unknown,client_software_version=unknown")
    assert Pusher(world).get().requested_metrics == ["*"]


@pytest.mark.parametrize(("first_byte", "expected"), [(1, 848_016_041), (0xF1, -1_031_032_151)])
def test_the_id_of_a_subscription_is_that_of_kafka(world: World, first_byte: int, expected: int) -> None:
    """As Kafka 4.3.1 computes it of [*] and 1000, for the id f1 or 01, 02, … 10."""
    subscribe(world)
    pusher = Pusher(world)
    pusher.instance_id = bytes((first_byte, *range(2, 17)))
    assert pusher.get().subscription_id == expected


def test_an_early_request_for_a_subscription_is_throttled(world: World) -> None:
    subscribe(world)
    pusher = Pusher(world)
    assert pusher.get().error_code == 0
    assert pusher.get().error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.settle(1_000)
    assert pusher.get().error_code == 0


def test_an_instance_ends_with_its_connection(world: World) -> None:
    subscribe(world)
    pusher = Pusher(world)
    pusher.get()
    assert pusher.push(otlp(SENT), terminating=True) is ErrorCode.NONE
    assert pusher.push(otlp(SENT)) is ErrorCode.INVALID_REQUEST
    assert scraped(world).value("sparklog_client_instances") == 1
    world.node.disconnect(pusher.connection)
    assert scraped(world).value("sparklog_client_instances") == 0
    again = Pusher(world)
    again.instance_id, again.subscription_id = pusher.instance_id, pusher.subscription_id
    assert again.push(otlp(SENT)) is ErrorCode.NONE


# -- pushes


def test_deltas_add_up_and_gauges_are_replaced(world: World) -> None:
    subscribe(world)
    pusher = Pusher(world, "the-client")
    pusher.get()
    labels = (("node-id", "node-1"), ("topic", "t"), ("partition", "3"), ("b", "2"), ("a", "1"))
    for value in (3, 4):
        content = otlp(Counted("org.sent", value, labels), Counted("org.size", value / 2, is_gauge=True))
        assert pusher.push(content, Codec.ZSTD) is ErrorCode.NONE
        world.settle(1_000)
    found = scraped(world)
    ((of_counter, sent),) = found.samples[COUNTER].items()
    assert sent == 7
    assert dict(of_counter) | {"client_instance_id": ""} == {
        "client_id": "the-client",
        "client_instance_id": "",
        "metric": "org.sent",
        "topic": "t",
        "partition": "3",
        "node": "1",
        "attributes": "a=1,b=2",
    }
    ((of_gauge, size),) = found.samples[GAUGE].items()
    assert (dict(of_gauge)["metric"], size) == ("org.size", 2.0)
    assert found.value("sparklog_client_pushes_total", error="NONE") == 2


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_of_kafka_is_taken(world: World, codec: Codec) -> None:
    subscribe(world)
    pusher = Pusher(world)
    pusher.get()
    assert pusher.push(otlp(SENT), codec) is ErrorCode.NONE
    assert scraped(world).total(COUNTER) == 5


def test_an_early_push_is_throttled_unless_it_is_the_last(world: World) -> None:
    subscribe(world)
    pusher = Pusher(world)
    pusher.get()
    assert pusher.push(otlp(SENT)) is ErrorCode.NONE  # at once after the subscription
    assert pusher.push(otlp(SENT)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.settle(1_000)
    assert pusher.push(otlp(SENT)) is ErrorCode.NONE
    assert pusher.push(otlp(SENT), terminating=True) is ErrorCode.NONE
    assert scraped(world).total(COUNTER) == 15


def test_a_changed_subscription_is_asked_for_again_at_once(world: World) -> None:
    subscribe(world)
    pusher = Pusher(world)
    before = pusher.get().subscription_id
    subscribe(world, metrics="org.b")
    assert pusher.push(otlp(SENT)) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    answer = pusher.get()
    assert (answer.error_code, answer.requested_metrics) == (0, ["org.b"])
    assert answer.subscription_id != before
    assert pusher.push(otlp(SENT)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED  # as in Kafka, after any push
    world.settle(1_000)
    assert pusher.push(otlp(SENT)) is ErrorCode.NONE
    world.settle(1_000)
    deleted = [(key, DELETE, None) for key in ("interval.ms", "metrics")]
    assert alter(world, world.node.connect(), resource(METRICS, "all", *deleted)) == [(ErrorCode.NONE, None)]
    assert pusher.push(otlp(SENT)) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert pusher.get().requested_metrics == []


def test_an_unknown_codec_is_refused_and_the_client_may_ask_at_once(world: World) -> None:
    subscribe(world)
    pusher = Pusher(world)
    pusher.get()
    assert pusher.push(otlp(SENT), 5) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert pusher.get().error_code == 0
    world.settle(1_000)
    assert pusher.push(otlp(SENT)) is ErrorCode.NONE


def test_a_push_without_metrics_is_taken(world: World) -> None:
    subscribe(world)
    pusher = Pusher(world)
    pusher.get()
    assert pusher.push(b"") is ErrorCode.NONE


def test_a_reserved_id_is_refused(world: World) -> None:
    for reserved in (ZERO_UUID, bytes(15) + b"\x01"):
        pusher = Pusher(world)
        pusher.instance_id = reserved
        assert pusher.push(otlp(SENT)) is ErrorCode.INVALID_REQUEST


# -- bad input


def test_a_push_beyond_telemetry_max_bytes_is_refused() -> None:
    world = pushing_world(telemetry_max_bytes="100")
    subscribe(world, interval_ms="100")
    pusher = Pusher(world)
    assert pusher.get().telemetry_max_bytes == 100
    assert pusher.push(bytes(101)) is ErrorCode.TELEMETRY_TOO_LARGE
    world.settle(100)
    assert pusher.push(otlp(SENT)) is ErrorCode.NONE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_decompresses_beyond_the_bound_is_invalid(world: World, codec: Codec) -> None:
    subscribe(world)
    pusher = Pusher(world)
    pusher.get()
    assert pusher.push(bytes(8 << 20), codec) is ErrorCode.INVALID_RECORD
    assert scraped(world).total("sparklog_client_series") == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_nonsense_is_invalid(world: World, codec: Codec) -> None:
    subscribe(world, interval_ms="100")
    pusher = Pusher(world)
    pusher.get()
    random = Random(codec)
    for _ in range(20):
        error = pusher.push(b"\x0f" + random.randbytes(random.randrange(1, 200)), codec, is_compressed=True)
        assert error is ErrorCode.INVALID_RECORD
        world.settle(100)


def test_bent_pushes_change_nothing_but_values(world: World) -> None:
    subscribe(world, interval_ms="100")
    whole = otlp(*[Counted(f"m{number}", number, (("topic", "t"),)) for number in range(20)])
    pusher = Pusher(world)
    pusher.get()
    for bent in mutations(whole, Random(7), count=200):
        assert pusher.push(bytes(bent)) in (ErrorCode.NONE, ErrorCode.INVALID_RECORD)
        world.settle(100)
    scraped(world)


@pytest.mark.parametrize("api_key", sorted(TELEMETRY_APIS))
def test_no_absurd_request_takes_the_broker_down(world: World, api_key: int) -> None:
    random, api = Random(api_key), API_BY_KEY[api_key]
    for _ in range(200):
        request = arbitrary(api.request(), 0, random)
        assert isinstance(request, Message)
        client = world.node.connect()
        client.send(request, 0, api.reply())
        world.settle(ms=50)
        world.node.disconnect(client)
    whole = b"".join(bytes(chunk) for chunk in encode_request(api.request()(), 0, 1, "x"))
    for bent in mutations(whole[4:], random, count=50):
        client = world.node.connect()
        client.expects_anything = True
        client.send_bytes(len(bent).to_bytes(4, "big") + bent)
    assert advertised(world) >= TELEMETRY_APIS


HOSTILE_NAMES = (
    'x"} 1\nkafka_brokers 99\n# TYPE y counter\n',
    "a\\",
    "\x1b[31m",
    "\x00",
    "‮drow",
    "x" * 7_000,
    "__name__",
    "",
)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_inert(world: World, name: str) -> None:
    subscribe(world)
    pusher = Pusher(world, name)
    pusher.get()
    hostile = Counted(name, 1, ((name or "k", name), ("topic", name)))
    assert pusher.push(otlp(hostile)) is ErrorCode.NONE
    found = scraped(world)
    declared = {re.sub("_(bucket|sum|count)$", "", one) for one in METRICS_DECLARED}
    assert {re.sub("_(bucket|sum|count)$", "", one) for one in found.samples} <= declared
    assert found.value("kafka_brokers") == 1
    assert found.total(COUNTER) == 1


def test_values_without_a_sample_are_counted(world: World) -> None:
    subscribe(world)
    pusher = Pusher(world)
    pusher.get()
    nonsense = [Counted("a", value) for value in (float("nan"), float("inf"), -1.0)]

    def a_histogram(data: object) -> None:
        metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="h")  # type: ignore[attr-defined]
        metric.histogram.data_points.add(count=1)

    many = Counted("b", 1, tuple((f"k{number}", "v") for number in range(17)))
    large = Counted("c", 1, (("k", "v" * (33 << 10)),))
    assert pusher.push(otlp(*nonsense, many, large, change=a_histogram)) is ErrorCode.NONE
    dropped = scraped(world).samples["sparklog_client_points_dropped_total"]
    assert {dict(labels)["reason"]: count for labels, count in dropped.items()} == {
        "value": 3,
        "attributes": 1,
        "size": 1,
        "type": 1,
    }


def test_labels_in_many_bytes_are_dropped(world: World) -> None:
    subscribe(world)
    pusher = Pusher(world)
    pusher.get()
    wide = "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 249
    assert pusher.push(otlp(Counted(wide, 1, (("topic", wide),)), SENT)) is ErrorCode.NONE
    found = scraped(world)
    assert (
        len(found.samples[COUNTER]) == found.value("sparklog_client_points_dropped_total", reason="size") == 1
    )


def test_a_sum_stays_finite(world: World) -> None:
    subscribe(world)
    pusher = Pusher(world)
    pusher.get()
    for _ in range(3):
        assert pusher.push(otlp(Counted("a", 1.7e308))) is ErrorCode.NONE
        world.settle(1_000)
    assert scraped(world).total(COUNTER) == 1.7e308


# -- bounds


def pushes(world: World, count: int, metrics: int, prefix: str = "m") -> list[SimulatedConnection]:
    """Clients that push so many metrics each."""
    content = otlp(*[Counted(f"{prefix}{number}", 1) for number in range(metrics)])
    connections = []
    for number in range(count):
        pusher = Pusher(world, f"c{number}")
        pusher.get()
        assert pusher.push(content) is ErrorCode.NONE
        connections.append(pusher.connection)
    return connections


@pytest.mark.parametrize(
    ("bounds", "series", "reason"),
    [
        ({"sparklog_telemetry_clients_max": "2"}, 20, "clients"),
        ({"sparklog_telemetry_client_series_max": "4"}, 16, "client"),
        ({"sparklog_telemetry_series_max": "25"}, 25, "series"),
    ],
)
def test_series_are_bounded_and_the_others_counted(bounds: dict[str, str], series: int, reason: str) -> None:
    world = pushing_world(**bounds)
    subscribe(world)
    pushes(world, count=4, metrics=10)
    found = scraped(world)
    assert len(found.samples[COUNTER]) == found.value("sparklog_client_series") == series
    assert found.value("sparklog_client_points_dropped_total", reason=reason) == 40 - series


def test_one_push_brings_a_bounded_number_of_points(world: World) -> None:
    subscribe(world)
    pushes(world, count=1, metrics=2_100)
    found = scraped(world)
    assert found.value("sparklog_client_series") == 500
    assert found.value("sparklog_client_points_dropped_total", reason="push") == 100
    assert found.value("sparklog_client_points_dropped_total", reason="client") == 1_500


def test_a_push_of_very_many_fields_is_invalid(world: World) -> None:
    subscribe(world)
    pusher = Pusher(world)
    pusher.get()
    assert pusher.push(b"\x10\x00" * 20_001) is ErrorCode.INVALID_RECORD


def test_silent_clients_are_forgotten_and_make_room() -> None:
    world = pushing_world(sparklog_telemetry_clients_max="2")
    subscribe(world)
    first = pushes(world, count=2, metrics=3)
    world.settle(30_000)
    assert scraped(world).value("sparklog_client_series") == 6
    for connection in first:
        world.node.disconnect(connection)
    world.settle(40_000)
    pushes(world, count=2, metrics=1, prefix="later")
    found = scraped(world)
    assert found.value("sparklog_client_series") == 2
    assert "sparklog_client_points_dropped_total" not in found.samples
    world.settle(70_000)
    found = scraped(world)
    assert (found.value("sparklog_client_series"), found.value("sparklog_client_instances")) == (0, 0)


def test_the_instances_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog_server.broker.metrics.client_telemetry.INSTANCES_MAX", 5)
    for _ in range(8):
        Pusher(world).get()
    assert scraped(world).value("sparklog_client_instances") == 5
