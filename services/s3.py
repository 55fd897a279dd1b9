"""An S3: versitygw over a folder, in which each bucket is a folder and each object a file."""

from __future__ import annotations

import secrets
from pathlib import Path

from services.programs import compiled
from services.server import HOST, Server, free_ports

KEY, SECRET = "penstock-key", "penstock-secret"


class S3(Server):
    """A real S3. Its objects can be looked at, and changed behind its back, as files in `root`."""

    scheme = "s3"

    def __init__(self, host: str = HOST) -> None:
        self._program = compiled("versitygw")
        super().__init__(host)

    @property
    def root(self) -> Path:
        """The folder of its buckets."""
        return self.folder / "buckets"

    @property
    def environment(self) -> dict[str, str]:
        """What clients read to find it."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def launch(self) -> None:
        """Start versitygw."""
        self.root.mkdir()
        (self.port,) = free_ports(1, self.host)
        keys = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        self.run("versitygw", [self._program, "--port", f"{self.host}:{self.port}", "posix", self.root], keys)

    def new_bucket(self, name: str | None = None) -> str:
        """The URL of a bucket that nobody else uses."""
        name = name or f"bucket-{secrets.token_hex(4)}"  # another process may use this server
        (self.root / name).mkdir()
        return f"{self.scheme}://{name}"
