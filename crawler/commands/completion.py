"""`crawler completion`: scripts for bash, zsh and fish, generated from the program's own parsers."""

from __future__ import annotations

import argparse
from argparse import Action, ArgumentParser
from collections.abc import Iterator, Mapping

from crawler import errors
from crawler.commands.arguments import Add
from crawler.commands.main import parsers

Commands = Mapping[str, ArgumentParser]

BASH = """\
# To have it in every shell: crawler completion bash > ~/.local/share/bash-completion/completions/crawler
_crawler() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words=
    if ((COMP_CWORD == 1)); then
        words='{commands}'
    else
        case ${{COMP_WORDS[1]}}:${{COMP_WORDS[COMP_CWORD - 1]}}:$word in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _crawler crawler
"""

ZSH = """\
#compdef crawler
# To have it in every shell: a file named _crawler with this, in a folder of $fpath; or eval "$(crawler completion zsh)"
_crawler() {{
    local state line context
    local -a commands
    commands=(
{commands}
    )
    _arguments -C '(- *)'{{-h,--help}}'[help]' '(- *)--version[version]' '1:command:->command' '*::argument:->rest'
    if [[ $state == command ]]; then
        _describe command commands
    elif [[ $state == rest ]]; then
        case $words[1] in
{cases}
        esac
    fi
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _crawler "$@"; else compdef _crawler crawler; fi
"""

FISH = """\
# To have it in every shell: crawler completion fish > ~/.config/fish/completions/crawler.fish
function __crawler_in
    set -l words (commandline -opc)
    test "$words[2]" = "$argv"
end
complete -c crawler -n '__crawler_in ""' -f
complete -c crawler -n '__crawler_in ""' -s h -l help -d help
complete -c crawler -n '__crawler_in ""' -l version -d version
{lines}
"""


def commands(add: Add) -> None:
    """Add `crawler completion`."""
    example = "crawler completion bash > ~/.local/share/bash-completion/completions/crawler"
    made = add("completion", run, example, store=False)
    made.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that you use")


def run(options: argparse.Namespace) -> int:
    """`crawler completion`."""
    print({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](parsers()), end="")
    return errors.OVER


def bash(all: Commands) -> str:
    """Return the script for bash: words for commands, flags and known values; files for everything else."""
    cases = [line for name, command in all.items() for line in _bash_cases(name, command)]
    return BASH.format(commands=" ".join([*all, "--help", "--version"]), cases="\n".join(cases))


def _bash_cases(name: str, command: ArgumentParser) -> Iterator[str]:
    flags = [action for action in command._actions if action.option_strings]
    for action in filter(_values, flags):
        before = "|".join(f"{name}:{flag}:*" for flag in action.option_strings)
        yield f"            {before}) words='{_values(action)}' ;;"
    words = " ".join(flag for action in flags for flag in action.option_strings)
    yield f"            {name}:*:-*) words='{words}' ;;"
    for action in command._actions:
        if not action.option_strings and _values(action):
            yield f"            {name}:*) words='{_values(action)}' ;;"


def _values(action: Action) -> str:
    """Return the words that a value may be, if only some are allowed."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return " ".join(map(str, action.choices or (metavar.split("|") if "|" in metavar else ())))


def zsh(all: Commands) -> str:
    """Return the script for zsh: the same, with a line of help for each."""
    told = {name: _escaped(_help(made), ":") for name, made in all.items()}
    names = "\n".join(f"        {_quoted(f'{name}:{help}')}" for name, help in told.items())
    cases = [f"            {name}) _arguments -s {' '.join(_zsh_specs(made))} ;;" for name, made in all.items()]
    return ZSH.format(commands=names, cases="\n".join(cases))


def _help(command: ArgumentParser) -> str:
    return (command.description or "").removesuffix(".")


def _zsh_specs(command: ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        value = f"{_escaped(str(action.metavar or action.dest), ':')}:{_zsh_value(action)}"
        if not action.option_strings:
            many = {"*": "*", "+": "*", "?": ":"}.get(str(action.nargs), "")
            yield _quoted(f"{many}:{value}")
        for flag in action.option_strings:
            once = "*" if isinstance(action, argparse._AppendAction) else f"({' '.join(action.option_strings)})"
            yield _quoted(f"{once}{flag}[{_escaped(_told(action), '[]')}]{'' if action.nargs == 0 else f':{value}'}")


def _told(action: Action) -> str:
    return (action.help or "") % vars(action) if action.help != argparse.SUPPRESS else ""


def _zsh_value(action: Action) -> str:
    if _values(action):
        return f"({_values(action)})"
    return "_files -/" if action.dest == "store" else "_files"


def fish(all: Commands) -> str:
    """Return the script for fish."""
    return FISH.format(lines="\n".join(line for name, made in all.items() for line in _fish_lines(name, made)))


def _fish_lines(name: str, command: ArgumentParser) -> Iterator[str]:
    yield f"complete -c crawler -n '__crawler_in \"\"' -a {name} -d {_fish_quoted(_help(command))}"
    for action in command._actions:
        flags = [f"-{'l' if flag.startswith('--') else 's'} {flag.lstrip('-')}" for flag in action.option_strings]
        values = [f"-x -a '{_values(action)}'"] if _values(action) else ["-r"] if action.nargs != 0 and flags else []
        if flags or values:
            told = _fish_quoted(_told(action))
            yield " ".join([f"complete -c crawler -n '__crawler_in {name}'", *flags, *values, f"-d {told}"])


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _escaped(text: str, marks: str) -> str:
    """Return the text with these characters escaped for zsh."""
    return "".join(f"\\{char}" if char in {*marks, "\\"} else char for char in text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
