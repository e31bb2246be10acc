"""The web application: routes and their handlers, all behind the access rules of `access`."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from factored_scaling.errors import FscError, InvalidInput, NotEnoughData, StoreError, StudyMissing, TrialTaken
from factored_scaling.study import Study
from factored_scaling.web.access import Access, Guard, Refused, refusal
from factored_scaling.web.curves import LARGEST_BUDGET, Curves, default_budget, slider_end
from factored_scaling.web.files import RunFiles
from factored_scaling.web.overview import Overview
from factored_scaling.web.pages import as_json, asset, page
from factored_scaling.web.score import Desk
from factored_scaling.web.score_routes import add_score

log = logging.getLogger("factored_scaling.web")
Clock = Callable[[], float]
Budget = Annotated[int | None, Query(ge=1, le=LARGEST_BUDGET)]
PageNumber = Annotated[int, Query(alias="page", ge=1, le=2**31 - 1)]
Strategy = Annotated[str, Query(max_length=40)]
FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}


def create_app(
    study: Study, access: Access, clock: Clock = time.time, folder: Path | None = None, argument: str = "STUDY"
) -> ASGIApp:
    """The whole server for one study. `folder` holds logs and videos of its runs; `argument` names the study in
    commands."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)  # the pages of FastAPI load scripts from elsewhere
    _errors(app)
    _assets(app)
    desk = Desk(study)
    files = RunFiles(folder)
    _overview(app, Overview(study, files, argument), desk, clock)
    _files(app, files)
    _curves(app, study)
    add_score(app, study, desk)
    return Guard(app, access)


def _assets(app: FastAPI) -> None:
    @app.get("/static/{name}")
    def static(name: str) -> Response:
        found = asset(name)
        if found is None:
            raise HTTPException(404, "there is no such file")
        return Response(found[0], headers=FOR_EVER, media_type=found[1])

    @app.get("/favicon.ico")
    def icon() -> Response:
        return RedirectResponse("/static/icon.svg", 301)


def _files(app: FastAPI, files: RunFiles) -> None:
    @app.get("/files/{digest}/{name:path}")
    def file(digest: str, name: str) -> Response:
        return files.response(digest, name)

    @app.get("/jobs/{submission}/{name}")
    def job(submission: str, name: str) -> Response:
        return files.job_response(submission, name)


def _overview(app: FastAPI, overview: Overview, desk: Desk, clock: Clock) -> None:
    def content(number: int) -> dict[str, Any]:
        return overview.content(clock(), desk.summaries(), number)

    @app.get("/")
    def whole(number: PageNumber = 1) -> Response:
        return HTMLResponse(page("overview.html.j2", here="overview", **content(number)))

    @app.get("/overview")
    def part(request: Request, number: PageNumber = 1) -> Response:
        """Only the part of the page that changes; an empty 304 when the client's copy is current."""
        return unless_known(request, page("overview_part.html.j2", **content(number)))


def _curves(app: FastAPI, study: Study) -> None:
    curves = Curves(study)

    @app.get("/curves")
    def whole(budget: Budget = None, strategy: Strategy = "auto") -> Response:
        spec = study.spec
        asked = budget or default_budget(spec)
        answer, trouble = None, ""
        try:
            answer = curves.answer(asked, strategy)
        except NotEnoughData as error:
            trouble = str(error)
        content: dict[str, Any] = {"answer": answer, "trouble": trouble, "budget": asked, "strategy": strategy}
        content |= {
            "measured": curves.measured,
            "name": spec.name,
            "most": slider_end(spec),
            "strategies": curves.strategies,
        }
        return HTMLResponse(page("curves.html.j2", here="curves", **content))

    @app.get("/curves.json")
    def data(budget: Budget = None, strategy: Strategy = "auto") -> Response:
        return as_json(curves.answer(budget or default_budget(study.spec), strategy))


def unless_known(request: Request, text: str) -> Response:
    """The text as an HTML fragment, or 304 when the client's copy is the same."""
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:20]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return HTMLResponse(text, headers=headers)


def _errors(app: FastAPI) -> None:
    """Turn every error into a status and one line. Internal errors are logged, not shown."""

    async def answered(request: Request, error: Exception) -> Response:
        return refusal(_refused(request, error), request.headers)

    for kind in (HTTPException, RequestValidationError, FscError, Exception):
        app.add_exception_handler(kind, answered)


def _refused(request: Request, error: Exception) -> Refused:
    if isinstance(error, HTTPException):
        return Refused(error.status_code, str(error.detail))
    if isinstance(error, RequestValidationError):
        return Refused(422, _first_mistake(error))
    if isinstance(error, StudyMissing):
        return Refused(404, str(error))
    if isinstance(error, InvalidInput) and not isinstance(error, NotEnoughData | TrialTaken):
        return Refused(422, str(error))
    if isinstance(error, StoreError):
        log.error("%s", error)
        return Refused(503, "the record cannot be reached just now; nothing was lost", {"Retry-After": "2"})
    if isinstance(error, FscError):
        return Refused(409, str(error))
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return Refused(500, "something went wrong here; the server's terminal says what")


def _first_mistake(error: RequestValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    return f"{place}: {first['msg']}"
