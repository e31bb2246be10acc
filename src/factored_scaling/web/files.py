"""Logs and videos in a run's folder and logs of schedulers, for the links of the overview."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from factored_scaling.errors import StudyMissing

if TYPE_CHECKING:  # `fsc runs` shows the same links without a web server installed
    from starlette.responses import Response

LONGEST_LOG = 1_000_000  # bytes of a log that are sent, from its end
_MOST = 8  # links of one run
_TEXT, _VIDEO = (".txt", ".log"), ".mp4"
_JOB_LOGS = ("_log.out", ".log")
_PLACES = ("", "videos")  # folders of a run in which files are looked for


@dataclass(frozen=True)
class RunFiles:
    """The folders of `fsc run`; without a `folder` there are none."""

    folder: Path | None

    def links(self, digest: str) -> list[dict[str, str]]:
        """Links to logs, then to videos, each with a label."""
        names = self._names(digest)
        logs = [name for name in names if not name.endswith(_VIDEO)]
        videos = [name for name in names if name.endswith(_VIDEO)]
        words = {"log.txt": "log"} | {name: PurePosixPath(name).stem for name in videos}
        return [
            {"word": words.get(name, name.removesuffix(".txt")), "address": f"/files/{digest}/{quote(name)}"}
            for name in (logs + videos)[:_MOST]
        ]

    def job_link(self, log: str) -> list[dict[str, str]]:
        """The link to a scheduler's log, if it is in the study's folder."""
        path = Path(log)
        if not log or self._job_log(path.parent.name, path.name) is None:
            return []
        return [{"word": "job log", "address": f"/jobs/{quote(path.parent.name)}/{quote(path.name)}"}]

    def response(self, digest: str, name: str) -> Response:
        """One of a run's files. Only the last LONGEST_LOG bytes of a longer log are sent."""
        from starlette.responses import FileResponse

        if self.folder is None or name not in self._names(digest):
            raise StudyMissing("there is no such log or video")
        path = self.folder / "runs" / digest / name
        return FileResponse(path, media_type="video/mp4") if name.endswith(_VIDEO) else _end_of(path)

    def job_response(self, submission: str, name: str) -> Response:
        """A scheduler's log. Other files of a submission are not served: they hold the database's address."""
        path = self._job_log(submission, name)
        if path is None:
            raise StudyMissing("there is no such log")
        return _end_of(path)

    def _job_log(self, submission: str, name: str) -> Path | None:
        """The path of a log under STUDY/jobs, if it is a plain file there; links are not followed."""
        parts = submission, name
        if self.folder is None or not name.endswith(_JOB_LOGS) or any(set(part) & {"/", "\\", "\0"} for part in parts):
            return None
        path = self.folder / "jobs" / submission / name
        try:
            plain = stat.S_ISREG(path.lstat().st_mode) and stat.S_ISDIR(path.parent.lstat().st_mode)
        except (OSError, ValueError):
            return None
        return path if plain and submission not in ("", ".", "..") else None

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


def _end_of(log: Path) -> Response:
    """The last LONGEST_LOG bytes of a log."""
    from starlette.responses import Response

    with log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LONGEST_LOG))
        text = file.read(LONGEST_LOG)
    return Response(text, headers={"Cache-Control": "no-cache"}, media_type="text/plain; charset=utf-8")
