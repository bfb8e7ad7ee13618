"""Messages with every field that a version carries set to something drawn from a seed, and both kernels to
run them through.
"""

from collections.abc import Iterator
from random import Random
from types import ModuleType

from sparklog.kernels import load
from sparklog.wire import schema
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.header import RequestHeader, ResponseHeader
from sparklog.wire.schema import Field, Message

LETTERS = "abcxyzABC019._-"
FOREIGN = "é\u00ff\u0394日\U0001f600"
NUMBER_BITS = {
    schema.INT8: 8,
    schema.INT16: 16,
    schema.INT32: 32,
    schema.INT64: 64,
    schema.UINT16: -16,
    schema.UINT32: -32,
}
ERROR_CODE_MAX = 118
"""The codes that every oracle knows."""


def message_classes() -> list[type[Message]]:
    """Every request and reply of the API table, and the headers."""
    return [
        RequestHeader,
        ResponseHeader,
        *(cls for api in API_BY_KEY.values() for cls in (api.request(), api.reply())),
    ]


def versions_of(cls: type[Message]) -> range:
    return range(cls.versions.since, cls.versions.until + 1)


def every_version() -> Iterator[tuple[type[Message], int]]:
    """Each message class in each of its versions."""
    return ((cls, version) for cls in message_classes() for version in versions_of(cls))


def kernels() -> list[ModuleType]:
    """The reference kernel, and the compiled one where it is built."""
    found = [load("codec", "reference")]
    try:
        return [*found, load("codec", "compiled")]
    except ImportError:
        return found


def arbitrary(cls: type[Message], version: int, random: Random, *, is_tame: bool = False) -> Message:
    """A message; a tame one keeps to values that other implementations accept as well: known error codes,
    plausible times, ASCII.
    """
    return cls(*(_value(field, version, random, is_tame) for field in schema.fields(cls)))


def _value(field: Field, version: int, random: Random, is_tame: bool) -> object:
    default = field.default if field.factory is None else field.factory()
    if not field.since <= version <= field.until or (field.tag >= 0 and random.random() < 0.3):
        return default
    if version >= field.nullable_since and field.tag < 0 and random.random() < 0.2:
        return None
    if field.is_array:
        return [_element(field, version, random, is_tame) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    return _element(field, version, random, is_tame)


def _element(field: Field, version: int, random: Random, is_tame: bool) -> object:
    if field.struct is not None:
        return arbitrary(field.struct, version, random, is_tame=is_tame)
    kind = field.wire_type
    if kind in NUMBER_BITS:
        return _number(field, NUMBER_BITS[kind], random, is_tame)
    if kind == schema.BOOL:
        return random.random() < 0.5
    if kind == schema.FLOAT64:
        return random.uniform(-1e9, 1e9)
    if kind == schema.UUID:
        return random.randbytes(16)
    if kind == schema.STRING:
        alphabet = LETTERS if is_tame else LETTERS + FOREIGN
        return "".join(random.choices(alphabet, k=random.choice((0, 1, 2, 7, 130))))
    return random.randbytes(random.choice((0, 1, 2, 60, 127, 128, 700)))


def _number(field: Field, bits: int, random: Random, is_tame: bool) -> int:
    if is_tame and "error_code" in field.name:
        return random.randint(-1, ERROR_CODE_MAX)
    if is_tame and ("_ms" in field.name or "time" in field.name):
        return random.randint(0, (1 << 31) - 1)
    if random.random() < 0.3:
        return random.randint(0 if bits < 0 else -1, 100)
    if bits < 0:
        return random.randint(0, (1 << -bits) - 1)
    return random.randint(-(1 << bits - 1), (1 << bits - 1) - 1)
