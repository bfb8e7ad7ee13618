"""Decodes what a client pushes (KIP-714), in steps of a job: OTLP's MetricsData becomes points.

    compressed ─► pieces ─► whole ─► ResourceMetrics ─► ScopeMetrics ─► Metric ─► points
                            └── cut at the wire format ──────────────┘   └─ opentelemetry-proto

Protobuf parses a message at a stretch, without letting another thread run: a MiB of empty points takes 37 ms
and 39 MiB. So only a `Metric` is parsed, of at most `METRIC_BYTES_MAX`, and the three levels above it are cut
here. Points that are not wanted are counted by reason.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sparklog.effects import Steps
from sparklog.errors import DecodeError
from sparklog.record.compression import RATIO_MAX, Codec
from sparklog.record.pieces import decompress_pieces, memory_bytes
from sparklog_server.broker.metrics.otlp import metrics_classes
from sparklog_server.metrics_text import escaped

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

METRIC_BYTES_MAX: Final = 32 << 10
"""The parse of a Metric takes at most a millisecond."""
FIELDS_MAX: Final = 20_000
"""The fields that are cut in one push."""
POINTS_MAX: Final = 2_000
"""The points that one push may bring; the loop takes them in one turn."""
ATTRIBUTES_MAX: Final = 16
LABELS_BYTES_MAX: Final = 1_024
_PARSED_BYTES: Final = 1 << 20
"""The memory of one parsed Metric."""
_STEP_FIELDS: Final = 64

LABELS: Final = ("topic", "partition", "node")
"""Attributes with a label of their own; the others share one."""
_NODE: Final = frozenset(("node_id", "node.id", "node-id", "broker_id", "broker.id"))


class Point(NamedTuple):
    """A value. `labels` is the text of all labels but those of the client, in UTF-8; `is_total` is one of a
    monotonic sum, and a delta adds to the value before.
    """

    labels: bytes
    value: float
    is_total: bool
    is_delta: bool


class Pushed(NamedTuple):
    """The points of one push, and how many were dropped for each reason."""

    points: list[Point]
    dropped: Counter[str]


class Invalid(msgspec.Struct, frozen=True):
    """The content is not what it must be."""

    reason: str


def needed_bytes(codec: Codec, data: memoryview, bytes_max: int) -> int:
    """The most memory that `pushed` takes. Raises DecodeError."""
    return memory_bytes(codec, data, bytes_max, RATIO_MAX) + 2 * bytes_max + _PARSED_BYTES


def pushed(codec: Codec, data: bytearray | memoryview, bytes_max: int) -> Steps[Pushed | Invalid]:
    """The points of a push that decompresses to at most `bytes_max`."""
    result = Pushed([], Counter())
    try:
        whole = yield from _whole(codec, data, bytes_max)
        for number, metric in enumerate(_metrics(memoryview(whole))):
            _take(metric, result)
            if number % _STEP_FIELDS == 0:
                yield
    except DecodeError as error:
        return Invalid(str(error))
    return result


def _whole(codec: Codec, data: bytearray | memoryview, bytes_max: int) -> Steps[bytearray | memoryview]:
    """The decompressed bytes. Raises DecodeError, also for too many."""
    if codec is Codec.NONE:
        return data
    whole = bytearray()
    for piece in decompress_pieces(codec, data, bytes_max, RATIO_MAX):
        whole += piece
        yield
    return whole


# -- the levels above a metric


def _metrics(data: memoryview) -> Iterator[memoryview]:
    """The Metric messages of a MetricsData. Raises DecodeError."""
    left = [FIELDS_MAX]
    for resource_metrics in _submessages(data, 1, left):
        for scope_metrics in _submessages(resource_metrics, 2, left):
            yield from _submessages(scope_metrics, 2, left)


def _submessages(data: memoryview, number: int, left: list[int]) -> Iterator[memoryview]:
    """The fields of that number, which hold messages; others are skipped. `left` counts down. Raises
    DecodeError.
    """
    at, end = 0, len(data)
    while at < end:
        left[0] -= 1
        if left[0] < 0:
            raise DecodeError(f"more than {FIELDS_MAX} fields")
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 2:
            size, at = _varint(data, at)
            if key >> 3 == number:
                yield data[at : at + size]
            at += size
        else:
            raise DecodeError(f"a field of the kind {kind}")
        if at > end or key < 8:
            raise DecodeError("a field that is cut, or without a number")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + 10]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DecodeError("a number that is cut")


# -- metrics


def _take(data: memoryview, result: Pushed) -> None:
    """Add the points of one Metric. Raises DecodeError."""
    metrics_pb2, protobuf_error = metrics_classes()
    points, dropped = result
    if len(data) > METRIC_BYTES_MAX:
        dropped["size"] += 1
        return
    try:
        metric = metrics_pb2.Metric.FromString(bytes(data))
    except protobuf_error as error:
        raise DecodeError(str(error)) from None
    numbers, is_total, temporality = _numbers(metric)
    if numbers is None:
        dropped["type"] += 1
        return
    is_delta = temporality == metrics_pb2.AGGREGATION_TEMPORALITY_DELTA
    for index, one in enumerate(numbers):
        if len(points) >= POINTS_MAX:
            dropped["push"] += len(numbers) - index
            return
        value = one.as_int if one.WhichOneof("value") == "as_int" else one.as_double
        if not isfinite(value) or (is_total and value < 0):
            dropped["value"] += 1
        elif len(one.attributes) > ATTRIBUTES_MAX:
            dropped["attributes"] += 1
        elif len(labels := _labels(metric.name, one.attributes)) > LABELS_BYTES_MAX:
            dropped["size"] += 1
        else:
            points.append(Point(labels, value, is_total, is_delta))


def _numbers(metric: "Metric") -> "tuple[list[NumberDataPoint] | None, bool, int]":
    """The points of a gauge or a sum, whether it is a monotonic sum, and its temporality."""
    kind = metric.WhichOneof("data")
    if kind == "gauge":
        return list(metric.gauge.data_points), False, 0
    if kind == "sum":
        return list(metric.sum.data_points), metric.sum.is_monotonic, metric.sum.aggregation_temporality
    return None, False, 0


def _labels(name: str, attributes: "Sequence[KeyValue]") -> bytes:
    """The text of the labels of a point; a label without a value is left out."""
    own, others = dict.fromkeys(LABELS, ""), []
    for one in attributes:
        key = "node" if one.key in _NODE else one.key
        if key in own:
            own[key] = _text(one).removeprefix("node-") if key == "node" else _text(one)
        else:
            others.append(f"{key}={_text(one)}")
    labels = {"metric": name, **own, "attributes": ",".join(sorted(others))}
    return ",".join([f'{label}="{escaped(value)}"' for label, value in labels.items() if value]).encode()


def _text(attribute: "KeyValue") -> str:
    """The value of an attribute; arrays and maps have no text."""
    value = attribute.value
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return str(value.string_value)
    if kind in ("int_value", "double_value", "bool_value"):
        return str(getattr(value, kind))
    return ""
