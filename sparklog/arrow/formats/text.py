"""Bytes that are text in UTF-8."""

import pyarrow as pa

from sparklog.arrow.formats.decoded import Decoded


class TextDecoder:
    """Byte strings as strings over the same buffers, if all of them are UTF-8."""

    def decode(self, values: pa.Array) -> Decoded:
        try:
            return Decoded(values.cast(pa.string()), {})
        except pa.ArrowInvalid:
            return _row_by_row(values)


def _row_by_row(values: pa.Array) -> Decoded:
    texts: list[str | None] = []
    refused: dict[int, str] = {}
    for row, content in enumerate(values.to_pylist()):
        try:
            texts.append(None if content is None else content.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            refused[row] = f"not UTF-8 at byte {error.start}"
    return Decoded(pa.array(texts, pa.string()), refused)
