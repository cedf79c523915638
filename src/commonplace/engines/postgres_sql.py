"""Every statement that the PostgreSQL engine sends, each with a name and what it is for."""

from __future__ import annotations

# --- the layout -------------------------------------------------------------------------------------------

# Is there a schema of our name, how much is in it, and is it ours?
FIND_LAYOUT = """
    SELECT count(DISTINCT n.oid), count(DISTINCT c.oid), count(a.attname)
    FROM pg_namespace n
    LEFT JOIN pg_class c ON c.relnamespace = n.oid
    LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND c.relname = 'layout' AND a.attname = 'layout_version'
    WHERE n.nspname = 'commonplace'
"""
# The layout's version.
READ_LAYOUT = "SELECT max(layout_version) FROM commonplace.layout"
# One process at a time makes the schema.
LOCK_LAYOUT = "SELECT pg_advisory_xact_lock(%s::int, 0)"
# Make the schema itself; a role that was given an empty one need not be allowed to.
CREATE_SCHEMA = "CREATE SCHEMA commonplace"
# Everything in it. No statistics on content: pg_statistic would keep samples of what was erased.
CREATE_TABLES = """
    CREATE TABLE commonplace.layout (layout_version integer NOT NULL);
    CREATE TABLE commonplace.books (
        number integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY, name bytea NOT NULL UNIQUE);
    CREATE TABLE commonplace.heads (
        book integer PRIMARY KEY, position bigint NOT NULL, created_at bigint NOT NULL,
        hash bytea NOT NULL, meta bytea NOT NULL) WITH (fillfactor = 10);
    CREATE TABLE commonplace.events (
        book integer, position bigint, created_at bigint NOT NULL, id bytea NOT NULL, run bytea,
        hash bytea NOT NULL, header bytea NOT NULL, body bytea, PRIMARY KEY (book, position));
    CREATE UNIQUE INDEX events_by_id ON commonplace.events (book, id);
    CREATE INDEX events_by_run ON commonplace.events (book, run, position) WHERE run IS NOT NULL;
    CREATE TABLE commonplace.rows (
        book integer, space bytea, key bytea, position bigint, value bytea,
        PRIMARY KEY (book, space, key, position));
    CREATE TABLE commonplace.blobs (
        book integer, digest bytea, content bytea NOT NULL, PRIMARY KEY (book, digest));
    CREATE TABLE commonplace.leases (
        book integer, name bytea, holder bytea NOT NULL, fence bigint NOT NULL, until timestamptz NOT NULL,
        PRIMARY KEY (book, name));
    DO $$
    DECLARE content record; fenced text;
    BEGIN
        FOR content IN
            SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
            WHERE relnamespace = 'commonplace'::regnamespace AND relkind = 'r' AND atttypid = 'bytea'::regtype
        LOOP
            EXECUTE format('ALTER TABLE commonplace.%I ALTER %I SET STATISTICS 0',
                           content.relname, content.attname);
        END LOOP;
        FOREACH fenced IN ARRAY ARRAY['heads', 'events', 'rows', 'blobs', 'leases'] LOOP  -- FENCED
            EXECUTE format('ALTER TABLE commonplace.%I ENABLE ROW LEVEL SECURITY', fenced);
            EXECUTE format('ALTER TABLE commonplace.%I FORCE ROW LEVEL SECURITY', fenced);
            EXECUTE format('CREATE POLICY one_book ON commonplace.%I USING (book = '
                           '(SELECT nullif(current_setting(''commonplace.book'', true), '''')::integer))',
                           fenced);
        END LOOP;
    END $$;
"""
# Say whose layout this is.
WRITE_LAYOUT = "INSERT INTO commonplace.layout (layout_version) VALUES (%s)"
FENCED = ("heads", "events", "rows", "blobs", "leases")
TABLES = (*FENCED, "books")

# --- books and sessions -----------------------------------------------------------------------------------

