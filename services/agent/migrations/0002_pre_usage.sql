-- Where an attempt's messages belong: the life of its job, and the step that brought the offer here.
ALTER TABLE attempts ADD COLUMN trace_life TEXT;
ALTER TABLE attempts ADD COLUMN trace_hop TEXT;

-- Cards that an attempt holds or has held, as they were at its claim. Times are milliseconds since 1970 by the meter's
-- clock; up to `metered_to` they are told.
CREATE TABLE holds (
  job_id TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  member INTEGER NOT NULL,
  cards TEXT NOT NULL,
  held_from INTEGER NOT NULL,
  held_to INTEGER,
  metered_to INTEGER NOT NULL,
  PRIMARY KEY (job_id, attempt, member),
  FOREIGN KEY (job_id, attempt, member) REFERENCES attempts ON DELETE CASCADE
) WITHOUT ROWID;

CREATE INDEX holds_owed ON holds (metered_to) WHERE held_to IS NULL OR metered_to < held_to;

-- The meter's clock: what is added to the boot clock of one boot to get the time of day. `ended_ms` is the latest end
-- of a hold since it was set.
CREATE TABLE meter_clock (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  boot TEXT NOT NULL,
  offset_ms INTEGER NOT NULL,
  ended_ms INTEGER
);

-- Whether it was told that the file could not be stored.
ALTER TABLE saves ADD COLUMN unsaved_told INTEGER NOT NULL DEFAULT 0;
