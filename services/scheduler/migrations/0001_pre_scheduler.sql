-- Jobs and their live attempt, the allocation of cards, the ledger of held time, and what is known of nodes and datasets.

CREATE TABLE jobs (
  job_id text PRIMARY KEY,
  tenant text NOT NULL,
  name text NOT NULL,
  spec jsonb NOT NULL,
  body_sha256 text NOT NULL,
  version bigint NOT NULL CHECK (version > 0),
  phase text NOT NULL CHECK (phase IN (
    'accepted', 'held', 'waiting', 'placed', 'starting', 'running', 'stopping', 'unreachable', 'finished')),
  outcome text CHECK ((outcome IS NOT NULL) = (phase = 'finished')),
  reason jsonb,
  attempt jsonb,
  attempts bigint NOT NULL,
  failures bigint NOT NULL,
  losses bigint NOT NULL,
  cancel_requested boolean NOT NULL,
  held boolean NOT NULL,
  hold_changed_at timestamptz,
  not_before timestamptz,
  wake_at timestamptz,
  progress_step bigint,
  avoid text[] NOT NULL,
  commit_ms bigint NOT NULL,
  commit_rolling boolean NOT NULL,
  trace text,
  submitted_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL
);
CREATE INDEX jobs_unfinished ON jobs (tenant) INCLUDE (commit_ms, phase) WHERE phase <> 'finished';
CREATE INDEX jobs_wake_at ON jobs (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX jobs_newest ON jobs (submitted_at DESC, job_id DESC);
CREATE INDEX jobs_newest_of_tenant ON jobs (tenant, submitted_at DESC, job_id DESC);
CREATE INDEX jobs_name ON jobs (name, submitted_at DESC);
CREATE INDEX jobs_prefix ON jobs (job_id text_pattern_ops);

CREATE TABLE transitions (
  job_id text NOT NULL,
  version bigint NOT NULL,
  state text NOT NULL,
  attempt bigint,
  reason jsonb,
  at timestamptz NOT NULL,
  PRIMARY KEY (job_id, version)
);

-- What was asked of jobs before their submission was seen.
CREATE TABLE intents (
  tenant text NOT NULL,
  job_id text NOT NULL,
  cancel_reason text,
  held boolean NOT NULL DEFAULT false,
  hold_reason text NOT NULL DEFAULT '',
  hold_changed_at timestamptz,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (tenant, job_id)
);
CREATE INDEX intents_updated_at ON intents (updated_at);

CREATE TABLE nodes (
  node text PRIMARY KEY,
  version bigint NOT NULL,
  state text NOT NULL,
  incarnation text NOT NULL,
  tier text NOT NULL,
  cpu_milli bigint NOT NULL,
  memory_bytes bigint NOT NULL,
  cards jsonb NOT NULL,
  shape jsonb NOT NULL,
  requeue_held boolean NOT NULL,
  since timestamptz NOT NULL
);
CREATE INDEX nodes_shape ON nodes (tier, cpu_milli, memory_bytes, shape);

CREATE TABLE allocations (
  job_id text NOT NULL,
  attempt bigint NOT NULL,
  member bigint NOT NULL,
  node text NOT NULL,
  cpu_milli bigint NOT NULL,
  memory_bytes bigint NOT NULL,
  PRIMARY KEY (job_id, attempt, member)
);
CREATE INDEX allocations_node ON allocations (node);

-- The primary key is the last word on who has a card.
CREATE TABLE allocated_cards (
  node text NOT NULL,
  card bigint NOT NULL,
  job_id text NOT NULL,
  attempt bigint NOT NULL,
  member bigint NOT NULL,
  PRIMARY KEY (node, card),
  FOREIGN KEY (job_id, attempt, member) REFERENCES allocations ON DELETE CASCADE
);
CREATE INDEX allocated_cards_member ON allocated_cards (job_id, attempt, member);

-- Cards held over time, from the claim to the end of the member, by the scheduler's clock.
CREATE TABLE holdings (
  job_id text NOT NULL,
  attempt bigint NOT NULL,
  member bigint NOT NULL,
  tenant text NOT NULL,
  cards bigint NOT NULL,
  held_from timestamptz NOT NULL,
  held_to timestamptz CHECK (held_to >= held_from),
  PRIMARY KEY (job_id, attempt, member)
);
CREATE INDEX holdings_tenant ON holdings (tenant, held_to);

CREATE TABLE datasets (
  tenant text NOT NULL,
  name text NOT NULL,
  version text NOT NULL,
  PRIMARY KEY (tenant, name, version)
);

-- Rows changed since the cycle looked last; it deletes what it has read.
CREATE TABLE changes (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('job', 'node', 'dataset')),
  id text NOT NULL
);
