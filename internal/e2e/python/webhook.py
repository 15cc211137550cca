"""A receiver of webhooks that checks signatures by the library of Standard Webhooks, and fails a third of all requests:
some of them when it has what was sent already. GET /report says what came."""

import http.server
import json
import os
import random
import threading

from standardwebhooks import Webhook

HOOK = Webhook(os.environ["SECRET"])
REPORT = {"bad": 0, "failed": 0, "twice": 0, "runs": {}}
LOCK = threading.Lock()
SEEN = set()


def take(key):
    if key in SEEN:
        REPORT["twice"] += 1
        return
    SEEN.add(key)
    run, _, seq = key.rpartition("/")
    REPORT["runs"].setdefault(run, []).append(int(seq))


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        with LOCK:
            body = json.dumps(REPORT).encode()
        self.answer(200, body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key, bad = self.headers["webhook-id"], 0
        try:
            data = HOOK.verify(body.decode(), {name.lower(): value for name, value in self.headers.items()})["data"]
            bad = f"{data['tenant']}/{data['run_id']}/{data['seq']}" != key
        except Exception:
            bad = 1
        luck = random.random() * 3
        with LOCK:
            REPORT["bad"] += bad
            REPORT["failed"] += luck < 1
            if luck >= 0.5:
                take(key)
        self.answer(500 if luck < 1 else 204)


SERVER = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(SERVER.server_port, flush=True)
SERVER.serve_forever()
