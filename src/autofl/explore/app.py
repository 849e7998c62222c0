"""The server: the page, its JSON API as OpenAPI describes it, and rounds as they are made."""

import asyncio
import gzip
import json
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from threading import BoundedSemaphore
from typing import Annotated, Any

import anyio.to_thread
from fastapi import FastAPI, HTTPException, Query, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from fastapi.security import APIKeyQuery, HTTPBearer

from autofl.config.arms import arm_names, settings_of, title_of
from autofl.config.scenarios import scenario_line, scenario_names
from autofl.errors import AutoFLError
from autofl.explore import planning, schema
from autofl.explore.guard import Guard
from autofl.explore.launch import Busy, Launcher
from autofl.explore.runs import NoSuchRun, Store, spelled
from autofl.files import finite_or_null
from autofl.forecast.predict import DRAWS
from autofl.records import is_run
from autofl.registry import PARTS
from autofl.version import __version__

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
}
PLANS_AT_ONCE = 2
PACKED = 2**18
"""Bytes from which a plan is packed."""
MOST_STREAMS = 16
SOON = 0.4
LATER = 2.0
"""Seconds between two looks at a run that is running, and at one that is not."""
ABSURD = (OverflowError, RecursionError, UnicodeError, FloatingPointError)
"""Errors that absurd numbers and texts raise."""
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.Problem, "description": words}
    for status, words in (
        (400, "not readable"),
        (401, "the token is missing or wrong"),
        (403, "request from another page or host"),
        (404, "no such run"),
        (409, "not possible in the present state of the run"),
        (413, "too long"),
        (422, "bad input: one line says what is wrong"),
    )
}
DESCRIPTION = (
    "What the page of `autofl explore` asks for. All values are SI and linear. Every request needs the token that the"
    " command printed, as `Authorization: Bearer TOKEN` or `?token=TOKEN`."
)


def make_app(roots: Sequence[Path], token: str, port: int) -> Guard:
    """The application behind its guard.

    Args:
        roots: run folders, or folders of them; nothing outside them is read. New runs go below the
            first that is not a run itself.
        token: required in every request.
        port: of the server, to check the Host and Origin of requests.
    """
    launcher = Launcher(next((root for root in roots if not is_run(root)), None))
    store = Store(roots, launcher)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await anyio.to_thread.run_sync(launcher.close)

    security = [
        Security(HTTPBearer(auto_error=False)),
        Security(APIKeyQuery(name="token", auto_error=False)),
    ]
    app = FastAPI(
        title="AutoFL explorer",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        dependencies=security,
        responses=PROBLEMS,
    )
    _handle_problems(app)
    _add_page(app, token)
    _add_planning(app)
    _add_runs(app, store)
    return Guard(app, token, port)


def _table(asked: schema.Question) -> dict[str, Any]:
    """The settings that a page asks about."""
    return planning.table_of(asked.scenario, asked.settings, asked.file)


def _handle_problems(app: FastAPI) -> None:
    """Errors are answered in one line, and bad input never with a 500."""

    def answer_with(status: int) -> Callable[[Request, Exception], JSONResponse]:
        return lambda _, error: JSONResponse(
            {"detail": spelled(" ".join(str(error).split())[:600])}, status
        )

    def invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return JSONResponse({"detail": f"{where[:100]}: {first['msg']}"[:600]}, 422)

    app.add_exception_handler(RequestValidationError, invalid)
    for kind, status in {NoSuchRun: 404, Busy: 409, AutoFLError: 422, MemoryError: 422}.items():
        app.add_exception_handler(kind, answer_with(status))
    for kind in ABSURD:
        app.add_exception_handler(kind, answer_with(422))


def _add_page(app: FastAPI, token: str) -> None:
    files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in TYPES}
    scripts = sorted(name for name in files if name.endswith(".js"))

    @app.get("/", include_in_schema=False)
    def page(request: Request) -> Response:
        """The page. Its scripts and style come with the token, so that they too are for its holder
        only.
        """
        nonce = secrets.token_urlsafe(16)
        request.scope["nonce"] = nonce
        imports = json.dumps(
            {"imports": {f"/static/{name}": f"/static/{name}?token={token}" for name in scripts}}
        )
        filled = files["index.html"].decode().replace("{token}", token).replace("{nonce}", nonce)
        return HTMLResponse(filled.replace("{imports}", imports))

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in files or name == "index.html":
            raise HTTPException(404, "no such file")
        return Response(files[name], media_type=TYPES[Path(name).suffix])


