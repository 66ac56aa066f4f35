-- commit_group as in 0003, but for one thing: a range with the revision -1 is expected to hold no record.

CREATE OR REPLACE FUNCTION commit_group(
    p_commit_id uuid,
    p_is_resent boolean,
    p_listener_id uuid,
    p_at timestamptz,
    p_wave_ends integer[],
    p_has_writes boolean[],
    p_has_deletes boolean,
    p_expect_batch integer[], p_expect_key bytea[], p_expect_revision bigint[],
    p_write_batch integer[], p_write_key bytea[], p_write_value bytea[],
    -- Most groups have none of these and leave them out: every array costs the client time.
    p_range_batch integer[] DEFAULT '{}', p_range_start bytea[] DEFAULT '{}',
    p_range_end bytea[] DEFAULT '{}', p_range_revision bigint[] DEFAULT '{}',
    p_blob_batch integer[] DEFAULT '{}', p_blob_key bytea[] DEFAULT '{}', p_blob_id text[] DEFAULT '{}',
    OUT revision bigint, OUT revisions bigint[], OUT conflicts bytea[], OUT missing_blobs text[]
) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_void text;
    v_has_references boolean;
    v_has_listeners boolean;
    v_revision bigint;
    v_revision_before bigint;
    v_revisions bigint[];
    v_conflicts bytea[];
    v_missing text[];
    v_released text[];
    v_count integer := cardinality(p_has_writes);
    v_first integer := 1;
    v_last integer;
    v_batch integer;
    v_key bytea;
    v_blob text;
