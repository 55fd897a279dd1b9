"""Real servers on loopback, for the tests and the benchmarks: an S3 (versitygw), an AIStore, and nginx for HTTP.

    python -m services            builds what is missing, starts all three, and says where they are, until Ctrl-C
    python -m services build      only builds

From Python, each is a value that starts and stops, and ends with the process that started it at the latest:

    with S3() as s3:
        os.environ |= s3.environment
        url = s3.new_bucket()
"""

from __future__ import annotations

from services.aistore import AIStore
from services.faults import FaultProxy
from services.http import Nginx
from services.programs import UnavailableError, required
from services.s3 import S3

__all__ = ["S3", "AIStore", "FaultProxy", "Nginx", "UnavailableError", "required"]
