-- Which node holds which member of which attempt, as the scheduler placed it: nobody else may speak for it.

CREATE TABLE holders (
  job_id text NOT NULL REFERENCES jobs ON DELETE CASCADE,
  attempt bigint NOT NULL,
  member bigint NOT NULL,
  node text NOT NULL,
  PRIMARY KEY (job_id, attempt, member)
);
