-- Requests, what they consist of and how far they are, and the dataset versions that came of them.

CREATE TABLE transfers (
  transfer_id text PRIMARY KEY,
  tenant text NOT NULL,
  name text NOT NULL,
  dataset_version text NOT NULL,
  source text NOT NULL,
  manifest_sha256 text NOT NULL,
  state text NOT NULL,
  message text,
  sequence bigint NOT NULL DEFAULT 0,
  actor text NOT NULL,
  trace_life text,
  trace_hop text,
  requested_at timestamptz NOT NULL,
  ended_at timestamptz,
  due_at timestamptz,
  tries bigint NOT NULL DEFAULT 0
);
CREATE INDEX transfers_due_at ON transfers (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE entries (
  transfer_id text NOT NULL REFERENCES transfers,
  path text NOT NULL,
  sha256 text NOT NULL,
  size_bytes bigint NOT NULL,
  staged boolean NOT NULL DEFAULT false,
  PRIMARY KEY (transfer_id, path)
);

CREATE TABLE datasets (
  tenant text NOT NULL,
  name text NOT NULL,
  dataset_version text NOT NULL,
  transfer_id text NOT NULL REFERENCES transfers,
  manifest_sha256 text NOT NULL,
  objects bigint,
  size_bytes bigint,
  completed_at timestamptz,
  PRIMARY KEY (tenant, name, dataset_version)
);
