-- What was seen of each subject, the episodes of its alert, and the notifications about them.

CREATE TABLE subjects (
  fingerprint text PRIMARY KEY,
  history text NOT NULL DEFAULT '[[], []]',
  touched_at timestamptz NOT NULL
);
CREATE INDEX subjects_touched_at ON subjects (touched_at);

CREATE TABLE alerts (
  alert_id text PRIMARY KEY,
  fingerprint text NOT NULL,
  name text NOT NULL,
  level bigint NOT NULL,
  state text NOT NULL CHECK (state IN ('firing', 'resolved')),
  body text NOT NULL
);
-- One open episode per fingerprint, whatever goes on at once.
CREATE UNIQUE INDEX alerts_firing ON alerts (fingerprint) WHERE state = 'firing';

CREATE TABLE notifications (
  alert_id text NOT NULL REFERENCES alerts,
  receiver text NOT NULL,
  about text NOT NULL CHECK (about IN ('firing', 'resolved')),
  fingerprint text NOT NULL,
  number bigint GENERATED ALWAYS AS IDENTITY,
  state text NOT NULL CHECK (state IN ('waiting', 'delivered', 'parked')),
  body text NOT NULL,
  tries bigint NOT NULL DEFAULT 0,
  message text NOT NULL DEFAULT '',
  trace_life text,
  trace_hop text,
  queued_at timestamptz NOT NULL,
  changed_at timestamptz NOT NULL,
  due_at timestamptz NOT NULL,
  PRIMARY KEY (alert_id, receiver, about)
);
CREATE INDEX notifications_due ON notifications (receiver, due_at) WHERE state = 'waiting';
-- What is queued about one fingerprint is told in this order, whatever its episode.
CREATE INDEX notifications_order ON notifications (receiver, fingerprint, number) WHERE state = 'waiting';
