"""The `gyre` command: which subcommands there are, and what an error looks like.

Exit codes: 0 done; 1 a failed run or audit; 2 something the user has to correct; 130 stopped by Ctrl-C.
"""

import importlib
import keyword
import os
import sys

import click

from gyre.cli.options import Group
from gyre.cli.screen import not_text, paragraphs
from gyre.errors import EXIT_USER_ERROR, ConfigError, Conflict, GyreError, InvalidInput, NotFound, Unavailable

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

COMMANDS = {
    "up": ("gyre.cli.up", "Start the services of a run and keep them running."),
    "train": ("gyre.cli.train", "Train an agent: model, services, evaluation, training, audit."),
    "dry-run": ("gyre.cli.dry_run", "See what a configuration will do, before any compute is spent on it."),
    "status": ("gyre.cli.queries", "What a running run is doing."),
    "audit": ("gyre.cli.queries", "Acceptance criteria and balances, pass or fail."),
    "explain": ("gyre.cli.queries", "Everything about one sample."),
    "tree": ("gyre.cli.tree", "The contexts of one sample, what they share, what is trained."),
    "drops": ("gyre.cli.queries", "What left training, by reason, and what it cost."),
    "books": ("gyre.cli.queries", "Turns, occupancy and external calls."),
    "bill": ("gyre.cli.bill", "What it cost: by customer, kind of task, weights, attempt."),
    "explorer": ("gyre.cli.explorer", "Look at a run in the browser: where its staleness comes from."),
    "doctor": ("gyre.cli.doctor", "The six known illnesses of training, looked for in the books."),
    "lineage": ("gyre.cli.lineage", "Which steps trained what, sampled by which weights; both ways."),
    "tiers": ("gyre.cli.tiers", "Waits and promotions of duration tiers as curves."),
    "agreement": ("gyre.cli.agreement", "Do reward models say what people say?"),
    "trace": ("gyre.cli.trace", "Where the time went, of one sample or of all."),
    "export": ("gyre.cli.export", "The books as Parquet files."),
    "import": ("gyre.cli.import_", "Exported files as a run that is over, to be asked and learned from."),
    "compact": ("gyre.cli.compact", "Delete old call rows and spans; the books stay."),
    "simulate": ("gyre.cli.simulate", "What a configuration would do, in virtual time."),
    "queues": ("gyre.cli.queries", "What waits, for how long, by duration tier."),
    "what-if": ("gyre.cli.what_if", "What other scheduler settings would do to a running run."),
    "executions": ("gyre.cli.executions", "Suspend, resume, truncate, void or release executions."),
    "bench": ("gyre.cli.bench", "Measure a part of the source tree."),
    "config": ("gyre.cli.configuration", "Check and show configurations."),
}
"""Name → (module that defines it under the same name, with _ for - and after a word of Python's, one line of help)."""


class Commands(Group):
    """Imports a subcommand's module only when it is used, so that `gyre --help` answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_") + "_" * keyword.iskeyword(cmd_name)
        return getattr(importlib.import_module(COMMANDS[cmd_name][0]), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gyre-rl", prog_name="gyre")
def gyre() -> None:
    """Online reinforcement learning for language-model agents whose tasks last hours.

    Start with `gyre train examples/repair/train.toml`.
    """


def main() -> None:
    """Entry point of the `gyre` script."""
    # Children are started from processes that speak gRPC; its fork handlers would only warn.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        gyre(standalone_mode=False)
    except click.Abort:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except click.exceptions.Exit as stop:
        raise SystemExit(stop.exit_code) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except GyreError as error:
        print(paragraphs(f"gyre: {error}"), file=sys.stderr)
        raise SystemExit(exit_code(error)) from None
    except UnicodeEncodeError as error:
        print(paragraphs(f"gyre: {not_text(error)}"), file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR) from None
    except OSError as error:  # a full disk, a folder that may not be written: nothing of ours is broken
        if error.errno is None:
            raise
        print(f"gyre: {error.filename or 'a file of the run'}: {error.strerror}", file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR) from None


def exit_code(error: GyreError) -> int:
    """2 when the user can correct it, 1 when something broke."""
    if getattr(error, "is_user_error", False):
        return EXIT_USER_ERROR
    return (
        EXIT_USER_ERROR
        if isinstance(error, ConfigError | Conflict | InvalidInput | NotFound | Unavailable)
        else EXIT_FAILED
    )


if __name__ == "__main__":
    main()
