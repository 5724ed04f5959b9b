"""The command `ottla`, installed and as `python -m ottla`.  Nothing else imports this."""

# Before all else, and from the one module that needs no other: Ctrl-C while modules are imported ends the process as it
# ends any command, without a traceback.  `ottla.cli` takes it back.  Where it is ignored (nohup) it stays so.
import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from ottla.cli import main

if __name__ == "__main__":
    main()
