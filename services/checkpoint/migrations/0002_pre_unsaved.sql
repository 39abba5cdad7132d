-- Saves of which it was told that they could not be brought to the store: each is told once.

CREATE TABLE unsaved (
  job_id text NOT NULL REFERENCES jobs,
  attempt bigint NOT NULL,
  step bigint NOT NULL,
  told_at timestamptz NOT NULL,
  PRIMARY KEY (job_id, attempt, step)
);
