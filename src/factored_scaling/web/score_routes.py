"""Routes of the scoring page: forms for browsers without scripts, JSON for our script and other programs."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, unquote

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from factored_scaling.errors import InvalidInput
from factored_scaling.study import Study
from factored_scaling.web.pages import as_json, page
from factored_scaling.web.score import Desk, SentEntry, buttons, checked_operator, new_operator, state

COOKIE = "fsc-operator"
COOKIE_SECONDS = 30 * 24 * 3600
Asked = Annotated[int | None, Query(ge=1, le=2**31 - 1)]
Number = Annotated[int, Path(ge=1, le=2**31 - 1)]


def add_score(app: FastAPI, study: Study, desk: Desk) -> None:
    """Add the routes under /score."""

    @app.get("/score")
    def whole(request: Request, evaluation: Asked = None) -> Response:
        """Read only. A trial is claimed by a button or by the script."""
        scoring = desk.newest() if evaluation is None else desk.evaluation(evaluation)
        operator = operator_of(request)
        content: dict[str, Any] = {"name": study.spec.name, "operator": operator, "evaluation": None, "part": ""}
        # a phone stores entries per study; study names need not be unique
        content["mark"] = hashlib.sha256(f"{study.store.place}#{study.id}".encode()).hexdigest()[:12]
        if scoring is not None:
            content["evaluation"] = scoring.number
            content["part"] = _part(desk, state(scoring, operator)) if operator else ""
        return HTMLResponse(page("score.html.j2", here="score", **content))

    @app.post("/score/name")
    async def name(request: Request) -> Response:
        given = (await _form(request)).get("name", "")
        answer = RedirectResponse("/score", 303)
        value = quote(new_operator(given))
        answer.set_cookie(COOKIE, value, COOKIE_SECONDS, path="/score", httponly=True, samesite="lax")
        return answer

    @app.post("/score/{number}/next")
    async def following(request: Request, number: Number) -> Response:
        data = await _data(request)
        return await _answered(request, desk, number, lambda: desk.next(number, _operator(request, data)))

    @app.post("/score/{number}/entry")
    async def entry(request: Request, number: Number) -> Response:
        data = await _data(request)

        def record() -> dict[str, Any]:
            sent = SentEntry.from_form(data, _own(request)) if is_form(request) else SentEntry.read(data)
            return desk.tell(number, sent)

        return await _answered(request, desk, number, record)

    @app.post("/score/{number}/release")
    async def release(request: Request, number: Number) -> Response:
        data = await _data(request)
        return await _answered(request, desk, number, lambda: desk.release(number, _operator(request, data)))

    @app.post("/score/{number}/close")
    async def close(request: Request, number: Number) -> Response:
        await _data(request)
        return await _answered(request, desk, number, lambda: {"trials": desk.close(number)})


def is_form(request: Request) -> bool:
    """Whether a page without scripts sent the request."""
    return _kind(request) == "application/x-www-form-urlencoded"


def operator_of(request: Request) -> str:
    """The operator in the browser's cookie; empty without one or if it is not a valid name."""
    try:
        return checked_operator(unquote(request.cookies.get(COOKIE, "")))
    except InvalidInput:
        return ""


async def _answered(request: Request, desk: Desk, number: int, work: Callable[[], dict[str, Any]]) -> Response:
    """Do the work in a thread; respond with HTML or JSON, as requested."""
    done = await run_in_threadpool(work)
    if is_form(request):
        return RedirectResponse(f"/score?evaluation={number}", 303)
    if request.headers.get("x-part") and "trial" in done:
        done["html"] = await run_in_threadpool(_part, desk, done)
    return as_json(done)


def _part(desk: Desk, now: Mapping[str, Any]) -> str:
    scoring = desk.evaluation(now["evaluation"])
    return page(
        "score_part.html.j2",
        **now,
        levels=buttons(scoring.rubric),
        step_limit=scoring.step_limit,
        # one per form: a form that is sent twice counts once
        fresh=secrets.token_hex(12),
    )


def _operator(request: Request, data: Mapping[str, Any]) -> str:
    return _own(request) if is_form(request) else checked_operator(data.get("operator"))


def _own(request: Request) -> str:
    operator = operator_of(request)
    if not operator:
        raise HTTPException(409, "no operator name; open /score and enter one")
    return operator


async def _data(request: Request) -> dict[str, Any]:
    """The request's fields, from a form or JSON."""
    if is_form(request):
        return dict(await _form(request))
    if _kind(request) != "application/json":
        raise HTTPException(415, "expected JSON or a form")
    try:
        data = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise HTTPException(400, "this is not JSON") from None
    if not isinstance(data, dict):
        raise HTTPException(422, "expected an object")
    return data


async def _form(request: Request) -> dict[str, str]:
    try:
        text = (await request.body()).decode()
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=20, errors="strict"))
    except ValueError:  # not UTF-8, or too many fields
        raise HTTPException(400, "this form cannot be read") from None


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
