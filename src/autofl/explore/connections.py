"""Connections to the page's server: those that ask for nothing hold neither places nor memory."""

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_HEADER = 128 * 2**10
"""Bytes of a request before its body; the address alone may have half of them. Only h11 has such a
bound.
"""
MOST_SILENT = 100
"""Connections that have not asked for anything yet."""
SILENCE = 10.0
"""Seconds that such a connection has for its first request."""


class Connection(H11Protocol):
    """A connection that ends where it asks for nothing: after a while, or when newer silent ones
    need its place.

    So whoever may not ask cannot keep those away who may: their request comes at once, and then
        counts no more.
    """

    silent: ClassVar[dict["Connection", None]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.silent[self] = None
        self.loop.call_later(SILENCE, self.end_if_silent)
        if len(self.silent) > MOST_SILENT:
            next(iter(self.silent)).end_if_silent()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None:
            self.silent.pop(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.silent.pop(self, None)
        super().connection_lost(exc)

    def end_if_silent(self) -> None:
        if self in self.silent:
            del self.silent[self]
            self.transport.abort()
