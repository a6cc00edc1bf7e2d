"""Workers that pull: runs of queues over a stream to the API. Start with `puller`."""
