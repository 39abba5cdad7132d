-- Called with the commit of every transaction of a leader, who may commit only while its epoch is the newest. The share
-- lock has a new leader, which updates the row, wait for commits under way.
CREATE FUNCTION fence(held bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  newest bigint;
BEGIN
  SELECT epoch INTO newest FROM leader FOR SHARE;
  IF newest IS DISTINCT FROM held THEN
    RAISE EXCEPTION 'held epoch %, the newest is %', held, newest USING ERRCODE = 'FS001';
  END IF;
END
$$;
