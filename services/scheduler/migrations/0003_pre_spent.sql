-- Ended holdings are summed by month now and then, so that a submission counts only those that have ended since.

ALTER TABLE holdings ADD COLUMN summed boolean NOT NULL DEFAULT false;
-- One process at a time writes here, and it waits for its migrations: there are no updates to block.
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX holdings_to_sum ON holdings (tenant, held_to) WHERE NOT summed;

CREATE TABLE spent (
  tenant text NOT NULL,
  month timestamptz NOT NULL,
  card_ms bigint NOT NULL CHECK (card_ms >= 0),
  PRIMARY KEY (tenant, month)
);
