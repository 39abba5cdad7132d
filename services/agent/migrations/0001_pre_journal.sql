-- One row for each attempt that was ever offered to this node, or stopped before it was offered.
CREATE TABLE attempts (
  job_id TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  member INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  phase TEXT NOT NULL,
  offered_at TEXT NOT NULL,
  run TEXT,
  endpoint TEXT,
  epoch INTEGER,
  rendezvous TEXT,
  inputs TEXT NOT NULL,
  stop TEXT,
  ended TEXT,
  sequence INTEGER NOT NULL,
  serial INTEGER NOT NULL,
  log_offset INTEGER NOT NULL DEFAULT 0,
  log_chunk INTEGER NOT NULL DEFAULT 0,
  cleaned INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (job_id, attempt, member)
) WITHOUT ROWID;

CREATE INDEX attempts_by_phase ON attempts (phase, offered_at);

-- Checkpoint files that the task has handed over; `stored` once the shard is in the store, verified.
CREATE TABLE saves (
  job_id TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  member INTEGER NOT NULL,
  step INTEGER NOT NULL,
  file TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  stall_ms INTEGER NOT NULL,
  write_ms INTEGER NOT NULL,
  accepted_at TEXT NOT NULL,
  stored INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (job_id, attempt, member, step),
  FOREIGN KEY (job_id, attempt, member) REFERENCES attempts ON DELETE CASCADE
) WITHOUT ROWID;

CREATE TABLE counters (
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;
