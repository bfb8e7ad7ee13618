"""Our messages against two foreign codecs, `kio` and `kafka-python`, which took them from Kafka's
definitions on their own.

Written once for all messages: for each API, version and direction that an oracle knows, tame random
messages are copied into the oracle's classes field by field, and both sides must write the same bytes; the
oracle must also read ours back as what it wrote.
"""

import dataclasses
import datetime
import importlib
import io
import pkgutil
import uuid
from collections.abc import Iterator
from random import Random
from typing import Any, get_args

import pytest

from sparklog.wire import schema
from sparklog.wire.api_keys import API_BY_KEY, Api
from sparklog.wire.codec import decode, encode
from sparklog.wire.schema import Field, Message
from tests.wire.arbitrary import arbitrary, versions_of

pytestmark = pytest.mark.compat

kio_index = pytest.importorskip("kio.index")
kio_serial = pytest.importorskip("kio.serial")
kafka_messages = pytest.importorskip("kafka.protocol.api_message")

MESSAGES_PER_VERSION = 5
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

Case = tuple[Api, type[Message], str]
CASES: list[Case] = [
    case
    for api in API_BY_KEY.values()
    for case in ((api, api.request(), "request"), (api, api.reply(), "response"))
]


def over(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("api", "cls", "kind"), cases, ids=[cls.__name__ for _, cls, _ in cases])


def tame_messages(cls: type[Message], version: int) -> Iterator[tuple[Message, bytes]]:
    """Messages that any implementation accepts, with our bytes; the first one is all defaults."""
    random = Random(f"{cls.__name__} {version}")
    for number in range(MESSAGES_PER_VERSION):
        message = cls() if number == 0 else arbitrary(cls, version, random, is_tame=True)
        octets = b"".join(bytes(chunk) for chunk in encode(message, version))
        assert decode(cls, version, octets) == message
        yield message, octets


def folded(name: str) -> str:
    """A field's name without the accidents of how capitals were split."""
    return name.replace("_", "")


def fields_by_name(cls: type[Message], version: int) -> dict[str, Field]:
    return {
        folded(field.name): field for field in schema.fields(cls) if field.since <= version <= field.until
    }


# -- kio -----------------------------------------------------------------------------------------------------


@over(CASES)
def test_kio_writes_the_same_bytes(api: Api, cls: type[Message], kind: str) -> None:
    load = kio_index.load_request_schema if kind == "request" else kio_index.load_response_schema
    for version in versions_of(cls):
        try:
            theirs = load(api.key, version)
        except (kio_index.UnknownAPIKey, kio_index.UnknownEntity):
            continue
        for message, octets in tame_messages(cls, version):
            entity = kio_entity(theirs, message, version, leave_out_defaults=message == cls())
            written = io.BytesIO()
            kio_serial.entity_writer(theirs)(written, entity)
            assert written.getvalue().hex(" ") == octets.hex(" "), (version, message)
            assert kio_serial.entity_reader(theirs)(octets, 0) == (entity, len(octets))


def kio_entity(theirs: type[Any], message: Message, version: int, *, leave_out_defaults: bool = False) -> Any:
    """The same message in kio's class, whose times are Python's and whose error codes are an enumeration.

    Leaving out what kio has a default for shows that the defaults are the same.
    """
    ours = fields_by_name(type(message), version)
    values = {}
    for declared in dataclasses.fields(theirs):
        field = ours.pop(folded(declared.name), None) or ours.pop(folded(declared.name) + "ms")
        if not leave_out_defaults or declared.default is dataclasses.MISSING:
            values[declared.name] = kio_value(declared, field, getattr(message, field.name), version)
    assert not ours, f"{theirs} lacks {sorted(ours)}"
    return theirs(**values)


