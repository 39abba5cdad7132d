-- Jobs, their checkpoints and shards, and what attempts were granted.

CREATE TABLE jobs (
  job_id text PRIMARY KEY,
  tenant text NOT NULL,
  fence bigint NOT NULL DEFAULT 1,
  version bigint NOT NULL DEFAULT 0,
  finished_at timestamptz,
  sweep_at timestamptz
);
CREATE INDEX jobs_sweep_at ON jobs (sweep_at) WHERE sweep_at IS NOT NULL;

CREATE TABLE checkpoints (
  job_id text NOT NULL REFERENCES jobs,
  attempt bigint NOT NULL,
  step bigint NOT NULL,
  tenant text NOT NULL,
  phase text NOT NULL,
  members bigint NOT NULL,
  binding text NOT NULL,
  keep_last bigint NOT NULL CHECK (keep_last >= 1),
  begun_at timestamptz NOT NULL,
  decided_at timestamptz,
  cause text,
  message text,
  actor text NOT NULL,
  trace_life text,
  trace_hop text,
  due_at timestamptz,
  tries bigint NOT NULL DEFAULT 0,
  failing_since timestamptz,
  alerted boolean NOT NULL DEFAULT false,
  PRIMARY KEY (job_id, attempt, step)
);
CREATE INDEX checkpoints_due_at ON checkpoints (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE shards (
  job_id text NOT NULL,
  attempt bigint NOT NULL,
  step bigint NOT NULL,
  member bigint NOT NULL,
  uri text NOT NULL,
  sha256 text NOT NULL,
  size_bytes bigint NOT NULL,
  PRIMARY KEY (job_id, attempt, step, member),
  FOREIGN KEY (job_id, attempt, step) REFERENCES checkpoints
);

CREATE TABLE grants (
  job_id text NOT NULL REFERENCES jobs,
  attempt bigint NOT NULL,
  step bigint,
  from_attempt bigint,
  granted_at timestamptz NOT NULL,
  PRIMARY KEY (job_id, attempt)
);
