"""`farside accounts`: the users of the bus and what each may do, in nats-server's own words."""

from dataclasses import asdict

import click

from contracts.registry import SERVICES
from libs.bus.accounts import hub_accounts, leaf_accounts, node_guest, service_grants, tenant_guest
from libs.cli import names, output
from libs.cli.manual import Manual


@click.command(cls=Manual)
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="A node of the fleet; may be given many times.")
@click.option("--tenant", "tenants", multiple=True, metavar="NAME", help="A tenant; may be given many times.")
@click.option("--leaf", is_flag=True, help="The file of a leaf node with these nodes behind it, in place of the hub's.")
@click.option("--json", "as_json", is_flag=True, help="The rights of each user as one JSON object instead.")
def accounts(nodes: tuple[str, ...], tenants: tuple[str, ...], *, leaf: bool, as_json: bool) -> None:
    """Print the accounts of the hub, or of a leaf node, as the registry says.

    hub.conf includes it as accounts.conf, leaf.conf as leaf_accounts.conf. It holds no secret: nats-server takes the
    password of each user from its environment, NATS_PASSWORD_SCHEDULER for scheduler, NATS_PASSWORD_NODE_CENTRAL_1
    for node-central-1; a leaf node also the address of the hub for each of its nodes, LEAF_REMOTE_NODE_REMOTE_1. A
    password begins with a letter. After a change send SIGHUP to the server, twice for what is new, and run
    `farside provision`; docs/security.md has the steps.

    Example:
      farside accounts --node central-1 --node remote-1 --tenant acme > accounts.conf

    """
    names.check("--node", nodes)
    names.check("--tenant", tenants)
    if as_json:
        guests = [*map(node_guest, nodes), *map(tenant_guest, tenants)]
        users = {service: asdict(service_grants(service)) for service in SERVICES}
        output.as_json(users | {guest.name: asdict(guest) for guest in guests})
        return
    click.echo(leaf_accounts(nodes) if leaf else hub_accounts(nodes, tenants), nl=False)
