-- XIDs of this machine's cards since it booted, kept over restarts of the agent.
CREATE TABLE xids (
  boot TEXT NOT NULL,
  uuid TEXT NOT NULL,
  code INTEGER NOT NULL,
  count INTEGER NOT NULL,
  first_at TEXT NOT NULL,
  last_at TEXT NOT NULL,
  PRIMARY KEY (boot, uuid, code)
) WITHOUT ROWID;
