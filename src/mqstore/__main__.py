"""``python -m mqstore`` is the command ``mqstore``."""

from mqstore.cli import main

if __name__ == "__main__":
    main()
