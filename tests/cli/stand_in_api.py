"""A small HTTP server that answers like the API, for tests of how the command line talks and prints."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

TOKEN = "att_stand_in"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    authorization: str | None
    body: object
    last_event_id: str | None = None


@dataclass
class StandInApi:
    """Answers what it was told to, and remembers what it was asked."""

    answers: dict[tuple[str, str], list[tuple[int, bytes]]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)

    def __enter__(self) -> Self:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length)
                path = self.path.partition("?")[0]
                body = json.loads(raw) if raw else None
                authorization = self.headers.get("Authorization")
                api.seen.append(
                    Seen(
                        method=self.command,
                        path=self.path,
                        authorization=authorization,
                        body=body,
                        last_event_id=self.headers.get("Last-Event-ID"),
                    )
                )
                status, answer = api.next_answer(self.command, path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = handle_any  # noqa: N815 - the names that http.server calls

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - http.server's own name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> Mapping[str, str]:
        return {"ATTUNE_URL": f"http://127.0.0.1:{self._server.server_port}", "ATTUNE_TOKEN": TOKEN}

    def answer(self, method: str, path: str, *answers: object, status: int = 200) -> None:
        """Answer this request with these documents, one after the other; the last one stays."""
        self.answers[method, path] = [
            (status, each if isinstance(each, bytes) else json.dumps(each).encode()) for each in answers
        ]

    def next_answer(self, method: str, path: str) -> tuple[int, bytes]:
        answers = self.answers.get((method, path))
        if not answers:
            problem = {"title": "Not found", "detail": f"nothing at {path}", "code": "not_found", "status": 404}
            return 404, json.dumps(problem).encode()
        return answers.pop(0) if len(answers) > 1 else answers[0]
