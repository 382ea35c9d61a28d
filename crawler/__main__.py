"""`python -m crawler`, and the `crawler` command."""

import gc
import signal


def main() -> None:
    """Load the program and run it; Ctrl-C exits silently even while it loads."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # until the command is loaded: that makes many objects and hardly any garbage
    from crawler.commands import main as cli

    cli.main()


if __name__ == "__main__":
    main()
