"""nginx with the file of deploy/, on free ports of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher.children import end_family, spawn
from launcher.places import free_port, is_port_free
from tests.apps.connections.engine_server import own_certificate
from tests.servers import wait_until

__all__ = ["NGINX", "Proxy", "serve_proxy"]

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_FILE = Path(__file__).resolve().parents[2] / "deploy" / "nginx" / "sluice.conf"


@dataclass
class Proxy:
    """Its port of TLS, the certificate to trust, the ports of the web processes behind it, and its log."""

    port: int
    certificate: Path
    upstreams: Sequence[int]
    access_log: Path


@contextmanager
def serve_proxy(folder: Path, *upstreams: int) -> Iterator[Proxy]:
    """Serve before web processes on these ports, or on free ones, in place of those that the file names."""
    folder.mkdir(parents=True, exist_ok=True)
    webs = [*upstreams, free_port(), free_port()][:2]
    secure, plain, certificate = free_port(), free_port(), own_certificate(folder)
    text = re.sub(r"listen \[::\].*;\n", "", _FILE.read_text()).replace("443", f"127.0.0.1:{secure}")
    text = text.replace("listen 80", f"listen 127.0.0.1:{plain}")
    for named, web in zip((8001, 8002), webs, strict=True):
        text = text.replace(f"127.0.0.1:{named}", f"127.0.0.1:{web}")
    text = re.sub(r"/etc/ssl/sluice/\w+\.pem", str(certificate), text)
    kept = " ".join(f"{name}_temp_path {folder};" for name in ("proxy", "fastcgi", "uwsgi", "scgi", "client_body"))
    log = folder / "access.log"
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; events {{}}\nhttp {{ access_log {log}; {kept}\n{text}\n}}\n"
    )
    command = [str(NGINX), "-c", str(folder / "nginx.conf"), "-p", str(folder)]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    process = spawn(command, tied=True)
    try:
        wait_until(lambda: not is_port_free(secure), what="nginx")
        yield Proxy(secure, certificate, webs, log)
    finally:
        end_family(process)
