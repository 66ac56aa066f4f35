-- The tables of a store. bytea sorts bytewise, which is the key order of the port.

CREATE TABLE store (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    revision bigint NOT NULL DEFAULT 0,
    compacted_revision bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);  -- Updated by every commit: room on the page keeps the updates in it.

INSERT INTO store DEFAULT VALUES;

CREATE TABLE records (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    create_revision bigint NOT NULL,
    mod_revision bigint NOT NULL,
    version bigint NOT NULL,
    blobs text[]
) WITH (fillfactor = 80);

CREATE TABLE changes (
    revision bigint NOT NULL,
    seq integer NOT NULL,
    key bytea NOT NULL,
    value bytea,  -- NULL: the key was deleted.
    create_revision bigint,
    version bigint,
    prev_value bytea,
    prev_create_revision bigint,
    prev_mod_revision bigint,
    prev_version bigint,
    at timestamptz NOT NULL,
    PRIMARY KEY (revision, seq)
);

-- Values come compressed from the codec above, or are not worth it: no second attempt here.
ALTER TABLE records ALTER COLUMN value SET STORAGE EXTERNAL;
ALTER TABLE changes ALTER COLUMN value SET STORAGE EXTERNAL;
ALTER TABLE changes ALTER COLUMN prev_value SET STORAGE EXTERNAL;

-- What a group commit answered, so that a client that lost the answer can ask again. The ids begin with the time,
-- so old ones are found by their own index.
CREATE TABLE commits (
    commit_id uuid PRIMARY KEY,
    revision bigint NOT NULL,
    revisions bigint[] NOT NULL,
    conflicts bytea[],
    missing_blobs text[]
);

-- Who waits for a NOTIFY; a commit that nobody else waits for sends none.
CREATE TABLE listeners (
    id uuid PRIMARY KEY,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE blobs (
    id text PRIMARY KEY,
    size_bytes bigint,  -- NULL: still being written.
    created_at timestamptz NOT NULL
);

CREATE TABLE blob_chunks (
    blob_id text NOT NULL REFERENCES blobs (id) ON DELETE CASCADE,
    seq integer NOT NULL,
    data bytea NOT NULL,
    crc32 bigint NOT NULL,
    PRIMARY KEY (blob_id, seq)
);
ALTER TABLE blob_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE blob_refs (
    key bytea NOT NULL,
    blob_id text NOT NULL REFERENCES blobs (id),
    PRIMARY KEY (key, blob_id)
);
CREATE INDEX blob_refs_blob_id ON blob_refs (blob_id);
