"""A sink of events, as a Broker is one for those who send to it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep
from typing import TYPE_CHECKING

from events.codec import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from events.event import Event


class Sink(ThreadingHTTPServer):
    """Keeps what it takes, and who said to send it; refuses events of the ids in `refused`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.took: list[Event] = []
        self.shown: list[str | None] = []
        self.refused: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def until(self, wanted: Callable[[Event], bool], within: float = 20) -> Event:
        """The first event that is as wanted."""
        deadline = monotonic() + within
        while True:
            for each in tuple(self.took):
                if wanted(each):
                    return each
            assert monotonic() < deadline, [(each.type, each.subject) for each in self.took]
            sleep(0.02)


class _Answer(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        event = decode({name.lower(): text for name, text in self.headers.items()}, body)
        refused = event.id in self.server.refused
        if not refused:
            self.server.took.append(event)
            self.server.shown.append(self.headers.get("Authorization"))
        self.send_response(400 if refused else 202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def listening() -> Iterator[Sink]:
    with Sink() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
