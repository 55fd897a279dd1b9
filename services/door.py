"""Speaks the XML API of Google Cloud Storage, and passes what it is asked on to an S3: door.py HOST PORT S3 KEY SECRET

The two are one protocol but for who is asking, a token there and a signature here, and for what says that an object
must not be there yet: `x-goog-if-generation-match: 0` there, `If-None-Match: *` here.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote

HOST, PORT, STORE, KEY, SECRET = sys.argv[1:]
PASSED_ON = ("Content-Type", "Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since")
SCOPE = "us-east-1/s3/aws4_request"


class Door(BaseHTTPRequestHandler):
    """A client, for as long as it stays connected."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        """A client has a connection of its own to the store."""
        super().setup()
        self.store = http.client.HTTPConnection(HOST, int(STORE), timeout=30)

    def finish(self) -> None:
        """It has left."""
        self.store.close()
        super().finish()

    def pass_on(self) -> None:
        """A request, and its answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        path = quote(unquote(path), safe="/-_.~")
        pairs = sorted(parse_qsl(query, keep_blank_values=True))
        query = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in pairs)
        headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
        generation = self.headers.get("x-goog-if-generation-match")
        if generation == "0":
            headers["If-None-Match"] = "*"
        elif generation is not None:
            self.send_error(501, "generations are not kept")
            return
        headers |= signed(self.command, path, query, body)
        try:
            self.store.request(self.command, f"{path}?{query}", body, headers)
            answer = self.store.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.store.close()
            self.send_error(502, repr(error))
            return
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        if answer.status != 204:
            length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815  # as the library has them


def signed(method: str, path: str, query: str, body: bytes) -> dict[str, str]:
    """The headers by which the store knows that we ask: version 4 of AWS's signatures."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": f"{HOST}:{STORE}", "x-amz-content-sha256": digest, "x-amz-date": now}
    names, scope = ";".join(headers), f"{now[:8]}/{SCOPE}"
    said = [f"{name}:{value}" for name, value in headers.items()]
    asked = "\n".join([method, path, query, *said, "", names, digest])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(asked.encode()).hexdigest()])
    key = f"AWS4{SECRET}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), hashlib.sha256)
    who = f"Credential={KEY}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {**headers, "authorization": f"AWS4-HMAC-SHA256 {who}"}


if __name__ == "__main__":
    ThreadingHTTPServer.request_queue_size = 128  # clients read many parts at once
    ThreadingHTTPServer((HOST, int(PORT)), Door).serve_forever()
