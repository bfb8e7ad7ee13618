"""Builds the compiled kernels where a C compiler is at hand; without one the reference kernels serve (sparklog.kernels tells which)."""

import os
from pathlib import Path

from setuptools import Extension, setup


def compiled_kernels() -> list[Extension]:
    """One optional extension per `*_compiled.pyx`; none for a pure wheel (`SPARKLOG_PURE=1`) or where Cython is missing."""
    if os.environ.get("SPARKLOG_PURE") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extensions = [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            extra_compile_args=["-O3", "-fno-strict-aliasing"],
            optional=True,
        )
        for source in sorted(Path("sparklog/kernels").glob("*_compiled.pyx"))
    ]
    return cythonize(extensions, build_dir="build/cython", language_level=3) if extensions else []


setup(ext_modules=compiled_kernels())
