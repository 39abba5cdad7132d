-- Placements of attempts, what was measured of them, what became of it, and the scheduler's ledger beside it.

CREATE TABLE attempts (
  job_id text NOT NULL,
  attempt bigint NOT NULL,
  tenant text NOT NULL,
  job_name text NOT NULL,
  team text,
  labels jsonb NOT NULL,
  placed_at timestamptz NOT NULL,
  asked_at timestamptz,
  settled boolean NOT NULL DEFAULT false,
  PRIMARY KEY (job_id, attempt)
);
CREATE INDEX attempts_tenant ON attempts (tenant, job_id, attempt);
CREATE INDEX attempts_unsettled ON attempts (asked_at NULLS FIRST) WHERE NOT settled;

CREATE TABLE seats (
  job_id text NOT NULL,
  attempt bigint NOT NULL,
  member bigint NOT NULL,
  node text NOT NULL,
  tier text NOT NULL,
  cards bigint[] NOT NULL,
  PRIMARY KEY (job_id, attempt, member),
  FOREIGN KEY (job_id, attempt) REFERENCES attempts
);

-- Attempt `attempt` was restored at `at`: earlier ones are billed up to then.
CREATE TABLE fences (
  job_id text NOT NULL,
  attempt bigint NOT NULL,
  at timestamptz NOT NULL,
  PRIMARY KEY (job_id, attempt)
);

-- Raw samples, each once: the primary key is the last word on that. All of them are billable.
CREATE TABLE samples (
  job_id text NOT NULL,
  attempt bigint NOT NULL,
  member bigint NOT NULL,
  card bigint NOT NULL,
  item text NOT NULL,
  window_start timestamptz NOT NULL,
  window_end timestamptz NOT NULL CHECK (window_end > window_start),
  quantity bigint NOT NULL CHECK (quantity >= 0),
  tenant text NOT NULL,
  card_uuid text NOT NULL,
  accelerator text NOT NULL,
  share_milli bigint NOT NULL,
  tier text NOT NULL,
  node text NOT NULL,
  source text NOT NULL,
  message_id text NOT NULL,
  place bigint NOT NULL,
  period_s bigint NOT NULL,
  grid_start timestamptz NOT NULL,
  stored_at timestamptz NOT NULL,
  trace text,
  close_id text,
  rollup_id text,
  PRIMARY KEY (job_id, attempt, member, card, item, window_start)
);
CREATE INDEX samples_open ON samples (tenant, window_start) WHERE close_id IS NULL;
CREATE INDEX samples_close ON samples (close_id, window_start) WHERE close_id IS NOT NULL;
CREATE INDEX samples_rollup ON samples (rollup_id) WHERE rollup_id IS NOT NULL;

-- Rows that are kept and not billed. Those of an attempt never heard of are judged anew when its placement comes.
CREATE TABLE refused (
  source text NOT NULL,
  message_id text NOT NULL,
  place bigint NOT NULL,
  number bigint GENERATED ALWAYS AS IDENTITY,
  job_id text NOT NULL,
  attempt bigint NOT NULL,
  tenant text NOT NULL,
  node text NOT NULL,
  body jsonb NOT NULL,
  period_s bigint NOT NULL,
  window_start timestamptz NOT NULL,
  gpu_ms bigint NOT NULL,
  fault text NOT NULL,
  message text NOT NULL,
  trace text,
  stored_at timestamptz NOT NULL,
  PRIMARY KEY (source, message_id, place)
);
CREATE INDEX refused_attempt ON refused (job_id, attempt);
CREATE INDEX refused_number ON refused (number DESC);

CREATE TABLE closes (
  close_id text PRIMARY KEY,
  tenant text NOT NULL,
  number bigint NOT NULL,
  period_start timestamptz NOT NULL,
  period_end timestamptz NOT NULL,
  cutoff timestamptz NOT NULL,
  samples bigint NOT NULL,
  state text NOT NULL CHECK (state IN ('open', 'planned', 'done')),
  actor text NOT NULL,
  trace_life text,
  trace_hop text,
  UNIQUE (tenant, number)
);
CREATE INDEX closes_open ON closes (cutoff) WHERE state <> 'done';

CREATE TABLE rollups (
  rollup_id text PRIMARY KEY,
  close_id text NOT NULL REFERENCES closes,
  tenant text NOT NULL,
  hour timestamptz NOT NULL,
  number bigint NOT NULL,
  samples bigint NOT NULL,
  body jsonb,
  UNIQUE (tenant, hour, number)
);
CREATE INDEX rollups_close ON rollups (close_id, rollup_id);

-- The scheduler's ledger, as it was asked last.
CREATE TABLE holdings (
  job_id text NOT NULL,
  attempt bigint NOT NULL,
  member bigint NOT NULL,
  cards bigint NOT NULL,
  held_from timestamptz NOT NULL,
  held_to timestamptz,
  PRIMARY KEY (job_id, attempt, member)
);
