"""Builds the wheel with maturin, and the forebay binary into it.

Both are built in one cargo workspace, by one profile: `MATURIN_PEP517_ARGS="--profile dev"` makes a
wheel of a build for development, in seconds where that build is there.
"""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import maturin

HERE = Path(__file__).resolve().parent.parent
BINARY = HERE / "forebay" / "bin" / "forebay"


def _profile() -> str:
    words = shlex.split(os.environ.get("MATURIN_PEP517_ARGS", ""))
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        if word == "--profile":
            return following
        if word.startswith("--profile="):
            return word.removeprefix("--profile=")
    return "release"


def _build_binary() -> None:
    profile = _profile()
    command = ["cargo", "build", "--locked", "--package", "forebay", "--profile", profile]
    manifest = HERE.parent / "Cargo.toml"
    subprocess.run([*command, "--manifest-path", str(manifest)], check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
    folder = "debug" if profile == "dev" else profile
    BINARY.parent.mkdir(exist_ok=True)
    fresh = BINARY.with_name("forebay.new")
    shutil.copy2(target / folder / "forebay", fresh)
    if shutil.which("strip"):
        subprocess.run(["strip", str(fresh)], check=True)
    fresh.replace(BINARY)


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    _build_binary()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    _build_binary()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


build_sdist = maturin.build_sdist
get_requires_for_build_editable = maturin.get_requires_for_build_editable
get_requires_for_build_sdist = maturin.get_requires_for_build_sdist
get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel
