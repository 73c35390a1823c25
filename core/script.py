"""Give a user's script a command line: ``CLI(MyModule)``.

Needs the extra ``cli`` (jsonargparse).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from core.declarations import KINDS
from core.errors import InterlockError, PluginUnavailable
from core.registry import get_registry
from core.trainer import Trainer

COMMANDS = {
    "fit": "train, and validate between epochs",
    "validate": "run validation_step",
    "test": "run test_step",
    "predict": "run predict_step",
}


class CLI:
    """Reads ``COMMAND --trainer.* --model.* --data.*`` and runs the command.

    ``--config FILE`` reads a YAML file, ``--print_config`` writes one with everything filled in, and ``--help`` of
    a command names the accelerators, precisions and strategies that are installed.

    Args:
        module_class: built from ``--model.*``, its ``__init__``'s arguments.
        datamodule_class: built from ``--data.*``; None where the module has its own loaders.
        args: the words after the program's name; by default those it was called with.
        run: False only builds :attr:`trainer`, :attr:`model` and :attr:`datamodule`, without a command.
        trainer_defaults: defaults of ``--trainer.*`` in place of the Trainer's own.
        subclasses: let ``--model CLASS`` and ``--data CLASS`` name the class: the given one or a subclass.

    Values that the Trainer refuses end the program as an unknown option does, with status 2.

    Raises:
        PluginUnavailable: without jsonargparse.
    """

    def __init__(
        self,
        module_class: type[nn.Module],
        datamodule_class: type[Any] | None = None,
        args: Sequence[str] | None = None,
        run: bool = True,
        trainer_defaults: dict[str, Any] | None = None,
        subclasses: bool = False,
    ) -> None:
        self._module_class, self._datamodule_class = module_class, datamodule_class
        self._defaults, self._subclasses = trainer_defaults or {}, subclasses
        parser = _with_commands(self._options) if run else self._options()
        self.config = parser.parse_args(None if args is None else list(args))
        try:
            made = _instantiate(parser, self.config)
        except InterlockError as error:
            parser.error(str(error))
        made = made[self.config.subcommand] if run else made
        self.trainer: Trainer = made.trainer
        self.model: nn.Module = made.model
        self.datamodule: Any = made.get("data")
        if run:
            self._run(self.config.subcommand, made.get("ckpt_path"))

    def _options(self) -> Any:
        parser = _new_parser()
        parser.add_argument("--config", action="config", help="a YAML file with any of these")
        parser.add_class_arguments(Trainer, "trainer", skip={"past"}, instantiate=True)
        parser.set_defaults({f"trainer.{name}": value for name, value in self._defaults.items()})
        add = parser.add_subclass_arguments if self._subclasses else parser.add_class_arguments
        required = {"required": True} if self._subclasses else {}
        add(self._module_class, "model", **required)
        if self._datamodule_class is not None:
            add(self._datamodule_class, "data", **required)
        parser.add_argument("--ckpt_path", type=str, default=None, help='a checkpoint, or "best" or "last"')
        self.add_arguments_to_parser(parser)
        _name_choices(parser)
        return parser

    def add_arguments_to_parser(self, parser: Any) -> None:
        """Override it to add options, or to let one follow from another with ``parser.link_arguments``.

        Args:
            parser: jsonargparse's; what it reads is in :attr:`config`.
        """

    def _run(self, command: str, ckpt_path: str | None) -> None:
        getattr(self.trainer, command)(self.model, datamodule=self.datamodule, ckpt_path=ckpt_path)


def _new_parser() -> Any:
    try:
        from jsonargparse import ArgumentParser
    except ImportError as error:
        reason = "package 'jsonargparse' is not installed; pip install \"interlock[cli]\""
        raise PluginUnavailable("the command line of a script", [reason]) from error
    return ArgumentParser()


def _instantiate(parser: Any, config: Any) -> Any:
    """Build the classes that a configuration describes; the method has a new name in newer versions."""
    build = getattr(parser, "instantiate", None) or parser.instantiate_classes
    return build(config)


def _with_commands(make_options: Callable[[], Any]) -> Any:
    """Return a parser that takes a command and then options."""
    parser = _new_parser()
    commands = parser.add_subcommands(dest="subcommand")
    for name, summary in COMMANDS.items():
        commands.add_subcommand(name, make_options(), help=summary)
    return parser


def _name_choices(parser: Any) -> None:
    """Name what is installed in the help of the three choices."""
    registry = get_registry()
    for kind in KINDS:
        for action in parser._actions:
            if action.dest == f"trainer.{kind}":
                action.help = f"{action.help or ''} (installed: {', '.join(registry.names(kind))})".strip()