def kio_value(declared: Any, field: Field, value: Any, version: int) -> Any:
    if field.struct is not None:
        theirs = next(part for part in leaves(declared.type) if dataclasses.is_dataclass(part))
        if field.is_array:
            return None if value is None else tuple(kio_entity(theirs, item, version) for item in value)
        if value is None and type(None) not in get_args(declared.type):
            value = field.struct()  # a tagged struct that is not sent
        return None if value is None else kio_entity(theirs, value, version)
    convert = KIO_VALUES.get(declared.metadata["kafka_type"], lambda value: value)
    if field.is_array:
        return None if value is None else tuple(convert(item) for item in value)
    return None if value is None else convert(value)


def kio_error(code: int) -> Any:
    return importlib.import_module("kio.schema.errors").ErrorCode(code)


KIO_VALUES: dict[str, Any] = {
    "error_code": kio_error,
    "uuid": lambda octets: None if octets == bytes(16) else uuid.UUID(bytes=octets),
    "timedelta_i32": lambda ms: datetime.timedelta(milliseconds=ms),
    "timedelta_i64": lambda ms: datetime.timedelta(milliseconds=ms),
    "datetime_i64": lambda ms: None if ms == -1 else EPOCH + datetime.timedelta(milliseconds=ms),
}


def leaves(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of."""
    arguments = get_args(annotation)
    if not arguments:
        yield annotation
    for argument in arguments:
        yield from leaves(argument)


# -- kafka-python --------------------------------------------------------------------------------------------


def kafka_python_classes() -> dict[str, Any]:
    package = importlib.import_module("kafka.protocol")
    for module in pkgutil.walk_packages(package.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            importlib.import_module(module.name)
    return {cls.__name__: cls for cls in kafka_messages.ApiMessage.__subclasses__()}


KAFKA_PYTHON = kafka_python_classes()
# It reads every ApiVersionsResponse with an error as v0, and cannot write a DeleteTopicsRequest that it has
# read.
NOT_READ_BACK = {"ApiVersionsResponse", "DeleteTopicsRequest"}


@over([case for case in CASES if case[1].__name__ in KAFKA_PYTHON])
def test_kafka_python_writes_the_same_bytes(api: Api, cls: type[Message], kind: str) -> None:
    theirs = KAFKA_PYTHON[cls.__name__]
    for version in versions_of(cls)[: theirs.max_version + 1 - cls.versions.since]:
        for message, octets in tame_messages(cls, version):
            container = kafka_python_container(theirs, theirs._struct, message, version)
            assert bytes(container.encode(version=version)).hex(" ") == octets.hex(" "), (version, message)
            if cls.__name__ not in NOT_READ_BACK:
                assert bytes(theirs.decode(octets, version=version).encode()) == octets


def kafka_python_container(theirs: Any, struct: Any, message: Message, version: int) -> Any:
    """The same message in kafka-python's class; a tag that is set there is always sent, so those with
    defaults are left out.
    """
    ours = fields_by_name(type(message), version)
    values = {}
    for declared in struct.fields.values():
        name = folded(declared.name)
        if (
            name == "authorizedoperations" and name not in ours
        ):  # its own name for what is permitted on a cluster or a topic
            name = next((longer for longer in ours if longer.endswith(name)), name)
        field = ours.pop(name, None)
        if field is None:
            continue
        value = getattr(message, field.name)
        if field.tag < 0 or value != (field.default if field.factory is None else field.factory()):
            values[declared.name] = kafka_python_value(declared, field, value, version)
    assert not ours, f"{theirs} lacks {sorted(ours)}"
    return theirs(version=version, **values)


def kafka_python_value(declared: Any, field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.struct is not None:
        if field.is_array:
            return [kafka_python_container(declared.data_class, declared, item, version) for item in value]
        return kafka_python_container(declared.data_class, declared, value, version)
    if field.wire_type == schema.UUID:
        return [uuid.UUID(bytes=item) for item in value] if field.is_array else uuid.UUID(bytes=value)
    if declared._type_str == "bitfield":
        return {bit for bit in range(32) if value & (1 << bit)}
    return value
