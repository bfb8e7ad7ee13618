"""Compiles a schema into the program by which the `avro` kernel checks a value's bytes.

fastavro trusts its input: it reads a union branch of -1 as the last branch, a boolean of 2 as true, and
wraps numbers beyond 64 bits. So the kernel checks every value first, and fastavro decodes only bytes that
are exactly one value of the schema.
"""

from array import array
from collections.abc import Mapping
from typing import Any, Final

from sparklog.kernels import avro

SORTS: Final = {
    "boolean": avro.BOOLEAN,
    "int": avro.INT,
    "long": avro.LONG,
    "float": avro.FLOAT,
    "double": avro.DOUBLE,
    "bytes": avro.BYTES,
    "string": avro.STRING,
}
_SIZE_MAX: Final = 2**31 - 1


def program_of(plain: Any, named: Mapping[str, Any]) -> "array[int]":
    """The program of a schema in the form that `avro` passes to fastavro; `named` has the types that it
    refers to by name.
    """
    program: array[int] = array("i")
    _append(program, plain, named)
    return program


def _append(program: "array[int]", plain: Any, named: Mapping[str, Any]) -> int:
    """Appends the node of `plain` and its children; returns its index."""
    if isinstance(plain, list):
        return _append_parent(program, avro.UNION, plain, named)
    if isinstance(plain, str) and plain in named:
        return _append(program, named[plain], named)
    sort = plain if isinstance(plain, str) else plain["type"]
    if sort == "record":
        return _append_parent(program, avro.RECORD, [field["type"] for field in plain["fields"]], named)
    at = len(program)
    if sort == "array" or sort == "map":
        program.extend((avro.ARRAY if sort == "array" else avro.MAP, 0))
        program[at + 1] = _append(program, plain["items" if sort == "array" else "values"], named)
    elif sort == "enum":
        program.extend((avro.ENUM, len(plain["symbols"])))
    elif sort == "fixed":
        program.extend((avro.FIXED, min(plain["size"], _SIZE_MAX)))
    elif sort == "null":
        program.append(avro.AVRO_NULL)
    else:
        is_millis = isinstance(plain, dict) and plain.get("unit") == "ms"
        program.append(avro.MILLIS if is_millis else SORTS[sort])
    return at


def _append_parent(program: "array[int]", sort: int, children: list[Any], named: Mapping[str, Any]) -> int:
    at = len(program)
    program.extend((sort, len(children), *([0] * len(children))))
    for place, child in enumerate(children, at + 2):
        program[place] = _append(program, child, named)
    return at
