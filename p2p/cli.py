"""The command `starlings`: launch, join, status, doctor, topology, simulate, plan.

What can be checked without torch is checked here first: script, address, secret, names. Errors that are raised on
purpose end in one line and exit code 2.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from p2p import plan_cli, simulate_cli, topology_cli
from p2p.errors import ConfigError, StarlingsError

if TYPE_CHECKING:
    from rich.console import Console

    from p2p.net.messages import Status
    from p2p.rundir import RunDirectory

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Decentralized peer-to-peer training: no server, no leader, no barrier.",
)  # fmt: skip
app.add_typer(topology_cli.app, name="topology")
app.command()(simulate_cli.simulate)
app.command()(plan_cli.plan)


def main() -> None:
    """The console script."""
    try:
        app()
    except StarlingsError as error:
        sys.exit(_fail(error))


def _fail(error: StarlingsError) -> int:
    print(f"starlings: {error}", file=sys.stderr)
    return 2


class Passing(TyperCommand):
    """A command that ends in a script: options before it are ours, wherever they stand; all that follows is the script's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flags = {name for option in self.params if getattr(option, "is_flag", False) for name in option.opts}
        places = sum(option.param_type_name == "argument" for option in self.params) - 1  # the last one takes the rest
        return super().parse_args(ctx, _options_first(args, flags | {"--help"}, places))


def _options_first(args: list[str], flags: set[str], places: int) -> list[str]:
    """`args` with the options that stand between the first `places` arguments moved in front of them."""
    options: list[str] = []
    arguments: list[str] = []
    rest = [*args]
    while rest and len(arguments) < places:
        token = rest.pop(0)
        if not token.startswith("-"):
            arguments.append(token)
            continue
        options.append(token)
        if "=" not in token and token not in flags and rest:
            options.append(rest.pop(0))
    return [*options, *arguments, *rest]


SCRIPT = {"allow_interspersed_args": False}
Script = Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file that calls p2p.join.")]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="The script's own.")]
Address = Annotated[str, typer.Argument(help="Of any member, as tcp://host:port.")]
SecretFile = Annotated[str | None, typer.Option(envvar="STARLINGS_SECRET", help="What admits to the swarm.")]
TopologyName = Annotated[
    str | None, typer.Option("--topology", envvar="STARLINGS_TOPOLOGY", help="Who talks with whom: ring, module:Class ...")
]
AlgorithmName = Annotated[
    str | None, typer.Option("--algorithm", envvar="STARLINGS_ALGORITHM", help="How they mix: async, gossip ...")
]
Site = Annotated[str | None, typer.Option(envvar="STARLINGS_SITE", help="The datacenter, as a label.")]
Codec = Annotated[
    str | None,
    typer.Option(envvar="STARLINGS_CODEC", help="How blocks travel: raw, int8, auto; between sites alone: eu:us=low-rank:1."),
]
Uplink = Annotated[str | None, typer.Option(envvar="STARLINGS_UPLINK", help="What leaves each node at most: 20mbit.")]
Downlink = Annotated[str | None, typer.Option(envvar="STARLINGS_DOWNLINK", help="What enters each node at most.")]
Wan = Annotated[
    list[str] | None,
    typer.Option(envvar="STARLINGS_WAN", help="Between two sites at most, each way: eu:us=50mbit; may be given again."),
]
RunDir = Annotated[Path | None, typer.Option(envvar="STARLINGS_RUN_DIR", help="For logs and results; else runs/<time>.")]
Listen = Annotated[str, typer.Option(help="The own address to bind, without a port; tcp://* for all.")]
Port = Annotated[int, typer.Option(min=0, max=65534, help="To bind, with the next one; 0 takes free ones.")]
Advertise = Annotated[str | None, typer.Option(envvar="STARLINGS_ADVERTISE", help="The address that others should dial.")]
Interface = Annotated[
    str | None,
    typer.Option(envvar="STARLINGS_INTERFACE", help="The network interface whose address others should dial: eth0 ..."),
]
DialOnly = Annotated[bool, typer.Option("--dial-only", help="Nobody can dial this machine: it opens all connections itself.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Dial other machines without a secret, in the open.")]
Resume = Annotated[
    Path | None, typer.Option(envvar="STARLINGS_RESUME", help="Go on from the newest checkpoint in this run directory.")
]
Plain = Annotated[bool, typer.Option("--plain", help="Lines instead of the live table, on a terminal too.")]