# All names.
LIST_BOOKS = "SELECT name FROM commonplace.books"
# A book's number.
FIND_BOOK = "SELECT number FROM commonplace.books WHERE name = %s"
# A book's number, made if need be; two who make it at once get the same.
MAKE_BOOK = """
    INSERT INTO commonplace.books (name) VALUES (%s)
    ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING number
"""
# An empty head.
MAKE_HEAD = """
    INSERT INTO commonplace.heads (book, position, created_at, hash, meta) VALUES (%s, 0, 0, %s, '')
    ON CONFLICT (book) DO NOTHING
"""
# Name the book that row-level security lets this transaction see.
ENTER_BOOK = "SELECT set_config('commonplace.book', %s, true)"
# Take a book's name away, last of all that goes with it.
DROP_BOOK = "DELETE FROM commonplace.books WHERE number = %s"
# What every session of a store needs: its book, nobody's functions but the server's, no JIT (it costs more
# than any of our statements), a commit that waits for the disk, and locks of vanished clients let go. Plans are made
# once, maybe while a table is all but empty: an index is used even then, because the plan outlives that.
SET_SESSION = """
    SELECT set_config('commonplace.book', %s, false), set_config('search_path', 'pg_catalog', false),
        set_config('jit', 'off', false), set_config('lock_timeout', %s, false),
        set_config('default_transaction_isolation', 'read committed', false),
        set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false),
        set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false),
        set_config('tcp_keepalives_count', '3', false),
        CASE current_setting('synchronous_commit') WHEN 'off'
            THEN set_config('synchronous_commit', 'on', false) END
"""
# How long this transaction waits for a lock, in milliseconds, where that is not the session's own.
SET_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', %s, true)"
# What the server promises about its disk, and whether it takes writes.
READ_SETTINGS = """
    SELECT current_setting('fsync'), current_setting('full_page_writes'),
        current_setting('synchronous_commit'), current_setting('data_checksums'),
        pg_is_in_recovery()
"""

# --- reading ----------------------------------------------------------------------------------------------

BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
# The end of the ledger.
READ_HEAD = "SELECT position, hash, created_at, meta FROM commonplace.heads WHERE book = %s"
# The lock that every writer of a book takes first. Waiters queue for it, and its release wakes the first of them only.
# A lock on the head's row wakes all of them: each commit makes a new version of the row, for which they queue again.
LOCK_BOOK = "SELECT pg_advisory_xact_lock(%s::int, %s::int)"
# The end of the ledger and the server's clock in microseconds. A statement of its own after LOCK_BOOK, because a
# statement does not see what was committed while it waited.
READ_HEAD_AND_CLOCK = """
    SELECT position, hash, created_at, meta, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM commonplace.heads WHERE book = %s
"""
# How far the ledger goes.
READ_POSITION = "SELECT position FROM commonplace.heads WHERE book = %s"
# A stretch of the ledger.
READ_RECORDS = """
    SELECT position, id, run, created_at, header, hash, body FROM commonplace.events
    WHERE book = %s AND position > %s AND position <= %s ORDER BY position LIMIT %s
"""
# A stretch of one run.
READ_RUN = """
    SELECT position, id, run, created_at, header, hash, body FROM commonplace.events
    WHERE book = %s AND position > %s AND position <= %s AND run = %s ORDER BY position LIMIT %s
"""
# Records by id.
READ_BY_ID = """
    SELECT position, id, run, created_at, header, hash, body FROM commonplace.events
    WHERE book = %s AND id = ANY(%s)
"""
# The last version of each row as of a position: one look into the primary key per row.
GET_ROWS = """
    SELECT place.space, place.key, version.position, version.value
    FROM unnest(%b::bytea[], %b::bytea[]) AS place (space, key) CROSS JOIN LATERAL (
        SELECT position, value FROM commonplace.rows
        WHERE book = %s AND space = place.space AND key = place.key AND position <= %s
        ORDER BY position DESC LIMIT 1) AS version
    WHERE version.value IS NOT NULL
"""
# The same over a range of keys, forwards, for a few rows: it hops from key to key in the primary key.
SCAN_SOME = """
    WITH RECURSIVE stop (key) AS MATERIALIZED (
        SELECT coalesce(%(end)s, (SELECT key || '\\x00' FROM commonplace.rows
            WHERE book = %(book)s AND space = %(space)s ORDER BY key DESC LIMIT 1))
    ), walk (key) AS (
        (SELECT key FROM commonplace.rows
         WHERE book = %(book)s AND space = %(space)s AND key >= %(start)s AND key < (SELECT key FROM stop)
         ORDER BY key LIMIT 1)
        UNION ALL
        SELECT hop.key FROM walk CROSS JOIN LATERAL (
            SELECT r.key FROM commonplace.rows r
            WHERE book = %(book)s AND space = %(space)s AND r.key > walk.key AND r.key < (SELECT key FROM stop)
            ORDER BY r.key LIMIT 1) AS hop
    )
    SELECT walk.key, found.position, found.value FROM walk CROSS JOIN LATERAL (
        SELECT position, value FROM commonplace.rows
        WHERE book = %(book)s AND space = %(space)s AND key = walk.key AND position <= %(at)s
        ORDER BY position DESC LIMIT 1) AS found
    WHERE found.value IS NOT NULL LIMIT %(limit)s
"""
# The same backwards, where a key's last version comes first. It reads piece by piece and goes on below the
# last key of each, so that a long history costs one piece at most.
SCAN_BACK = """
    WITH RECURSIVE walk (key, position, value, newest, last) AS (
        SELECT coalesce(%(end)s, (SELECT key || '\\x00' FROM commonplace.rows
            WHERE book = %(book)s AND space = %(space)s ORDER BY key DESC LIMIT 1)),
            0::bigint, NULL::bytea, false, true
        UNION ALL
        SELECT hop.* FROM walk CROSS JOIN LATERAL (
            SELECT key, position, value, lag(key) OVER w IS DISTINCT FROM key, lead(key) OVER w IS NULL
            FROM (
                SELECT r.key, r.position, r.value FROM commonplace.rows r
                WHERE book = %(book)s AND space = %(space)s AND r.key < walk.key AND r.key >= %(start)s
                    AND r.position <= %(at)s
                ORDER BY r.key DESC, r.position DESC LIMIT 256) AS piece
            WINDOW w AS (ORDER BY key DESC, position DESC)) AS hop
        WHERE walk.last
    )
    SELECT key, position, value FROM walk WHERE newest AND value IS NOT NULL LIMIT %(limit)s
"""
# The next versions after one, of every key.
READ_VERSIONS = """
    SELECT key, position, value FROM commonplace.rows
    WHERE book = %s AND space = %s AND (key, position) > (%s, %s) ORDER BY key, position LIMIT %s
"""
# A blob.
READ_BLOB = "SELECT content FROM commonplace.blobs WHERE book = %s AND digest = %s"
# Leases in force.
READ_LEASES = """
    SELECT name, holder, fence, extract(epoch FROM until - clock_timestamp())::float8 FROM commonplace.leases
    WHERE book = %s AND name = ANY(%s) AND until > clock_timestamp()
"""

