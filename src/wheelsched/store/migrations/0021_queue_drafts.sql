-- A job that an application schedules in SQL may go to a queue: then it has no URL, and its options
-- name the queue.
SET LOCAL ROLE wheelsched_owner;

CREATE OR REPLACE FUNCTION check_job(
    given_name text, given_schedule text, given_url text, given_payload jsonb,
    given_timezone text, given_options jsonb
) RETURNS void
    LANGUAGE plpgsql IMMUTABLE SET search_path = wheelsched, pg_temp
AS $$
DECLARE
    unknown text;
    -- Control characters, separators, marks that turn the direction of writing: see labels.py.
    unshowable text := '[\u0001-\u001f\u007f-\u009f\u2028\u2029\u061c\u200e\u200f'
        '\u202a-\u202e\u2066-\u2069\ufeff]';
BEGIN
    IF coalesce(given_name, '') = '' OR length(given_name) > 255 OR btrim(given_name) <> given_name
        OR given_name ~ unshowable
    THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'name: 1 to 255 characters that can be shown are right, '
                'and no space at the ends';
    END IF;
    IF coalesce(btrim(given_schedule), '') = '' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'schedule: a cron expression, an instant, ''every 5m'' or ''RRULE:…'' '
                'is right';
    END IF;
    IF left(ltrim(given_schedule), 1) <> '{' AND length(given_schedule) > 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'schedule: the expression has %s characters; it may have 255', length(given_schedule)
        );
    END IF;
    IF given_url IS NULL THEN
        IF NOT coalesce(given_options -> 'target' ? 'queue', false) THEN
            RAISE invalid_parameter_value USING
                MESSAGE = 'url: it is required, unless the job has a queue',
                HINT = 'For a queue: options => ''{"target": {"queue": "billing"}}''.';
        END IF;
    ELSIF given_url !~* '^https?://[^/?#]' OR given_url ~ '[[:space:][:cntrl:]]'
        OR length(given_url) > 2048
    THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'url: http:// or https:// and a host is right, at most 2,048 characters '
                'without spaces';
    END IF;
    IF octet_length(given_payload::text) > 262144 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format(
                'payload: it has %s bytes; at most 262144 are right',
                octet_length(given_payload::text)
            ),
            HINT = 'Send a reference to what is larger.';
    END IF;
    IF given_timezone IS NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'timezone: a name such as Europe/London is right';
    END IF;
    IF coalesce(jsonb_typeof(given_options), 'null') <> 'object'
        OR coalesce(jsonb_typeof(given_options -> 'target'), 'object') <> 'object'
        OR given_options -> 'target' ? 'url'
    THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'options: an object is right, with the fields of a job; '
                'its target has no url, which is an argument';
    END IF;
    SELECT string_agg(field, ', ' ORDER BY field) INTO unknown
    FROM jsonb_object_keys(given_options) AS field
    WHERE field NOT IN (
        'target', 'misfire', 'overlap', 'retry', 'timeout', 'jitter', 'priority', 'dst',
        'idempotency_key', 'tags'
    );
    IF unknown IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('options: %s is unknown, or an argument of its own', unknown),
            HINT = 'Fields are target, misfire, overlap, retry, timeout, jitter, priority, dst, '
                'idempotency_key and tags.';
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION schedule(
    name text, schedule text, url text DEFAULT NULL, payload jsonb DEFAULT NULL,
    timezone text DEFAULT 'UTC', options jsonb DEFAULT '{}', if_exists text DEFAULT 'error'
) RETURNS uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = wheelsched, pg_temp
AS $$
    SELECT add_job($1, $2, $3, $4, $5, $6, $7)
$$;

CREATE OR REPLACE FUNCTION schedule_at(
    name text, at timestamptz, url text DEFAULT NULL, payload jsonb DEFAULT NULL,
    options jsonb DEFAULT '{}', if_exists text DEFAULT 'error'
) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = wheelsched, pg_temp
AS $$
BEGIN
    -- Years of four digits, which infinity has not.
    IF ($2 >= '0001-01-01Z' AND $2 < '9999-12-31Z') IS NOT TRUE THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('at: %s is not a valid due time', coalesce($2::text, 'null')),
            HINT = 'Choose a time that is still to come.';
    END IF;
    RETURN add_job(
        $1, to_char($2 AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), $3, $4, 'UTC', $5, $6
    );
END
$$;
