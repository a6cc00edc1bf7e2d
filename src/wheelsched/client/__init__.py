"""Clients of the REST API: `Client` is async, `SyncClient` is not."""

from wheelsched.client.client import Client
from wheelsched.client.fields import JobChanges, JobFields
from wheelsched.client.sync import SyncClient
from wheelsched.config import ClientConfig

__all__ = ["Client", "ClientConfig", "JobChanges", "JobFields", "SyncClient"]
