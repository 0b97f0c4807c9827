"""A Flink cluster over its REST API, and the compiler inside its jars."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from py4j.java_gateway import GatewayParameters, JavaGateway

__all__ = ["ENDED", "SCHEDULED_JOB", "FlinkClient", "FlinkRefusal", "compiled_jar", "scheduled_job_jar"]

ENDED = ("FINISHED", "FAILED", "CANCELED")
SCHEDULED_JOB = Path(__file__).with_name("ScheduledJob.java")
_CLASS_VERSION = 8  # of Java: static methods of interfaces need it


class FlinkRefusal(RuntimeError):
    """Flink refused what was asked; the message holds its words."""


def scheduled_job_jar(gateway_port: int) -> bytes:
    """The benchmark's job as a jar that starts it."""
    return compiled_jar(SCHEDULED_JOB, gateway_port, main="ScheduledJob")


def compiled_jar(source: Path, gateway_port: int, *, main: str | None = None, uses: Sequence[Path] = ()) -> bytes:
    """A file of Java as a jar, compiled by Janino in a process that has Flink's jars: no JDK is needed.

    The classes of the files that it `uses` are in the jar, too.
    """
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=gateway_port, auto_convert=True))
    try:
        loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        classes: dict[str, bytes] = {}
        for file in (*uses, source):
            compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.setSourceVersion(_CLASS_VERSION)
            compiler.setTargetVersion(_CLASS_VERSION)
            compiler.cook(file.read_text())
            classes |= {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}
            loader = compiler.getClassLoader()
    finally:
        gateway.close()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        entry = f"Main-Class: {main}\n" if main else ""
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\n{entry}\n")
        for name, code in classes.items():
            archive.writestr(f"{name.replace('.', '/')}.class", code)
    return packed.getvalue()


class FlinkClient:
    """Client of a JobManager, as far as a benchmark needs one; safe to share between threads."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=60.0)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str) -> Any:
        """A decoded answer, also one that says no."""
        return self._http.get(path).json()

    def upload(self, jar: bytes) -> str:
        """Upload a jar; its id."""
        answer = self._http.post("/jars/upload", files={"jarfile": ("job.jar", jar, "application/x-java-archive")})
        return Path(self._accepted(answer)["filename"]).name

    def run(self, jar: str, arguments: Sequence[str], settings: Mapping[str, str]) -> str:
        """Start an uploaded job; its id."""
        body = {"programArgsList": list(arguments), "flinkConfiguration": dict(settings)}
        return str(self._accepted(self._http.post(f"/jars/{jar}/run", json=body))["jobid"])

    def cancel(self, job: str) -> None:
        self._accepted(self._http.patch(f"/jobs/{job}", params={"mode": "cancel"}))

    def state(self, job: str) -> str:
        return str(self.get(f"/jobs/{job}")["state"])

    def is_running(self, job: str) -> bool:
        """Whether all of its operators run, or have done what there was."""
        answer = self.get(f"/jobs/{job}")
        states = {vertex["status"] for vertex in answer["vertices"]}
        return answer["state"] == "RUNNING" and states <= {"RUNNING", "FINISHED"}

    @staticmethod
    def _accepted(answer: httpx.Response) -> Any:
        if answer.status_code >= 400:
            lines = answer.text.replace("\\n", "\n").splitlines()
            causes = [line for line in lines if line.startswith("Caused by")]
            raise FlinkRefusal([*lines[:1], *causes][-1][:500])
        return answer.json()
