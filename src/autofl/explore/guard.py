"""Who may ask: holders of the token, on this machine, from the page itself; and how much they may
send.
"""

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from fastapi import HTTPException

from autofl.errors import AutoFLError

MOST_BODY = 2 * 2**20
"""Bytes of a request: positions of 10,000 UEs take a fifth of it."""
MOST_QUERY = 64 * 2**10
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'{nonce}; style-src 'self'; connect-src 'self';"
    " img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer: nothing from elsewhere is loaded, and nobody else may frame or read it."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Guard:
    """Checks every request before the application sees it.

    The Host must be this machine by one of its loopback names: a foreign name that resolves to
    127.0.0.1 (DNS rebinding) is refused. A request that a browser sends for another page says so in
    Origin or Sec-Fetch-Site, and is refused too. The token comes as `Authorization: Bearer TOKEN`
    or as `?token=TOKEN`; no cookie is used, since cookies are shared by all ports of a machine.
    """

    def __init__(
        self, app: Callable[[Scope, Receive, Send], Awaitable[None]], token: str, port: int
    ) -> None:
        self.app = app
        self._token = token.encode()
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}
        self._origins = {b"http://" + host for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            raise AutoFLError("only HTTP is supported here")
        headers = dict(scope["headers"])
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            return await _refuse(send, *refusal)

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                nonce = f" 'nonce-{scope['nonce']}'" if "nonce" in scope else ""
                said = (
                    (name.lower(), value.replace("{nonce}", nonce))
                    for name, value in HEADERS.items()
                )
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in said),
                ]
            await send(message)

        return await self.app(scope, _limited(receive), guarded_send)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Status and reason, or None if the request is accepted."""
        if headers.get(b"host", b"").lower() not in self._hosts:
            return 403, "this page is served to 127.0.0.1 and localhost only"
        if b"origin" in headers and headers[b"origin"].lower() not in self._origins:
            return 403, "requests from other pages are refused"
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            return 403, "requests from other pages are refused"
        if len(scope.get("query_string", b"")) > MOST_QUERY:
            return 414, "the address is too long"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 12 or int(length) > MOST_BODY:
            return 413, f"a request may have at most {MOST_BODY:,} bytes"
        if not hmac.compare_digest(self._given(scope, headers), self._token):
            return (
                401,
                "the token is missing or wrong; open the address that autofl explore printed",
            )
        return None

    def _given(self, scope: Scope, headers: dict[bytes, bytes]) -> bytes:
        scheme, _, word = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            return word.strip()
        try:
            query = parse_qs(scope.get("query_string", b"").decode("ascii"), max_num_fields=100)
        except ValueError:
            return b""
        return query.get("token", [""])[0].encode(errors="replace")


def _limited(receive: Receive) -> Receive:
    """Receives until there are too many bytes: the length in the header may be missing or false."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MOST_BODY:
            raise HTTPException(413, f"a request may have at most {MOST_BODY:,} bytes")
        return message

    return counted


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"detail": reason}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
