"""Files over 127.0.0.1, one of them cut in the middle: as the hub and as a package index hand theirs out."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Shelf:
    """What is served: answers by path. Of the path `halved` only the first half comes, until `open_up`."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.halved = ""
        self.half_sent = threading.Event()
        self._opened = threading.Event()
        self.address = ""

    def open_up(self) -> None:
        """From now on all of every file comes."""
        self.halved = ""
        self._opened.set()

    def wait(self) -> None:
        """Hold a connection whose second half is kept back."""
        self._opened.wait(120)

    def put(self, path: str, data: bytes, **headers: str) -> None:
        """Serve `data` under `path`; a header's underscores stand for hyphens."""
        self.answers[path] = data
        self.headers[path] = {name.replace("_", "-"): value for name, value in headers.items()}

    def put_model(self, name: str, files: dict[str, bytes]) -> None:
        """Serve `files` as the hub serves those of the model `name`."""
        listing = []
        for file, data in files.items():
            digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
            listing.append({"type": "file", "path": file, "oid": digest, "size": len(data)})
            self.put(f"/{name}/resolve/{COMMIT}/{file}", data, ETag=f'"{digest}"', X_Repo_Commit=COMMIT)
        about = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
        kind = {"Content_Type": "application/json"}
        for revision in ("", "/revision/main", f"/revision/{COMMIT}"):
            self.put(f"/api/models/{name}{revision}", json.dumps(about).encode(), **kind)
        self.put(f"/api/models/{name}/tree/{COMMIT}", json.dumps(listing).encode(), **kind)

    def halve(self, file: str) -> None:
        """Keep back the second half of the path that ends with `file`."""
        (self.halved,) = (path for path in self.answers if path.endswith(f"/{file}"))


@contextmanager
def serving() -> Iterator[Shelf]:
    """A shelf and a server in front of it, which ends with the block."""
    shelf = Shelf()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(False)

        def do_GET(self) -> None:
            self._answer(True)

        def _answer(self, body: bool) -> None:
            path = self.path.split("?")[0]
            data = shelf.answers.get(path)
            self.send_response(404 if data is None else 200)
            for name, value in shelf.headers.get(path, {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data or b"")))
            self.send_header("Connection", "close")
            self.end_headers()
            if not body or data is None:
                return
            if path != shelf.halved:
                self.wfile.write(data)
                return
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            shelf.half_sent.set()
            shelf.wait()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    shelf.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield shelf
    finally:
        shelf.open_up()
        server.shutdown()
        server.server_close()
        thread.join(10)
