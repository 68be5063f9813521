"""`python -m softknee` is the command `softknee`; torchrun starts it in this way, as a module."""

from .app import main

if __name__ == "__main__":
    main()
