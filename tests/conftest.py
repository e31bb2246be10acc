"""For all tests: Ctrl-C works, also where the tests run in the background of a shell, which ignores it."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests start inherit what was ignored
