"""The gRPC interface, version 1; requires `wheelsched[grpc]`.

`dispatcher.proto` is the contract. `make proto` derives the descriptor and the stub from it.
"""
