"""`python -m envlock`."""

from envlock.cli.main import main

if __name__ == "__main__":
    main()
