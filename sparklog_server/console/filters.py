"""The filter of records: an expression of JMESPath over one record, of which only a safe part is allowed.

    value.delay > 15 && starts_with(key, 'UA')        headers.trace == 'a1'        !(value.gone)

The record is `{topic, partition, offset, timestamp, key, value, headers}`. A key, value or header that is
JSON is that, other UTF-8 is text, other bytes are text in hexadecimal. Numbers, true, false and null behind
a comparison may be written without the backticks of JMESPath.

The allowed part has no way to build lists or objects, nor has it literal ones, which would multiply with
each level of nesting. So every projection descends into the record, and an expression takes time in
proportion to it.
"""

import re
from collections.abc import Mapping
from typing import Final

import jmespath
import msgspec
from jmespath.exceptions import JMESPathError

from sparklog.client.consumer.records import ConsumerRecord

EXPRESSION_CHARACTERS_MAX: Final = 500
_JSON_BYTES_MAX: Final = 1 << 20
_NODES: Final = frozenset(
    (
        *("comparator", "current", "identity", "field", "subexpression", "index", "index_expression"),
        "literal",
        *("or_expression", "and_expression", "not_expression", "pipe", "function_expression"),
        *("projection", "filter_projection"),
    )
)
_FUNCTIONS: Final = (
    *("abs", "ceil", "contains", "ends_with", "floor", "length", "max", "min", "not_null", "starts_with"),
    *("sum", "to_number", "to_string", "type"),
)
_LITERALS: Final = re.compile(
    r"""(?P<quoted>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`)"""
    r"|(?P<comparator>[=!<>]=|<|>)(?P<space>\s*)"
    r"(?P<literal>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\b|(?:true|false|null)\b)"
)


class BadExpression(ValueError):
    """An expression that is not allowed, or none."""


class Filter:
    """A compiled expression."""

    def __init__(self, text: str) -> None:
        if len(text) > EXPRESSION_CHARACTERS_MAX:
            raise BadExpression(f"an expression has at most {EXPRESSION_CHARACTERS_MAX} characters")
        try:
            self._compiled = jmespath.compile(_LITERALS.sub(_backticked, text))
            _check(self._compiled.parsed)
        except RecursionError:
            raise BadExpression("the expression is nested too deeply") from None
        except (JMESPathError, ValueError) as error:
            raise BadExpression(str(error).partition("\n")[0]) from None

    def selects(self, record: ConsumerRecord) -> bool:
        """Whether the expression is true of the record; an expression that does not fit its types is not."""
        return self.is_true_of(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "key": _value(record.key),
                "value": _value(record.value),
                "headers": {name: _value(value) for name, value in record.headers},
            }
        )

    def is_true_of(self, fields: Mapping[str, object]) -> bool:
        """Whether the expression is true of these fields, as in JMESPath: 0 is true, empty text is not."""
        try:
            found = self._compiled.search(fields)
        except (JMESPathError, RecursionError, TypeError, ValueError, ArithmeticError):
            return False
        return not (found is None or found is False or (isinstance(found, str | list | dict) and not found))


def _check(node: Mapping[str, object]) -> None:
    kind = node["type"]
    if kind not in _NODES:
        raise BadExpression(f"a filter has no {str(kind).replace('_', ' ')}")
    if kind == "function_expression" and node["value"] not in _FUNCTIONS:
        raise BadExpression(f"there is no function {node['value']}; there are {', '.join(_FUNCTIONS)}")
    if kind == "literal" and isinstance(node["value"], list | dict):
        raise BadExpression("a filter has no list or object in backticks")
    for child in node["children"]:  # type: ignore[attr-defined]
        _check(child)


def _backticked(match: re.Match[str]) -> str:
    if match["quoted"]:
        return match[0]
    return f"{match['comparator']}{match['space']}`{match['literal']}`"


def _value(content: bytes | None) -> object:
    if content is None:
        return None
    if len(content) <= _JSON_BYTES_MAX:
        try:
            return msgspec.json.decode(content)
        except (msgspec.MsgspecError, RecursionError):
            pass
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.hex()
