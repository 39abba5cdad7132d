-- Health beside liveness: what is told of a node, what is ordered of it, what is wrong with it, and how far its checks are.
-- `phase` stays whether its agent is heard.

ALTER TABLE nodes
  ADD COLUMN told text NOT NULL DEFAULT 'ready',
  ADD COLUMN stage text NOT NULL DEFAULT 'ready',
  ADD COLUMN standing text NOT NULL DEFAULT 'free',
  ADD COLUMN order_words text NOT NULL DEFAULT '',
  ADD COLUMN faults text NOT NULL DEFAULT '[]',
  ADD COLUMN acted_ms bigint,
  ADD COLUMN cards bigint NOT NULL DEFAULT 0;
UPDATE nodes SET told = phase, cards = jsonb_array_length(facts -> 'cards');

-- The least difference between a heartbeat's arrival and its stamp, of this window and of the one before.
ALTER TABLE sightings
  ADD COLUMN skew_low_ms bigint,
  ADD COLUMN skew_before_ms bigint,
  ADD COLUMN skew_from_ms bigint NOT NULL DEFAULT 0;

-- The newest report of each node's health, also of one that has not announced itself yet. `memory` is what the last
-- report that was taken left for the next; `link_mbps` and `card_power_w` are what was measured, as assessed.
CREATE TABLE reports (
  node text PRIMARY KEY,
  incarnation text NOT NULL,
  counter bigint NOT NULL,
  stored_at timestamptz NOT NULL,
  body text NOT NULL,
  memory text NOT NULL DEFAULT '{}',
  link_mbps bigint,
  card_power_w bigint
);

-- How busy the cards of a node were: percent times seconds, and the seconds, of each day.
CREATE TABLE days (
  node text NOT NULL,
  day date NOT NULL,
  busy_pct_s bigint NOT NULL,
  window_s bigint NOT NULL,
  PRIMARY KEY (node, day)
);

-- The fleet as declared by people, whether or not an agent has announced it; and every change of a declaration.
CREATE TABLE declared (
  node text PRIMARY KEY,
  body jsonb NOT NULL,
  at timestamptz NOT NULL
);
CREATE TABLE declarations (
  node text NOT NULL,
  at timestamptz NOT NULL,
  actor text NOT NULL,
  reason text NOT NULL,
  body jsonb,
  PRIMARY KEY (node, at)
);

-- What the scheduler has placed where, and what waiting jobs ask for (thousandths of cards). A job that has ended stays
-- for a while, with nothing promised, so that an older event that comes late does not bring it back.
CREATE TABLE promises (
  job_id text PRIMARY KEY,
  version bigint NOT NULL,
  tenant text NOT NULL,
  critical boolean NOT NULL,
  ended boolean NOT NULL,
  asked_milli bigint NOT NULL,
  at timestamptz NOT NULL
);
CREATE TABLE promised (
  job_id text NOT NULL REFERENCES promises ON DELETE CASCADE,
  node text NOT NULL,
  cards_milli bigint NOT NULL,
  PRIMARY KEY (job_id, node)
);
-- One process at a time writes here, and it waits for its migrations: there are no updates to block.
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX promised_node ON promised (node);

-- Since when nothing is promised on a node; no row while something is, or where nothing ever was.
CREATE TABLE idle (
  node text PRIMARY KEY,
  since timestamptz NOT NULL
);

-- As `breaker`, for faults found on many nodes together.
CREATE TABLE fault_breaker (
  opened_at timestamptz PRIMARY KEY,
  reason text NOT NULL,
  closed_at timestamptz,
  closed_by text,
  closed_reason text
);
CREATE UNIQUE INDEX fault_breaker_one_open ON fault_breaker ((true)) WHERE closed_at IS NULL;

-- Assessments of capacity that were written out, each as it was.
CREATE TABLE assessments (
  version bigint PRIMARY KEY,
  at timestamptz NOT NULL,
  actor text NOT NULL,
  sha256 text NOT NULL,
  body text NOT NULL
);

-- What is judged of a node at each tick.
CREATE VIEW pulse AS
SELECT node, n.phase, n.incarnation, n.announced_at, n.stored_at, n.lost_ms, n.requeue_held, n.superseded_by, n.stage,
       n.standing, n.order_words, n.faults, n.acted_ms, n.cards,
       CASE WHEN n.standing = 'retiring' THEN EXISTS (SELECT FROM promised AS p WHERE p.node = n.node) ELSE false END
         AS promised,
       s.seen_ms, s.heard_ms, s.lease_ms, s.counter, s.skew_ms, s.attempts, s.noise, s.rival, s.rival_counter,
       s.rival_ms, s.skew_low_ms, s.skew_before_ms, s.skew_from_ms
FROM nodes AS n JOIN sightings AS s USING (node);

-- What is told of a node.
CREATE VIEW portrait AS
SELECT node, n.version, n.told, n.facts, n.incarnation, s.attempts, n.reason, n.requeue_held, n.since, n.standing,
       n.order_words, n.faults, n.cards, d.body AS declared, r.link_mbps, r.card_power_w,
       EXISTS (SELECT FROM promised AS p JOIN promises AS j USING (job_id) WHERE p.node = n.node AND j.critical)
         AS critical
FROM nodes AS n
JOIN sightings AS s USING (node)
LEFT JOIN declared AS d USING (node)
LEFT JOIN reports AS r USING (node);
