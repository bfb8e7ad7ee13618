"""Decodes JSON row by row: for values that the readers of whole blocks refuse, and for types that they do
not have.

The rules are those of Spark's `from_json`: fields match by exact name, a missing field is null, a string
accepts any value, decimals are rounded half up, binary is base64, times are ISO 8601 (UTC if without a
zone) or whole seconds. It differs in one point: a value with one wrong field is refused as a whole.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Any, Final

import msgspec
import pyarrow as pa

from sparklog.arrow.formats.decoded import reason_of
from sparklog.arrow.formats.times import days, micros
from sparklog.arrow.formats.types import TIMESTAMP, TIMESTAMP_NTZ, name_of

Convert = Callable[[Any], object]

_BITS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_WORDS: Final = {
    "NaN": "nan",
    "Infinity": "inf",
    "+Infinity": "inf",
    "INF": "inf",
    "+INF": "inf",
    "-Infinity": "-inf",
    "-INF": "-inf",
}
_DIGITS_MAX: Final = 400
"""Longer numbers are refused: no double has that many digits before or after its point."""
_DECIMAL_EXPONENT_MAX: Final = 400
_SECONDS_MAX: Final = (1 << 63) // 1_000_000 - 1


class _Number(str):
    """The text of a number that is not an integer of 64 bits."""

    __slots__ = ()


_FAST = msgspec.json.Decoder(float_hook=_Number)
_LENIENT = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_Number)
"""Reads what msgspec refuses: NaN and Infinity, as Spark does. msgspec takes a fifth less time for all
other values.
"""


class JsonRows:
    """Decodes texts into values of one type, one at a time."""

    def __init__(self, kind: pa.DataType) -> None:
        self._convert = _converter(kind, "")
        self._type = kind

    def decode(self, values: pa.Array, first_row: int, refused: dict[int, str]) -> pa.Array:
        """One value for each byte string; a refused one is null, and `refused` has its reason under its
        number, counted from `first_row`.
        """
        made: list[object] = []
        for row, content in enumerate(values.to_pylist(), first_row):
            if content is None:
                made.append(None)
                continue
            try:
                made.append(self._convert(_parsed(content)))
            except UnicodeDecodeError as error:
                made.append(None)
                refused[row] = f"not UTF-8 at byte {error.start}"
            except json.JSONDecodeError as error:
                made.append(None)
                refused[row] = f"not JSON: {error.msg} at character {error.pos}"
            except RecursionError:
                made.append(None)
                refused[row] = "JSON nested too deeply"
            except ValueError as error:
                made.append(None)
                refused[row] = reason_of(error)
        return pa.array(made, self._type)


def _parsed(content: bytes) -> Any:
    try:
        return _FAST.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _LENIENT.decode(content.decode())


def binaries(texts: pa.Array) -> pa.Array:
    """Base64 texts as bytes; ValueError if one is invalid."""
    return pa.array([None if text is None else _base64(text) for text in texts.to_pylist()], pa.binary())


def _converter(kind: pa.DataType, path: str) -> Convert:
    """A function from parsed JSON to a value for pyarrow; it raises ValueError that names the field."""
    convert = _struct(kind, path) if pa.types.is_struct(kind) else _container(kind, path) or _scalar(kind)

    def checked(value: Any) -> object:
        if value is None:
            return None
        try:
            return convert(value)
        except (TypeError, DecimalException, pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            shown = value if isinstance(value, str) else _text(value)
            raise ValueError(f"{path or 'the value'}: {shown[:60]!r} is no {name_of(kind)}") from None

    return checked


def _struct(kind: pa.StructType, path: str) -> Convert:
    fields = [
        (field.name, _converter(field.type, f"{path}.{field.name}" if path else field.name)) for field in kind
    ]

    def convert(value: Any) -> object:
        if not isinstance(value, dict):
            raise TypeError
        get = value.get
        return {name: of_field(get(name)) for name, of_field in fields}

    return convert


def _container(kind: pa.DataType, path: str) -> Convert | None:
    if pa.types.is_list(kind):
        of_element = _converter(kind.value_type, f"{path}[]")

        def array(value: Any) -> object:
            if not isinstance(value, list):
                raise TypeError
            return [of_element(element) for element in value]

        return array
    if pa.types.is_map(kind):
        if kind.key_type != pa.string():
            raise ValueError(f"{name_of(kind)}: keys of JSON are strings")
        of_value = _converter(kind.item_type, f"{path}{{}}")

        def mapping(value: Any) -> object:
            if not isinstance(value, dict):
                raise TypeError
            return [(_utf8(key), of_value(content)) for key, content in value.items()]

        return mapping
    return None


def _scalar(kind: pa.DataType) -> Convert:
    if kind in _BITS:
        limit = 1 << (_BITS[kind] - 1)
        return lambda value: _integer(value, limit)
    if pa.types.is_decimal(kind):
        return lambda value: _decimal(value, kind)
    known: dict[pa.DataType, Convert] = {
        pa.float32(): _float,
        pa.float64(): _float,
        pa.bool_(): _boolean,
        pa.string(): lambda value: _utf8(value if isinstance(value, str) else _text(value)),
        pa.binary(): lambda value: _base64(_string(value)),
        pa.date32(): lambda value: days(_string(value)),
        TIMESTAMP: lambda value: _time(value, kind),
        TIMESTAMP_NTZ: lambda value: _time(value, kind),
    }
    convert = known.get(kind)
    if convert is None:
        raise ValueError(f"type {name_of(kind)} cannot be read from JSON; use string and cast in the query")
    return convert


def _integer(value: Any, limit: int) -> int:
    if isinstance(value, _Number) and _INTEGER.fullmatch(value):
        value = int(value)
    number: int = value if type(value) is int else _refused()
    if not -limit <= number < limit:
        raise OverflowError
    return number


def _float(value: Any) -> float:
    if type(value) is int:
        return float(value)
    if isinstance(value, _Number):
        if len(value) > _DIGITS_MAX:
            raise OverflowError
        return float(_WORDS.get(value, value))
    return float(_WORDS[_string(value)]) if value in _WORDS else _refused()


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    text = str(value) if type(value) is int or isinstance(value, _Number) else _string(value)
    if len(text) > _DIGITS_MAX:
        raise OverflowError
    number = Decimal(text)
    if not number.is_finite() or abs(number.adjusted()) > _DECIMAL_EXPONENT_MAX:
        raise OverflowError
    rounded = number.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, _WIDE)
    if len(rounded.as_tuple().digits) > kind.precision:
        raise OverflowError
    return rounded


def _boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else _refused()


def _time(value: Any, kind: pa.DataType) -> int:
    if type(value) is int:
        return _integer(value, _SECONDS_MAX) * 1_000_000
    return micros(_string(value), kind)


def _base64(text: str) -> bytes:
    return b64decode(text, validate=True)


def _string(value: Any) -> str:
    return value if isinstance(value, str) and not isinstance(value, _Number) else _refused()


def _utf8(text: str) -> str:
    if not text.isascii():
        text.encode()  # half of a surrogate pair is not text
    return str(text)


def _refused() -> Any:
    raise TypeError


def _text(value: Any) -> str:
    """Parsed JSON as JSON text, with numbers as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(
                f"{json.dumps(key, ensure_ascii=False)}:{_text(content)}" for key, content in value.items()
            )
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


_WIDE: Final = Context(prec=2 * (_DIGITS_MAX + _DECIMAL_EXPONENT_MAX))
