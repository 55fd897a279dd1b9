"""An AIStore: one proxy and two targets, as a cluster has them, with their data in a folder."""

from __future__ import annotations

import http.client
import json
import secrets
from contextlib import closing
from typing import Any

from services.programs import compiled
from services.server import HOST, Server, free_ports

TARGETS = 2


class AIStore(Server):
    """A real cluster on one machine. It takes most of half a minute to be ready: start it early, wait late."""

    patience = 100.0
    health = "/v1/health?prr=true"
    ready = range(200, 201)

    def __init__(self) -> None:
        self._program = compiled("aisnode")
        super().__init__()
        self.targets: list[int] = []  # the ports that clients are sent on to

    @property
    def environment(self) -> dict[str, str]:
        """What clients read to find it."""
        return {"AIS_ENDPOINT": self.endpoint}

    def launch(self) -> None:
        """Start the proxy and the targets."""
        ports = free_ports(3 * (TARGETS + 1))
        self.port = ports[0]
        self._node("proxy", "proxy", ports[:3], 0)
        for number in range(1, TARGETS + 1):
            self._node("target", f"target{number}", ports[3 * number :][:3], number)
            self.targets.append(ports[3 * number])

    def new_bucket(self, name: str | None = None) -> str:
        """The URL of a bucket that nobody else uses."""
        name = name or f"bucket-{secrets.token_hex(4)}"  # another process may use this server
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        with closing(connection):
            body = json.dumps({"action": "create-bck"})
            connection.request("POST", f"/v1/buckets/{name}?provider=ais", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise RuntimeError(f"expected a new bucket, got {answer.status}: {answer.read()!r}")
        return f"ais://{name}"

    def _node(self, role: str, name: str, ports: list[int], instance: int) -> None:
        folder = self.folder / name
        for part in ("conf", "log", "data"):
            (folder / part).mkdir(parents=True)
        common, local = folder / "cluster.json", folder / "local.json"
        common.write_text(json.dumps(cluster_config(self.endpoint)))
        public, control, data = map(str, ports)
        net = {"port": public, "port_intra_control": control, "port_intra_data": data}
        hosts = {"hostname": HOST, "hostname_intra_control": "", "hostname_intra_data": ""}
        mounts = {"root": str(folder / "data"), "count": 1, "instance": instance}
        local.write_text(
            json.dumps(
                {
                    "confdir": str(folder / "conf"),
                    "log_dir": str(folder / "log"),
                    "host_net": {**hosts, **net},
                    "fspaths": {},
                    "test_fspaths": mounts,
                }
            )
        )
        options = [f"-role={role}", f"-config={common}", f"-local_config={local}"]
        if role == "proxy":
            options.append(f"-ntargets={TARGETS}")
        identity = {"AIS_DAEMON_ID": f"penstock{name}", "AIS_IS_PRIMARY": "true" if role == "proxy" else "false"}
        self.run(name, [self._program, *options], identity)


def cluster_config(proxy: str) -> dict[str, Any]:
    """What the nodes agree on. aisnode wants every key to be there; nearly all values are its own defaults."""
    bundles = {"compression": "never", "bundle_multiplier": 2}
    rate = {"interval": "1m", "per_op_max_tokens": "", "max_tokens": 1000, "enabled": False}
    heartbeat = {"interval": "10s", "name": "heartbeat", "factor": 3}
    return {
        "backend": {},
        "mirror": {"copies": 2, "burst_buffer": 128, "enabled": False},
        "ec": {
            **bundles,
            "objsize_limit": 262144,
            "data_slices": 1,
            "parity_slices": 1,
            "enabled": False,
            "disk_only": False,
        },
        "chunks": {"objsize_limit": "0", "chunk_size": "1GiB", "checkpoint_every": 0, "flags": 0},
        "log": {"level": "3", "max_size": "10mb", "max_total": "256mb", "flush_time": "60s", "stats_time": "60s"},
        "periodic": {"stats_time": "10s", "notif_time": "30s", "retry_sync_time": "2s"},
        "timeout": {
            "cplane_operation": "2s",
            "max_keepalive": "4s",
            "cold_get_conflict": "5s",
            "max_host_busy": "20s",
            "startup_time": "1m",
            "join_startup_time": "3m",
            "send_file_time": "5m",
            "ec_streams_time": "10m",
            "object_md": "2h",
        },
        "client": {"client_timeout": "10s", "client_long_timeout": "10m", "list_timeout": "1m"},
        "proxy": {"primary_url": proxy, "original_url": proxy, "discovery_url": "", "non_electable": False},
        "space": {
            "cleanupwm": 96,  # a developer's disk is often fuller than that of a cluster
            "lowwm": 97,
            "highwm": 98,
            "out_of_space": 99,
            "batch_size": 32768,
            "dont_cleanup_time": "120m",
        },
        "lru": {"dont_evict_time": "120m", "capacity_upd_time": "10m", "batch_size": 32768, "enabled": False},
        "disk": {
            "iostat_time_long": "2s",
            "iostat_time_short": "100ms",
            "iostat_time_smooth": "8s",
            "disk_util_low_wm": 20,
            "disk_util_high_wm": 80,
            "disk_util_max_wm": 95,
        },
        "rebalance": {**bundles, "dest_retry_time": "2m", "enabled": True},
        "resilver": {"enabled": True},
        "checksum": {
            "type": "xxhash2",
            "validate_cold_get": False,
            "validate_warm_get": False,
            "validate_obj_move": False,
            "enable_read_range": False,
        },
        "transport": {
            "max_header": 4096,
            "burst_buffer": 512,
            "idle_teardown": "4s",
            "quiescent": "10s",
            "lz4_block": "256kb",
            "lz4_frame_checksum": False,
        },
        "memsys": {
            "min_free": "2gb",
            "default_buf": "32kb",
            "to_gc": "4gb",
            "hk_time": "3m",
            "min_pct_total": 0,
            "min_pct_free": 0,
        },
        "versioning": {"enabled": True, "validate_warm_get": False},
        "net": {
            "l4": {"proto": "tcp", "sndrcv_buf_size": 131072},
            "http": {
                "use_https": False,
                "server_crt": "",
                "server_key": "",
                "domain_tls": "",
                "client_ca_tls": "",
                "client_auth_tls": 0,
                "idle_conn_time": "6s",
                "idle_conns_per_host": 32,
                "idle_conns": 256,
                "write_buffer_size": 0,
                "read_buffer_size": 0,
                "chunked_transfer": True,
                "skip_verify": False,
            },
        },
        "fshc": {"test_files": 4, "error_limit": 2, "io_err_limit": 10, "io_err_time": "10s", "enabled": True},
        "auth": {"secret": "", "enabled": False},
        "keepalivetracker": {"proxy": heartbeat, "target": heartbeat, "num_retries": 3, "retry_factor": 4},
        "downloader": {"timeout": "1h"},
        "distributed_sort": {
            "duplicated_records": "ignore",
            "missing_shards": "ignore",
            "ekm_malformed_line": "abort",
            "ekm_missing_key": "abort",
            "default_max_mem_usage": "80%",
            "call_timeout": "10m",
            "dsorter_mem_threshold": "100GB",
            "compression": "never",
            "bundle_multiplier": 4,
        },
        "tcb": bundles,
        "tco": bundles,
        "arch": bundles,
        "write_policy": {"data": "", "md": ""},
        "rate_limit": {"backend": {**rate, "num_retries": 3}, "frontend": {**rate, "burst_size": 375}},
        "features": "0",
    }
