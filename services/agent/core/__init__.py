"""Pure decisions of the agent: `decide(attempt, event, me, now) -> effects`, and the words they are made of."""
