"""What the API asks of the store for one caller: jobs, history, tenants."""
