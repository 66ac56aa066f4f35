"""The tables as SQLAlchemy sees them; the migrations make them, and a test keeps both equal."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, TIMESTAMP, UUID

METADATA = sa.MetaData()
_INSTANT = TIMESTAMP(timezone=True)

STORE = sa.Table(
    "store",
    METADATA,
    sa.Column("id", UUID, nullable=False),
    sa.Column("is_only", sa.Boolean, primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("compacted_revision", sa.BigInteger, nullable=False),
    sa.Column("clock_at", _INSTANT, nullable=False),
)

RECORDS = sa.Table(
    "records",
    METADATA,
    sa.Column("key", BYTEA, primary_key=True),
    sa.Column("value", BYTEA, nullable=False),
    sa.Column("create_revision", sa.BigInteger, nullable=False),
    sa.Column("mod_revision", sa.BigInteger, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("blobs", ARRAY(sa.Text)),
)

CHANGES = sa.Table(
    "changes",
    METADATA,
    sa.Column("revision", sa.BigInteger, primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("key", BYTEA, nullable=False),
    sa.Column("value", BYTEA),
    sa.Column("create_revision", sa.BigInteger),
    sa.Column("version", sa.BigInteger),
    sa.Column("prev_value", BYTEA),
    sa.Column("prev_create_revision", sa.BigInteger),
    sa.Column("prev_mod_revision", sa.BigInteger),
    sa.Column("prev_version", sa.BigInteger),
    sa.Column("at", _INSTANT, nullable=False),
)

COMMITS = sa.Table(
    "commits",
    METADATA,
    sa.Column("commit_id", UUID, primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("revisions", ARRAY(sa.BigInteger), nullable=False),
    sa.Column("conflicts", ARRAY(BYTEA)),
    sa.Column("missing_blobs", ARRAY(sa.Text)),
)

LISTENERS = sa.Table(
    "listeners",
    METADATA,
    sa.Column("id", UUID, primary_key=True),
    sa.Column("seen_at", _INSTANT, nullable=False),
)

BLOBS = sa.Table(
    "blobs",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("size_bytes", sa.BigInteger),
    sa.Column("created_at", _INSTANT, nullable=False),
    sa.Column("released_at", _INSTANT),
    sa.Column("used_at", _INSTANT),
)

BLOB_CHUNKS = sa.Table(
    "blob_chunks",
    METADATA,
    sa.Column("blob_id", sa.Text, primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("data", BYTEA, nullable=False),
    sa.Column("crc32", sa.BigInteger, nullable=False),
)

BLOB_REFS = sa.Table(
    "blob_refs",
    METADATA,
    sa.Column("key", BYTEA, primary_key=True),
    sa.Column("blob_id", sa.Text, primary_key=True),
)

SCHEMA_VERSION = sa.Table(
    "schema_version",
    METADATA,
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("applied_at", _INSTANT, nullable=False),
)
