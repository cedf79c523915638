"""The `commonplace` command: the verbs of a book for a shell.

A command is a verb (`memory list` is `book.memory.list`), or a function of this package where a shell needs more than
a call: asking first, following, drawing. Nothing of a book is imported before a command needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from ..verbs import Verb
    from .shell import Shell

ABOUT = "One memory for a team of AI agents: an append-only ledger, and views of it."


class Listed(NamedTuple):
    """Commands of one group: the namespace whose verbs they are, how verbs are called that have another name here
    (None: not offered here), and functions of this package (`module:function`)."""

    about: str
    namespace: str = ""
    renamed: Mapping[str, str | None] = {}
    own: Mapping[str, str] = {}


TOP = {
    "init": ("Create the book, if it is not there yet.", "book:init"),
    "demo": ("Show what a book does, with a scripted team.", "book:demo"),
    "status": ("Show where the book stands.", "book:status"),
    "doctor": ("Check the book's health.", "book:doctor"),
    "log": ("Show what happened, one sentence for each event.", "book:log"),
    "record": ("Record one event.", "record"),
    "remember": ("Keep something for later.", "remember"),
    "search": ("Find items and events that answer a query.", "search"),
    "digest": ("What is remembered about a task, in a budget.", "digest"),
    "prompt": ("A task and all that an agent should know for it.", "prompt"),
    "forget": ("Forget items; with --erase for good.", "book:forget"),
    "import": ("Take in an export, or another tool's memory.", "book:import_"),
    "run": ("Run a workflow to its end.", "running:run"),
    "validate": ("List what is wrong with a workflow's files.", "running:validate"),
    "inbox": ("All that waits for a person.", "inbox"),
}
"""The everyday commands: what `--help` says of each, and where it is."""

GROUPS = {
    "memory": Listed(
        "What is remembered: items, disputes, cores, upkeep.",
        "memory",
        {"get": "show", "import_": None, "repository_fact": "fact"},
    ),
    "documents": Listed(
        "Notes, sessions, tasks' folders, daily logs.",
        "documents",
        {"day": "daily"},
        {"check-notes": "book:check_notes"},
    ),
    "mirror": Listed(
        "The memory as markdown that people edit.",
        "",
        {},
        {"sync": "book:mirror_sync", "status": "book:mirror_status", "watch": "book:mirror_watch"},
    ),
    "receipts": Listed(
        "What digests and prompts were made of.",
        "receipts",
        {"get": "show", "bisect": None},
        {"replay": "running:replay", "bisect": "running:bisect"},
    ),
    "runs": Listed(
        "Runs and their states.", "runs", {"get": None, "execute": None, "state": None}, {"state": "running:state"}
    ),
    "access": Listed("Who may do and see what.", "access", {"redacted": None}),
    "book": Listed(
        "The whole book: verify, copy, erase, purge.",
        "admin",
        {"status": None, "index_size": None, "erase": None, "export": None, "import_": None, "copy": None},
        {"erase": "book:erase", "export": "book:export", "import": "book:import_", "copy": "book:copy"},
    ),
}  # fmt: skip
BY_HAND = (
    "work task decide discover artifact nudge escalate request-approval approve disapprove resolve-escalation "
    "choose decisions discoveries artifacts approvals escalations branches candidates artifact-content branch "
    "nudges acknowledge context radar promote reject lead"
)
"""The commands of works."""


def verbs() -> dict[str, Verb]:
    """Every verb of a book by its path."""
    from ..book import Book
    from ..verbs import verbs_of

    return {".".join(verb.path): verb for verb in verbs_of(Book)}


def listed(group: Listed) -> dict[str, Verb]:
    """The commands of a group."""
    found = {}
    for path, verb in verbs().items():
        namespace, _, name = path.rpartition(".")
        called = group.renamed.get(name, name)
        if namespace == group.namespace and namespace and called is not None:
            found[called.replace("_", "-")] = verb
    return found | {name: own(place) for name, place in group.own.items()}


def own(place: str) -> Verb:
    """A command that a function of this package is: what it is told is read as a verb's is."""
    from ..verbs import verb_of

    module, _, name = place.partition(":")
    return verb_of((place,), getattr(import_module(f".{module}", __package__), name))


# running a command


def run(verb: Verb, shell: Shell, typed: Mapping[str, Any]) -> Any:
    """Call what was asked for. Its answer becomes data for scripts and text for people."""
    from .answers import answer_of, whole_ids
    from .typed import values

    given = values(verb, typed)
    if ":" in verb.path[0]:
        return verb.function(shell, **given)
    writes = all(parameter.name != "at" for parameter in verb.parameters) and not given.get("dry_run")
    about_memory = verb.path[0] in ("remember", "memory", "documents")
    owners = verb.path[0] in ("admin", "mirror")
    holder: Any = shell.owned(mirrored=True) if owners else shell.acting(mirrored=writes and about_memory)
    if verb.path[0] in ("search", "digest", "prompt"):
        with shell.progress("indexing") as progress:
            if progress is not None:
                shell.open().admin.reindex(progress)
    given = whole_ids(holder, verb, given)
    for name in verb.path[:-1]:
        holder = getattr(holder, name)
    if any(parameter.name == "redacted" for parameter in verb.parameters):
        given["redacted"] = True
    if not any(parameter.name == "progress" for parameter in verb.parameters):
        return answer_of(shell, verb, verb.function(holder, **given))
    with shell.progress(verb.name) as progress:
        return answer_of(shell, verb, verb.function(holder, progress=progress, **given))


