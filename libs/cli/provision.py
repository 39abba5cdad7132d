"""`farside provision`: streams and consumers as the registry says, on any bus."""

from pathlib import Path

import click
from nats.errors import Error as NatsError
from nats.errors import NoServersError

from libs.bus.errors import BusError
from libs.bus.provision import provision as provision_bus
from libs.cli import names, options, output, words
from libs.cli.errors import CliError, UnreachableError
from libs.cli.manual import Manual
from libs.cli.place import locate
from libs.cli.session import run


@click.command(cls=Manual)
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="A node of the fleet; may be given many times.")
@click.option("--tenant", "tenants", multiple=True, metavar="NAME", help="A tenant; may be given many times.")
@options.common
def provision(nodes: tuple[str, ...], tenants: tuple[str, ...], stack: Path | None, *, as_json: bool) -> None:
    """Create or update streams and consumers from the registry.

    Services never declare a stream by themselves; this does it once, and again after an upgrade. Each node and each
    tenant needs consumers of its own, so name them all. `farside up` does all of this for the local stack.

    Example:
      FARSIDE_NATS_URL=nats://operator:PASSWORD@hub:4222 farside provision --node central-1 --tenant acme

    """
    names.check("--node", nodes)
    names.check("--tenant", tenants)
    place = locate(stack)
    try:
        run(provision_bus(place.settings.nats_url, nodes, tenants, creds=place.settings.nats_creds))
    except (OSError, TimeoutError, NoServersError) as error:
        msg = f"no bus to provision (from {place.source}): {error or type(error).__name__}; is the stack up?"
        raise UnreachableError(msg) from None
    except (NatsError, BusError) as error:
        msg = f"provisioning over {place.source} failed: {error or type(error).__name__}"
        raise CliError(msg) from None
    if as_json:
        output.as_json({"provisioned": True, "nodes": list(nodes), "tenants": list(tenants)})
    else:
        guests = f"{words.count(len(nodes), 'node')}, {words.count(len(tenants), 'tenant')}"
        output.note(f"streams and consumers are as the registry says, for {guests}")