@app.command(cls=Passing, context_settings=SCRIPT)
def launch(
    script: Script,
    arguments: Arguments = None,
    nodes: Annotated[int, typer.Option("-n", "--nodes", min=1, help="How many.")] = 1,
    topology: TopologyName = None,
    algorithm: AlgorithmName = None,
    listen: Listen = "tcp://127.0.0.1",
    port: Port = 0,
    advertise: Advertise = None,
    interface: Interface = None,
    site: Site = None,
    codec: Codec = None,
    uplink: Uplink = None,
    downlink: Downlink = None,
    wan: Wan = None,
    run_dir: RunDir = None,
    resume: Resume = None,
    plain: Plain = False,
) -> None:
    """Found a swarm with N nodes on this machine, and watch them. A resumed run goes on in its own directory."""
    from p2p.net import keys

    _check(script, topology, algorithm)
    _check_links(codec, uplink, downlink, _joined(wan))
    resumed = _resumed(resume)
    run = _run_directory(run_dir or resume)
    if not run.secret.exists():
        keys.write_secret(run.secret, keys.new_secret())
    keys.read_secret(run.secret)
    _go(run, plain, script=script, arguments=tuple(arguments or ()), nodes=nodes, secret=str(run.secret), listen=listen,
        port=port, advertise=advertise, interface=interface, topology=topology, algorithm=algorithm, site=site,
        resume=resumed, codec=codec, uplink=uplink, downlink=downlink, wan=_joined(wan))  # fmt: skip


@app.command(cls=Passing, context_settings=SCRIPT)
def join(
    address: Address,
    script: Script,
    arguments: Arguments = None,
    secret_file: SecretFile = None,
    insecure: Insecure = False,
    topology: TopologyName = None,
    algorithm: AlgorithmName = None,
    listen: Listen = "tcp://*",
    port: Port = 0,
    advertise: Advertise = None,
    interface: Interface = None,
    dial_only: DialOnly = False,
    site: Site = None,
    codec: Codec = None,
    uplink: Uplink = None,
    downlink: Downlink = None,
    wan: Wan = None,
    run_dir: RunDir = None,
    resume: Resume = None,
    plain: Plain = False,
) -> None:
    """Add one node to a swarm that is there already."""
    from p2p.ask import ask
    from p2p.net.messages import PROTOCOL, Knock, Terms

    _check(script, topology, algorithm)
    _check_links(codec, uplink, downlink, _joined(wan))
    secret = _secret(secret_file)
    ask(
        address, secret, Knock(PROTOCOL), Terms, insecure
    )  # so that nobody waits for torch to learn of a wrong address or secret
    _go(_run_directory(run_dir), plain, script=script, arguments=tuple(arguments or ()), peers=(address,),
        secret=secret_file or "", insecure=insecure, listen=listen if secret or insecure else "tcp://127.0.0.1", port=port,
        advertise=advertise, interface=interface, dial_only=dial_only, topology=topology, algorithm=algorithm,
        site=site, resume=str(resume.resolve()) if resume else None, codec=codec, uplink=uplink, downlink=downlink,
        wan=_joined(wan))  # fmt: skip


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run directory, or one checkpoint.")],
    target: Annotated[Path, typer.Argument(metavar="MODEL", help="The file to write, as model.safetensors.")],
    node: Annotated[int | None, typer.Option(min=0, help="Of this node alone; else the mean over all.")] = None,
) -> None:
    """Write a run's model as safetensors, from its newest checkpoints."""
    from p2p.export import export as write

    done = write(run, target, node)
    console = _console()
    console.out(f"{target}: the mean of {', '.join(f'{name} (step {step})' for name, step in done.used.items())}")
    if done.left_out:
        console.out(f"too old, left out: {', '.join(f'{name} (step {step})' for name, step in done.left_out.items())}")


@app.command()
def status(
    address: Address,
    secret_file: SecretFile = None,
    insecure: Insecure = False,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Ask again each second, until Ctrl-C.")] = False,
) -> None:
    """What one member knows: who lives, how far they are, its own links, and what all have measured between the sites."""
    from p2p.ask import ask
    from p2p.net.messages import Status, StatusRequest

    secret = _secret(secret_file)
    while True:
        _show(ask(address, secret, StatusRequest(), Status, insecure), json)
        if not watch:
            return
        time.sleep(1)


