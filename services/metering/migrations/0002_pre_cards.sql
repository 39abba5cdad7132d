-- The model of a member's cards and the memory of the largest, where the placement tells them: the price depends on them.

ALTER TABLE seats ADD COLUMN accelerator text, ADD COLUMN card_memory_mib bigint;

-- What other attempts hold of a card is looked for by node and card.

-- One process at a time writes samples, and it waits for its migrations: there are no updates to block.
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX samples_card ON samples (node, card, window_start);