# --- writing ----------------------------------------------------------------------------------------------

# Versions of rows, each new or in place of the same version.
PUT_ROWS = """
    INSERT INTO commonplace.rows (book, space, key, position, value)
    SELECT %(book)s, * FROM unnest(
        %(spaces)b::bytea[], %(keys)b::bytea[], %(versions)s::bigint[], %(values)b::bytea[])
    ON CONFLICT (book, space, key, position) DO UPDATE SET value = excluded.value
"""
# Versions that are removed. Each is looked up by itself: a join might read all of the book's to find a few.
DROP_ROWS = """
    DELETE FROM commonplace.rows WHERE ctid = ANY (ARRAY(
        SELECT found.ctid FROM unnest(
            %(spaces)b::bytea[], %(keys)b::bytea[], %(versions)s::bigint[]
        ) AS gone (space, key, position)
        CROSS JOIN LATERAL (
            SELECT r.ctid FROM commonplace.rows r WHERE r.book = %(book)s AND r.space = gone.space
                AND r.key = gone.key AND r.position = gone.position OFFSET 0) AS found))
"""
# Events with such rows, and the head moves. Listeners hold a shared lock on the book's key, so a failed try at that
# lock means that there is somebody to notify; a listener that comes later first waits for this transaction to end.
ADD = f"""
    WITH events AS (
        INSERT INTO commonplace.events (book, position, id, run, created_at, header, hash, body)
        SELECT %(book)s, * FROM unnest(
            %(positions)s::bigint[], %(ids)b::bytea[], %(runs)b::bytea[], %(times)s::bigint[],
            %(headers)b::bytea[], %(hashes)b::bytea[], %(bodies)b::bytea[])
    ), rows AS ({PUT_ROWS})
    UPDATE commonplace.heads
    SET position = %(position)s, hash = %(hash)s, created_at = %(created_at)s, meta = coalesce(%(meta)s, meta)
    WHERE book = %(book)s
    RETURNING CASE WHEN NOT pg_try_advisory_xact_lock(%(lock_space)s::int, %(book)s::int)
        THEN pg_notify(%(channel)s, %(position)s::bigint::text)::text END
"""  # noqa: S608  constants
# Bodies go.
ERASE_BODIES = "UPDATE commonplace.events SET body = NULL WHERE book = %s AND position = ANY(%s)"
# One blob; the same content again writes nothing.
PUT_BLOB = """
    INSERT INTO commonplace.blobs (book, digest, content) VALUES (%s, %s, %s)
    ON CONFLICT (book, digest) DO UPDATE SET content = excluded.content
    WHERE blobs.content <> excluded.content
"""
# Blobs less.
DROP_BLOBS = "DELETE FROM commonplace.blobs WHERE book = %s AND digest = ANY(%s)"
# The book's own record changes.
WRITE_META = "UPDATE commonplace.heads SET meta = %s WHERE book = %s"
# Leases that are taken or renewed, as `decide_leases` says. The book's lock is held, so nobody else can take one.
TAKE_LEASES = """
    INSERT INTO commonplace.leases (book, name, holder, fence, until)
    SELECT %(book)s, name, holder, fence, clock_timestamp() + make_interval(secs => seconds) FROM unnest(
        %(names)b::bytea[], %(holders)b::bytea[], %(fences)s::bigint[], %(seconds)s::float8[]
    ) AS asked (name, holder, fence, seconds)
    ON CONFLICT (book, name) DO UPDATE
    SET holder = excluded.holder, fence = excluded.fence, until = excluded.until
"""
# Leases that are given back.
RELEASE_LEASES = "DELETE FROM commonplace.leases WHERE book = %s AND name = ANY(%s)"
# Leases that ran out.
DROP_OLD_LEASES = "DELETE FROM commonplace.leases WHERE book = %s AND until <= clock_timestamp()"
# The next piece of the spaces between two names goes; says where it ended.
DROP_SPACES = """
    WITH piece AS (
        SELECT space, key, position FROM commonplace.rows
        WHERE book = %(book)s AND (space, key) >= (%(space)s, %(key)s) AND space < %(end)s
        ORDER BY space, key, position LIMIT %(piece)s
    ), gone AS (
        DELETE FROM commonplace.rows r USING piece p
        WHERE r.book = %(book)s AND r.space = p.space AND r.key = p.key AND r.position = p.position
    )
    SELECT space, key FROM piece ORDER BY space DESC, key DESC LIMIT 1
"""
# The next versions that no read at or above the horizon can see go: those with a newer one at or below it,
# and deletions. Older ones first, so that what a deletion hides is gone before the deletion is.
TRIM_SPACE = """
    WITH piece AS (
        SELECT key, position FROM commonplace.rows o
        WHERE book = %(book)s AND space = %(space)s AND (key, position) > (%(key)s, %(position)s)
            AND position <= %(horizon)s AND (value IS NULL OR (
                SELECT true FROM commonplace.rows n
                WHERE n.book = %(book)s AND n.space = %(space)s AND n.key = o.key
                    AND n.position > o.position AND n.position <= %(horizon)s LIMIT 1))
        ORDER BY key, position LIMIT %(piece)s
    ), gone AS (
        DELETE FROM commonplace.rows r USING piece p
        WHERE r.book = %(book)s AND r.space = %(space)s AND r.key = p.key AND r.position = p.position
    )
    SELECT key, position, count(*) OVER () FROM piece ORDER BY key DESC, position DESC LIMIT 1
"""

