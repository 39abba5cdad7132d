-- The ledger of nodes and cards, what was last heard of each node, and the way each node came.

CREATE TABLE nodes (
  node text PRIMARY KEY,
  version bigint NOT NULL CHECK (version > 0),
  phase text NOT NULL CHECK (phase IN ('ready', 'suspect', 'lost')),
  facts jsonb NOT NULL,
  incarnation text NOT NULL,
  announced_at timestamptz NOT NULL,
  stored_at timestamptz NOT NULL,
  reason text NOT NULL,
  requeue_held boolean NOT NULL DEFAULT false,
  lost_ms bigint,
  superseded_by text,
  since timestamptz NOT NULL
);

-- Apart from nodes, because these rows change with every heartbeat; room is left for that to happen in place.
CREATE TABLE sightings (
  node text PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
  seen_ms bigint NOT NULL,
  heard_ms bigint NOT NULL,
  lease_ms bigint NOT NULL,
  counter bigint NOT NULL,
  skew_ms bigint,
  attempts text NOT NULL,
  noise text NOT NULL,
  rival text,
  rival_counter bigint,
  rival_ms bigint
) WITH (fillfactor = 50);

CREATE TABLE cards (
  uuid text PRIMARY KEY,
  node text NOT NULL REFERENCES nodes ON DELETE CASCADE,
  index bigint NOT NULL,
  model text NOT NULL,
  memory_bytes bigint NOT NULL,
  source text NOT NULL,
  UNIQUE (node, index)
);

-- One row for each version of a node: who changed what, when and why. `facts` only where they changed.
CREATE TABLE history (
  node text NOT NULL,
  version bigint NOT NULL,
  at timestamptz NOT NULL,
  event text NOT NULL,
  phase text NOT NULL,
  cause text NOT NULL,
  reason text NOT NULL,
  actor text NOT NULL,
  incarnation text NOT NULL,
  requeue_held boolean NOT NULL,
  facts jsonb,
  PRIMARY KEY (node, version)
);

-- One row: how far the heartbeat stream has been read. Whoever changes the ledger locks it first.
CREATE TABLE clock (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  stream text NOT NULL,
  read_sequence bigint NOT NULL,
  tick_at timestamptz NOT NULL,
  observed_ms bigint NOT NULL,
  floor_ms bigint NOT NULL
);
INSERT INTO clock (stream, read_sequence, tick_at, observed_ms, floor_ms) VALUES ('', 0, 'epoch', 0, 0);

-- Each opening of the breaker and how it ended; it is open while a row has no end.
CREATE TABLE breaker (
  opened_at timestamptz PRIMARY KEY,
  reason text NOT NULL,
  closed_at timestamptz,
  closed_by text,
  closed_reason text
);
CREATE UNIQUE INDEX breaker_one_open ON breaker ((true)) WHERE closed_at IS NULL;

-- What is judged of a node, and what is told of it.
CREATE VIEW judged AS
SELECT node, n.phase, n.incarnation, n.announced_at, n.stored_at, n.lost_ms, n.requeue_held, n.superseded_by, n.facts,
       s.seen_ms, s.heard_ms, s.lease_ms, s.counter, s.skew_ms, s.attempts, s.noise, s.rival, s.rival_counter, s.rival_ms
FROM nodes AS n JOIN sightings AS s USING (node);

CREATE VIEW told AS
SELECT node, n.version, n.phase, n.facts, n.incarnation, s.attempts, n.reason, n.requeue_held, n.since
FROM nodes AS n JOIN sightings AS s USING (node);
