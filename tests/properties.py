"""How many examples the property tests try, and which.

`SPARKLOG_EXAMPLES` is not set (`make test`): the same examples in every run, so that a pass does not
depend on luck. `SPARKLOG_EXAMPLES=N` (`make test-long`, `make fuzz`): random examples, N times as many; a
failure prints the seed that repeats it.

An example that ever failed is kept with its test, as `@example(…)` or as a case of its own.
"""

import os
from typing import Any, Final

from hypothesis import HealthCheck, settings

_DEFAULT: Final = 100
_TIMES: Final = int(os.environ.get("SPARKLOG_EXAMPLES", "0"))


def load_profile() -> None:
    """Set the defaults of all property tests; called before the first of them is imported."""
    # A machine under load makes a test slow, not wrong.
    slow = [HealthCheck.too_slow]
    settings.register_profile(
        "sparklog",
        max_examples=_DEFAULT * max(_TIMES, 1),
        derandomize=not _TIMES,
        deadline=None,
        suppress_health_check=slow,
        print_blob=True,
    )
    settings.load_profile("sparklog")


def examples(count: int, **others: Any) -> settings:
    """The settings of a test that tries `count` examples in `make test`."""
    return settings(max_examples=count * max(_TIMES, 1), **others)
