"""The wire contract with workers and API users: JSON documents, headers and their encodings."""
