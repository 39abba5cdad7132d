-- Closed usage as metering told it, rate cards as they were used, and invoices, which never change.

CREATE TABLE closings (
  close_id text PRIMARY KEY,
  tenant text NOT NULL,
  cutoff timestamptz NOT NULL,
  rollups bigint NOT NULL,
  body jsonb NOT NULL,
  state text NOT NULL CHECK (state IN ('waiting', 'held', 'invoiced', 'empty')),
  message text,
  actor text NOT NULL,
  trace text,
  stored_at timestamptz NOT NULL
);
CREATE INDEX closings_open ON closings (cutoff) WHERE state IN ('waiting', 'held');

CREATE TABLE rollups (
  rollup_id text PRIMARY KEY,
  close_id text NOT NULL,
  body jsonb NOT NULL,
  trace text,
  stored_at timestamptz NOT NULL
);
CREATE INDEX rollups_close_id ON rollups (close_id);

CREATE TABLE rate_cards (
  rate_card text NOT NULL,
  card_version bigint NOT NULL,
  sha256 text NOT NULL,
  content text NOT NULL,
  first_used_at timestamptz NOT NULL,
  PRIMARY KEY (rate_card, card_version)
);

-- The last invoice number of each tenant: locked by the transaction that takes the next, so numbers have no gaps.
CREATE TABLE numbers (
  tenant text PRIMARY KEY,
  last_number bigint NOT NULL
);

CREATE TABLE invoices (
  invoice_id text PRIMARY KEY,
  close_id text NOT NULL UNIQUE REFERENCES closings,
  tenant text NOT NULL,
  number bigint NOT NULL,
  period_start timestamptz NOT NULL,
  period_end timestamptz NOT NULL,
  currency text NOT NULL,
  exponent bigint NOT NULL,
  rate_card text NOT NULL,
  rate_card_version bigint NOT NULL,
  rate_card_sha256 text NOT NULL,
  cutoff timestamptz NOT NULL,
  rollups bigint NOT NULL,
  samples bigint NOT NULL,
  sha256 text NOT NULL,
  lines bigint NOT NULL,
  total_micro bigint NOT NULL,
  total_minor bigint NOT NULL,
  issued_at timestamptz NOT NULL,
  UNIQUE (tenant, number),
  FOREIGN KEY (rate_card, rate_card_version) REFERENCES rate_cards (rate_card, card_version)
);
CREATE INDEX invoices_issued_at ON invoices (issued_at, invoice_id);

CREATE TABLE lines (
  invoice_id text NOT NULL REFERENCES invoices,
  line bigint NOT NULL,
  job_id text NOT NULL,
  job_name text NOT NULL,
  team text,
  item text NOT NULL,
  accelerator text NOT NULL,
  tier text NOT NULL,
  quantity bigint NOT NULL,
  samples bigint NOT NULL,
  unit text NOT NULL,
  unit_price_micro bigint NOT NULL,
  amount text NOT NULL,
  amount_micro bigint NOT NULL,
  amount_minor bigint NOT NULL,
  first_hour timestamptz NOT NULL,
  last_hour timestamptz NOT NULL,
  PRIMARY KEY (invoice_id, line)
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a row of % never changes: what came later goes into the next invoice', TG_TABLE_NAME;
END
$$;
CREATE TRIGGER invoices_never_change BEFORE UPDATE OR DELETE OR TRUNCATE ON invoices
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER lines_never_change BEFORE UPDATE OR DELETE OR TRUNCATE ON lines
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER rollups_never_change BEFORE UPDATE OR DELETE OR TRUNCATE ON rollups
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER rate_cards_never_change BEFORE UPDATE OR DELETE OR TRUNCATE ON rate_cards
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
