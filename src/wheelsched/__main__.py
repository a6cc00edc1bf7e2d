"""`python -m wheelsched` is the command `wheelsched`."""

from wheelsched.cli import main

if __name__ == "__main__":
    main()
