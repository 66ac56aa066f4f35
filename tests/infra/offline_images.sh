#!/bin/sh
# Base images for `make test-compose` on a machine that reaches no image registry, made from Debian packages.
# Needs root, Docker and debootstrap. Prints what to set.
set -eu

root=${1:-$(mktemp -d)/root}
mirror=${2:-http://deb.debian.org/debian}
packages=python3,python3-venv,ca-certificates,postgresql,redis-server

[ -e "$root/etc/debian_version" ] || debootstrap --variant=minbase --include="$packages" bookworm "$root" "$mirror"
rm -f "$root"/var/cache/apt/archives/*.deb

cat > "$root/usr/local/bin/run-postgres" <<'RUN'
#!/bin/sh
# What the official image does with these variables, as far as the compose file needs it.
set -eu
data=/var/lib/postgresql/data
programs=$(echo /usr/lib/postgresql/*/bin)
chown postgres:postgres "$data"
if [ ! -e "$data/PG_VERSION" ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    chmod 644 /tmp/password
    setpriv --reuid postgres --regid postgres --init-groups \
        "$programs/initdb" -D "$data" -U "$POSTGRES_USER" --pwfile /tmp/password -A scram-sha-256 >/dev/null
    rm /tmp/password
    echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
    echo "CREATE DATABASE $POSTGRES_DB" | setpriv --reuid postgres --regid postgres --init-groups \
        "$programs/postgres" --single -D "$data" postgres >/dev/null
fi
mkdir -p /var/run/postgresql && chown postgres:postgres /var/run/postgresql
exec setpriv --reuid postgres --regid postgres --init-groups "$programs/postgres" -D "$data" -h 0.0.0.0
RUN
chmod 755 "$root/usr/local/bin/run-postgres"

tar -C "$root" -c . | docker import - holdfast-offline-base >/dev/null
tar -C "$root" -c . | docker import -c 'CMD ["/usr/local/bin/run-postgres"]' - holdfast-offline-postgres >/dev/null
tar -C "$root" -c . | docker import - holdfast-offline-redis >/dev/null
echo "make test-compose BASE=holdfast-offline-base HOLDFAST_POSTGRES_IMAGE=holdfast-offline-postgres \
HOLDFAST_REDIS_IMAGE=holdfast-offline-redis DOCKER_BUILDKIT=0"
