"""A deployment on several machines: certificates, keys, and the commands of each machine."""

import shlex
import tomllib
from pathlib import Path

from autofl.config import Settings, dump_said, flat_settings
from autofl.deploy.folder import QUIET, Deployment, address_of, stream_port
from autofl.deploy.messages import checked_host, shown
from autofl.errors import AutoFLError
from autofl.files import read_toml, write_whole

NOT_SET = "not set"
FIRST_PORT = 9094
"""Port of the first device's own processes; the next ones take the next."""


def prepare(settings: Settings, folder: Path, host: str, port: int, force: bool = False) -> str:
    """The commands of a deployment on several machines: one server, one machine for each UE.

    Settings and the server's address that are there already are replaced only with `force`.
    """
    site = Deployment(folder)
    num_ue = settings.resolved().cell.count
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        checked_host(host)
    except ValueError:
        raise AutoFLError(
            f"--host: {shown(host)!r} is not the name or address of a machine"
        ) from None
    stream = stream_port(settings.deploy.port, port)
    address = address_of(host, port)

    text = dump_said(settings)  # a run may be of another arm, with its own defaults
    _check_replaced(site, text, host, port, force)
    site.prepare([host, "localhost", "127.0.0.1"], num_ue)
    site.point_to(address)
    write_whole(folder / "config.toml", text)

    export = " ".join(f"{name}={value}" for name, value in QUIET.items())
    home = f"FLWR_HOME={shlex.quote(str(folder / 'flower'))}"
    everywhere = "::" if ":" in host else "0.0.0.0"
    lines = [
        f"# on the server, {host}, in this folder:",
        f"{export} {shlex.join(site.superlink(everywhere, port))}",
        *(f"{export} {home} {shlex.join(site.register(ue))}" for ue in range(num_ue)),
    ]
    # Devices may share a machine: each has a port of its own.
    own_ports = [
        own for own in range(FIRST_PORT, FIRST_PORT + num_ue + 2) if own not in (port, stream)
    ]
    for ue in range(num_ue):
        command = Deployment(Path(".")).supernode(ue, address, own_ports[ue], data="own.npz")
        lines += [
            f"# on the machine of UE {ue}, with {folder / 'ca.pem'}, {site.node(ue)} and ue{ue}.pem (keep nodes/),"
            " own.npz: x, y",
            f"{export} {shlex.join(command)}",
        ]
    lines += [
        f"# open to the devices: ports {port} and {stream} of {host}",
        "# on the server, when all are up:",
        f"autofl deploy run --folder {shlex.quote(str(folder))}",
    ]
    return "\n".join(lines)


def _check_replaced(site: Deployment, text: str, host: str, port: int, force: bool) -> None:
    """Refuse a folder that `deploy up` made, and what differs from what is there: devices hold the
    other half of it.
    """
    config = site.folder / "config.toml"
    if not config.is_file():
        return
    if not site.is_prepared:
        raise AutoFLError(
            f"{site.folder}: deploy up made it, with data for devices on this machine; name another --folder"
        )
    site.check_host(host)  # no --force helps here
    if force:
        return
    there = flat_settings(read_toml(config))
    wanted = flat_settings(tomllib.loads(text))
    there |= dict(zip(("--host", "--port"), site.link(), strict=True))
    wanted |= {"--host": host, "--port": port}
    changed = [
        f"{key} = {there.get(key, NOT_SET)} there, {wanted.get(key, NOT_SET)} now"
        for key in sorted(there.keys() | wanted.keys())
        if there.get(key) != wanted.get(key)
    ]
    if changed:
        raise AutoFLError(
            f"{config}: other settings ({'; '.join(changed)}); give those, or replace them with --force"
        )
