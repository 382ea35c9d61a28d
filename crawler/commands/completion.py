"""Scripts that complete commands and flags in bash and zsh, made from the program's own parser."""

from __future__ import annotations

import argparse
from argparse import Action, ArgumentParser
from collections.abc import Callable, Iterator, Mapping

from crawler import errors
from crawler.terminal import Add

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


def commands(add: Add, parser: Callable[[], ArgumentParser]) -> None:
    """What prints a script; `parser` makes the parser that knows all commands."""

    def print_script(options: argparse.Namespace) -> int:
        """`crawler completion`."""
        (found,) = (action.choices for action in parser()._actions if isinstance(action.choices, dict))
        print((bash if options.shell == "bash" else zsh)(found), end="")
        return errors.OVER

    example = "crawler completion bash > ~/.local/share/bash-completion/completions/crawler"
    made = add("completion", "print a script that completes commands in a shell", print_script, example, store=False)
    made.add_argument("shell", choices=("bash", "zsh"), help="the shell that you use")


def bash(all: Commands) -> str:
    """The script for bash: words for commands, flags and values that are known; files for all else."""
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
    """The words that may stand for a value, where only some may."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return " ".join(map(str, action.choices or (metavar.split("|") if "|" in metavar else ())))


def zsh(all: Commands) -> str:
    """The script for zsh: the same, with a word of help for each."""
    names = "\n".join(f"        {_quoted(f'{name}:{_help(made)}')}" for name, made in all.items())
    cases = [f"            {name}) _arguments -s {' '.join(_zsh_specs(made))} ;;" for name, made in all.items()]
    return ZSH.format(commands=names, cases="\n".join(cases))


def _help(command: ArgumentParser) -> str:
    return _escaped((command.description or "").removesuffix("."), ":")


def _zsh_specs(command: ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        value = f"{_escaped(str(action.metavar or action.dest), ':')}:{_zsh_value(action)}"
        if not action.option_strings:
            many = {"*": "*", "+": "*", "?": ":"}.get(str(action.nargs), "")
            yield _quoted(f"{many}:{value}")
        for flag in action.option_strings:
            once = "*" if isinstance(action, argparse._AppendAction) else f"({' '.join(action.option_strings)})"
            yield _quoted(f"{once}{flag}[{_told(action)}]{'' if action.nargs == 0 else f':{value}'}")


def _told(action: Action) -> str:
    return _escaped((action.help or "") % vars(action), "[]") if action.help != argparse.SUPPRESS else ""


def _zsh_value(action: Action) -> str:
    if _values(action):
        return f"({_values(action)})"
    return "_files -/" if action.dest == "store" else "_files"


def _escaped(text: str, marks: str) -> str:
    """Text in which these marks mean nothing to zsh."""
    return "".join(f"\\{char}" if char in {*marks, "\\"} else char for char in text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
