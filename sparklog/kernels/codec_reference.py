"""The codec kernel in plain Python: runs the flat program of a message class and version over one buffer.

An operation is `(code, name, element, default, factory, is_nullable, tag)`: the code is the encoding of the
value, `element` the program of a struct or of an array's elements, `default` or `factory()` the value if the
field is not encoded, and a tag of 0 or more puts the field into the tag section. A program without a class
describes one value without a struct, the element of an array.

Every length and count is checked against the remaining bytes, and every object created is charged to an
allowance of `ALLOWANCE_PER_BYTE` bytes of memory per byte received (and `ALLOWANCE_MAX` in all), so that a
false count cannot exhaust the memory. Errors are `ValueError(reason, position)`. `codec_compiled.pyx` is the
compiled counterpart; a property test compares the two.
"""

import struct
from collections.abc import Callable
from typing import Any

BOOL, INT8, INT16, UINT16, INT32, UINT32, INT64, FLOAT64, UUID = range(9)
STRING, COMPACT_STRING, BYTES, COMPACT_BYTES, RECORDS, COMPACT_RECORDS = range(9, 15)
ARRAY, COMPACT_ARRAY, STRUCT, NULLABLE_STRUCT, ABSENT, ABSENT_ESSENTIAL = range(15, 21)

ALLOWANCE_PER_BYTE = 60
"""With the memory that is not charged, mainly sizes rounded up by the allocator, this stays below 64 times
the frame.
"""
ALLOWANCE_BASE = 4096
ALLOWANCE_MAX = 248 << 20
REQUEST_ALLOWANCE_MAX = 24 << 20
"""The allowance of `decode_prefix`, which decodes requests of clients."""
REQUEST_ELEMENTS_MAX = 50_000
"""The elements of all arrays of one request: decoding them takes 15 ms, and a request may name 20 000
partitions, each in a topic of its own.
"""
STRING_BYTES_MAX = 0x7FFF
FIELDS_MAX = 64
COPY_BELOW = 512
"""Records shorter than this are copied into the chunk before them: cheaper than a piece of a gathered
write.
"""

Operation = tuple[int, str, "Program | None", object, "Callable[[], object] | None", bool, int]

_FIXED = {
    BOOL: struct.Struct(">?"),
    INT8: struct.Struct(">b"),
    INT16: struct.Struct(">h"),
    UINT16: struct.Struct(">H"),
    INT32: struct.Struct(">i"),
    UINT32: struct.Struct(">I"),
    INT64: struct.Struct(">q"),
    FLOAT64: struct.Struct(">d"),
    UUID: struct.Struct(">16s"),
}
_MINIMAL_BYTES = {STRING: 2, BYTES: 4, RECORDS: 4, ARRAY: 4, STRUCT: 0, ABSENT: 0, ABSENT_ESSENTIAL: 0}
# The memory of a value: fixed, and charged with its struct, or variable, and charged with its length when it
# is decoded.
_FIXED_COST = {BOOL: 0, INT8: 0, UUID: 64}
_NUMBER_COST = 32
_LIST_COST = 64
_TEXT_COST = 80
_VIEW_COST = 256
_TAG_COST = 64
REQUEST_UNKNOWN_TAGS_MAX = 1 << 16
_INT32_MAX = (1 << 31) - 1


class Program:
    """The operations of one struct in one version; `cls` is called with every field by position."""

    __slots__ = ("cls", "cost", "is_flexible", "minimal_bytes", "operations", "tagged")

    def __init__(
        self, cls: Callable[..., Any] | None, operations: tuple[Operation, ...], is_flexible: bool
    ) -> None:
        if len(operations) > FIELDS_MAX:
            raise ValueError("too many fields", len(operations))
        self.cls = cls
        self.operations = operations
        self.is_flexible = is_flexible
        self.tagged = sorted(
            (operation[6], index)
            for index, operation in enumerate(operations)
            if operation[6] >= 0 and operation[0] < ABSENT
        )
        self.minimal_bytes = is_flexible + sum(_minimal_bytes(operation) for operation in operations)
        # The memory of one value, without its strings, bytes, records and lists.
        self.cost = sum(map(_cost, operations)) + (16 + 8 * len(operations) if cls is not None else 0)


