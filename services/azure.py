"""Azure's blobs: Azurite, the emulator that Microsoft makes, with its data in a folder."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import secrets
from contextlib import closing
from email.utils import formatdate

from services.programs import azurite
from services.server import HOST, Server, free_ports

ACCOUNT, KEY = "penstock", base64.b64encode(b"penstock-key").decode()
VERSION = "2021-08-06"


class Azurite(Server):
    """An Azure of one account. Its containers are what others call buckets."""

    def __init__(self) -> None:
        self._command = azurite()
        super().__init__()

    @property
    def environment(self) -> dict[str, str]:
        """What clients read to find it."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"{self.endpoint}/{ACCOUNT}",
        }

    def launch(self) -> None:
        """Start Azurite."""
        (self.port,) = free_ports(1)
        place = ["--blobHost", HOST, "--blobPort", str(self.port), "--location", self.folder / "data"]
        quiet = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        self.run("azurite", [*self._command, *place, *quiet], {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"})

    def new_bucket(self, name: str | None = None) -> str:
        """The URL of a container that nobody else uses."""
        name = name or f"container-{secrets.token_hex(4)}"  # another process may use this server
        path = f"/{ACCOUNT}/{name}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION}
        said = [f"{header}:{value}" for header, value in headers.items()]
        text = "\n".join(["PUT", *[""] * 11, *said, f"/{ACCOUNT}{path}", "restype:container"])
        signature = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
        with closing(http.client.HTTPConnection(HOST, self.port, timeout=30)) as connection:
            connection.request("PUT", f"{path}?restype=container", headers=headers)
            answer = connection.getresponse()
            if answer.status != 201:
                raise RuntimeError(f"expected a new container, got {answer.status}: {answer.read()!r}")
        return f"az://{name}"
