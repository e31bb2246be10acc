"""Logs and videos in a run's folder, for the links of the overview."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from factored_scaling.errors import StudyMissing

if TYPE_CHECKING:  # `fsc runs` shows what the overview shows, also where no web server is installed
    from starlette.responses import Response

LONGEST_LOG = 1_000_000  # bytes of a log that are sent, from its end
_MOST = 8  # links of one run
_TEXT, _VIDEO = (".txt", ".log"), ".mp4"
_PLACES = ("", "videos")  # folders of a run in which files are looked for


@dataclass(frozen=True)
class RunFiles:
    """The folders that `fsc run` makes; without a `folder` there are none."""

    folder: Path | None

    def links(self, digest: str) -> list[dict[str, str]]:
        """Logs first, then videos: a word for each and its address."""
        names = self._names(digest)
        logs = [name for name in names if not name.endswith(_VIDEO)]
        videos = [name for name in names if name.endswith(_VIDEO)]
        words = {"log.txt": "log"} | {name: PurePosixPath(name).stem for name in videos}
        return [
            {"word": words.get(name, name.removesuffix(".txt")), "address": f"/files/{digest}/{quote(name)}"}
            for name in (logs + videos)[:_MOST]
        ]

    def response(self, digest: str, name: str) -> Response:
        """One of the linked files. Only the last LONGEST_LOG bytes of a longer log are sent."""
        from starlette.responses import FileResponse, Response

        if self.folder is None or name not in self._names(digest):
            raise StudyMissing("there is no such log or video")
        path = self.folder / "runs" / digest / name
        if name.endswith(_VIDEO):
            return FileResponse(path, media_type="video/mp4")
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LONGEST_LOG))
            text = file.read(LONGEST_LOG)
        return Response(text, headers={"Cache-Control": "no-cache"}, media_type="text/plain; charset=utf-8")

    def _names(self, digest: str) -> list[str]:
        """Plain files with the known endings, by their path in the run's folder; links are not followed."""
        if self.folder is None or not digest.isalnum():
            return []
        found = []
        for place in _PLACES:
            try:
                with os.scandir(self.folder / "runs" / digest / place) as entries:
                    found += [
                        f"{place}/{entry.name}" if place else entry.name
                        for entry in entries
                        if entry.name.endswith((*_TEXT, _VIDEO))
                        and stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)
                    ]
            except OSError:  # not trained yet, trained elsewhere, or just being removed
                continue
        return sorted(found)