def _minimal_bytes(operation: Operation) -> int:
    code, _, element, _, _, _, tag = operation
    if tag >= 0:
        return 0
    if code in _FIXED:
        return _FIXED[code].size
    if code == STRUCT:
        assert element is not None
        return element.minimal_bytes
    return _MINIMAL_BYTES.get(code, 1)


def _cost(operation: Operation) -> int:
    code, _, _, _, factory, _, tag = operation
    if code >= ABSENT or tag >= 0:
        return _LIST_COST if factory is not None else 0
    return _FIXED_COST.get(code, _NUMBER_COST) if code in _FIXED else 0


class _Reader:
    """A position in `view` that never passes `limit`, and the remaining allowance."""

    __slots__ = ("allowance", "elements_left", "limit", "position", "unknown_tags_left", "view")

    def __init__(self, buffer: Any, allowance_max: int, unknown_tags_max: int, elements_max: int) -> None:
        self.view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
        if self.view.itemsize != 1:
            raise TypeError("the buffer must be of bytes")
        self.position = 0
        self.limit = len(self.view)
        self.unknown_tags_left = unknown_tags_max
        self.elements_left = elements_max
        self.allowance = min(self.limit * ALLOWANCE_PER_BYTE + ALLOWANCE_BASE, allowance_max)

    def skip(self, size: int) -> int:
        """Skip `size` bytes; returns the position of the first."""
        start = self.position
        if size > self.limit - start:
            raise ValueError("truncated", start)
        self.position = start + size
        return start

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.view[self.skip(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    raise ValueError("varint too long", self.position)
                return value
        raise ValueError("varint too long", self.position)

    def length(self, code: int) -> int:
        """The length or count before a string, bytes or an array; -1 for null."""
        if code in (COMPACT_STRING, COMPACT_BYTES, COMPACT_RECORDS, COMPACT_ARRAY):
            return self.varint() - 1
        number = _FIXED[INT16 if code == STRING else INT32]
        length: int = number.unpack_from(self.view, self.skip(number.size))[0]
        if length < -1:
            raise ValueError("negative length", self.position)
        return length

    def charge(self, cost: int) -> None:
        self.allowance -= cost
        if self.allowance < 0:
            raise ValueError("takes too much memory for its size", self.position)


def decode(program: Program, buffer: Any) -> Any:
    """The message that fills the buffer."""
    message, position = _decoded(program, buffer, ALLOWANCE_MAX, _INT32_MAX, _INT32_MAX)
    if position != len(buffer):
        raise ValueError("bytes left over", position)
    return message


def decode_prefix(program: Program, buffer: Any) -> tuple[Any, int]:
    """The message at the start of the buffer, and the position after it."""
    return _decoded(program, buffer, REQUEST_ALLOWANCE_MAX, REQUEST_UNKNOWN_TAGS_MAX, REQUEST_ELEMENTS_MAX)


def _decoded(
    program: Program, buffer: Any, allowance_max: int, unknown_tags_max: int, elements_max: int
) -> tuple[Any, int]:
    reader = _Reader(buffer, allowance_max, unknown_tags_max, elements_max)
    message = _read_struct(program, reader)
    return message, reader.position


def _read_struct(program: Program, reader: _Reader) -> Any:
    assert program.cls is not None
    reader.charge(program.cost)
    values = [
        _read_value(operation, reader) if operation[0] < ABSENT and operation[6] < 0 else _default(operation)
        for operation in program.operations
    ]
    if program.is_flexible:
        for _ in range(reader.varint()):
            _read_tag(program, reader, values)
    return program.cls(*values)


def _read_tag(program: Program, reader: _Reader, values: list[object]) -> None:
    tag, size = reader.varint(), reader.varint()
    start = reader.skip(size)
    for known, index in program.tagged:
        if known == tag:
            operation = program.operations[index]
            outer_limit, reader.limit = reader.limit, reader.position
            reader.position = start
            reader.charge(_TAG_COST)
            values[index] = _read_value(operation, reader)
            if reader.position != reader.limit:
                raise ValueError("tagged field of a wrong size", reader.position)
            reader.limit = outer_limit
            return
    if not reader.unknown_tags_left:
        raise ValueError("too many unknown tagged fields", start)
    reader.unknown_tags_left -= 1


def _read_value(operation: Operation, reader: _Reader) -> Any:
    code, _, element, _, _, is_nullable, tag = operation
    if code <= UUID:
        fixed = _FIXED[code]
        return fixed.unpack_from(reader.view, reader.skip(fixed.size))[0]
    if code == STRUCT:
        assert element is not None
        return _read_struct(element, reader)
    if code == NULLABLE_STRUCT:
        assert element is not None
        octet = reader.view[reader.skip(1)]
        is_null = octet == 0 if tag >= 0 else octet >= 0x80
        return None if is_null else _read_struct(element, reader)
    start = reader.position
    length = reader.length(code)
    if length < 0:
        if not is_nullable:
            raise ValueError("null where none may be", start)
        return None
    if code in (ARRAY, COMPACT_ARRAY):
        assert element is not None
        return _read_array(element, reader, length)
    if code in (STRING, COMPACT_STRING) and length > STRING_BYTES_MAX:
        raise ValueError("string too long", start)
    start = reader.skip(length)
    piece = reader.view[start : reader.position]
    if code in (RECORDS, COMPACT_RECORDS):
        reader.charge(_VIEW_COST)
        return piece
    if length > 1:  # Python keeps one object for each shorter one.
        reader.charge(_TEXT_COST + length)
    if code in (BYTES, COMPACT_BYTES):
        return bytes(piece)
    try:
        text = str(piece, "utf-8")
    except UnicodeDecodeError:
        raise ValueError("invalid UTF-8", start) from None
    if not text.isascii():
        reader.charge(_character_bytes(text) * len(text))
    return text


def _character_bytes(text: str) -> int:
    """The bytes of memory that each character of a string takes."""
    highest = max(text)
    return 1 if highest < "\u0100" else 2 if highest < "\U00010000" else 4


def _read_array(element: Program, reader: _Reader, count: int) -> list[Any]:
    if (
        count * element.minimal_bytes > reader.limit - reader.position
        or count > reader.limit - reader.position
    ):
        raise ValueError("more elements than bytes", reader.position)
    reader.elements_left -= count
    if reader.elements_left < 0:
        raise ValueError("too many elements", reader.position)
    reader.charge(_LIST_COST + 8 * count)
    if element.cls is not None:
        return [_read_struct(element, reader) for _ in range(count)]
    operation, cost = element.operations[0], element.cost
    reader.charge(cost * count)
    return [_read_value(operation, reader) for _ in range(count)]


def _default(operation: Operation) -> object:
    _, _, _, default, factory, _, _ = operation
    return default if factory is None else factory()


class _Writer:
    """Chunks of bytes, the last of them still growing."""

    __slots__ = ("chunks", "tail")

    def __init__(self) -> None:
        self.chunks: list[Any] = []
        self.tail = bytearray()

    def varint(self, value: int) -> None:
        while value >= 0x80:
            self.tail.append(value & 0x7F | 0x80)
            value >>= 7
        self.tail.append(value)

    def length(self, code: int, length: int) -> None:
        if code in (COMPACT_STRING, COMPACT_BYTES, COMPACT_RECORDS, COMPACT_ARRAY):
            self.varint(length + 1)
        else:
            self.tail += _FIXED[INT16 if code == STRING else INT32].pack(length)

    def pass_through(self, chunk: Any) -> None:
        if len(chunk) < COPY_BELOW and isinstance(chunk, bytes | bytearray | memoryview):
            self.tail += chunk
            return
        self.flush()
        self.chunks.append(chunk)

    def flush(self) -> None:
        if self.tail:
            self.chunks.append(bytes(self.tail))
            self.tail = bytearray()


def encode(program: Program, message: Any) -> list[Any]:
    """The message as chunks, with records as separate ones; ValueError, TypeError or OverflowError for values
    that do not fit.
    """
    writer = _Writer()
    _write_struct(program, message, writer)
    writer.flush()
    return writer.chunks


def encode_frame(header_program: Program, header: Any, program: Program, message: Any) -> list[Any]:
    """Length prefix, header and message as chunks."""
    writer = _Writer()
    _write_struct(header_program, header, writer)
    _write_struct(program, message, writer)
    writer.flush()
    size = _FIXED[INT32].pack(sum(len(chunk) for chunk in writer.chunks))
    if isinstance(writer.chunks[0], bytes):
        writer.chunks[0] = size + writer.chunks[0]
    else:
        writer.chunks.insert(0, size)
    return writer.chunks


def _write_struct(program: Program, message: Any, writer: _Writer) -> None:
    for operation in program.operations:
        code, name, _, _, _, _, tag = operation
        if code >= ABSENT:
            if code == ABSENT_ESSENTIAL and getattr(message, name) != _default(operation):
                raise ValueError(f"{name} cannot be said in this version", -1)
        elif tag < 0:
            _write_value(operation, getattr(message, name), writer)
    if not program.is_flexible:
        return
    present = [
        (tag, operation, value)
        for tag, index in program.tagged
        for operation in (program.operations[index],)
        if (value := getattr(message, operation[1])) != _default(operation)
    ]
    writer.varint(len(present))
    for tag, operation, value in present:
        inner = _Writer()
        _write_value(operation, value, inner)
        inner.flush()
        writer.varint(tag)
        writer.varint(sum(len(chunk) for chunk in inner.chunks))
        for chunk in inner.chunks:
            writer.pass_through(chunk)


def _write_value(operation: Operation, value: Any, writer: _Writer) -> None:
    code, name, element, _, _, is_nullable, tag = operation
    if code <= UUID:
        writer.tail += _pack_fixed(code, value)
    elif code == STRUCT:
        assert element is not None
        _write_struct(element, value, writer)
    elif code == NULLABLE_STRUCT:
        assert element is not None
        # Kafka writes -1 for null in an int8, and 0 in the varint of a tagged field.
        writer.tail.append(1 if value is not None else 0 if tag >= 0 else 0xFF)
        if value is not None:
            _write_struct(element, value, writer)
    elif value is None:
        if not is_nullable:
            raise ValueError(f"{name} may not be null", -1)
        writer.length(code, -1)
    elif code in (ARRAY, COMPACT_ARRAY):
        assert element is not None
        writer.length(code, len(value))
        for item in value:
            if element.cls is not None:
                _write_struct(element, item, writer)
            else:
                _write_value(element.operations[0], item, writer)
    elif code in (RECORDS, COMPACT_RECORDS):
        pieces = value if isinstance(value, list) else [value]
        writer.length(code, sum(len(piece) for piece in pieces))
        for piece in pieces:
            writer.pass_through(piece)
    else:
        octets = value.encode() if code in (STRING, COMPACT_STRING) else value
        if code in (STRING, COMPACT_STRING) and len(octets) > STRING_BYTES_MAX:
            raise ValueError(f"{name} is too long", -1)
        writer.length(code, len(octets))
        writer.tail += octets


def _pack_fixed(code: int, value: Any) -> bytes:
    if code == UUID and len(value) != 16:
        raise ValueError("a uuid is sixteen bytes", -1)
    try:
        return _FIXED[code].pack(value)
    except struct.error as error:
        raise OverflowError(str(error)) from None
