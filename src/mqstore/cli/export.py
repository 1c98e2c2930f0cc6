"""``mqstore export``: a store as Parquet files, on Spark."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.options import FormatOption, StorePath, TopicOption, WhereOption
from mqstore.cli.output import Format, make_output, size_text
