"""`holdfast client attachments`: files beside a document."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.client.print import attachment_line, attachment_members, print_members, text_lines
from holdfast.cli.client.target import Target, takes_target
from holdfast.cli.output import Output, OutputFormat, failure, file_name
from holdfast.cli.streams import is_broken_pipe, standard_input, standard_output
from holdfast.client import Client
from holdfast.client.sync.attachments import PublicAttachments

app = typer.Typer(
    name="attachments",
    add_completion=False,
    no_args_is_help=True,
    help="Files beside a document: staged under a lease, published by its release.",
    epilog="Example:  holdfast client attachments put --name photo.jpg --file photo.jpg",
)

Name = Annotated[str, typer.Option("--name", help="Its name.")]
Id = Annotated[str, typer.Option("--id", help="Its id.")]
Public = Annotated[bool, typer.Option("--public", help="What is committed; needs no lease.")]


@app.command(
    epilog="Examples:  holdfast client attachments put --name a.txt --file a.txt --content-type text/plain  |  "
    "tar c . | holdfast client attachments put --name all.tar --file -"
)
@takes_target(lease=True)
def put(
    target: Target,
    name: Name,
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE|-", help="- is standard input.")],
    content_type: Annotated[str | None, typer.Option("--content-type", metavar="TYPE")] = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=0, metavar="N", help="0: no limit.")
    ] = None,
    prevent_overwrite: Annotated[
        bool, typer.Option("--prevent-overwrite", help="Keep what has this name already.")
    ] = False,
    output: Output = OutputFormat.JSON,
) -> None:
    """Upload one."""
    with target.client() as client:
        result = target.session(client).attachments.put(
            name,
            standard_input() if file == "-" else Path(file),
            content_type=content_type,
            max_bytes=max_bytes,
            prevent_overwrite=prevent_overwrite,
        )
    attachment = attachment_members(result.attachment)
    members = {"Attachment": attachment, "Noop": result.is_noop, "Version": result.version}
    print_members(members, attachment_line(result.attachment), output)


@app.command("list", epilog="Example:  holdfast client attachments list --output text")
@takes_target(lease=True)
def list_all(target: Target, public: Public = False, output: Output = OutputFormat.JSON) -> None:
    """List them, by name."""
    with target.client() as client:
        found = _attachments(target, client, public=public).list()
        namespace = target.namespace_or_default(client.options)
    if output is OutputFormat.TEXT:
        for item in found:
            typer.echo(attachment_line(item))
        return
    members = {
        "Namespace": namespace,
        "Key": target.key,
        "Attachments": [attachment_members(item) for item in found],
    }
    print_members(members, "", output)


@app.command(
    epilog="Examples:  holdfast client attachments get --name a.txt  |  … get --name a.tar --file a.tar"
)
@takes_target(lease=True)
def get(
    target: Target,
    name: Name = "",
    id: Id = "",
    public: Public = False,
    file: Annotated[
        str,
        typer.Option("--file", "-f", "-o", metavar="FILE|-", help="Where it goes.", callback=file_name),
    ] = "-",
) -> None:
    """Download one."""
    place = standard_output() if file == "-" else Path(file)
    with target.client() as client, _attachments(target, client, public=public).get(name, id=id) as stream:
        try:
            stream.save_to(place)
        except OSError as error:
            if is_broken_pipe(error):
                raise
            raise failure(f"{file}: {error.strerror}") from None


@app.command(epilog="Example:  holdfast client attachments delete --name a.txt")
@takes_target(lease=True)
def delete(target: Target, name: Name = "", id: Id = "", output: Output = OutputFormat.JSON) -> None:
    """Stage the deletion of one."""
    with target.client() as client:
        session = target.session(client)
        is_deleted = session.attachments.delete(name, id=id)
        version = session.lease.version
    members = {"Deleted": is_deleted, "Version": version}
    print_members(members, text_lines(members), output)


@app.command("delete-all", epilog="Example:  holdfast client attachments delete-all")
@takes_target(lease=True)
def delete_all(target: Target, output: Output = OutputFormat.JSON) -> None:
    """Stage the deletion of all of them."""
    with target.client() as client:
        session = target.session(client)
        deleted = session.attachments.delete_all()
        version = session.lease.version
    members = {"Deleted": deleted, "Version": version}
    print_members(members, text_lines(members), output)


def _attachments(target: Target, client: Client, *, public: bool) -> PublicAttachments:
    if public:
        return client.attachments(target.required_key(), namespace=target.namespace or None)
    return target.session(client).attachments
