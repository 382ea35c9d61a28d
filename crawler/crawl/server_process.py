"""Imported by the process that children are forked from: it ends with the program, and its children end with it.

By itself multiprocessing's forkserver lives as long as any of its children, so a program that is killed would leave
workers behind.
"""

from __future__ import annotations

import os

from crawler import errors
from crawler.crawl.child import die_with_parent

PARENT = os.getppid()
die_with_parent()
if os.getppid() != PARENT:  # the program ended before we could say so
    os._exit(errors.STOPPED)
