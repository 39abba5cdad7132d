-- The views that `pulse` and `portrait` replace: after the deploy nobody reads them.

-- squawk-ignore ban-drop-view
DROP VIEW judged;
-- squawk-ignore ban-drop-view
DROP VIEW told;