def _add_planning(app: FastAPI) -> None:
    # a plan never waits for a forecast
    room = BoundedSemaphore(PLANS_AT_ONCE)
    study = BoundedSemaphore(1)

    @app.get("/api/about", tags=["plan"])
    def about() -> dict[str, Any]:
        """The version, and the scenarios, planners and arms there are."""
        return {
            "version": __version__,
            "scenarios": [{"name": name, "what": scenario_line(name)} for name in scenario_names()],
            "planners": [
                {"name": name, "what": entry.label} for name, entry in PARTS["planner"].items()
            ],
            "arms": [
                {
                    "name": name,
                    "what": title_of(name),
                    "planner": settings_of(name)["planner"]["name"],
                }
                for name in arm_names()
            ],
        }

    @app.post("/api/plan", tags=["plan"], responses={200: {"model": schema.PlanAnswer}})
    def plan(asked: schema.PlanQuestion, request: Request) -> Response:
        """One round, planned by the code of `autofl plan --json`, with what a map needs."""
        with room:
            made = planning.answer(_table(asked), asked.digits)
        return _json(made, request)

    @app.post("/api/toml", tags=["plan"], responses={200: {"content": {"application/toml": {}}}})
    def toml(asked: schema.Question) -> Response:
        """The same settings as a file: `autofl plan FILE --json` says what /api/plan says under
        `plan`.
        """
        with room:
            text = planning.toml_to_plan(_table(asked))
        return Response(text, media_type="application/toml")

    @app.post("/api/curve", tags=["plan"], responses={200: {"model": schema.CurveAnswer}})
    def curve(asked: schema.CurveQuestion) -> Response:
        """What if: round time, energy and who takes part over the energy budget, the radius or
        |A_k|.
        """
        with study:
            return _json(planning.curve(_table(asked), asked.over, asked.target))

    @app.post(
        "/api/forecast", tags=["plan"], responses={200: {"content": {"application/x-ndjson": {}}}}
    )
    async def forecast(asked: schema.ForecastQuestion, request: Request) -> Response:
        """Rounds, time and energy to an accuracy, as `autofl plan --target` forecasts them.

        Lines of JSON: while it takes, how many networks are `drawn` and of how many; then the
        `forecast`, or under `detail` why there is none. Closing the connection ends the work.
        """

        def begin() -> planning.Coming:
            return planning.Coming(_table(asked), asked.target)

        coming = await anyio.to_thread.run_sync(begin)
        return StreamingResponse(
            _forecast(request, coming, study), media_type="application/x-ndjson"
        )


