"""What an open store holds, let go of in the reverse order also when Ctrl-C comes more than once."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType


class Held(ExitStack):
    """An :class:`contextlib.ExitStack` that goes on where an interrupt between two of its steps has broken it off."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        try:
            return bool(super().__exit__(kind, value, trace))
        except BaseException as error:
            super().__exit__(type(error), error, error.__traceback__)  # those that are done are no longer in it
            raise
