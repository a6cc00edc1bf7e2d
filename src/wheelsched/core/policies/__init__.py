"""The policies of a job (misfire, overlap, retry, pause) and the decisions they lead to."""