COMMON = (
    ("book", "--book", "URL", "PATH.db, file:FOLDER, postgresql://…, redis://…, unix://SOCKET."),
    ("user", "--user", None, "The book of this user, in place of the repository's."),
    ("actor", "--as", "ACTOR", "Who acts, and under whose rights; the owner, if not said."),
    ("mirror", "--mirror", "DIR", "Where the markdown lies; beside a local book, if not said."),
    ("json", "--json", None, "Print one JSON document; an error is one on stderr."),
)


def common() -> list[click.Parameter]:
    """The options that stand before the command or after it."""
    return [
        click.Option(
            [f"common_{name}", flag],
            help=help,
            **({"is_flag": True} if metavar is None else {"metavar": metavar}),
        )
        for name, flag, metavar, help in COMMON
    ]


class Command(click.Command):
    """A command made from a verb."""

    def __init__(self, name: str, verb: Verb) -> None:
        from .typed import options

        about = verb.about.partition("\n\n")[0].replace("`", "")
        own = options(verb)
        super().__init__(
            name, params=[*own, *common()], callback=self._call, help=about, short_help=verb.summary.replace("`", ""),
            context_settings={"help_option_names": ["-h", "--help"]},
        )  # fmt: skip
        self.verb = verb

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from .typed import shielded

        return super().parse_args(ctx, shielded(args))

    def _call(self, **typed: Any) -> None:
        from .shell import Shell

        context = click.get_current_context()
        first = context.find_root().params
        chosen = {
            name: typed.pop(f"common_{name}", None) or first.get(f"common_{name}") for name, *_ in COMMON
        }
        shell = Shell(
            chosen["book"], chosen["actor"], bool(chosen["json"]), chosen["mirror"], user=bool(chosen["user"])
        )
        code = shell.run(lambda shell: run(self.verb, shell, typed), {})
        if code:
            context.exit(code)


class Below(click.Group):
    """A group of commands, which are made when the group is used."""

    def __init__(self, name: str, group: Listed) -> None:
        super().__init__(
            name,
            help=group.about,
            no_args_is_help=True,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        self.listed = group

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return sorted(listed(self.listed))

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        found = listed(self.listed).get(name)
        return None if found is None else Command(name, found)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from .draw import cut

        found = listed(self.listed)
        room = formatter.width - max(map(len, found)) - 4
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, cut(verb.summary.replace("`", ""), room)) for name, verb in sorted(found.items())]
            )


class Root(click.Group):
    """The command itself. Its help names groups and everyday commands, and imports nothing of a book."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return [*TOP, *GROUPS]

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name in GROUPS:
            return Below(name, GROUPS[name])
        if name not in TOP:
            return None
        place = TOP[name][1]
        return Command(name, own(place) if ":" in place else verbs()[place])

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Groups"):
            formatter.write_dl([(name, group.about) for name, group in GROUPS.items()])
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (about, _) in TOP.items()])


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"commonplace {__version__}")
        context.exit()


app = Root(
    "commonplace",
    help=ABOUT,
    no_args_is_help=True,
    params=[
        *common(),
        click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
                     help="Print the version."),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)  # fmt: skip
app.callback = lambda **_: None


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command by its name, those of a group as `group command`."""
    context = click.Context(app)
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        if isinstance(command, Below):
            for inner in command.list_commands(context):
                below = command.get_command(context, inner)
                assert below is not None
                yield f"{name} {inner}", below
        elif command is not None:
            yield name, command


def main() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  until the end
        getattr(sys, name).reconfigure(errors="backslashreplace")
    words = sys.argv[1:]
    code: object
    try:
        if not all(map(_is_text, words)):
            raise click.UsageError("an argument is not UTF-8 text")
        if _first_word(words) in BY_HAND.split():
            from .old import run_old

            code = run_old(words)
        else:
            code = app.main(words, "commonplace", standalone_mode=False)
    except click.UsageError as error:
        if "--json" in words:
            from .shell import dump

            print(
                dump({"error": {"code": "usage", "status": 400, "message": error.format_message()}}),
                file=sys.stderr,
            )
        else:
            error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _first_word(words: Sequence[str]) -> str:
    """The command, after options with their values."""
    ahead = iter(words)
    for word in ahead:
        if word in ("--book", "--as", "--mirror"):
            next(ahead, None)
        elif not word.startswith("-"):
            return word
    return ""


def _is_text(word: str) -> bool:
    """Whether the bytes that were typed are UTF-8; Python keeps others as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in word)


if __name__ == "__main__":
    main()
