"""Read and write frames in MP4 files, with PyAV."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.data.lerobot.layout import INCOMPLETE
from factored_scaling.errors import InvalidInput, installs

# Options of LeRobot: a key frame every second frame makes random access cheap.
OPTIONS = {
    "libsvtav1": {"g": "2", "crf": "30", "preset": "12"},
    "h264": {"g": "2", "crf": "30"},
    "hevc": {"g": "2", "crf": "30"},
}


def library() -> Any:
    """PyAV, loaded on first use."""
    try:
        import av
    except ImportError:
        raise InvalidInput("videos need av", hint=installs("lerobot")) from None
    return av


def read_video(path: Path, times: Sequence[float], fps: float) -> Iterator[NDArray[np.uint8]]:
    """The frame nearest to each of the ascending `times` (seconds), height × width × 3."""
    av = library()
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            if stream.codec_context is None:  # PyAV would crash
                raise InvalidInput("cannot be read as a video (unknown codec)", where=str(path))
            stream.thread_type = "AUTO"
            container.seek(max(int(times[0] / stream.time_base) - 1, 0), stream=stream)
            yield from _nearest(container.decode(stream), times, 0.5 / fps, str(path))
    except FileNotFoundError:
        raise InvalidInput("is missing", where=str(path), hint=INCOMPLETE) from None
    except (av.FFmpegError, LookupError, ValueError, TypeError, ArithmeticError) as error:  # damaged headers
        raise InvalidInput(f"cannot be read as a video ({error})", where=str(path)) from None


def _nearest(
    decoded: Iterator[Any], times: Sequence[float], tolerance: float, where: str
) -> Iterator[NDArray[np.uint8]]:
    before: Any = None
    after: Any = next(decoded, None)
    for time in times:
        while after is not None and after.time < time:
            before, after = after, next(decoded, None)
        near = [frame for frame in (before, after) if frame is not None]
        best = min(near, key=lambda frame: abs(frame.time - time), default=None)
        if best is None or abs(best.time - time) > tolerance:
            raise InvalidInput(f"has no frame at {time:.3f} s", where=where, hint="is the video whole?")
        yield best.to_ndarray(format="rgb24")


class VideoWriter:
    """Writes frames to one MP4 file."""

    def __init__(self, path: Path, fps: float, shape: tuple[int, int], codec: str) -> None:
        if codec not in OPTIONS:
            raise InvalidInput(f"unknown video codec {codec!r}", hint=f"known: {', '.join(OPTIONS)}")
        if shape[0] % 2 or shape[1] % 2:
            raise InvalidInput(f"pictures of {shape[1]}×{shape[0]} cannot be video", hint="even sides, or store images")
        self._av = library()
        os.environ.setdefault("SVT_LOG", "1")  # otherwise the encoder prints its whole configuration
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.frames, self.bytes = path, 0, 0
        self._container = self._av.open(str(path), "w", options={"movflags": "faststart"})
        rate = Fraction(fps).limit_denominator(100_000)
        self._stream = self._container.add_stream(codec, rate=rate, options=OPTIONS[codec])
        self._stream.pix_fmt, self._stream.height, self._stream.width = "yuv420p", *shape

    def add(self, picture: NDArray[np.uint8], first: bool = False) -> None:
        """Append one frame, height × width × 3; the `first` of an episode is encoded as a key frame."""
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
        if first:
            frame.pict_type = self._av.video.frame.PictureType.I
        self._mux(frame)
        self.frames += 1

    def close(self) -> None:
        """Finish the file."""
        if self._container is not None:
            self._mux(None)
            self._container.close()
            self._container = None

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mux(self, frame: Any) -> None:
        try:
            for packet in self._stream.encode(frame):
                self.bytes += packet.size
                self._container.mux(packet)
        except self._av.FFmpegError as error:
            raise InvalidInput(f"cannot be encoded ({error})", where=str(self.path), hint="store images") from None


def video_info(path: Path) -> dict[str, Any]:
    """The entry of info.json for a camera's videos."""
    with library().open(str(path)) as container:
        stream = container.streams.video[0]
        return {
            "video.height": stream.height,
            "video.width": stream.width,
            "video.codec": stream.codec.canonical_name,
            "video.pix_fmt": stream.pix_fmt,
            "video.is_depth_map": False,
            "video.fps": int(stream.average_rate),
            "video.channels": 3,
            "has_audio": False,
        }
