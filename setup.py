"""The compiled kernels. Everything else about the package is in pyproject.toml.

Without a working C compiler the installation goes through all the same and plain Python does the work
(``mqstore.kernels.NAME`` tells). ``MQSTORE_SANITIZE=1`` builds with the address and undefined-behaviour
sanitizers for tests; such a build runs only with the sanitizer's library loaded first.
"""

import os
import runpy
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

KERNELS = "src/mqstore/kernels"

# No -march: one build must run on every machine of its kind; faster ways are chosen at run time.
SANITIZERS = ["-fsanitize=address,undefined"] if os.environ.get("MQSTORE_SANITIZE") == "1" else []
FLAGS = ["-O1", "-g", "-fno-omit-frame-pointer", *SANITIZERS] if SANITIZERS else ["-O3"]


class BuildIfPossible(build_ext):
    """Builds an optional extension, or says why not.

    The stock command forgives a compiler that fails, but not one that is missing.
    """

    def build_extension(self, ext: Extension) -> None:
        """Build ``ext``; a failure is a warning."""
        try:
            super().build_extension(ext)
        except (BaseError, CCompilerError, OSError) as error:
            self.warn(f"{ext.name} is not built, plain Python will do its work: {error}")


native = Extension(
    "mqstore.kernels._native",
    [f"{KERNELS}/_native.pyx"],
    include_dirs=[KERNELS],
    depends=[f"{KERNELS}/bytes.h", f"{KERNELS}/crc32.h", f"{KERNELS}/kafka.h"],
    extra_compile_args=FLAGS,
    extra_link_args=SANITIZERS,
)
# By its path: importing the package would load the compiled module that is about to be replaced.
runpy.run_path(f"{KERNELS}/sources.py")["write_mark"](Path(KERNELS))
(compiled,) = cythonize([native])
# Set here because cythonize drops it.
compiled.optional = True

setup(ext_modules=[compiled], cmdclass={"build_ext": BuildIfPossible})
