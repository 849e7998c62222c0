"""The server on 127.0.0.1, from opening its socket to its end."""

import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from autofl.errors import AutoFLError, lacks

HOST = "127.0.0.1"
MOST_HEADER = 128 * 2**10
"""Bytes of a request before its body; the address alone may have half of them."""


def serve(roots: Sequence[Path], port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until told to end.

    Args:
        port: 0 for any that is free.
        on_ready: is given the address, with its token, as soon as the server answers.
    """
    try:
        import uvicorn

        from autofl.explore.app import make_app
    except ImportError as error:
        raise lacks(f"autofl explore ({error})", "explore") from None
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError as error:
        listening.close()
        raise AutoFLError(
            f"--port {port}: {error.strerror}; --port 0 takes any free port"
        ) from None
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    config = uvicorn.Config(
        make_app(roots, token, port),
        log_level="critical",
        access_log=False,  # addresses hold the token
        server_header=False,
        timeout_graceful_shutdown=2,
        ws="none",
        http="h11",  # which alone has a bound for the bytes before a body
        h11_max_incomplete_event_size=MOST_HEADER,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready(f"http://{HOST}:{port}/?token={token}")

    try:
        Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        return
    finally:
        listening.close()
