"""Web servers for the tests, with and without range requests."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


class HttpServer:
    """A server on a free port. `handle(handler)` answers each request in its own thread."""

    def __init__(self):
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body of an answer are two writes. The second must not wait.
            disable_nagle_algorithm = True

            def log_message(self, *words):
                pass

            def answer(self):
                server.handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *words):
                """Tests kill clients, so their errors are expected."""

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,))
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


class WebServer(HttpServer):
    """Serves files from memory, and records the requests."""

    def __init__(self, ranges=True, fail_first=0, cut=0):
        self.files, self.requests, self.ranges = {}, [], ranges
        self.fail_first, self.cut = fail_first, cut
        super().__init__()

    def handle(self, handler):
        path, _, query = handler.path.partition("?")
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        with self.lock:
            span = (int(wanted[1]), int(wanted[2]) + 1) if wanted else None
            self.requests.append((handler.command, path, query, span))
            failing = self.fail_first > 0
            self.fail_first -= failing
        content = self.files.get(unquote(path))
        if failing or content is None:
            handler.send_response(503 if failing else 404)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        body = content
        if self.ranges and span and span[0] < len(content):
            body = content[span[0] : span[1]]
            handler.send_response(206)
            last = span[0] + len(body) - 1
            handler.send_header("Content-Range", f"bytes {span[0]}-{last}/{len(content)}")
        else:
            handler.send_response(416 if self.ranges and span else 200)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("ETag", f'"{hash(content)}"')
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(body[: len(body) - self.cut])
        handler.close_connection = self.cut > 0

    def bytes_sent(self):
        """The total length of the ranges that were requested."""
        with self.lock:
            return sum(span[1] - span[0] for _, _, _, span in self.requests if span)
