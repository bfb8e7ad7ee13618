"""Protobuf by Google's library: plain, or with the schema id of a registry and the path of the message."""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sparklog.errors import DecodeError
from sparklog.record.schema_id import is_prefixed, message_indexes, prefix_of
from sparklog.serializers.registry import Reference, RegisteredSchema, RegistryError, SchemaRegistry

if TYPE_CHECKING:
    from google.protobuf.message import Message

    M = TypeVar("M", bound=Message)
else:
    M = TypeVar("M")

_REASON_CHARACTERS_MAX: Final = 300
_KNOWN: Final = "google/protobuf/"
"""Files that every registry has."""
FILES_MAX: Final = 200


class ProtobufSerializer(Generic[M]):
    """Messages as bytes; with a registry, after the id of their file and the path of the message in it."""

    def __init__(
        self, kind: type[M], registry: SchemaRegistry | None = None, *, subject: str | None = None
    ) -> None:
        """With `registry`, the file of `kind` is registered under `subject`, such as `orders-value`, and the
        files that it imports under their names. Raises RegistryError.
        """
        self._prefix = b""
        if registry is not None:
            descriptor: Any = kind.DESCRIPTOR
            references = _registered_imports(registry, descriptor.file)
            schema_id = registry.register(subject, _text(descriptor.file), "PROTOBUF", references)
            self._prefix = prefix_of(schema_id, path_of(descriptor))

    def __call__(self, value: M | None) -> bytes | None:
        """The record's bytes; None for None."""
        return None if value is None else self._prefix + value.SerializeToString()


class ProtobufDeserializer(Generic[M]):
    """Bytes as messages of one type, with or without the prefix of a registry: no message begins with a zero
    byte.
    """

    def __init__(self, kind: type[M]) -> None:
        from google.protobuf.message import DecodeError as Refused

        self._kind = kind
        self._path = path_of(kind.DESCRIPTOR)
        self._refused = Refused

    def __call__(self, content: bytes | None) -> M | None:
        """The message; None for None. Raises DecodeError with the fault of the content."""
        if content is None:
            return None
        name = self._kind.DESCRIPTOR.full_name
        try:
            start = 0
            if is_prefixed(content):
                path, start = message_indexes(content)
                if tuple(path) != self._path:
                    raise ValueError(
                        f"the prefix names message {list(path)} of its file, not {list(self._path)}"
                    )
            message: M = self._kind.FromString(content[start:])
        except (ValueError, self._refused) as error:
            raise DecodeError(f"not a {name}: {str(error)[:_REASON_CHARACTERS_MAX]}") from error
        return message


def file_set(registry: SchemaRegistry, schema_id: int) -> Any:
    """The FileDescriptorSet of a registered schema: the files that it imports, in their order, then its own.
    Raises RegistryError.
    """
    from google.protobuf import descriptor_pb2

    registered = registry.descriptor_by_id(schema_id)
    if registered.schema_type != "PROTOBUF":
        raise RegistryError(f"the schema with id {schema_id} is {registered.schema_type}, not PROTOBUF")
    return descriptor_pb2.FileDescriptorSet(file=_files(registry, registered, "", set()))


def message_name(file: Any, path: Sequence[int]) -> str:
    """The full name of the message at a path of a FileDescriptorProto; ValueError if there is none."""
    names, inner = [file.package] if file.package else [], file.message_type
    for index in path:
        if not 0 <= index < len(inner):
            raise ValueError(f"the schema has no message {list(path)}")
        names.append(inner[index].name)
        inner = inner[index].nested_type
    return ".".join(names)


def path_of(descriptor: Any) -> tuple[int, ...]:
    """The indexes of a message, and of those around it, in their file."""
    outer = descriptor.containing_type
    if outer is None:
        names = list(descriptor.file.message_types_by_name)
        return (names.index(descriptor.name),)
    return (*path_of(outer), [inner.name for inner in outer.nested_types].index(descriptor.name))


def _registered_imports(registry: SchemaRegistry, file: Any) -> list[Reference]:
    found: list[Reference] = []
    for imported in file.dependencies:
        if imported.name.startswith(_KNOWN):
            continue
        references = _registered_imports(registry, imported)
        registry.register(imported.name, _text(imported), "PROTOBUF", references)
        version = registry.version_of(imported.name, _text(imported), "PROTOBUF", references)
        found.append(Reference(imported.name, imported.name, version))
    return found


def _files(
    registry: SchemaRegistry, registered: RegisteredSchema, name: str, seen: set[str]
) -> Iterator[Any]:
    """The files that the file `told` imports and are not in `seen`, and itself, under its import's name."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError as Refused

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(registered.schema, validate=True))
    except (ValueError, Refused):
        raise RegistryError(
            f"the schema registry does not tell the schema with id {registered.schema_id} as a descriptor "
            f"(format=serialized): use a descriptor set of protoc"
        ) from None
    file.name = name or file.name
    for reference in registered.references:
        if _is_new(reference.name, seen):
            yield from _files(registry, registry.descriptor_of(reference), reference.name, seen)
    for imported in file.dependency:
        if imported.startswith(_KNOWN):
            yield from _known_files(imported, seen)
    yield file


def _known_files(name: str, seen: set[str]) -> Iterator[Any]:
    """A file that comes with Google's library, after those that it imports."""
    from google.protobuf import descriptor_pb2

    if not _is_new(name, seen):
        return
    module = name.removeprefix(_KNOWN).removesuffix(".proto")
    try:
        known = import_module(f"google.protobuf.{module}_pb2" if module.isidentifier() else "").DESCRIPTOR
    except (ImportError, ValueError):
        raise RegistryError(f"the schema imports {name}, which Google's library does not have") from None
    for imported in known.dependencies:
        yield from _known_files(imported.name, seen)
    file = descriptor_pb2.FileDescriptorProto()
    known.CopyToProto(file)
    yield file


def _is_new(name: str, seen: set[str]) -> bool:
    if name in seen:
        return False
    if len(seen) >= FILES_MAX:
        raise RegistryError(f"the schema imports more than {FILES_MAX} files")
    seen.add(name)
    return True


def _text(file: Any) -> str:
    """The file as registries take it where its source is not known: its descriptor in base64."""
    return b64encode(file.serialized_pb).decode()
