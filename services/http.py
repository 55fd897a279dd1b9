"""HTTP: nginx, which serves the files of a folder and knows ranges."""

from __future__ import annotations

import os
from pathlib import Path

from services.programs import nginx
from services.server import HOST, Server, free_ports

CONFIG = """
daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
    access_log off;
    default_type application/octet-stream;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {host}:{port};
        root {root};
        location /private/ {{
            auth_basic private;
            auth_basic_user_file {folder}/users;
        }}
    }}
}}
"""


class Nginx(Server):
    """A real nginx. It serves what is put into `root`; `users` names who may read the folder private/."""

    def __init__(self) -> None:
        self._program = nginx()
        super().__init__()

    @property
    def root(self) -> Path:
        """The folder whose files it serves."""
        return self.folder / "root"

    @property
    def users(self) -> Path:
        """The file of users and passwords: a line `name:{PLAIN}password` for each."""
        return self.folder / "users"

    def launch(self) -> None:
        """Start nginx."""
        self.root.mkdir()
        self.users.touch()
        (self.port,) = free_ports(1)
        user = "user root;" if os.geteuid() == 0 else ""  # its workers read folders that are ours alone
        config = self.folder / "nginx.conf"
        config.write_text(CONFIG.format(user=user, folder=self.folder, host=HOST, port=self.port, root=self.root))
        self.run("nginx", [self._program, "-p", self.folder, "-e", "stderr", "-c", config])
