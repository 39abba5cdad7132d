#!/bin/sh
# The first start makes the cluster, its superuser and its database; every start becomes PostgreSQL.
set -eu
case "$1" in -*) set -- postgres "$@" ;; esac

if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    : "${POSTGRES_PASSWORD:?set POSTGRES_PASSWORD: it becomes that of the superuser}"
    user=${POSTGRES_USER:-postgres}
    unfinished=$PGDATA.new
    rm -rf "$unfinished"
    mkdir -p "$(dirname "$PGDATA")"
    umask 077
    secret=$(mktemp)
    printf '%s\n' "$POSTGRES_PASSWORD" >"$secret"
    # shellcheck disable=SC2086 - several words, as in the official image
    initdb --pgdata="$unfinished" --username="$user" --pwfile="$secret" --auth=scram-sha-256 ${POSTGRES_INITDB_ARGS:-}
    rm "$secret"
    echo "host all all all scram-sha-256" >>"$unfinished/pg_hba.conf"
    echo "CREATE DATABASE \"${POSTGRES_DB:-$user}\"" | postgres --single -D "$unfinished" postgres
    mv "$unfinished" "$PGDATA"
fi

if [ "$1" = postgres ]; then
    # A killed container leaves its mark, and the pid in it is another process's now.
    rm -f "$PGDATA/postmaster.pid"
    shift
    set -- postgres -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql "$@"
fi
exec "$@"