@app.command()
def doctor(
    address: Annotated[
        str | None, typer.Argument(help="Of any member, as tcp://host:port; without it, this machine only.")
    ] = None,
    secret_file: SecretFile = None,
    insecure: Insecure = False,
    listen: Listen = "tcp://*",
    port: Port = 0,
    advertise: Advertise = None,
    dial_only: DialOnly = False,
    nodes: Annotated[int, typer.Option("-n", "--nodes", min=1, help="That will run on this machine.")] = 1,
    model: Annotated[float, typer.Option(min=0, help="MB of parameters and moments, where no member can tell.")] = 0,
    run_dir: RunDir = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Look at this machine and at the way to a member, and say what to do. Exit code: 0 well, 1 warnings, 2 errors."""
    from p2p.doctor import Plan, examine

    secret = _secret(secret_file)
    host = listen if secret or insecure else "tcp://127.0.0.1"
    findings = examine(Plan(address, secret, f"{host}:{port}", advertise, insecure, dial_only, run_dir or Path("runs"), nodes,
                            int(model * 1e6)))  # fmt: skip
    if json:
        print(dumps([asdict(finding) | {"severity": finding.severity.name.lower()} for finding in findings]))
    else:
        for finding in findings:
            print(f"{finding.severity.name.lower():8} {finding.check}: {finding.says}")
            if finding.fix:
                print(f"         -> {finding.fix}")
    raise typer.Exit(max(finding.severity for finding in findings))


def _go(run: RunDirectory, plain: bool, **settings: Any) -> None:
    """Launches, shows, ends with the summary and the launcher's code."""
    from p2p.launcher import Launcher, Plan
    from p2p.live import LiveView, PlainView, summary

    console = _console()
    view = LiveView(console) if console.is_terminal and not plain else PlainView(console)
    launcher = Launcher(Plan(**settings), run, view)
    began = time.monotonic()
    with view:
        code = launcher.run()
    console.print(summary(launcher.states, time.monotonic() - began))
    console.out(f"{run.path}/summary.json")
    raise typer.Exit(code)


def _console() -> Console:
    """For text that comes from elsewhere: nothing in it is markup. Files and pipes have room for whole tables."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 160
    return Console(markup=False, emoji=False, highlight=False, width=width)


def _show(status: Status, as_json: bool) -> None:
    from p2p.live import links, members, spans

    if as_json:
        print(dumps(asdict(status)))
        return
    console = _console()
    console.print(members(status))
    console.print(links(status))
    console.print(spans(status))


def _resumed(run: Path | None) -> str | None:
    """ConfigError for what holds no checkpoint."""
    if run is not None and not any(run.glob("checkpoints/node-*/step-*/manifest.json")):
        raise ConfigError(
            f"--resume {run}: there is no checkpoint in it; give a run directory in which node.checkpoint() was on"
        )
    return str(run.resolve()) if run is not None else None


def _run_directory(path: Path | None) -> RunDirectory:
    from p2p.rundir import RunDirectory

    return RunDirectory.at(path) if path else RunDirectory.new(Path("runs"))


def _check(script: str, topology: str | None, algorithm: str | None) -> None:
    """ConfigError for a script that isn't there and for names that nobody knows."""
    if not os.path.isfile(script):
        raise ConfigError(f"there is no script {script!r}: give the path of a Python file")
    sys.path[0:0] = [os.path.dirname(os.path.abspath(script)), os.getcwd()]  # as in the nodes
    try:
        if topology is not None:
            _named("topology", topology)
        if algorithm is not None:
            _named("optim", algorithm)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _check_links(codec: str | None, uplink: str | None, downlink: str | None, wan: str | None) -> None:
    """ConfigError for what is no codec or no limit."""
    from p2p.settings import limits

    limits(uplink, downlink, wan)
    if codec is not None:
        from p2p.agent.coding import Rule

        Rule.parse(codec)


def _joined(options: list[str] | None) -> str | None:
    return ",".join(options) if options else None


def _named(package: str, spec: str) -> None:
    importlib.import_module(package).make(spec)


def _secret(path: str | None) -> bytes | None:
    from p2p.net import keys

    return keys.read_secret(path) if path else None
