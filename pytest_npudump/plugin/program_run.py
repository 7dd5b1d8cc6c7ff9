"""``npu_dump.run``: a program of its own process, under the dump of a test."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.config.cann import collecting_words
from pytest_npudump.errors import NpudumpError, RequestError
from pytest_npudump.runtime.placed_config import placed
from pytest_npudump.runtime.programs import ExternalRun, run_program
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.regression.session import CaseSession
    from pytest_npudump.runtime.programs import Placed


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """How a program is run for a test.

    Attributes:
        test: the test.
        target: where the program expects its acl.json.
        cwd: its working directory.
        env: variables set in addition to those of the test.
    """

    test: CaseSession
    target: Path
    cwd: Path
    env: Mapping[str, str] | None

    def run(
        self, words: tuple[str, ...], models: tuple[Path, ...], *, timeout: float, check: bool
    ) -> ExternalRun:
        """Run a program, and note what shows that it ran under the dump.

        Raises:
            ExternalProgramError: it cannot be started, does not end in time, or (with ``check``) fails.
            ConfigError: the acl.json is in use by another run, is no acl.json, or cannot be replaced.
            RequestError: a variable stands against it, or the dump holds another run already.
        """
        __tracebackhide__ = True
        try:
            self._refuse_second_run(words)
            self._refuse_environment(words)
            self.test.case.runtime.hand_over(f"{words[0]} (with {self.target})", models)
            attempt = self.test.state.attempt
            files = self.test.case.runtime.activity.evidence.files
            looked = [files.look(model) for model in models]  # before the program can write one again
            with placed(self.target, attempt.config) as place:
                done = run_program(
                    words,
                    cwd=self.cwd,
                    output=attempt.directory,
                    timeout=timeout,
                    check=check,
                    env=self.env,
                )
                for model, before in zip(models, looked, strict=True):
                    files.add_if_untouched(before, files.look(model))
                self._note_evidence(done, place)
                return done
        except NpudumpError as error:
            self._note_unfinished(str(error).partition("\n")[0])
            raise error.with_traceback(None) from None  # the failure ends at the test's line
        except BaseException as error:
            self._note_unfinished(f"{words[0]} was interrupted by {type(error).__name__}")
            raise

    def _note_unfinished(self, words: str) -> None:
        """Keep that a program did not end well: the test may pass over the error."""
        self.test.case.runtime.activity.evidence.unfinished.append(words)

    def _note_evidence(self, done: ExternalRun, place: Placed) -> None:
        """Keep what shows that the program ran under the dump, where a healthy run leaves no file."""
        program, name = Path(done.command[0]).name, place.target.name
        evidence = self.test.case.runtime.activity.evidence
        read = self._has_dumped() or place.was_read()
        if read is None:
            why = place.unknown or f"{place.target} was replaced or changed while the program ran"
            evidence.missing.append(f"whether {program} read {name} cannot be known: {why}")
        elif not read:
            evidence.missing.append(f"{program} never read {name}")
        elif done.returncode:
            evidence.unfinished.append(f"{program} read {name} and ended with {done.returncode}")
        else:
            evidence.shown.append(f"{program} read {name}")

    def _refuse_environment(self, words: tuple[str, ...]) -> None:
        """Refuse variables with which the program dumps nothing, or where nobody looks for it."""
        env = self.env or {}
        if SCENES[self.test.case.request.scene].in_environment:
            from pytest_npudump.regression.scenes.exception import refused_environment  # noqa: PLC0415 - only there

            why = refused_environment(env, os.environ)
        else:
            why = collecting_words({**os.environ, **env})
        if why:
            raise RequestError(f"run({words[0]!r}, ...): {why}")

    def _refuse_second_run(self, words: tuple[str, ...]) -> None:
        """Keep a program out of a dump that holds another run: nothing tells whose a layer is."""
        if self._has_dumped():
            raise RequestError(
                f"run({words[0]!r}, ...): the dump holds another run already; give each a dump of its own: "
                f"with npu_dump.capture(name): npu_dump.run(...)"
            )

    def _has_dumped(self) -> bool:
        """Whether the dump of the part under way holds a file."""
        self.test.case.runtime.release()
        config = json.loads(self.test.state.attempt.config.read_text(encoding="utf-8"))
        folder = Path(config["dump"]["dump_path"])
        return any(path.is_file() for path in folder.rglob("*"))
