"""Job documents: parsed, validated, merged and described, for the API, the planner and the CLI."""
