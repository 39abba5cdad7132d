-- The bus's own tables, in the schema of every service.

CREATE TABLE inbox (
  consumer text NOT NULL,
  key text NOT NULL,
  source text NOT NULL,
  id text NOT NULL,
  taken_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer, key, source, id)
);
CREATE INDEX inbox_taken_at ON inbox (taken_at);

CREATE TABLE outbox (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text NOT NULL UNIQUE,
  aggregate text NOT NULL,
  stream text NOT NULL,
  subject text NOT NULL,
  headers text NOT NULL,
  data bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  published_at timestamptz,
  parked_at timestamptz,
  parked_reason text
);
CREATE INDEX outbox_waiting ON outbox (number) WHERE published_at IS NULL AND parked_at IS NULL;
CREATE INDEX outbox_published_at ON outbox (published_at) WHERE published_at IS NOT NULL;

CREATE TABLE failures (
  consumer text NOT NULL,
  stream text NOT NULL,
  sequence bigint NOT NULL,
  failures bigint NOT NULL,
  message text NOT NULL,
  failed_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer, stream, sequence)
);

CREATE TABLE leader (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  epoch bigint NOT NULL,
  holder text NOT NULL,
  since timestamptz NOT NULL DEFAULT now()
);
