"""LeRobot datasets without LeRobot: list, read, select, write (v3.0; v2.1 for reading), and factor labels for them."""

from __future__ import annotations

from factored_scaling.errors import InvalidInput, installs

try:
    import pyarrow as _  # noqa: F401
except ImportError:
    raise InvalidInput("LeRobot datasets need pyarrow and av", hint=installs("lerobot")) from None
