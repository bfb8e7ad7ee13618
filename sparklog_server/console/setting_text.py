"""Values of settings as they are written in a form: `7d` for one in milliseconds, `1GiB` for one in bytes."""

import re
from collections.abc import Mapping
from typing import Final

from sparklog.client.positions import duration_ms

_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([kKMGTP])(i?)B")
_DURATION: Final = re.compile(r"[\d.]+[a-zA-Z][\da-zA-Z.]*|P[\dDTHMS.]+")
_POWERS: Final = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_UNITS_MS: Final[Mapping[str, int]] = {"ms": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}


def setting_value(name: str, text: str) -> str:
    """The number that a cluster takes for `7d` or `1GiB`; any other text as it is. The last word of the
    name is the unit. Raises ValueError for a time that is no duration, or no whole number of the unit.
    """
    text = text.strip()
    unit = re.split(r"[._]", name)[-1]
    if unit in _UNITS_MS and _DURATION.fullmatch(text):
        whole, rest = divmod(duration_ms(text), _UNITS_MS[unit])
        if rest:
            raise ValueError(f"{text!r} is no whole number of {unit}")
        return str(whole)
    if "byte" in name and (size := _SIZE.fullmatch(text)):
        return str(int(float(size[1]) * (1024 if size[3] else 1000) ** _POWERS[size[2]]))
    return text
