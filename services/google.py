"""Google Cloud Storage, as far as it can be had: its protocol, before the objects of an S3.

No emulator of it takes all that its clients send: docs/decisions.md, section 36, says which were looked at. But its XML
API is that of S3 but for two things, and these a door translates: see door.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from services.s3 import KEY, S3, SECRET
from services.server import HOST, free_ports

DOOR = Path(__file__).resolve().with_name("door.py")


class GCS(S3):
    """What speaks Google's XML API, and asks nobody who he is. Its objects are files in `root`."""

    scheme = "gs"

    @property
    def environment(self) -> dict[str, str]:
        """What clients read to find it."""
        return {"GOOGLE_SERVICE_ACCOUNT": str(self.folder / "account.json")}

    def launch(self) -> None:
        """Start versitygw, and the door before it."""
        super().launch()
        store, (self.port,) = self.port, free_ports(1)
        account = {"gcs_base_url": self.endpoint, "disable_oauth": True}
        nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        (self.folder / "account.json").write_text(json.dumps(account | nobody))
        self.run("door", [sys.executable, "-I", "-S", DOOR, HOST, str(self.port), str(store), KEY, SECRET])
