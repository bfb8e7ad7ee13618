"""OpenTelemetry's protocol, which an optional package has: OTLP's classes as protobuf compiles them."""

from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from sparklog.errors import DecodeError

PACKAGE: Final = "opentelemetry.proto"


@cache
def is_installed() -> bool:
    """Whether `opentelemetry-proto` is there; nothing of it is imported."""
    try:
        return find_spec(PACKAGE) is not None
    except ImportError:  # of the package above it
        return False


@cache
def metrics_classes() -> tuple[ModuleType, type[Exception]]:
    """The module of metrics, and the error of a content that protobuf cannot parse. The first call takes a
    tenth of a second: for jobs. Raises DecodeError if the installation is broken.
    """
    try:
        from google.protobuf.message import DecodeError as Unparsable
        from opentelemetry.proto.metrics.v1 import metrics_pb2
    except Exception as error:  # of a version that does not fit, protobuf raises errors of several types
        raise DecodeError(f"opentelemetry-proto cannot be imported: {error}") from None
    return metrics_pb2, Unparsable
