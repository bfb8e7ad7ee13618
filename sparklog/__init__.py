"""The streaming log for Python and Spark.

The public names load on first use: importing sparklog imports neither pyspark, pyarrow nor the server, and
takes a few milliseconds.
"""

# Type checkers know the name; importing it from `typing` would take longer than all the rest.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from sparklog import errors
    from sparklog.client.admin import Admin
    from sparklog.client.async_producer import AsyncProducer
    from sparklog.client.consumer import Consumer
    from sparklog.client.producer import Producer
    from sparklog.local_broker import embedded
    from sparklog.model import TopicPartition
    from sparklog.spark import register

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AsyncProducer",
    "Consumer",
    "Producer",
    "TopicPartition",
    "embedded",
    "errors",
    "register",
]

_HOMES = {
    "Admin": "sparklog.client.admin",
    "AsyncProducer": "sparklog.client.async_producer",
    "Consumer": "sparklog.client.consumer",
    "Producer": "sparklog.client.producer",
    "TopicPartition": "sparklog.model",
    "embedded": "sparklog.local_broker",
    "register": "sparklog.spark",
}


def __getattr__(name: str) -> object:
    import importlib

    if name == "errors":
        return importlib.import_module("sparklog.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'sparklog' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
