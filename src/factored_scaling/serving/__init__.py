"""Policies over the network, in openpi's protocol: serve ours to a robot, evaluate any server's in our simulators.

A websocket. The server sends its metadata first. Then each message is an observation and each answer an action chunk,
both msgpack with numpy arrays; a text frame is an error.
"""

from __future__ import annotations

from factored_scaling.errors import InvalidInput, installs

try:
    import msgpack as _  # noqa: F401
    import websockets as __  # noqa: F401
except ImportError:
    raise InvalidInput("serving needs websockets and msgpack", hint=installs("serve")) from None

PORT = 8000  # openpi's
MOST_BYTES = 64 * 1024 * 1024  # of one message; far above any observation
KIND = "factored-scaling diffusion-policy"  # marks our policies in the metadata
LONGEST_ERROR = 500  # characters of an error, which is one line
