-- Shares of cards, facts of nodes that placing looks at, classes that change, and what preemption has to remember.

ALTER TABLE jobs
  ADD COLUMN priority_changed_at timestamptz,
  ADD COLUMN saved_at timestamptz,
  ADD COLUMN preempted_at timestamptz,
  ADD COLUMN leaving_for text,
  ADD COLUMN damaged_at timestamptz;

ALTER TABLE intents
  ADD COLUMN priority text,
  ADD COLUMN priority_changed_at timestamptz;

ALTER TABLE nodes
  ADD COLUMN zone text NOT NULL DEFAULT '',
  ADD COLUMN rack text NOT NULL DEFAULT '',
  ADD COLUMN cordoned boolean NOT NULL DEFAULT false,
  ADD COLUMN scarce boolean NOT NULL DEFAULT false,
  ADD COLUMN linked boolean NOT NULL DEFAULT false,
  ADD COLUMN bad_cards bigint[] NOT NULL DEFAULT '{}',
  ADD COLUMN limit_cards bigint,
  ADD COLUMN link_mbps bigint;

ALTER TABLE allocations ADD COLUMN link_mbps bigint NOT NULL DEFAULT 0;

-- Parts of cards, in millionths. Whole cards stay in allocated_cards, whose key lets each have one holder.
CREATE TABLE allocated_shares (
  node text NOT NULL,
  card bigint NOT NULL,
  share bigint NOT NULL CHECK (share BETWEEN 1 AND 999999),
  job_id text NOT NULL,
  attempt bigint NOT NULL,
  member bigint NOT NULL,
  PRIMARY KEY (job_id, attempt, member),
  FOREIGN KEY (job_id, attempt, member) REFERENCES allocations ON DELETE CASCADE
);
CREATE INDEX allocated_shares_node ON allocated_shares (node, card);

CREATE VIEW held_cards AS
  SELECT node, card, 1000000::bigint AS share, job_id, attempt, member FROM allocated_cards
  UNION ALL
  SELECT node, card, share, job_id, attempt, member FROM allocated_shares;

ALTER TABLE holdings ADD COLUMN share_milli bigint NOT NULL DEFAULT 1000 CHECK (share_milli BETWEEN 1 AND 1000);

-- What an image reference stands for since the first job that used it.
CREATE TABLE images (
  tenant text NOT NULL,
  reference text NOT NULL,
  code_commit text,
  dataset_name text,
  dataset_version text,
  job_id text NOT NULL,
  bound_at timestamptz NOT NULL,
  PRIMARY KEY (tenant, reference)
);
