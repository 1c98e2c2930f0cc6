"""The compiled kernels. Everything else about the package is in pyproject.toml.

Without a working C compiler the installation goes through all the same and plain Python does the work
(``mqstore.kernels.NAME`` tells). ``MQSTORE_SANITIZE=1`` builds with the address and undefined-behaviour
sanitizers for tests; such a build runs only with the sanitizer's library loaded first.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = "src/mqstore/kernels"


def compiler_flags() -> list[str]:
    """No -march: one build must run on every machine of its kind; faster ways are chosen at run time."""
    if os.environ.get("MQSTORE_SANITIZE") == "1":
        return ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"]
    return ["-O3"]


def linker_flags() -> list[str]:
    """The sanitizers' own libraries, when asked for."""
    return ["-fsanitize=address,undefined"] if os.environ.get("MQSTORE_SANITIZE") == "1" else []


native = Extension(
    "mqstore.kernels._native",
    [f"{KERNELS}/_native.pyx"],
    include_dirs=[KERNELS],
    depends=[f"{KERNELS}/bytes.h", f"{KERNELS}/crc32.h"],
    extra_compile_args=compiler_flags(),
    extra_link_args=linker_flags(),
    optional=True,
)

setup(ext_modules=cythonize([native]))