BEGIN
    v_void := queue_writer();
    -- The snapshot of this statement is taken after the lock.
    SELECT s.revision, EXISTS (SELECT FROM blob_refs), EXISTS (SELECT FROM listeners l WHERE l.id <> p_listener_id)
        INTO STRICT v_revision, v_has_references, v_has_listeners FROM store s;
    v_revision_before := v_revision;

    IF p_is_resent THEN
        SELECT c.revision, c.revisions, c.conflicts, c.missing_blobs
            INTO revision, revisions, conflicts, missing_blobs
            FROM commits c WHERE c.commit_id = p_commit_id;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;

    v_revisions := array_fill(0::bigint, ARRAY[v_count]);

    FOREACH v_last IN ARRAY p_wave_ends LOOP
        IF cardinality(p_expect_batch) > 0 THEN
            FOR v_batch, v_key IN
                SELECT e.batch, e.key
                FROM unnest(p_expect_batch, p_expect_key, p_expect_revision) AS e(batch, key, revision)
                LEFT JOIN records r ON r.key = e.key
                WHERE e.batch BETWEEN v_first AND v_last AND coalesce(r.mod_revision, 0) <> e.revision
            LOOP
                v_conflicts := coalesce(v_conflicts, array_fill(NULL::bytea, ARRAY[v_count]));
                v_conflicts[v_batch] := v_key;
                v_revisions[v_batch] := -1;
            END LOOP;
        END IF;

        IF cardinality(p_range_batch) > 0 THEN
            FOR v_batch, v_key IN
                SELECT e.batch, e.first_key
                FROM unnest(p_range_batch, p_range_start, p_range_end, p_range_revision)
                    AS e(batch, first_key, end_key, revision), store s
                WHERE e.batch BETWEEN v_first AND v_last
                    AND CASE WHEN e.revision = -1 THEN
                        EXISTS (  -- The first key from there on, by the index, whatever lies behind the range.
                            SELECT FROM (
                                SELECT r.key FROM records r WHERE r.key >= e.first_key ORDER BY r.key LIMIT 1
                            ) AS next
                            WHERE e.end_key IS NULL OR next.key < e.end_key
                        )
                    ELSE
                        e.revision < s.compacted_revision
                        OR EXISTS (
                            SELECT FROM changes c
                            WHERE c.revision > e.revision AND c.key >= e.first_key
                                AND (e.end_key IS NULL OR c.key < e.end_key)
                        )
                    END
            LOOP
                v_conflicts := coalesce(v_conflicts, array_fill(NULL::bytea, ARRAY[v_count]));
                v_conflicts[v_batch] := v_key;
                v_revisions[v_batch] := -1;
            END LOOP;
        END IF;

        IF cardinality(p_blob_batch) > 0 THEN
            -- The lock waits for a sweep that is removing the blob, and then finds it gone.
            PERFORM FROM blobs b WHERE b.id = ANY (p_blob_id) ORDER BY b.id FOR KEY SHARE;
            FOR v_batch, v_blob IN
                SELECT n.batch, n.blob_id
                FROM unnest(p_blob_batch, p_blob_id) AS n(batch, blob_id)
                LEFT JOIN blobs b ON b.id = n.blob_id AND b.size_bytes IS NOT NULL
                WHERE n.batch BETWEEN v_first AND v_last AND b.id IS NULL
            LOOP
                v_missing := coalesce(v_missing, array_fill(NULL::text, ARRAY[v_count]));
                v_missing[v_batch] := v_blob;
                v_revisions[v_batch] := -1;
            END LOOP;
        END IF;

        FOR v_batch IN v_first .. v_last LOOP
            CONTINUE WHEN v_revisions[v_batch] = -1;
            IF p_has_writes[v_batch] THEN
                v_revision := v_revision + 1;
            END IF;
            v_revisions[v_batch] := v_revision;
        END LOOP;

        v_released := NULL;
        IF v_has_references THEN
            WITH gone AS (
                DELETE FROM blob_refs b USING unnest(p_write_batch, p_write_key) AS w(batch, key)
                WHERE b.key = w.key AND w.batch BETWEEN v_first AND v_last AND v_revisions[w.batch] > 0
                RETURNING b.blob_id
            )
            SELECT array_agg(DISTINCT g.blob_id) INTO v_released FROM gone g;
        END IF;

        -- Both parts of this statement see the records as they were before it: that is `previous`.
        WITH written AS (
            SELECT v_revisions[w.batch] AS revision, w.seq, w.key, w.value, r.value AS prev_value,
                r.create_revision AS prev_create_revision, r.mod_revision AS prev_mod_revision,
                r.version AS prev_version
            FROM unnest(p_write_batch, p_write_key, p_write_value) WITH ORDINALITY AS w(batch, key, value, seq)
            LEFT JOIN records r ON r.key = w.key
            WHERE w.batch BETWEEN v_first AND v_last AND v_revisions[w.batch] > 0
        ), stored AS (
            INSERT INTO records AS r (key, value, create_revision, mod_revision, version)
            SELECT w.key, w.value, coalesce(w.prev_create_revision, w.revision), w.revision,
                coalesce(w.prev_version, 0) + 1
            FROM written w WHERE w.value IS NOT NULL
            ON CONFLICT (key) DO UPDATE SET value = excluded.value, mod_revision = excluded.mod_revision,
                version = excluded.version, blobs = NULL
        )
        INSERT INTO changes (revision, seq, key, value, create_revision, version,
            prev_value, prev_create_revision, prev_mod_revision, prev_version, at)
        SELECT w.revision, w.seq, w.key, w.value,
            CASE WHEN w.value IS NOT NULL THEN coalesce(w.prev_create_revision, w.revision) END,
            CASE WHEN w.value IS NOT NULL THEN coalesce(w.prev_version, 0) + 1 END,
            w.prev_value, w.prev_create_revision, w.prev_mod_revision, w.prev_version, p_at
        FROM written w WHERE w.value IS NOT NULL OR w.prev_mod_revision IS NOT NULL;

        IF p_has_deletes THEN
            DELETE FROM records r USING unnest(p_write_batch, p_write_key, p_write_value) AS w(batch, key, value)
            WHERE r.key = w.key AND w.value IS NULL
                AND w.batch BETWEEN v_first AND v_last AND v_revisions[w.batch] > 0;
        END IF;

        IF cardinality(p_blob_batch) > 0 THEN
            INSERT INTO blob_refs (key, blob_id)
            SELECT DISTINCT n.key, n.blob_id
            FROM unnest(p_blob_batch, p_blob_key, p_blob_id) AS n(batch, key, blob_id)
            WHERE n.batch BETWEEN v_first AND v_last AND v_revisions[n.batch] > 0;
            UPDATE records r SET blobs = n.ids
            FROM (
                SELECT n.key, array_agg(n.blob_id ORDER BY n.place) AS ids
                FROM unnest(p_blob_batch, p_blob_key, p_blob_id) WITH ORDINALITY AS n(batch, key, blob_id, place)
                WHERE n.batch BETWEEN v_first AND v_last AND v_revisions[n.batch] > 0
                GROUP BY n.key
            ) n
            WHERE r.key = n.key;
            v_has_references := true;
        END IF;

        IF v_released IS NOT NULL THEN
            -- Most of them have only moved to another record of this wave.
            UPDATE blobs b SET released_at = p_at
            WHERE b.id = ANY (v_released) AND NOT EXISTS (SELECT FROM blob_refs r WHERE r.blob_id = b.id);
        END IF;

        v_first := v_last + 1;
    END LOOP;

    IF v_revision > v_revision_before THEN
        WITH moved AS (UPDATE store SET revision = v_revision)
        INSERT INTO commits (commit_id, revision, revisions, conflicts, missing_blobs)
            VALUES (p_commit_id, v_revision, v_revisions, v_conflicts, v_missing);
        IF v_has_listeners THEN
            v_void := pg_notify('holdfast.' || current_schema(), v_revision::text);
        END IF;
    END IF;
    revision := v_revision;
    revisions := v_revisions;
    conflicts := v_conflicts;
    missing_blobs := v_missing;
END
$body$;
