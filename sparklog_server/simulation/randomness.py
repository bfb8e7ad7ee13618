"""Random numbers by name: each use has its own sequence, so removing a fault from a run does not change the
random numbers of other parts.
"""

from random import Random


def random_for(seed: int, purpose: str) -> Random:
    """The random sequence of one purpose, such as `disk 2`, in the run of `seed`.

    Text seeds a generator through SHA-512, which does not depend on PYTHONHASHSEED.
    """
    return Random(f"{seed} {purpose}")  # noqa: S311 - a reproducible seed needs no secure random numbers
