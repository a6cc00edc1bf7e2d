"""What goes over the wire: the contract with workers and with users of the API."""
