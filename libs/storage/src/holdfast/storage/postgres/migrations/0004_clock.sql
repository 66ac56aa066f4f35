-- The time of the store does not go back with the clock of the database, after a failover for example: the newest
-- commit carries its time, and what is compacted or was judged later is kept here.
ALTER TABLE store ADD COLUMN clock_at timestamptz NOT NULL DEFAULT '-infinity';

-- In a function of its own, so that a test can set it.
CREATE FUNCTION database_clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';

-- The clock of the database, and the moment before which it can't be for this store. A process whose time is ahead of
-- both leaves it here for the others (p_now, NULL for one that has none yet); while all is well that writes nothing.
CREATE FUNCTION measure_clock(p_now timestamptz, OUT clock double precision, OUT mark double precision)
LANGUAGE plpgsql AS $body$
DECLARE
    v_clock timestamptz;
    v_mark timestamptz;
BEGIN
    SELECT greatest(s.clock_at, (SELECT c.at FROM changes c ORDER BY c.revision DESC, c.seq DESC LIMIT 1))
        INTO STRICT v_mark FROM store s;
    v_clock := database_clock();
    IF p_now > greatest(v_clock, v_mark) + interval '250 milliseconds' THEN
        UPDATE store SET clock_at = p_now WHERE clock_at < p_now;
        v_mark := p_now;
    END IF;
    clock := extract(epoch FROM v_clock);
    mark := CASE WHEN v_mark = '-infinity' THEN 0 ELSE extract(epoch FROM v_mark) END;
END
$body$;
