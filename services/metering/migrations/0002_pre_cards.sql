-- The model of a member's cards, where the placement tells it: the price depends on it.

ALTER TABLE seats ADD COLUMN accelerator text;

-- What other attempts hold of a card is looked for by node and card.

-- One process at a time writes samples, and it waits for its migrations: there are no updates to block.
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX samples_card ON samples (node, card, window_start);
