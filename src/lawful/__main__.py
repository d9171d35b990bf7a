"""`python -m lawful` is `lawful`."""

from lawful.cli import main

if __name__ == "__main__":
    main()
