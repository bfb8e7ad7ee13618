"""OpenTelemetry's protocol, which an optional package has: OTLP's classes as protobuf compiles them."""

from functools import cache
from importlib.util import find_spec
from typing import Final

PACKAGE: Final = "opentelemetry.proto"


@cache
def is_installed() -> bool:
    """Whether `opentelemetry-proto` is there; nothing of it is imported."""
    try:
        return find_spec(PACKAGE) is not None
    except ImportError:  # of the package above it
        return False
