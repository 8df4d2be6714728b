"""The end of a test that is a unittest: the line that tools/run-tests counts by, and the exit code."""

import sys
import unittest


def main():
    """Runs the tests of the program itself, prints `N passed, N failed, N skipped` and exits."""
    result = unittest.main(module="__main__", exit=False).result
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print(f"{max(result.testsRun - failed - skipped, 0)} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)
