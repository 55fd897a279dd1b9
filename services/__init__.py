"""Real servers on loopback, for the tests and the benchmarks: an S3 (versitygw), the protocol of Google's store before
another one, Azure's emulator (Azurite), an AIStore, and nginx for HTTP.

    python -m services            builds what is missing, starts them all, and says where they are, until Ctrl-C
    python -m services build      only builds

From Python, each is a value that starts and stops, and ends with the process that started it at the latest:

    with S3() as s3:
        os.environ |= s3.environment
        url = s3.new_bucket()
"""

from __future__ import annotations

from services.aistore import AIStore
from services.azure import Azurite
from services.faults import FaultProxy
from services.google import GCS
from services.http import Nginx
from services.programs import UnavailableError, required
from services.s3 import S3

__all__ = ["GCS", "S3", "AIStore", "Azurite", "FaultProxy", "Nginx", "UnavailableError", "required"]
