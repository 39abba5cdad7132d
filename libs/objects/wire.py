"""One way to build boto3's S3 client.

Checksums are `when_required`: some third-party stores keep the checksum trailer inside the object. Signature v4, path
addressing, signed payloads: the store checks each body against its SHA-256 as it arrives, with or without TLS.

boto3 is untyped, so `S3` is Any here and stays inside this package; what leaves it is typed.
"""

from typing import Any, TypeAlias
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
POOL_CONNECTIONS = 16
ATTEMPTS = 4
LOOPBACK = ("127.0.0.1", "::1", "localhost")

S3: TypeAlias = Any


def connect(endpoint: str, access_key: str, secret_key: str, region: str, *, attempts: int = ATTEMPTS) -> S3:
    """Build a client. It is safe to share between threads; nothing is sent before its first call."""
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path", "payload_signing_enabled": True},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=POOL_CONNECTIONS,
        proxies={} if urlsplit(endpoint).hostname in LOOPBACK else None,  # HTTP_PROXY is for the world outside
    )
    sdk: Any = boto3
    return sdk.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name=region,
        config=config,
    )
