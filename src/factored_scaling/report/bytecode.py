"""Cache of compiled templates beside Python's compiled modules."""

from __future__ import annotations

import importlib.util
import io
import pickle
import sys
from contextlib import suppress
from pathlib import Path

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from factored_scaling.errors import FscError
from factored_scaling.io.atomic import write_whole


class CompiledTemplates(BytecodeCache):
    """Files in `__pycache__`; none are written where Python writes none."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read the code of a template if it is cached for the same source."""
        with suppress(OSError, EOFError, ValueError, TypeError, pickle.UnpicklingError):
            bucket.load_bytecode(io.BytesIO(_place(bucket).read_bytes()))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write the code of a template, if possible."""
        if not sys.dont_write_bytecode:
            with suppress(OSError, FscError):
                write_whole(_place(bucket), bucket.bytecode_to_string())


def _place(bucket: Bucket) -> Path:
    return Path(importlib.util.cache_from_source(str(Path(__file__).with_name(f"template-{bucket.key}.py"))))
