"""durable-rules behind a compiler that keeps to what works: `compile`, `rulesets`, and the process `child`."""
