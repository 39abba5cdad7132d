-- How much of its cards a member was given, in thousandths: all of them, unless its placement says otherwise.

ALTER TABLE seats ADD COLUMN share_milli bigint NOT NULL DEFAULT 1000;
ALTER TABLE holdings ADD COLUMN share_milli bigint NOT NULL DEFAULT 1000;
