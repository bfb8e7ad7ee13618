"""Unpickles sources, readers and writers in Spark processes that do not have this package on their path, if
it was shipped with the session.

Spark puts files of `--py-files` and `addArtifacts` on the path of its planners and of most executor
workers. In the process that plans a stream and in the one that commits its micro-batches, it computes a
wrong path (a directory `streaming_job` that does not exist), and over Spark Connect also in the workers of
a stream (without the session's directory), in 4.0 to 4.3. There, unpickling a class of this package fails
with ModuleNotFoundError. The pickle therefore contains the location of the package, and a function, by
value, that puts it on the path.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("msgspec", "crc32c", "cramjam", "lz4", "zstandard", "pyarrow")
"""Packages that Spark processes must have installed; they are compiled, so Python cannot import them from a
zip file.
"""


def missing_packages(*more: str) -> list[str]:
    """The packages of `PACKAGES` and `more` that this process cannot import."""
    return [name for name in (*more, *PACKAGES) if importlib.util.find_spec(name) is None]


class Portable:
    """Can be unpickled in a process that does not have this package on its path, if it was shipped with the
    session.
    """

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., object], tuple[object, ...]]:
        from pyspark import cloudpickle

        package = Path(__file__).absolute().parents[2]
        # Files shipped beside the package are missing from the path as well.
        beside = [
            entry for entry in map(Path, sys.path) if entry != package and entry.parent == package.parent
        ]
        shipped = [str(entry) for entry in (package, *beside)]
        return _restored, (shipped, cloudpickle.dumps(super().__reduce_ex__(protocol)[:3]))  # type: ignore[no-untyped-call]


def _restored(shipped: list[str], pickled: bytes) -> object:
    """Runs where this package may not be importable, so it imports only the standard library, inside the
    function.
    """
    import importlib.util
    import pickle
    import sys
    from pathlib import Path

    if importlib.util.find_spec("sparklog") is None:
        for entry in map(Path, shipped):
            # On the driver's machine the file has the same path; an executor has it in its directory of
            # files, or in a session's directory within it.
            tails = (Path(entry.name), Path(entry.parent.name, entry.name))
            places = [entry, *(Path(base, tail) for base in sys.path for tail in tails)]
            sys.path.extend([str(place) for place in places if place.exists()][:1])
    try:
        make, arguments, state = pickle.loads(pickled)  # noqa: S301  (written by Spark's own planner)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} cannot be imported by {sys.executable}, which Spark uses here: install it on the "
            f"driver and on every executor,"
            " and set PYSPARK_PYTHON to the Python that has it"
        ) from error
    made = make(*arguments)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    elif state is not None:
        made.__dict__.update(state)
    return made


_restored.__module__ = (
    "__main__"  # cloudpickle pickles functions of `__main__` by value, and all others by reference
)
