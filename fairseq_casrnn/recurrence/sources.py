"""The digest of the C++ sources, stored in the extension and compared when it is loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path


def digest(package: Path) -> str | None:
    """The digest of all C++ files in the package; None without any, as in an installed wheel."""
    files = [path for where in ("csrc/*", "cells/*", "cells/*/*") for path in package.glob(where)]
    sha256 = hashlib.sha256()
    for path in sorted(files := [p for p in files if p.suffix in (".cpp", ".h")]):
        text = path.read_bytes()
        sha256.update(f"{path.relative_to(package).as_posix()} {len(text)}\n".encode() + text)
    return sha256.hexdigest()[:16] if files else None
