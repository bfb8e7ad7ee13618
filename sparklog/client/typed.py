"""The types of keys and values: `Producer[K, V]` and `AsyncProducer[K, V]` accept them, `Consumer[K, V]`,
`AsyncConsumer[K, V]` and their records have them. Without a serializer they are bytes or text.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from sparklog.record.batch import Content

    KeyIn = TypeVar("KeyIn", default=Content, contravariant=True)
    ValueIn = TypeVar("ValueIn", default=Content, contravariant=True)
    KeyOut = TypeVar("KeyOut", default=bytes | None, covariant=True)
    ValueOut = TypeVar("ValueOut", default=bytes | None, covariant=True)
    T = TypeVar("T")
else:
    from typing import TypeVar

    # Python 3.11 has no defaults; type checkers alone need them.
    KeyIn = TypeVar("KeyIn", contravariant=True)
    ValueIn = TypeVar("ValueIn", contravariant=True)
    KeyOut = TypeVar("KeyOut", covariant=True)
    ValueOut = TypeVar("ValueOut", covariant=True)
    T = TypeVar("T")

SerializerOf = Callable[[T], bytes | None]
DeserializerOf = Callable[[bytes | None], T]