# --- news -------------------------------------------------------------------------------------------------

# Be known as a listener of this book (see ADD).
BE_HEARD = "SELECT pg_advisory_lock_shared(%s::int, %s::int)"

# --- purge ------------------------------------------------------------------------------------------------

# A transaction number above those of everything erased so far; also makes the server write some log.
NEXT_XID = "SELECT pg_current_xact_id()::xid"
# Who can still see what was dead before that number, and whether we may see everybody.
OLD_SNAPSHOTS = """
    SELECT
        (SELECT count(*) FROM pg_stat_activity
         WHERE pid <> pg_backend_pid() AND coalesce(datname = current_database(), true)
             AND age(backend_xmin) > age(%(xid)s::xid))
        + (SELECT count(*) FROM pg_replication_slots WHERE age(xmin) > age(%(xid)s::xid))
        + (SELECT count(*) FROM pg_prepared_xacts WHERE age(transaction) > age(%(xid)s::xid)),
        pg_has_role('pg_read_all_stats', 'USAGE')
"""
# The file that holds a table; VACUUM FULL changes it, unless it skipped the table for lack of rights.
TABLE_FILE = "SELECT pg_relation_filenode(%s::regclass)"
# Settings by which copies leave our reach or stay where they are.
READ_COPIES = """
    SELECT current_setting('archive_mode'), current_setting('log_statement'),
        current_setting('log_min_duration_statement'),
        (SELECT count(*) FROM pg_stat_replication)
"""
# Begin a new segment of the server's log; the rest of the old one is filled with zeros.
SWITCH_WAL = "SELECT pg_switch_wal()"
# The segment being written, without its timeline.
CURRENT_WAL = "SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 9)"
# The first and the last segment on disk; the last may be an old one renamed for reuse.
WAL_FILES = (
    "SELECT min(substr(name, 9)), max(substr(name, 9)) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'"
)