def _add_runs(app: FastAPI, store: Store) -> None:
    streams = asyncio.Semaphore(MOST_STREAMS)

    @app.get("/api/runs", tags=["runs"], response_model=schema.RunRows)
    def runs() -> dict[str, Any]:
        """The newest runs below the given folders."""
        rows, left_out = store.rows()
        return {"runs": rows, "left_out": left_out}

    @app.post("/api/runs", tags=["runs"], response_model=schema.RunRow)
    def start(asked: schema.StartQuestion) -> dict[str, Any]:
        """Start `autofl simulate` with these settings, in a folder of its own."""
        table = _table(asked)
        table["stop"] = {**table.get("stop", {}), "rounds": asked.rounds}
        table["evaluation"] = {**table.get("evaluation", {}), "every": asked.every}
        return store.row(store.launcher.start(planning.toml_of(table)))

    @app.get("/api/runs/{run_id}", tags=["runs"], responses={200: {"model": schema.Rounds}})
    def rounds(
        run_id: schema.RunId, after: Annotated[int, Query(ge=-1, le=10**9)] = -1
    ) -> Response:
        """Rounds of a run after the given one."""
        return _json(store.rounds(store.folder(run_id), after))

    @app.post("/api/runs/{run_id}/{wish}", tags=["runs"], response_model=schema.RunRow)
    def change(run_id: schema.RunId, wish: schema.Wish) -> dict[str, Any]:
        """Pause or stop a run that was started here (it keeps a checkpoint), or resume one that is
        not finished.
        """
        folder = store.folder(run_id)
        if wish == "resume":
            if not store.row(folder)["resumable"]:
                raise Busy(
                    "this run cannot be resumed: it is running, is finished, or has no checkpoint"
                )
            store.check_files(folder)
            store.launcher.resume(folder)
        else:
            store.launcher.end(folder, wish)
        return store.row(folder)

    @app.get(
        "/api/runs/{run_id}/events",
        tags=["runs"],
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events(request: Request, run_id: schema.RunId) -> Response:
        """Server-sent events: `rounds` when there are new ones, as GET of the run gives them; else
        `status`.
        """
        folder = await anyio.to_thread.run_sync(store.folder, run_id)
        if streams.locked():
            raise Busy(f"{MOST_STREAMS} pages are watching already")
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isdigit() and len(last) < 10 else -1
        return StreamingResponse(
            _events(request, store, folder, after, streams), media_type="text/event-stream"
        )

    @app.post("/api/compare", tags=["compare"], response_model=schema.Comparison)
    def compare(asked: schema.CompareQuestion) -> dict[str, Any]:
        """Runs side by side: the table of `autofl report`, and their curves."""
        return store.compare(asked.runs, asked.target)

    @app.post("/api/compare.csv", tags=["compare"], responses={200: {"content": {"text/csv": {}}}})
    def compare_csv(asked: schema.CompareQuestion) -> Response:
        """The same as CSV, a line for each run."""
        return Response(store.compare_csv(asked.runs, asked.target), media_type="text/csv")


async def _events(
    request: Request, store: Store, folder: Path, after: int, streams: asyncio.Semaphore
) -> AsyncIterator[str]:
    """New rounds of a run as events, until the page is closed."""
    status = ""
    async with streams:
        while not await request.is_disconnected():
            try:
                there = await anyio.to_thread.run_sync(store.rounds, folder, after)
                row = there["run"]
                new = [int(index) for index in there["rounds"]["round"] if index is not None]
            except AutoFLError as error:
                row = await anyio.to_thread.run_sync(store.row, folder)
                new = []
                if not isinstance(error, NoSuchRun):  # which says that it has no rounds yet
                    row["problem"] = str(error)
            if new:
                after = max(new)
                yield f"event: rounds\nid: {after}\ndata: {_text(there)}\n\n"
            elif row["status"] != status:
                yield f"event: status\ndata: {_text(row)}\n\n"
            status = row["status"]
            await asyncio.sleep(SOON if status in ("running", "starting", "stopping") else LATER)


async def _forecast(
    request: Request, coming: planning.Coming, study: BoundedSemaphore
) -> AsyncIterator[str]:
    """How far a forecast is, and at last the forecast; it is given up when nobody listens any more."""

    def work() -> dict[str, Any]:
        with study:
            try:
                return {"forecast": coming.forecast()}
            except (AutoFLError, MemoryError, *ABSURD) as error:
                return {"detail": str(error)}

    made = asyncio.create_task(anyio.to_thread.run_sync(work))
    try:
        while not made.done() and not await request.is_disconnected():
            yield f"{_text({'drawn': coming.drawn, 'of': DRAWS})}\n"
            await asyncio.wait({made}, timeout=SOON)
        if made.done():
            yield f"{_text(made.result())}\n"
    finally:
        coming.is_wanted = False


def _json(value: Any, request: Request | None = None) -> Response:
    """JSON, packed where it is large and whoever asks can unpack it; the token is in no answer of
    the API.
    """
    body = _text(value).encode()
    headers = {"Vary": "Accept-Encoding"}
    accepted = "" if request is None else request.headers.get("accept-encoding", "")
    if len(body) >= PACKED and "gzip" in accepted:
        body = gzip.compress(body, 1, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, media_type="application/json", headers=headers)


def _text(value: Any) -> str:
    """JSON, with null for what is not finite."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(finite_or_null(value), separators=(",", ":"))
